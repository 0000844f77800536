"""Where a demo cuts its model, and what its peers lend."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from peer.launch.local_mesh import even_cuts, pledge

SIZES = st.lists(st.integers(1, 1000), min_size=1, max_size=40)


@given(SIZES, st.integers(1, 8), st.integers(0, 500))
def test_each_peer_has_a_part_and_room_for_it(sizes: list[int], peers: int, overhead: int) -> None:
    peers = min(peers, len(sizes))
    cuts = even_cuts(sizes, peers)
    stages = [sum(sizes[first:stop]) for first, stop in pairwise((0, *cuts, len(sizes)))]
    assert len(stages) == peers
    assert all(first < stop for first, stop in pairwise((0, *cuts, len(sizes))))
    assert pledge(sizes, overhead, peers, cuts) >= overhead + max(stages)
    assert pledge(sizes, overhead, peers) >= overhead + max(sizes)


def test_a_large_head_is_not_met_by_a_third_of_all_units() -> None:
    assert even_cuts([1] * 30, 3) == (10, 20)
    sizes = [30, *[1] * 34, 60]  # an embedding, blocks, and a head over a large vocabulary
    cuts = even_cuts(sizes, 3)
    assert cuts == (13, 35)
    assert pledge(sizes, 0, 3, cuts) == 60
