"""Placement: equal to brute force, blind to order, exact about what is missing, quick, and polite leaving."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost import evaluator
from planner.errors import RequestError
from planner.solvers import beam_search, network, placement
from planner.types import (
    Infeasible,
    Link,
    Objective,
    PeerFacts,
    PeerProfile,
    Plan,
    PlanRequest,
    Stage,
    Unit,
    UnitKind,
)

MICRO = 1e-6
Cuts = tuple[tuple[str, int], ...]  # (peer, stop) per stage
OBJECTIVES: tuple[Objective, ...] = ("latency", "throughput")


def model(
    blocks: int, *, head: bool = True, weight: int = 100, kv: int = 1, out: int = 1000
) -> tuple[Unit, ...]:
    units = [Unit("embed", "embed", 3 * weight, 0, 0, out)]
    for block in range(blocks):
        units.append(Unit(f"attn.{block}", "attn", weight, 1, kv, out))
        units.append(Unit(f"ffn.{block}", "ffn", 2 * weight, 1, 0, out))
    return (*units, Unit("head", "head", 3 * weight, 1, 0, 4)) if head else tuple(units)


def peer(
    name: str,
    memory: int,
    micros: float = 100,
    *,
    overhead: int = 0,
    step: float = 0,
    batch: float | None = None,
) -> PeerProfile:
    kinds: tuple[UnitKind, ...] = ("embed", "attn", "ffn", "head")
    times = dict.fromkeys(kinds, micros * MICRO)
    rows = {} if batch is None else dict.fromkeys(kinds, batch * MICRO)
    return PeerProfile(name, memory, overhead, times, times, step * MICRO, rows)


def full_mesh(names: list[str], rtt: float = 200, rate: float = 1e9) -> tuple[Link, ...]:
    return tuple(Link(a, b, rtt * MICRO, rate) for a in names for b in names if a != b)


def random_request(seed: int, *, most_peers: int = 4, objective: Objective | None = None) -> PlanRequest:
    """Few values, all whole microseconds, so that ties are common and every sum is exact."""
    rng = random.Random(seed)
    kinds: tuple[UnitKind, ...] = ("embed", "attn", "ffn", "head")
    count = rng.randint(1, 6)
    units = tuple(
        Unit(
            f"unit.{at}",
            rng.choice(kinds),
            rng.choice((0, 10, 20, 35, 60)),
            1,
            rng.choice((0, 0, 1, 3)),
            1000 * rng.randint(0, 4),
        )
        for at in range(count)
    )
    names = rng.sample(["a", "b", "c", "d", "e", "f"], rng.randint(1, most_peers))
    context, sessions = rng.choice((1, 4, 9)), rng.choice((1, 2, 3, 5, 8))
    total = sum(u.weight_bytes + u.kv_bytes_per_token * context * sessions for u in units)
    tight = rng.choice((0.6, 1.0, 1.0, 2.0))
    peers = tuple(
        PeerProfile(
            name,
            int(total * tight * rng.uniform(0.3, 1)) + rng.choice((0, 20)),
            rng.choice((0, 5, 10)),
            {kind: rng.randint(1, 5) * 20 * MICRO for kind in kinds},
            dict.fromkeys(kinds, 10 * MICRO),
            rng.choice((0, 10, 40)) * MICRO,
            {kind: rng.randint(1, 4) * 5 * MICRO for kind in kinds if rng.random() < 0.7},
        )
        for name in names
    )
    origin = rng.choice((None, None, names[0], "outside"))
    ends = [*names, "outside"] if origin == "outside" else names
    missing = rng.choice((0.0, 0.1, 0.3))
    links = tuple(
        Link(
            a,
            b,
            rng.choice((0, 20, 100, 400)) * MICRO,
            rng.choice((1e7, 2e7, 1e8, 1e9)),
            rng.choice((0, 10)) * MICRO,
        )
        for a in ends
        for b in ends
        if a != b and rng.random() >= missing
    )
    goal = objective or rng.choice(OBJECTIVES)
    return PlanRequest(units, peers, links, context, sessions, goal, origin)


# -- an independent brute force: own formulas, rational microseconds


def exact_micros(seconds: float) -> Fraction:
    return Fraction(round(seconds * 1e9), 1000)


def candidates(request: PlanRequest) -> Iterator[Cuts]:
    count, names = len(request.units), sorted(p.peer for p in request.peers)
    for stages in range(1, min(count, len(names)) + 1):
        for order in itertools.permutations(names, stages):
            for cuts in itertools.combinations(range(1, count), stages - 1):
                yield tuple(zip(order, (*cuts, count), strict=True))


def linked(request: PlanRequest, cuts: Cuts) -> bool:
    known = {(link.src, link.dst) for link in request.links}
    names = [name for name, _ in cuts]
    wanted = [(a, b) for a, b in zip(names, [*names[1:], names[0]], strict=True) if a != b]
    if request.origin is not None:
        wanted += [
            pair for pair in ((request.origin, names[0]), (names[-1], request.origin)) if pair[0] != pair[1]
        ]
    return all(pair in known for pair in wanted)


def lacks(request: PlanRequest, cuts: Cuts) -> int:
    first, total = 0, 0
    by_name = {p.peer: p for p in request.peers}
    for name, stop in cuts:
        need = by_name[name].overhead_bytes
        for unit in request.units[first:stop]:
            need += unit.weight_bytes + unit.kv_bytes_per_token * request.context * request.sessions
        total += max(0, need - by_name[name].memory_bytes)
        first = stop
    return total


def round_of(request: PlanRequest, cuts: Cuts, rows: int) -> tuple[Fraction, Fraction]:
    """(whole round, slowest stage or transfer) of a batch, microseconds."""
    by_name = {p.peer: p for p in request.peers}
    by_pair = {(link.src, link.dst): link for link in request.links}
    total, slowest, first = Fraction(0), Fraction(0), 0
    for at, (name, stop) in enumerate(cuts):
        owner = by_name[name]
        busy = exact_micros(owner.step_s)
        for unit in request.units[first:stop]:
            one = exact_micros(owner.decode_s[unit.kind])
            busy += one + (rows - 1) * (
                exact_micros(owner.batch_s[unit.kind]) if unit.kind in owner.batch_s else one
            )
        total, slowest = total + busy, max(slowest, busy)
        if len(cuts) > 1:
            link = by_pair[name, cuts[(at + 1) % len(cuts)][0]]
            size = request.units[stop - 1].out_bytes_per_token
            transfer = Fraction(rows * size * 1_000_000, int(link.bytes_per_s))
            total += exact_micros(link.rtt_s) / 2 + exact_micros(link.overhead_s) + transfer
            slowest = max(slowest, transfer)
        first = stop
    return total, slowest


def key_of(request: PlanRequest, cuts: Cuts) -> tuple[object, ...]:
    if request.objective == "latency":
        return (round_of(request, cuts, 1)[0], len(cuts), cuts)
    options = []
    for cohorts in range(1, request.sessions + 1):
        rows = -(-request.sessions // cohorts)
        cohorts = -(-request.sessions // rows)
        whole, slowest = round_of(request, cuts, rows)
        options.append((max(whole, cohorts * slowest) / request.sessions, rows, whole))
    return (*min(options), len(cuts), cuts)


def brute_force(request: PlanRequest) -> tuple[tuple[object, ...], Cuts] | None:
    able = [cuts for cuts in candidates(request) if linked(request, cuts) and lacks(request, cuts) == 0]
    return min(((key_of(request, cuts), cuts) for cuts in able), default=None)  # type: ignore[type-var]


def cuts_of(plan: Plan) -> Cuts:
    return tuple((stage.peer, stage.stop) for stage in plan.stages)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("batch", range(6))
def test_plans_equal_brute_force(objective: Objective, batch: int) -> None:
    """300 instances per objective. The same stages, not only the same figure: ties are broken as stated."""
    feasible = split = 0
    for seed in range(50 * batch, 50 * batch + 50):
        request = random_request(seed, objective=objective)
        expected, got = brute_force(request), placement.plan(request)
        if expected is None:
            assert isinstance(got, Infeasible), f"seed {seed}"
            continue
        assert isinstance(got, Plan), f"seed {seed}"
        key, cuts = expected
        assert cuts_of(got) == cuts, f"seed {seed}: {key_of(request, cuts_of(got))} is not {key}"
        feasible += 1
        split += len(cuts) > 1
        if objective == "latency":
            assert got.decode_s == pytest.approx(float(round_of(request, cuts, 1)[0]) * MICRO, rel=1e-9)
        elif key[0]:
            assert got.tokens_per_s == pytest.approx(1e6 / float(key[0]), rel=1e-9)  # type: ignore[arg-type]
    assert feasible >= 15
    assert split >= 5


def test_larger_instances_equal_brute_force() -> None:
    for seed in range(1000, 1006):
        request = random_request(seed, most_peers=6)
        expected, got = brute_force(request), placement.plan(request)
        assert (None if expected is None else expected[1]) == (
            cuts_of(got) if isinstance(got, Plan) else None
        )


# -- order and ties


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_order_of_peers_and_links_never_matters(seed: int, shuffle: random.Random) -> None:
    request = random_request(seed)
    peers, links = list(request.peers), list(request.links)
    shuffle.shuffle(peers)
    shuffle.shuffle(links)
    assert placement.plan(replace(request, peers=tuple(peers), links=tuple(links))) == placement.plan(request)


def test_order_never_matters_to_the_beam_search_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "EXACT_WORK", 0)
    for seed in range(20):
        request = random_request(seed, most_peers=6)
        turned = replace(request, peers=request.peers[::-1], links=request.links[::-1])
        assert placement.plan(turned) == placement.plan(request)


def twins(names: str, memory: int, objective: Objective = "latency") -> PlanRequest:
    """Equal peers, equal links: every order costs the same."""
    return PlanRequest(
        model(2), tuple(peer(n, memory) for n in names), full_mesh(list(names)), 1, 1, objective
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(
    ("names", "memory", "expected", "reason"),
    [
        ("cba", 2000, (("a", 6),), "one stage before two, then the smallest name"),
        (
            "cba",
            700,
            (("a", 3), ("b", 6)),
            "two stages before three; a before b; the smallest stop that fits",
        ),
        ("dcba", 500, (("a", 1), ("b", 4), ("c", 6)), "three stages, the smallest stops"),
    ],
)
def test_ties_are_broken_as_stated(
    objective: Objective, names: str, memory: int, expected: Cuts, reason: str
) -> None:
    request = twins(names, memory, objective)
    plan = placement.plan(request)
    assert isinstance(plan, Plan)
    assert cuts_of(plan) == expected, reason
    same = [
        cuts
        for cuts in candidates(request)
        if lacks(request, cuts) == 0 and key_of(request, cuts)[:-2] == key_of(request, expected)[:-2]
    ]
    assert len(same) > 1, "this instance has a tie"
    assert min(same, key=lambda cuts: (len(cuts), cuts)) == expected


def test_the_stated_key_is_what_cost_says() -> None:
    for seed in range(40):
        request = random_request(seed)
        able = [cuts for cuts in candidates(request) if linked(request, cuts) and lacks(request, cuts) == 0]
        by_key = sorted(able, key=lambda cuts: key_of(request, cuts))  # type: ignore[arg-type,return-value]
        stages = {cuts: stages_of(request, cuts) for cuts in able}
        assert by_key == sorted(able, key=lambda cuts: evaluator.preference(request, stages[cuts]))


def stages_of(request: PlanRequest, cuts: Cuts) -> tuple[Stage, ...]:
    firsts = (0, *(stop for _, stop in cuts))
    return tuple(Stage(first, stop, name) for (name, stop), first in zip(cuts, firsts, strict=False))


# -- what is missing


def test_missing_bytes_are_the_least() -> None:
    """Least over all ways to add bytes to peers of the request: brute force finds no smaller total.

    Adding them where the shortfall says makes a plan exist; one byte less there, on any peer named, does not.
    """
    seen = 0
    for seed in range(400):
        request = random_request(seed)
        got = placement.plan(request)
        if not isinstance(got, Infeasible):
            assert placement.shortfall(request) == placement.Shortfall((), True)
            continue
        least = min((lacks(request, c) for c in candidates(request) if linked(request, c)), default=0)
        assert got.missing_bytes == least, f"seed {seed}"
        short = placement.shortfall(request)
        if short is None:
            assert least == 0
            continue
        assert short.bytes == least > 0
        assert isinstance(placement.plan(grown(request, dict(short.extra))), Plan), f"seed {seed}"
        for name, size in short.extra:
            less = dict(short.extra) | {name: size - 1}
            assert isinstance(placement.plan(grown(request, less)), Infeasible), f"seed {seed}"
        seen += 1
    assert seen >= 60


def grown(request: PlanRequest, extra: dict[str, int]) -> PlanRequest:
    more = (replace(p, memory_bytes=p.memory_bytes + extra.get(p.peer, 0)) for p in request.peers)
    return replace(request, peers=tuple(more))


@pytest.mark.parametrize(
    ("peers", "links", "origin", "missing", "says"),
    [
        ((), (), None, 0, "no peer has joined; the model needs 1.2 KiB"),
        ((peer("a", 1000),), (), None, 206, "needs 206 bytes more on a, for 1 session of 3 tokens"),
        (
            (peer("a", 700), peer("b", 700)),
            (),
            None,
            506,
            "but links are missing (a to b, b to a); without them a plan needs 506 bytes more on a",
        ),
        (
            (peer("a", 700), peer("b", 700)),
            full_mesh(["a", "b"])[:1],
            None,
            506,
            "but links are missing (b to a)",
        ),
        ((peer("a", 5000),), (), "z", 0, "z has no link to a first stage and back from a tail"),
        (
            (peer("a", 100, overhead=90), peer("b", 700)),
            full_mesh(["a", "b"]),
            None,
            496 + 100 - 10 - 90,
            "more",
        ),
    ],
)
def test_infeasible_says_what_is_missing(
    peers: tuple[PeerProfile, ...], links: tuple[Link, ...], origin: str | None, missing: int, says: str
) -> None:
    request = PlanRequest(model(2), peers, links, 3, 1, "latency", origin)
    got = placement.plan(request)
    assert isinstance(got, Infeasible)
    assert says in got.reason
    assert got.missing_bytes == missing


def test_needs_210_mib_more() -> None:
    mib = 2**20
    units = model(2, weight=30 * mib, kv=0)
    total = sum(unit.weight_bytes for unit in units)
    got = placement.plan(
        PlanRequest(units, (peer("a", total - 210 * mib + 5 * mib, overhead=5 * mib),), (), 1, 1)
    )
    assert got == Infeasible(
        "needs 210 MiB more on a, for 1 session of 1 tokens; "
        "or fewer sessions, a shorter context, or another peer",
        210 * mib,
    )


# -- splitting or not, standbys


def test_one_peer_that_fits_is_not_split_for_one_stream() -> None:
    peers = (peer("a", 5000), peer("b", 5000))
    plan = placement.plan(PlanRequest(model(4), peers, full_mesh(["a", "b"], rtt=4000), 1, 1))
    assert isinstance(plan, Plan)
    assert cuts_of(plan) == (("a", 10),)
    assert plan.stages[0].standbys == ("b",)
    assert (
        plan.why[0]
        == "Not split: a alone needs 1.00 ms a token; the best split (a > b) needs 5.00 ms a token."
    )


def test_many_sessions_are_split() -> None:
    """Two equal peers without a gain from batching double the rate of one, since both always have work."""
    peers = (peer("a", 5000), peer("b", 5000))
    plan = placement.plan(PlanRequest(model(4), peers, full_mesh(["a", "b"], rtt=400), 1, 8, "throughput"))
    assert isinstance(plan, Plan)
    assert cuts_of(plan) == (("a", 5), ("b", 10))
    assert plan.tokens_per_s == pytest.approx(2000, rel=0.01)
    assert plan.why[0] == "Split over 2 peers: 2000.0 tokens/s, against 1000.0 tokens/s on a alone."


def test_a_split_forced_by_memory_says_so() -> None:
    plan = placement.plan(twins("ab", 700))
    assert isinstance(plan, Plan)
    assert plan.why[0].startswith(
        "Split over 2 peers: none has room for all units; a comes closest, 502 bytes short"
    )


def test_standbys_go_where_a_loss_costs_most() -> None:
    """x can hold either stage and goes to the heavier; y has room for the lighter only; z is not linked."""
    heavy, light = Unit("embed", "embed", 500, 0, 0, 8), Unit("head", "head", 300, 0, 0, 4)
    peers = (peer("a", 500), peer("b", 300), peer("x", 700, 900), peer("y", 300, 800), peer("z", 700, 900))
    links = full_mesh(["a", "b", "x", "y"])
    request = PlanRequest((heavy, light), peers, links, 1, 1)
    plan = placement.plan(request)
    assert isinstance(plan, Plan)
    assert [(s.peer, s.standbys) for s in plan.stages] == [("a", ("x",)), ("b", ("y",))]


def test_every_standby_can_take_over() -> None:
    standing = 0
    for seed in range(60):
        request = random_request(seed, most_peers=6)
        plan = placement.plan(request)
        if isinstance(plan, Infeasible):
            continue
        for at, stage in enumerate(plan.stages):
            for name in stage.standbys:
                taken = [replace(s, peer=name) if place == at else s for place, s in enumerate(plan.stages)]
                assert evaluator.refuse(request, taken) is None
                standing += 1
        everyone = [name for s in plan.stages for name in (s.peer, *s.standbys)]
        assert len(set(everyone)) == len(everyone)
    assert standing > 20


# -- a peer leaves


def test_a_standby_takes_over_from_a_peer_that_leaves() -> None:
    request = twins("abc", 700)
    plan = placement.plan(request)
    assert isinstance(plan, Plan)
    assert [(s.peer, s.standbys) for s in plan.stages] == [("a", ("c",)), ("b", ())]
    held = {name: ((s.first, s.stop),) for s in plan.stages for name in (s.peer, *s.standbys)}
    gone = next(s.peer for s in plan.stages if s.standbys)
    left = replace(
        request,
        peers=tuple(p for p in request.peers if p.peer != gone),
        links=tuple(link for link in request.links if gone not in (link.src, link.dst)),
    )
    del held[gone]
    after = placement.replan_held(left, held)
    assert after is not None
    assert [(s.first, s.stop) for s in after.stages] == [(s.first, s.stop) for s in plan.stages]
    assert [s.peer for s in after.stages] == [s.standbys[0] if s.standbys else s.peer for s in plan.stages]
    assert after.why[-2] == "Only units that peers hold already are used, runs as they are."


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ({"a": ((0, 3),), "b": ((3, 6),)}, (("a", 3), ("b", 6))),
        ({"a": ((0, 4),), "b": ((2, 6),)}, (("a", 2), ("b", 6))),  # in part: they overlap
        ({"a": ((0, 3), (3, 6)), "b": ((3, 6),)}, (("a", 3), ("b", 6))),  # whole runs first
        ({"a": ((0, 3), (3, 6))}, (("a", 3), ("a", 6))),  # then several on one peer
        ({"a": ((0, 4), (2, 6))}, (("a", 6),)),  # then runs that touch or overlap, joined
        ({"a": ((0, 6),), "b": ((3, 6),)}, (("a", 6),)),
        ({"a": ((0, 2),), "b": ((3, 6),)}, None),  # nobody holds unit 2
        ({"a": ((0, 3),), "gone": ((3, 6),)}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_only_held_units_are_used(
    held: dict[str, tuple[tuple[int, int], ...]], expected: Cuts | None, objective: Objective
) -> None:
    got = placement.replan_held(twins("abc", 2000, objective), held)
    assert (None if got is None else cuts_of(got)) == expected


def test_held_plans_equal_brute_force_over_held_runs() -> None:
    found = 0
    for seed in range(100):
        request, rng = random_request(seed), random.Random(seed)
        count = len(request.units)
        held = {}
        for p in request.peers:
            first = rng.choice((0, rng.randrange(count)))
            held[p.peer] = ((first, rng.choice((count, rng.randint(first + 1, count)))),)
        able = [
            c
            for c in candidates(request)
            if linked(request, c)
            and lacks(request, c) == 0
            and all(inside(held, s) for s in stages_of(request, c))
        ]
        whole = [c for c in able if all(((s.first, s.stop),) == held[s.peer] for s in stages_of(request, c))]
        expected = min(whole or able, key=lambda c: key_of(request, c), default=None)  # type: ignore[arg-type,return-value]
        got = placement.replan_held(request, held)
        assert (None if got is None else cuts_of(got)) == expected, f"seed {seed}"
        found += expected is not None
    assert found > 20


def inside(held: dict[str, tuple[tuple[int, int], ...]], stage: Stage) -> bool:
    first, stop = held[stage.peer][0]
    return first <= stage.first and stage.stop <= stop


# -- many peers


def big_request(seed: int, peers: int, blocks: int, objective: Objective, *, tight: float) -> PlanRequest:
    rng = random.Random(seed)
    units = model(blocks, weight=1000, kv=1)
    total = sum(u.weight_bytes + u.kv_bytes_per_token * 8 for u in units)
    names = [f"p{at:02d}" for at in range(peers)]
    profiles = tuple(
        peer(
            name,
            int(total * tight * rng.uniform(0.5, 1.5)) + 50,
            rng.uniform(50, 400),
            overhead=50,
            step=rng.uniform(0, 200),
            batch=rng.uniform(20, 100),
        )
        for name in names
    )
    links = tuple(
        Link(a, b, rng.uniform(500, 20000) * MICRO, rng.uniform(1e6, 3e7), 300 * MICRO)
        for a in names
        for b in names
        if a != b and rng.random() > 0.1
    )
    return PlanRequest(units, profiles, links, 1, 8, objective)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_beam_search_is_close_to_exact_and_never_loses_a_feasible_greedy(
    objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [big_request(seed, 6, 5, objective, tight=0.3) for seed in range(12)]
    best = [placement.plan(request) for request in requests]
    monkeypatch.setattr(placement, "EXACT_WORK", 0)
    monkeypatch.setattr(beam_search, "POLISH_WORK", 0)
    for request, exact_plan in zip(requests, best, strict=True):
        found = placement.plan(request)
        if beam_search.greedy(network.build(request, sorted(p.peer for p in request.peers), 1)):
            assert isinstance(found, Plan)
        if isinstance(found, Plan):
            assert isinstance(exact_plan, Plan)
            assert evaluator.refuse(request, found.stages) is None
            assert found.decode_s <= 1.25 * exact_plan.decode_s or objective == "throughput"
            assert found.tokens_per_s >= 0.8 * exact_plan.tokens_per_s or objective == "latency"


@pytest.mark.parametrize("seed", range(4))
def test_memory_tight_meshes_of_many_peers_are_planned(seed: int) -> None:
    request = big_request(seed, 24, 30, "latency", tight=1.35 / 24)
    found = placement.plan(request)
    greedy = beam_search.greedy(network.build(request, sorted(p.peer for p in request.peers), 1))
    assert isinstance(found, Plan) or not greedy
    if isinstance(found, Plan):
        assert "beam search" in found.why[-1]
        assert evaluator.refuse(request, found.stages) is None


@pytest.mark.parametrize(
    ("facts", "linked", "says"),
    [
        (PeerFacts(kv_bytes=0), True, "a has 0 bytes for KV, its places need 2; b has 0 bytes for KV"),
        (PeerFacts(weights_bytes=0), True, "a has 0 bytes for weights, its places need 1200; b has 0"),
        (PeerFacts(max_buffer_bytes=7), True, "the largest buffer of b takes 7"),
        (PeerFacts(ops=("Add",)), True, "a has no MatMul, which embed needs; b has no MatMul"),
        (PeerFacts(weights_bytes=900), False, "links are missing (a to b, b to a)"),
    ],
)
@pytest.mark.parametrize("origin", [None, "a"])
def test_what_no_pledge_helps_is_told_as_it_is(
    facts: PeerFacts, linked: bool, says: str, origin: str | None
) -> None:
    units = tuple(replace(unit, largest_tensor_bytes=8, ops=("MatMul",)) for unit in model(2))
    peers = tuple(replace(peer(name, 5000), facts=facts) for name in "ab")
    links = full_mesh(["a", "b"]) if linked else ()
    got = placement.plan(PlanRequest(units, peers, links, 1, 1, origin=origin))
    assert isinstance(got, Infeasible)
    assert says in got.reason
    assert got.reason.startswith("no larger pledge would help: ")
    assert "None" not in got.reason


def test_many_peers_without_room_get_an_upper_bound_that_holds() -> None:
    request = big_request(1, 12, 30, "latency", tight=0.04)
    got, short = placement.plan(request), placement.shortfall(request)
    assert isinstance(got, Infeasible)
    assert short is not None
    assert not short.exact
    assert got.missing_bytes == short.bytes
    assert "needs at most" in got.reason
    assert isinstance(placement.plan(grown(request, dict(short.extra))), Plan)


@pytest.mark.parametrize(
    ("peers", "blocks", "objective", "limit_s"),
    [(6, 29, "latency", 1), (6, 29, "throughput", 1), (8, 30, "latency", 3), (8, 30, "throughput", 3)],
)
def test_real_sizes_plan_quickly(peers: int, blocks: int, objective: Objective, limit_s: float) -> None:
    """Processor time, so that a busy machine does not decide. Measured 0.03 to 0.5 s."""
    request = big_request(7, peers, blocks, objective, tight=0.5)
    started = time.process_time()
    plan = placement.plan(request)
    assert time.process_time() - started < limit_s
    assert isinstance(plan, Plan)
    assert plan.why[-1] == f"The best of all choices and orders of {peers} peers."


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"units": ()}, "at least one unit"),
        ({"context": 0}, "context and sessions of at least 1, got 0 and 1"),
        ({"peers": (peer("a", 1), peer("a", 2))}, "each peer once, got a"),
        ({"links": (Link("a", "b", 0, 1), Link("a", "b", 1, 1))}, "each link once, got a -> b"),
        ({"links": (Link("a", "a", 0, 1),)}, "two different peers"),
        ({"links": (Link("a", "b", 0, 0),)}, "bytes_per_s > 0, got 0"),
        ({"links": (Link("a", "b", float("nan"), 1),)}, "link a -> b: expected seconds"),
        ({"links": (Link("a", "b", 0, 1e-300),)}, "hours at most"),
        ({"peers": (PeerProfile("a", 1, 0, {}, {}),)}, "decode_s for every kind of unit"),
        ({"peers": (replace(peer("a", 1), step_s=-1.0),)}, "peer a: expected seconds"),
        ({"peers": (peer("a", -1),)}, "memory and overhead >= 0"),
        ({"peers": (peer("a", 2**60),)}, "sizes that add up"),
        ({"units": (Unit("embed", "embed", -5, 0, 0, 0),)}, "unit embed: expected weight_bytes >= 0, got -5"),
    ],
)
def test_requests_that_break_the_rules_are_refused(change: dict[str, object], says: str) -> None:
    request = replace(twins("ab", 2000), **change)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=says):
        placement.plan(request)
