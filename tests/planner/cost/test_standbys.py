"""Who stands by: as many as promised, for the costliest losses, within every pledge, whatever the order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.adapt import k_failures
from planner.cost import evaluator, independent_copies, standbys
from planner.errors import RequestError
from planner.service.request_codec import decode_request, encode_request
from planner.solvers import placement
from planner.solvers.held_paths import moved
from planner.types import Infeasible, Link, PeerFacts, PeerProfile, Plan, PlanRequest, Stage, Unit, UnitKind

KINDS: tuple[UnitKind, ...] = ("embed", "attn", "ffn", "head")
HOLDINGS = ("mapped", "packed", "wide")
VNNI = "cpu/avx512_vnni/rows-1/9f3ac1d2e4b07755"
AVX2 = "cpu/avx2/rows-1/0123456789abcdef"


def peer(name: str, memory: int, micros: int = 100, holding: int = 0, overhead: int = 0) -> PeerProfile:
    times = dict.fromkeys(KINDS, micros * 1e-6)
    return PeerProfile(name, memory, overhead, times, times, holding=HOLDINGS[holding])  # type: ignore[arg-type]


def everyone_linked(names: list[str]) -> tuple[Link, ...]:
    return tuple(Link(a, b, 1e-4, 1e9) for a in names for b in names if a != b)


def four(redundancy_milli: int, spare: bool, *memories: int) -> tuple[PlanRequest, tuple[Stage, ...]]:
    """Stages a 300, b 100, c 200 and d 400 bytes; peers a-d with these memories, then as many others."""
    sizes: tuple[tuple[UnitKind, int], ...] = (("embed", 300), ("attn", 100), ("ffn", 200), ("head", 400))
    units = tuple(Unit(kind, kind, size, 1, 0, 8) for kind, size in sizes)
    names = [chr(ord("a") + at) for at in range(len(memories))]
    peers = tuple(peer(name, memory) for name, memory in zip(names, memories, strict=True))
    request = PlanRequest(
        units, peers, everyone_linked(names), 1, 1, redundancy=redundancy_milli, spare=spare
    )
    stages = tuple(evaluator.make_stage(request, peers[at], at, at + 1) for at in range(4))
    return request, stages


def standing(stages: tuple[Stage, ...]) -> list[tuple[str, ...]]:
    return [stage.standbys for stage in stages]


FULL = (300, 100, 200, 400)  # what a-d need themselves


@pytest.mark.parametrize(
    ("milli", "spare", "more", "expected"),
    [
        (1000, False, (500, 500), [(), (), (), ()]),
        (1000, True, (500, 500), [("f",), (), (), ("e",)]),  # critical ones, more bytes first
        (1500, False, (500, 500, 500), [("f",), (), (), ("e",)]),  # half of the stages; g lies idle
        (1500, True, (500, 500, 500), [("f",), (), ("g",), ("e",)]),  # unless spare memory is used
        (1250, False, (500, 500), [(), (), (), ("e",)]),
        (1251, False, (500, 500), [("f",), (), (), ("e",)]),  # rounded up
        (2000, False, (1000,), [("e",), ("e",), ("e",), ("e",)]),  # one roomy peer stands by for all
        (2000, False, (700,), [("e",), (), (), ("e",)]),
        (2000, False, (600,), [(), (), ("e",), ("e",)]),  # no room for a's units: the next one
        (3000, False, (1000, 1000), [("f", "e"), ("f", "e"), ("e", "f"), ("e", "f")]),
    ],
)
def test_promises(milli: int, spare: bool, more: tuple[int, ...], expected: list[tuple[str, ...]]) -> None:
    request, stages = four(milli, spare, *FULL, *more)
    assert standing(standbys.with_standbys(request, stages)) == expected


@pytest.mark.parametrize(
    "facts",
    [
        PeerFacts(kv_bytes=0),
        PeerFacts(weights_bytes=0),
        PeerFacts(max_buffer_bytes=0),
        PeerFacts(ops=()),
        PeerFacts(scratch_bytes=1000),
        PeerFacts(load_peak_milli=8000),
    ],
)
@pytest.mark.parametrize(("milli", "spare"), [(2000, False), (2000, True), (1000, True)])
@pytest.mark.parametrize("limited", ["e", "ef", "abcdef"])
def test_nobody_stands_by_for_what_it_cannot_serve(
    facts: PeerFacts, milli: int, spare: bool, limited: str
) -> None:
    request, _ = four(milli, spare, *FULL, 1000, 1000)
    units = tuple(
        replace(unit, kv_bytes_per_token=1, largest_tensor_bytes=8, ops=("matmul",)) for unit in request.units
    )
    peers = tuple(
        replace(each, memory_bytes=each.memory_bytes + 4, facts=facts if each.peer in limited else each.facts)
        for each in request.peers
    )
    request = replace(request, units=units, peers=peers)
    found = placement.plan(request)
    assert isinstance(found, Infeasible) or evaluator.refuse(request, found.stages) is None


def test_a_primary_with_room_stands_by_for_another_stage_and_never_for_its_own() -> None:
    request, stages = four(2000, False, 300 + 100, 100 + 200, 200 + 400, 400 + 300)
    assert standing(standbys.with_standbys(request, stages)) == [("d",), ("a",), ("b",), ("c",)]


def test_standbys_move_to_make_room_for_a_costlier_loss() -> None:
    """e has room for either critical stage, f only for a's: so d's goes to e, whatever comes first by itself."""
    request, stages = four(1500, False, *FULL, 400, 300)
    fast = replace(
        request, peers=tuple(replace(p, step_s=0.1) if p.peer == "f" else p for p in request.peers)
    )
    for each in (request, fast):
        assert standing(standbys.with_standbys(each, stages)) == [("f",), (), (), ("e",)]


def test_it_takes_a_search_where_the_nearest_choice_blocks_the_next() -> None:
    """d's units fit on e and f, a's on e only; e is preferred for d's, and must let it go."""
    request, stages = four(1500, False, *FULL, 400, 400)
    lame = tuple(link for link in request.links if (link.src, link.dst) != ("f", "b"))
    found = standbys.with_standbys(replace(request, links=lame), stages)
    assert standing(found) == [("e",), (), (), ("f",)]


# -- random requests


def random_stages(seed: int) -> tuple[PlanRequest, tuple[Stage, ...]]:
    rng = random.Random(seed)
    count = rng.randint(1, 3)
    kinds: tuple[UnitKind, ...] = ("embed", *("attn" for _ in range(count - 1)), "head")
    units = tuple(
        Unit(
            f"u{at}",
            kind,
            rng.choice((20, 30, 50)),
            1,
            rng.choice((0, 1)),
            8,
            wide_bytes=rng.choice((None, 90)),
        )
        for at, kind in enumerate(kinds)
    )
    names = ["a", "b", "c", "d", "e"][: len(units) + rng.randint(0, 2)]
    peers = tuple(
        peer(name, rng.choice((60, 90, 120, 200)) + 40, rng.choice((50, 100)), rng.choice((0, 0, 2)), 5)
        for name in names
    )
    links = tuple(link for link in everyone_linked(names) if rng.random() > 0.1)
    request = PlanRequest(
        units,
        peers,
        links,
        3,
        2,
        redundancy=rng.choice((1000, 1250, 1500, 2000, 3000)),
        spare=rng.random() < 0.5,
        origin=rng.choice((None, names[0], names[-1])),
    )
    peers = tuple(
        replace(each, facts=PeerFacts(arithmetic=rng.choice(("", "", AVX2, VNNI)))) for each in peers
    )
    request = replace(request, peers=peers)
    return request, tuple(
        evaluator.make_stage(request, peers[at], at, at + 1) for at in range(len(units)) if at < len(names)
    )


def can_serve(request: PlanRequest, stages: tuple[Stage, ...]) -> bool:
    return evaluator.refuse(request, stages) is None


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_standbys_fit_can_take_over_and_do_not_depend_on_order(seed: int, shuffle: random.Random) -> None:
    request, stages = random_stages(seed)
    if not can_serve(request, stages):
        return
    found = standbys.with_standbys(request, stages)
    assert evaluator.refuse(request, found) is None, "it counts the memory of every place"
    for at, stage in enumerate(found):
        assert stage.peer not in stage.standbys
        assert len(set(stage.standbys)) == len(stage.standbys)
        for name in stage.standbys:
            after = [
                replace(s, standbys=(), peer=name if place == at else s.peer) for place, s in enumerate(found)
            ]
            refused = evaluator.refuse(request, after)
            assert refused is None or "link" not in refused
    idle = {p.peer for p in request.peers} - {s.peer for s in stages}
    count, wanted = sum(map(len, standing(found))), standbys.promised(len(stages), request.redundancy)
    assert count <= wanted + (len(idle) if request.spare else 0)
    peers, links = list(request.peers), list(request.links)
    shuffle.shuffle(peers)
    shuffle.shuffle(links)
    again = replace(request, peers=tuple(peers), links=tuple(links))
    assert standbys.with_standbys(again, stages) == found


def assignments(request: PlanRequest, stages: tuple[Stage, ...]) -> Iterator[tuple[Stage, ...]]:
    """Every way to give each stage at most one standby that fits and has its links."""
    names = [None, *(p.peer for p in request.peers)]
    for picks in itertools.product(names, repeat=len(stages)):
        made = tuple(
            replace(stage, standbys=() if pick is None else (pick,))
            for stage, pick in zip(stages, picks, strict=True)
        )
        if any(stage.peer in stage.standbys for stage in made) or evaluator.refuse(request, made) is not None:
            continue
        taken = (
            [
                replace(s, standbys=(), peer=s.standbys[0] if place == at else s.peer)
                for place, s in enumerate(made)
            ]
            for at in range(len(made))
            if made[at].standbys
        )
        if all("link" not in (evaluator.refuse(request, after) or "") for after in taken):
            yield made


def test_what_is_doubled_equals_brute_force() -> None:
    """The costliest loss that can be covered is; given that, the next; up to the promised number."""
    compared = 0
    for seed in range(400):
        request, stages = random_stages(seed)
        request = replace(request, spare=False, redundancy=min(request.redundancy, 2000))
        if not can_serve(request, stages):
            continue
        order = standbys.loss_order(request, stages)
        wanted = standbys.promised(len(stages), request.redundancy)
        best = max(
            tuple(bool(made[at].standbys) for at in order)
            for made in assignments(request, stages)
            if sum(map(len, standing(made))) <= wanted
        )
        found = standbys.with_standbys(request, stages)
        assert tuple(bool(found[at].standbys) for at in order) == best, f"seed {seed}"
        compared += any(best)
    assert compared > 80


# -- losses


def whole_runs(plan: Sequence[Stage]) -> dict[str, tuple[tuple[int, int], ...]]:
    """What each peer of a plan without teams holds."""
    found = evaluator.runs_by_peer(plan)
    return {name: tuple(sorted((run[0], run[1]) for run in runs)) for name, runs in found.items()}


def test_standbys_become_primaries_and_the_others_stay_standbys() -> None:
    request, stages = four(2000, True, *FULL, 500, 500, 500)
    plan = standbys.with_standbys(request, stages)
    held = whole_runs(plan)
    lost = plan[3].peer
    left = replace(request, peers=tuple(p for p in request.peers if p.peer != lost))
    after = placement.replan_held(left, {name: runs for name, runs in held.items() if name != lost})
    assert after is not None
    assert [(s.first, s.stop) for s in after.stages] == [(s.first, s.stop) for s in stages]
    assert after.stages[3].peer in plan[3].standbys
    kept = {(s.first, name) for s in after.stages for name in s.standbys}
    before = {(s.first, name) for s in plan for name in s.standbys} - {(3, after.stages[3].peer)}
    assert kept == before


def test_a_loss_moves_nobody_but_the_standby() -> None:
    """Though the standby of another stage would be faster."""
    request, stages = four(2000, True, *FULL, 500, 500, 500)
    plan = standbys.with_standbys(request, stages)
    held = whole_runs(plan)
    quick = replace(
        request,
        peers=tuple(
            replace(p, step_s=0.0 if p.peer in "efg" else 0.1) for p in request.peers if p.peer != "a"
        ),
    )
    after = placement.replan_held(quick, held, plan)
    assert after is not None
    assert [s.peer for s in after.stages] == [plan[0].standbys[0], "b", "c", "d"]
    assert placement.replan_held(quick, {**held, plan[0].standbys[0]: ()}, plan[1:]) is None


def test_one_survivor_serves_all_that_it_holds() -> None:
    request, _ = four(1000, True, *FULL, 1000)
    alone = replace(request, peers=tuple(p for p in request.peers if p.peer in "ae"))
    after = placement.replan_held(alone, {"a": ((0, 1),), "e": ((1, 2), (2, 3), (3, 4))})
    assert after is not None
    assert [(s.peer, s.first, s.stop) for s in after.stages] == [
        ("a", 0, 1),
        ("e", 1, 2),
        ("e", 2, 3),
        ("e", 3, 4),
    ]


def test_without_a_standby_the_idle_peer_brings_only_what_was_lost() -> None:
    request, stages = four(1000, False, *FULL, 1000)
    held = {stage.peer: ((stage.first, stage.stop),) for stage in stages if stage.peer != "b"}
    left = replace(request, peers=tuple(p for p in request.peers if p.peer != "b"))
    after = placement.replan_moving(left, held, stages)
    assert isinstance(after, Plan)
    assert [(s.peer, s.first, s.stop) for s in after.stages] == [
        ("a", 0, 1),
        ("e", 1, 2),
        ("c", 2, 3),
        ("d", 3, 4),
    ]


def test_without_an_idle_peer_a_survivor_with_room_takes_a_second_place() -> None:
    request, stages = four(1000, False, 300, 100, 200, 600)
    held = {stage.peer: ((stage.first, stage.stop),) for stage in stages if stage.peer != "b"}
    left = replace(request, peers=tuple(p for p in request.peers if p.peer != "b"))
    after = placement.replan_moving(left, held, stages)
    assert isinstance(after, Plan)
    assert [(s.peer, s.first, s.stop) for s in after.stages] == [
        ("a", 0, 1),
        ("d", 1, 2),
        ("c", 2, 3),
        ("d", 3, 4),
    ]


def test_the_places_named_first_choose_first() -> None:
    request, stages = four(1000, False, *FULL, 500, 500)
    slow = tuple(replace(p, step_s=0.1) if p.peer == "e" else p for p in request.peers)
    left = replace(request, peers=tuple(p for p in slow if p.peer not in "ab"))
    for order, heirs in (((0, 1), ("f", "e")), ((1, 0), ("e", "f"))):
        found = standbys.takeovers(left, stages, order)
        assert found is not None
        assert tuple(stage.peer for stage in found[:2]) == heirs


def test_the_fewest_bytes_move_of_all_plans() -> None:
    compared = 0
    for seed in range(120):
        request, stages = random_stages(seed)
        if len(stages) < 2 or not can_serve(request, stages):
            continue
        held = {stage.peer: ((stage.first, stage.stop),) for stage in stages[1:]}
        left = replace(
            request, origin=None, peers=tuple(p for p in request.peers if p.peer != stages[0].peer)
        )
        after = placement.replan_moving(left, held, stages)
        least = min(
            (
                moved(left, made, held)
                for names in itertools.permutations([p.peer for p in left.peers])
                for size in range(1, len(names) + 1)
                for cuts in itertools.combinations(range(1, len(left.units)), size - 1)
                if evaluator.refuse(left, made := stages_of(left, names, cuts)) is None
            ),
            default=None,
        )
        if isinstance(after, Infeasible):
            assert least is None
        elif least is not None:
            assert moved(left, after.stages, held) <= least, f"seed {seed}"
            compared += 1
    assert compared > 15


def stages_of(request: PlanRequest, names: tuple[str, ...], cuts: tuple[int, ...]) -> tuple[Stage, ...]:
    borders = (0, *cuts, len(request.units))
    return tuple(Stage(a, b, name) for a, b, name in zip(borders, borders[1:], names, strict=False))


# -- requests


def test_a_request_carries_its_redundancy() -> None:
    request, _ = four(1500, False, *FULL)
    assert decode_request(encode_request(request)) == request
    for wrong in (b'"redundancy":999', b'"redundancy":8001', b'"redundancy":1.5', b'"redundancy":true'):
        with pytest.raises(RequestError, match="redundancy"):
            decode_request(encode_request(request).replace(b'"redundancy":1500', wrong))
    with pytest.raises(RequestError, match="spare"):
        decode_request(encode_request(request).replace(b'"spare":false', b'"spare":0'))


# -- who counts as a holder


def apart(**machines: str) -> PlanRequest:
    """a serves embed and attn, b ffn and head; c, d and e are idle. Each fails with its machine."""
    request, _ = four(2000, False, 1000, 1000, 1000, 1000, 1000)
    peers = tuple(
        replace(each, facts=PeerFacts(domains=(machines[each.peer],) if each.peer in machines else ()))
        for each in request.peers
    )
    return replace(request, peers=peers)


def two_stages(request: PlanRequest) -> tuple[Stage, ...]:
    a, b = request.peers[:2]
    return evaluator.make_stage(request, a, 0, 2), evaluator.make_stage(request, b, 2, 4)


def relayed(request: PlanRequest, known: bool | None, *names: str) -> PlanRequest:
    links = tuple(
        replace(link, relayed=known) if {link.src, link.dst} & set(names) else link for link in request.links
    )
    return replace(request, links=links)


@pytest.mark.parametrize(
    ("machines", "expected"),
    [
        ({}, [("d",), ("c",)]),
        ({"b": "box", "c": "box"}, [("c",), ("d",)]),  # c goes with b: it stands by for a
        (dict.fromkeys("bcd", "box"), [("c",), ("e",)]),
        (dict.fromkeys("acde", "box"), [("b",), ("c",)]),  # for a only b is elsewhere
        (dict.fromkeys("abcde", "box"), [("d",), ("c",)]),  # nobody is: better than none
    ],
)
def test_a_copy_is_where_nothing_takes_both(
    machines: dict[str, str], expected: list[tuple[str, ...]]
) -> None:
    request = apart(**machines)
    assert standing(standbys.with_standbys(request, two_stages(request))) == expected


def test_second_copies_fail_with_neither_of_the_others() -> None:
    request = replace(apart(c="box", d="box"), redundancy=3000)
    for stage in standbys.with_standbys(request, two_stages(request)):
        assert len(stage.standbys) == 2
        assert not {"c", "d"} <= set(stage.standbys)


@pytest.mark.parametrize("known", [True, None])
def test_a_peer_behind_a_relay_is_no_holder(known: bool | None) -> None:
    request = relayed(apart(), known, "c", "d")
    assert standing(standbys.with_standbys(request, two_stages(request))) == [("e",), ("e",)]
    only = replace(relayed(request, known, "e"), spare=False)
    assert standing(standbys.with_standbys(only, two_stages(only))) == [("b",), ("a",)]


@pytest.mark.parametrize("known", [True, None])
def test_what_only_a_relayed_peer_holds_gets_a_copy_though_none_is_promised(known: bool | None) -> None:
    request = replace(relayed(apart(), known, "b", "c"), redundancy=1000)
    assert standing(standbys.with_standbys(request, two_stages(request))) == [(), ("d",)]
    steady = replace(apart(), redundancy=1000)
    assert standing(standbys.with_standbys(steady, two_stages(steady))) == [(), ()]


def test_idle_peers_stand_by_first_where_they_count() -> None:
    request = replace(apart(b="box", c="box"), redundancy=1000, spare=True)
    assert standing(standbys.with_standbys(request, two_stages(request))) == [("c",), ("d", "e")]


def test_what_a_relayed_peer_holds_survives_nothing() -> None:
    request = apart()
    held = dict.fromkeys("ab", ((0, 4),))
    assert k_failures.survives(request, held)
    assert not k_failures.survives(relayed(request, None, "b"), held)
    assert k_failures.survives(relayed(request, None, "b"), held | {"c": ((0, 4),)})
    assert not k_failures.survives(apart(a="box", b="box"), held)


# -- whose arithmetic


def computing(request: PlanRequest, **classes: str) -> PlanRequest:
    """`classes`: of those that are known, by peer."""
    peers = tuple(
        replace(each, facts=replace(each.facts, arithmetic=classes.get(each.peer, "")))
        for each in request.peers
    )
    return replace(request, peers=peers)


@pytest.mark.parametrize(
    ("machines", "classes", "expected"),
    [
        ({}, {}, [("d",), ("c",)]),
        ({}, dict.fromkeys("abcde", AVX2), [("d",), ("c",)]),  # all the same: as if nothing was known
        ({}, dict.fromkeys("cde", AVX2), [("d",), ("c",)]),  # of the primaries nothing is known: the same
        ({}, {"a": VNNI, "b": AVX2, "c": VNNI, "d": AVX2}, [("c",), ("d",)]),
        ({}, {"b": VNNI, "c": AVX2}, [("c",), ("d",)]),  # one of whom nothing is known before another class
        ({}, {"b": VNNI, "a": VNNI, "c": AVX2, "d": AVX2, "e": AVX2}, [("b",), ("a",)]),  # a primary, too
        (  # e fails with b, so that others stand by for b, of another class
            {"b": "box", "e": "box"},
            {"a": AVX2, "b": VNNI, "e": VNNI, "c": AVX2, "d": AVX2},
            [("d",), ("c",)],
        ),
    ],
)
def test_the_primarys_class_comes_first_among_equally_safe_copies(
    machines: dict[str, str], classes: dict[str, str], expected: list[tuple[str, ...]]
) -> None:
    request = computing(apart(**machines), **classes)
    assert standing(standbys.with_standbys(request, two_stages(request))) == expected
    for order in itertools.permutations(request.peers):
        again = replace(request, peers=order)
        assert standing(standbys.with_standbys(again, two_stages(request))) == expected


def test_who_holds_a_stage_already_gives_way_to_one_of_its_class() -> None:
    request = computing(apart(), a=VNNI, b=VNNI, c=AVX2, d=VNNI, e=VNNI)
    held = {"c": ((0, 2), (2, 4))}
    assert standing(standbys.with_standbys(request, two_stages(request), prefer=held)) == [("e",), ("d",)]
    unknown = computing(request)
    assert standing(standbys.with_standbys(unknown, two_stages(request), prefer=held)) == [("c",), ("c",)]


def test_of_those_who_hold_a_stage_its_class_is_named_first() -> None:
    request = computing(apart(), a=VNNI, b=VNNI, c=AVX2, d=VNNI)
    held = dict.fromkeys("cde", ((0, 2),))
    found = standbys.with_standbys(request, two_stages(request), held=held)
    assert standing(found) == [("d", "e", "c"), ()]


def test_of_those_who_stand_by_its_class_takes_over() -> None:
    """b's own machine holds a copy of its class, another machine one of another class: both serve after b's loss."""
    request = computing(apart(b="box", e="box"), a=AVX2, b=VNNI, e=VNNI, c=AVX2, d=AVX2)
    stages = standbys.with_standbys(request, two_stages(request), held=dict.fromkeys("ce", ((2, 4),)))
    assert standing(stages) == [(), ("e", "c")]


def test_copies_that_survive_a_loss_are_of_the_primarys_class_where_there_is_room() -> None:
    """Only a and b are fast enough for stages; c to e could hold the copies."""
    for name, classes in (("d", {"d": VNNI}), ("e", {"e": VNNI})):
        request = computing(apart(), a=VNNI, b=VNNI, c=AVX2, **classes)
        copies = k_failures._copies(request, two_stages(request), 1)
        assert copies is not None
        assert {copy.peer for copy in copies} <= {"a", "b", name}
    tight = computing(apart(), a=VNNI, c=AVX2)
    peers = tuple(
        replace(each, memory_bytes=400 if each.peer == "a" else each.memory_bytes) for each in tight.peers
    )
    found = k_failures._copies(replace(tight, peers=peers), two_stages(tight), 1)
    assert found is not None


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        ({}, ()),
        ({"a": VNNI, "b": VNNI, "e": VNNI, "d": VNNI}, ()),
        (
            {"a": VNNI, "b": AVX2, "e": AVX2, "d": AVX2, "c": AVX2},
            (
                "Copies: b stands by for stage 1 with other arithmetic (cpu avx2 rows-1 0123, the primary "
                "cpu avx512_vnni rows-1 9f3a): after a takeover wording may differ.",
            ),
        ),
    ],
)
def test_a_plan_says_where_another_class_stands_by(classes: dict[str, str], said: tuple[str, ...]) -> None:
    request = computing(replace(apart(), spare=False), **classes)
    a, b = request.peers[:2]
    stages = (
        replace(evaluator.make_stage(request, a, 0, 2), standbys=("b",)),
        replace(evaluator.make_stage(request, b, 2, 4), standbys=("d",)),
    )
    assert independent_copies.doubts(request, stages) == said


def test_the_sentence_on_other_classes_fits_the_log() -> None:
    names = [f"{at:064x}" for at in range(20)]  # ids are hashes
    long = ("cpu/" + "i" * 60 + "/rows-1/0123456789abcdef", "cpu/" + "j" * 60 + "/rows-1/1123456789abcdef")
    peers = tuple(
        replace(peer(name, 10**6), facts=PeerFacts(arithmetic=long[at % 2])) for at, name in enumerate(names)
    )
    units = tuple(Unit(f"u{at}", "ffn", 1, 1, 0, 8) for at in range(10))
    request = PlanRequest(units, peers, everyone_linked(names), 1, 1)
    stages = tuple(Stage(at, at + 1, names[2 * at], (names[2 * at + 1],)) for at in range(10))
    (sentence,) = independent_copies.doubts(request, stages)
    assert "; 9 more of the stages have such standbys" in sentence
    assert len(sentence) <= 512, "what the log carries of it (peer.wire.json_codec)"


def test_a_request_carries_classes() -> None:
    request = computing(apart(), a=VNNI)
    assert decode_request(encode_request(request)) == request
    for wrong in (b'"CPU"', b"1", b"null", b'"' + b"a" * 97 + b'"'):
        with pytest.raises(RequestError, match="arithmetic"):
            decode_request(encode_request(request).replace(f'"{VNNI}"'.encode(), wrong))
