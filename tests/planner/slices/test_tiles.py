"""Models of pictures in bands of rows make what they make in one piece, at every height that they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.slices.tiles import NotTiled, tiled
from tests.planner.slices.picture_nets import (
    CHANNELS,
    Net,
    answering,
    hourglass,
    picture,
    plain,
    residual,
    session,
    shapes_of,
)

TOLERANCE = 1e-5


@pytest.mark.parametrize("bands", [2, 3, 4])
@pytest.mark.parametrize("net", [plain, residual, hourglass])
def test_bands_make_what_the_whole_makes(net: Any, bands: int) -> None:
    model = net().model()
    whole = session(model)
    multiple = 4 if net is hourglass else 1  # what is added up has as many rows only then
    for sample in (96, 256):
        found = tiled(model, shapes_of(model, sample), bands)
        apart = session(found.model)
        for height in range(found.least, found.least + 40):
            if height % multiple:
                continue
            (expected,) = whole.run(None, {"x": picture(height, 20)})
            (made,) = apart.run(None, {"x": picture(height, 20)})
            assert made.shape == expected.shape
            assert np.abs(made - expected).max() <= TOLERANCE * np.abs(expected).max(), height


def test_a_picture_with_too_few_rows_is_refused_in_words() -> None:
    model = plain().model()
    found = tiled(model, shapes_of(model, 96), 2)
    with pytest.raises(Exception, match=f"a picture of at least {found.least} rows expected"):
        session(found.model).run(None, {"x": picture(found.least - 1, 20)})


def test_little_is_computed_twice_and_values_are_called_by_their_band() -> None:
    model = hourglass().model()
    found = tiled(model, shapes_of(model, 256), 3)
    assert 0 < found.twice < 0.125
    assert found.exchanges > 0
    parts = {name.split("/")[1] for node in found.model.graph.node for name in node.output if name[0] == "/"}
    assert parts == {"rows", "band0", "band1", "band2", "rest"}


@pytest.mark.parametrize(
    "net",
    [
        lambda net: net.add("Relu"),
        lambda net: net.add("Conv", net.weight(4, CHANNELS, 3, 3), auto_pad="SAME_UPPER"),
        lambda net: net.add("LayerNormalization", net.constant(np.ones(1), np.float32)),
    ],
)
def test_what_has_no_bands_is_refused(net: Any) -> None:
    made = Net()
    net(made)
    model = made.model()
    with pytest.raises(NotTiled, match="no convolution or pool"):
        tiled(model, shapes_of(model, 64), 2)


def test_what_needs_all_rows_comes_after_the_bands() -> None:
    net = answering()
    model = net.model()
    whole = session(model)
    found = tiled(model, shapes_of(model, 64), 2)
    (expected,) = whole.run(None, {"x": picture(64, 20)})
    (made,) = session(found.model).run(None, {"x": picture(64, 20)})
    assert np.abs(made - expected).max() <= TOLERANCE * np.abs(expected).max()


def test_more_bands_than_rows_are_refused() -> None:
    model = plain().model()
    for bands in (0, 1, 9):
        with pytest.raises(ValueError, match="2 to 8 bands expected"):
            tiled(model, shapes_of(model, 96), bands)
