"""What is given and taken of caches whose windows have dropped old positions."""

from __future__ import annotations

import pytest

from peer.session.kv_transfer_rules import copy_shapes, places_taken
from planner.model.decoder_building import build_decoder
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import Store
from tests.peer.windowed_decoder import windowed_decoder


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Units 1 and 3 have a window of 100 tokens, unit 2 has none: 163 positions stay, 512 go at a time."""
    store = Store(tmp_path_factory.mktemp("windowed"))
    return decode_manifest(store.manifest_bytes(build_decoder(windowed_decoder(100), store)))


def test_arrays_with_a_window_give_what_a_session_keeps(manifest: Manifest) -> None:
    assert {name: shape[1] for name, shape in copy_shapes(manifest, (1, 3), 674).items()} == {
        **dict.fromkeys(("key.0", "value.0", "key.1", "value.1"), 674)
    }
    shapes = copy_shapes(manifest, (0, 5), 675)
    assert {name: shape[1] for name, shape in shapes.items() if "key" in name} == {
        "key.0": 163,
        "key.1": 675,
        "key.2": 163,
    }


@pytest.mark.parametrize(
    ("haves", "count", "places"),
    [
        ((600, 600, 600), 600, [(0, 600), (0, 600), (0, 600)]),
        ((700, 700, 698), 698, [(0, 186), (0, 698), (0, 186)]),
        ((674, 700, 700), 674, [(512, 674), (0, 674), (0, 162)]),  # another block was dropped meanwhile
        ((0, 700, 700), None, []),
        ((610, 700, 700), None, []),  # the last one lacks what position 610 looks at
    ],
)
def test_copies_of_several_peers_fit_together(
    manifest: Manifest, haves: tuple[int, int, int], count: int | None, places: list[tuple[int, int]]
) -> None:
    taken = places_taken(manifest, [((1 + at, 2 + at), have) for at, have in enumerate(haves)])
    if count is None:
        assert taken is None
        return
    assert taken is not None
    assert taken[0] == count
    found = [taken[1][f"key.{at}"] for at in range(3)]
    assert [(each.start, each.stop) for each in found] == places
