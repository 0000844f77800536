"""Graphs of units to place: towers, chains and random ones, with peers and links for them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from planner.cost.graph_cost import GraphPeer, GraphRequest
from planner.types import Edge, GraphWork, Link, Objective, UnitWork

GIGA = 10**9


def unit(
    name: str, flops: int = GIGA, weight: int = 100, scratch: int = 0, component: str = "main"
) -> UnitWork:
    """A second of work for a peer of the tests, unless it says otherwise."""
    return UnitWork(name, component, weight, scratch, flops)


def towers(count: int = 2, deep: int = 3, size: int = 1000) -> GraphWork:
    """`count` branches of `deep` units between an input and a join that costs nothing."""
    units = [unit(f"t{t}.{d}", component=f"t{t}") for t in range(count) for d in range(deep)]
    join = len(units)
    edges = [Edge("in", size, None, tuple(range(0, join, deep)))]
    edges += [
        Edge(each.name, size, at, (join if at % deep == deep - 1 else at + 1,))
        for at, each in enumerate(units)
    ]
    return GraphWork((*units, unit("join", 0)), (*edges, Edge("out", size, join, (), True)))


def chain(count: int, size: int = 1000) -> GraphWork:
    """Units in a row."""
    edges = [Edge("in", size, None, (0,))]
    edges += [Edge(f"v{at}", size, at, (at + 1,)) for at in range(count - 1)]
    edges.append(Edge("out", size, count - 1, (), True))
    return GraphWork(tuple(unit(f"u{at}") for at in range(count)), tuple(edges))


def peer(name: str, free: int = 10**6, flops_per_s: float = GIGA, step_s: float = 0.0) -> GraphPeer:
    return GraphPeer(name, free, flops_per_s, step_s)


def links(names: Sequence[str], rtt_s: float = 0.002, bytes_per_s: float = 1e6) -> tuple[Link, ...]:
    """Between all of them, both ways."""
    return tuple(Link(a, b, rtt_s, bytes_per_s) for a in names for b in names if a != b)


def random_work(draw: random.Random, units: int) -> GraphWork:
    """A graph in which values go to units close by, mostly; some are outputs as well."""
    branching = draw.choice([0.1, 0.5, 0.9])
    users: list[set[int]] = [set() for _ in range(units)]
    for at in range(1, units):
        for _ in range(1 + (draw.random() < branching) + (draw.random() < branching / 3)):
            users[max(0, at - 1 - int(draw.expovariate(0.5)))].add(at)
    edges = [
        Edge("in", draw.randint(1, 50_000), None, (0, *(at for at in range(1, units) if draw.random() < 0.1)))
    ]
    for at, taken in enumerate(users):
        returned = not taken or draw.random() < 0.1
        edges.append(Edge(f"v{at}", draw.randint(1, 50_000), at, tuple(sorted(taken)), returned))
    made = tuple(
        unit(
            f"u{at}",
            draw.randint(1, 100) * 10**6,
            draw.randint(1, 100),
            draw.randint(0, 20),
            f"c{at * 3 // units}",
        )
        for at in range(units)
    )
    return GraphWork(made, tuple(edges))


def random_request(
    seed: int, units: int, peers: int, objective: Objective = "latency", tight: float | None = None
) -> GraphRequest:
    """Peers of different speed and links; `tight`: their memory together, by what is needed at least."""
    draw = random.Random(seed)
    work = random_work(draw, units)
    need = sum(each.weight_bytes + each.scratch_bytes for each in work.units)
    lent = [
        peer(
            f"p{at}",
            3 * need if tight is None else int(need * tight * draw.uniform(0.6, 1.4) / peers),
            draw.choice([1, 1.5, 2, 3]) * 5 * GIGA,
            draw.choice([0, 0.0005, 0.001]),
        )
        for at in range(peers)
    ]
    names = [each.peer for each in lent] + ["asker"]
    ways = tuple(
        Link(a, b, draw.uniform(0.0005, 0.02), draw.choice([2e6, 5e6, 3e7, 1e8]), draw.choice([0.0, 0.001]))
        for a in names
        for b in names
        if a != b
    )
    return GraphRequest(work, tuple(lent), ways, draw.choice(["asker", None, "p0"]), objective)
