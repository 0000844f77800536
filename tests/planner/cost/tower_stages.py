"""Two towers on two peers, and random placements of any graph."""

from __future__ import annotations

import random

from planner.cost.graph_cost import GraphRequest, GraphStage
from tests.planner.graph_works import links, peer, towers

# 1 KB at 1 MB/s and half a round trip of 2 ms: 2 ms from peer to peer
ALONE = (GraphStage(0, 7, "a"),)
BESIDE = (GraphStage(0, 3, "a"), GraphStage(3, 6, "b"), GraphStage(6, 7, "a"))


def two_towers(origin: str | None = None) -> GraphRequest:
    return GraphRequest(towers(), (peer("a"), peer("b")), links(["a", "b", "o"]), origin)


def random_stages(request: GraphRequest, draw: random.Random) -> tuple[GraphStage, ...]:
    units, names = len(request.work.units), [peer.peer for peer in request.peers]
    borders = sorted(draw.sample(range(1, units), draw.randint(0, units - 1)))
    return tuple(
        GraphStage(first, stop, draw.choice(names))
        for first, stop in zip([0, *borders], [*borders, units], strict=True)
    )
