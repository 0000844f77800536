"""A peer of a model of known shape occupies what is planned for it: as it loads, with every session full, and later."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from peer.bench.memory import bench_memory, imported, life
from peer.bench.shapes import SHAPES, RandomModel, cut_to
from peer.cli.main import parser
from peer.errors import CannotServe
from planner.types import WeightFormat
from tests.seeds import SERIES

OWN_MIB = 600  # that an import may occupy, besides mapped files
OVER = 1.05

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@linux
@pytest.mark.slow
@pytest.mark.series
def test_a_peer_occupies_what_is_planned(tmp_path: Path) -> None:
    """Of the smallest shape in `make test`; `make soak` has one that takes it three times as long, and
    `shoal bench memory` all.
    """
    shape = "360m" if SERIES == "soak" else "135m"
    brought = imported(tmp_path, shape, SHAPES[shape], "4bit")
    assert 0 < brought["peak_mib"] < OWN_MIB
    found = life(tmp_path, brought["model"], 256, sessions=2)
    assert 1 <= found["ratio"] <= OVER, found
    assert found["mapped_mib"] <= 16, found
    for phase in ("loading_mib", "filling_mib", "after_mib"):
        assert 0 < found[phase] <= found["planned_mib"], (phase, found)


@pytest.mark.parametrize("weights", get_args(WeightFormat))
def test_random_weights_are_finite_and_no_two_tensors_are_the_same(
    tmp_path: Path, weights: WeightFormat
) -> None:
    model = RandomModel("135m", SHAPES["135m"], weights, tmp_path)
    one, other = (model.tensor(name).rows(0, 8).float32() for name in ("ffn.0.gate", "ffn.0.up"))
    assert one.shape == (8, 576)
    assert np.isfinite(one).all()
    assert 0.005 < float(one.std()) < 0.08
    assert not np.array_equal(one, other)
    assert model.tensor("attn.0.q").shape == (576, 576)


def test_a_large_model_is_cut_to_what_the_machine_holds() -> None:
    assert cut_to(SHAPES["135m"], 1.25, 2 << 30) == SHAPES["135m"]
    blocks = [cut_to(SHAPES["8b"], 4.0, size << 30).blocks for size in (1, 6, 40)]
    assert blocks[0] == 1
    assert 1 < blocks[1] < blocks[2] == 32


def test_a_shape_that_nobody_knows_is_named() -> None:
    args: argparse.Namespace = parser().parse_args(["bench", "memory", "--shapes", "135m,9t"])
    with pytest.raises(CannotServe, match="9t"):
        bench_memory(args)
