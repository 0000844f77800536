"""The small parts of sessions that survive, as tables: logs of activations, seats, lateness, routes, spans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from peer.session.activation_log import ActivationLog
from peer.session.lateness import CEILING_S, FIRST_S, FLOOR_S, Lateness
from peer.session.position_spans import common_prefix, cut_spans, extended, steps_of
from peer.session.routes import Route, choose
from peer.session.sampling import Sampling
from peer.session.seat import Over, Seat
from peer.state.generated.commands import MemberJoined, ModelChosen, PlanRecord, PlanStage, UnitsHeld
from peer.state.mesh_state import MeshState, apply
from peer.wire.generated.frames import Open, Step
from peer.wire.tensors import Tensor, tensor_of


def rows_of(position: int, count: int) -> Tensor:
    """Four bytes to a position: its number."""
    return tensor_of(np.arange(position, position + count, dtype=np.float32).reshape(count, 1))


def shown(log: ActivationLog, position: int) -> list[int] | None:
    found = log.since(position)
    if found is None:
        return None
    assert [at for at, _ in found] == [int(tensor.array()[0, 0]) for at, tensor in found]
    return [int(value) for _, tensor in found for value in tensor.array().ravel()]


def test_a_log_gives_what_it_took_and_forgets_the_oldest() -> None:
    log = ActivationLog(6 * 4)
    for position, count in ((0, 3), (3, 1), (4, 2)):
        log.append(position, rows_of(position, count))
    assert shown(log, 0) == [0, 1, 2, 3, 4, 5]
    assert shown(log, 2) == [2, 3, 4, 5]
    assert shown(log, 6) == []
    log.append(6, rows_of(6, 1))
    assert (log.start, log.stop, log.bytes) == (3, 7, 16)
    assert shown(log, 2) is None
    assert shown(log, 3) == [3, 4, 5, 6]
    log.cut(5)
    assert (shown(log, 3), log.bytes) == ([3, 4], 8)
    log.append(4, rows_of(4, 1))  # once more
    assert shown(log, 3) == [3, 4]
    log.append(9, rows_of(9, 1))  # beyond a gap: what lay before it is of no use
    assert (log.start, shown(log, 9), shown(log, 8)) == (9, [9], None)
    log.append(10, rows_of(10, 7))  # more than it may hold
    assert (log.start, log.stop, log.bytes) == (17, 17, 0)


OPENING = Open(
    *(bytes(16), 1, 1, ("a", "b", "c"), 1, "asker", 0, 4, 9, tuple(Sampling().to_wire()), (), 0, 0),
    *(1, 0, 0, (4, 2, 0, 1, 3), (1, 2, 2), ("x", "y", "z"), ()),
)


def seat(opening: Open = OPENING) -> Seat:
    return Seat(opening, (2, 4), Sampling(), ActivationLog(1000), 0.0)


def step(position: int, count: int) -> Step:
    return Step(bytes(16), 1, 1, position, count, 1, rows_of(position, count))


def test_a_seat_takes_each_position_once_and_in_order() -> None:
    here = seat()
    assert [here.take(step(*given)) for given in ((2, 2), (2, 2), (0, 1), (0, 1), (0, 3), (1, 5))] == (
        [True, False, True, False, True, True]
    )
    assert here.received == 6
    taken = []
    while (came := here.next_step()) is not None:
        taken.append((came.position, came.count))
    assert taken == [(0, 1), (1, 2), (3, 3)]
    assert (here.submitted, here.waiting, here.waiting_bytes) == (6, {}, 0)
    assert not here.take(step(3, 3))
    assert here.take(step(4, 4))  # what is new of it
    assert here.next_step() == step(6, 2)
    here.rewind(3, 1)
    assert (here.received, here.submitted, here.computed, here.epoch) == (3, 3, 0, 1)


@pytest.mark.parametrize(
    ("stage", "leans", "upstream", "downstream"),
    [(0, "bc", "asker", "b"), (1, "ac", "a", "c"), (2, "ab", "b", None)],
)
def test_whom_a_seat_needs(stage: int, leans: str, upstream: str, downstream: str | None) -> None:
    here = seat(replace(OPENING, stage=stage))
    assert [peer for peer in "abcxyz" if here.leans_on(peer) and peer != OPENING.route[stage]] == [*leans]
    assert (here.upstream, here.downstream) == (upstream, downstream)
    assert here.shadows(2) == ["y", "z"]


def test_which_positions_were_given() -> None:
    assert [seat().is_given(at) for at in range(11)] == [True] * 4 + [False] * 3 + [True] * 3 + [False]


def test_turns_that_are_over_stay_over() -> None:
    over = Over()
    over.note("asker", bytes(16), 3)
    over.note("asker", bytes(16), 2)
    assert [over.has(replace(OPENING, turn=turn)) for turn in (2, 3, 4)] == [True, True, False]
    assert not over.has(replace(OPENING, origin="other"))


@pytest.mark.parametrize(
    ("gaps", "late_s"),
    [
        ([], FIRST_S),
        ([0.1] * 3, FIRST_S),
        ([0.1] * 4, 0.18),
        ([0.1] * 31 + [9.0], 0.18),  # one that was late is no rule
        ([9.0] * 40 + [0.1] * 32, 0.18),
        ([0.001] * 9, FLOOR_S),
        ([9.0] * 9, CEILING_S),
    ],
)
def test_when_a_token_is_late(gaps: list[float], late_s: float) -> None:
    lateness = Lateness()
    for gap in gaps:
        lateness.gap(gap)
    assert lateness.late_s == pytest.approx(late_s)


PLAN = PlanRecord(7, (PlanStage(0, 2, "a", ("b", "c")), PlanStage(2, 4, "b", ("c",))), 0, 0)


def mesh() -> MeshState:
    state = apply(MeshState(term=1), ModelChosen("a" * 64, "toy", 4, 128, 2, "latency"))
    for peer, held in (("a", ((0, 2),)), ("b", ((0, 2), (2, 4))), ("c", ((2, 4),))):
        state = apply(apply(state, MemberJoined(peer, peer, True)), UnitsHeld(peer, held))
    return state


@pytest.mark.parametrize(
    ("gone", "more", "route"),
    [
        ("", {}, Route(7, ("a", "b"), ((0, "b"), (1, "c")))),
        ("", {"shadows": False}, Route(7, ("a", "b"))),
        ("a", {}, Route(7, ("b", "b"), ((0, "a"), (1, "c")))),
        ("b", {}, Route(7, ("a", "c"), ((0, "b"), (1, "b")))),
        ("b", {"standbys": False}, None),
        ("ab", {}, None),  # c does not hold the first stage yet
        ("ab", {"loading": True}, Route(7, ("c", "c"), ((0, "a"), (1, "b")))),
        ("a", {"loading": True}, Route(7, ("b", "b"), ((0, "a"), (1, "c")))),  # who holds it is asked first
        ("abc", {"loading": True}, None),
        ("ab", {"loading": True, "standbys": False}, None),
        ("", {"avoid": frozenset("a")}, Route(7, ("b", "b"), ((0, "a"), (1, "c")))),
        ("b", {"avoid": frozenset("a")}, Route(7, ("a", "c"), ((0, "b"), (1, "b")))),
        ("", {"order": lambda able: sorted(able, reverse=True)}, Route(7, ("b", "c"), ((0, "a"), (1, "b")))),
    ],
)
def test_routes(gone: str, more: dict[str, object], route: Route | None) -> None:
    assert choose(mesh(), PLAN, frozenset(gone), **more) == route  # type: ignore[arg-type]


def test_spans_and_their_steps() -> None:
    assert extended((), 4, given=True) == (4,)
    assert extended((), 4, given=False) == (0, 4)
    assert extended((4, 2), 1, given=False) == (4, 3)
    assert extended((4, 2), 1, given=True) == (4, 2, 1)
    assert extended((4,), 0, given=False) == (4,)
    assert [cut_spans((4, 2, 3), length) for length in (0, 3, 4, 5, 99)] == (
        [(), (3,), (4,), (4, 1), (4, 2, 3)]
    )
    assert steps_of(0, 40, (36, 2, 2)) == [(0, 32), (32, 36), (36, 37), (37, 38), (38, 40)]
    assert steps_of(35, 37, (36, 2, 2)) == [(35, 36), (36, 37)]
    assert steps_of(40, 40, (36, 2, 2)) == []
    assert [common_prefix(a, b) for a, b in (([], [1]), ([1, 2], [1, 2, 3]), ([1, 2], [3]))] == [0, 2, 0]
