"""Writes session_rules.json: routes over a plan, what a seat can show of its rows, and which seats and turns that are
over are remembered.
"""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
from tracing import beside, shown, shown_frame, written

from peer.session.activation_log import ActivationLog
from peer.session.evidence import span_of
from peer.session.given_rows import GivenRows, alike_up_to, cut_at, rows_at, shift_at, shifted, shifted_ids
from peer.session.pinned_ends import tells_ids
from peer.session.routes import choose, holders, placed, standby_expected, unserved
from peer.session.sampling import GREEDY, Sampling
from peer.session.seat import FOR_GOOD, LATE_BYTES, MAX_LATE, Late, Over, Seat
from peer.session.steering import Steering, mask_words, to_wire
from peer.state.generated.commands import (
    HeldSlice,
    MemberJoined,
    MemberLeaving,
    MemberPaused,
    ModelChosen,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanStage,
    UnitsHeld,
)
from peer.state.member_commands import Command, encode_command
from peer.state.mesh_state import MeshState, apply
from peer.wire.generated.frames import Open, Role
from peer.wire.tensors import tensor_of

PATH = beside(__file__, "session_rules.json")
SEED = 20261129
STAGES = (PlanStage(0, 3, "a", ("b", "a", "e")), PlanStage(3, 6, "c", ("d", "b")), PlanStage(6, 9, "e"))
PLAN = PlanRecord(1, STAGES, 5, 9, ())
HELD = {"a": ((0, 3),), "b": ((0, 3), (3, 6)), "c": ((3, 6),), "d": ((3, 5),), "e": ((6, 9), (0, 3))}
JOINED: tuple[Command, ...] = (
    ModelChosen("a" * 64, "toy", 9, 128, 2, "latency"),
    *(MemberJoined(peer, peer, True) for peer in HELD),
    *(UnitsHeld(peer, runs) for peer, runs in HELD.items()),
    PlanProposed(PLAN),
    PlanActivated(1),
)
STATES: dict[str, tuple[Command, ...]] = {
    "everybody": JOINED,
    "a primary leaves": (*JOINED, MemberLeaving("a")),
    "a standby is paused": (*JOINED, MemberPaused("b", "hidden")),
    "a stage is lost": (*JOINED, UnitsHeld("e", ((0, 3),))),
}
TEAM = PlanRecord(
    1, (STAGES[0], PlanStage(3, 6, "c", ("b",), 1, 1, 1, ("d", "e"), (3, 2, 1)), STAGES[2]), 5, 9, ()
)
CUT = tuple(HeldSlice(3, 6, place, (3, 2, 1)) for place in range(3))
TEAMED: tuple[Command, ...] = (
    *JOINED[: -2 - len(HELD)],
    *(
        UnitsHeld(peer, runs, {"c": CUT[:1], "d": CUT[1:2], "e": CUT[2:]}.get(peer, ()))
        for peer, runs in HELD.items()
    ),
    PlanProposed(TEAM),
    PlanActivated(1),
)
TEAMS: dict[str, tuple[Command, ...]] = {
    "a team": TEAMED,
    "a helper leaves": (*TEAMED, MemberLeaving("d")),
    "a helper holds the slice of another place": (*TEAMED, UnitsHeld("d", (), CUT[2:])),
    "the lead holds all units instead": (*TEAMED, UnitsHeld("c", ((3, 6),))),
}
GROUPS = ((), ("a",), ("a", "b"), ("c",), ("a", "e"), ("c", "b"))


def routes() -> list[dict[str, Any]]:
    rows = []
    for plan, name, commands in (
        *((PLAN, *each) for each in STATES.items()),
        *((TEAM, *each) for each in TEAMS.items()),
    ):
        state = MeshState()
        for command in commands:
            state = apply(state, command)
        choices = [
            {
                "gone": list(gone),
                "avoid": list(avoid),
                "backwards": backwards,
                "standbys": standbys,
                "shadows": shadows,
                "loading": loading,
                "route": shown(
                    choose(
                        state,
                        plan,
                        frozenset(gone),
                        avoid=frozenset(avoid),
                        order=(lambda peers: list(peers)[::-1]) if backwards else list,
                        standbys=standbys,
                        shadows=shadows,
                        loading=bool(loading),
                    )
                ),
            }
            for gone, avoid in product(GROUPS, GROUPS)
            for backwards, standbys, shadows, loading in (
                (0, 1, 1, 0),
                (1, 1, 1, 0),
                (0, 0, 1, 0),
                (0, 1, 0, 0),
                (0, 1, 1, 1),
                (0, 0, 1, 1),
            )
        ]
        rows.append(
            {
                "name": name,
                "commands": [encode_command(command).decode() for command in commands],
                "holders": [holders(state, stage) for stage in plan.stages],
                "unserved": [
                    {
                        "gone": list(gone),
                        "stages": [stage.first for stage in unserved(state, plan, frozenset(gone))],
                    }
                    for gone in GROUPS
                ],
                "standby_expected": standby_expected(state, plan),
                "choices": choices,
            }
        )
    return rows


def places() -> list[dict[str, Any]]:
    return [
        {"known": known, "peers": list(peers), "placed": shown(placed(PLAN if known else None, peers))}
        for known in (True, False)
        for peers in ((), ("a",), ("a", "c", "e"), ("a", "c", "e", "x"))
    ]


def spans() -> list[dict[str, Any]]:
    """Logs of rows of two numbers, some with a hole before them or cut, and what is there of them."""
    rng = random.Random(SEED)
    rows = []
    for limit in (10**6, 64):
        log = ActivationLog(limit)
        ops: list[dict[str, Any]] = []
        for _ in range(24):
            at = rng.choice((log.stop, log.stop, log.stop + 2, max(0, log.stop - 1)))
            count = rng.randint(1, 4)
            values = np.asarray([[at + row, rng.randrange(9)] for row in range(count)], np.float32)
            log.append(at, tensor_of(values))
            first = rng.randrange(log.start, log.stop)
            asked = [(first, rng.randint(first + 1, log.stop)), (log.start, log.stop), (0, log.stop)]
            asked += [(log.stop - 1, log.stop + 1), (first, first + 1)]
            says = [(a, b, None if (found := span_of(log, a, b)) is None else shown(found)) for a, b in asked]
            ops.append({"at": at, "rows": shown(values), "count": count, "spans": says})
        rows.append({"limit": limit, "ops": ops})
    return rows


def opening(session: int, turn: int, origin: str, stage: int = 0, sampling: tuple[int, ...] = ()) -> Open:
    route = ("a", "c", "e")
    return Open(
        *(bytes([session]) * 16, turn, 1, route, stage, origin, 0, 4, 8, sampling, (2,), 0),
        *(int(Role.SERVE), turn, 0, 0, (4,), (), (), ()),
    )


def telling() -> list[dict[str, Any]]:
    return [
        {"frame": shown_frame(frame), "tells": tells_ids(frame)}
        for frame in (
            opening(1, 1, "a", stage, sampling)
            for stage in (0, 2)
            for sampling in ((), (0, 0, 1, 0, 0, 0, 0, 0))
        )
    ]


def seat_of(session: int, computed: int, mib: int) -> Seat:
    log = ActivationLog(1 << 30)
    for _ in range(mib):
        log.append(log.stop, tensor_of(np.zeros((1, 1 << 18), np.float32)))
    seat = Seat(opening(session, 1, "o"), (0, 3), Sampling(), log, 0.0)
    seat.received, seat.submitted, seat.computed = computed + 2, computed, computed
    return seat


def late() -> list[dict[str, Any]]:
    """Seats that end, by number, positions computed and MiB of activations; then which of them are there still."""
    traces = {
        "the newest few": [(number, 1, 0) for number in range(MAX_LATE + 3)],
        "nothing was computed": [(1, 0, 0), (2, 1, 0), (3, 0, 1)],
        "again the newest": [*((number, 1, 0) for number in range(MAX_LATE)), (0, 2, 0), (99, 1, 0)],
        "bytes of all": [(number, 1, 3) for number in range(5)],
        "bytes of one": [(1, 1, 1), (2, 1, (LATE_BYTES >> 20) + 4), (3, 1, 0)],
    }
    rows = []
    for name, seats in traces.items():
        kept = Late()
        for number, computed, mib in seats:
            kept.keep(seat_of(number, computed, mib))
        keys = {number: (bytes([number]) * 16, 0) for number, _, _ in seats}
        there = {number: seat for number, key in keys.items() if (seat := kept.get(key)) is not None}
        rows.append(
            {
                "name": name,
                "seats": seats,
                "kept": [[number, seat.log.bytes, seat.received] for number, seat in sorted(there.items())],
            }
        )
    return rows


def over() -> list[dict[str, Any]]:
    """Turns that are over, and which OPENs come too late; `turn` null: every turn of the session is over."""
    notes = [("a", 1, 3), ("b", 1, 5), ("a", 1, 2), ("a", 2, None), ("a", 3, 0)]
    kept = Over()
    rows: list[dict[str, Any]] = []
    for asker, session, turn in notes:
        kept.note(asker, bytes([session]) * 16, FOR_GOOD if turn is None else turn)
        late_ones = [
            [origin, number, at, kept.has(opening(number, at, origin))]
            for origin in ("a", "b")
            for number in (1, 2, 3)
            for at in (1, 2, 3, 5, 6, 2**53 - 1)
        ]
        rows.append({"asker": asker, "session": session, "turn": turn, "late": late_ones})
    return rows


MADE = np.arange(12, dtype=np.float32).reshape(2, 6)  # rows of an embedding


def given() -> list[dict[str, Any]]:
    """Rows in a prompt, by where they begin and their numbers: steps as they are cut, what each has, what stays."""

    def of(*spans: tuple[int, int, int]) -> list[GivenRows]:
        return [
            GivenRows(first, tensor_of(np.full((count, 2), value, np.float32)), count - 1)
            for first, count, value in spans
        ]

    rows = []
    for spans in ((), ((4, 3, 1),), ((0, 2, 1), (2, 4, 2), (9, 1, 3))):
        here, steps = of(*spans), [(0, 6), (6, 12), (12, 13)]
        cut = cut_at(steps, here)
        found = [rows_at(here, first, stop) for first, stop in cut]
        others: list[tuple[tuple[int, int, int], ...]] = [(), spans, ((4, 3, 9),), (*spans, (11, 1, 7))]
        rows.append(
            {
                "spans": spans,
                "steps": steps,
                "cut": cut,
                "shifts": [shift_at(here, first) for first, _ in cut],
                "ids": [
                    shown(shifted_ids([7, 5], shift_at(here, first)).array().reshape(-1)) for first, _ in cut
                ],
                "moved": [shown(shifted(MADE, shift_at(here, first)).reshape(-1)) for first, _ in cut],
                "found": [None if each is None else shown(each.array()) for each in found],
                "kept": [
                    [other, keep, alike_up_to(keep, here, of(*other))] for other in others for keep in (3, 13)
                ],
            }
        )
    return rows


def masks() -> list[dict[str, Any]]:
    """Which tokens may be drawn, and how that travels with OPEN."""
    found = []
    for vocab, allowed in (
        (1, [0]),
        (31, [30]),
        (32, [0, 31]),
        (100, [*range(0, 100, 7)]),
        (62, [*range(62)]),
    ):
        bits = np.zeros(-(-vocab // 8) * 8, np.uint8)
        bits[allowed] = 1
        words = mask_words(np.packbits(bits, bitorder="little").tobytes(), vocab)
        sampling, history = to_wire(GREEDY, Steering(allowed=words), (5, 6))
        row = {"vocab": vocab, "allowed": allowed, "words": words}
        found.append({**row, "sampling": sampling, "history": history})
    sampling, history = to_wire(GREEDY, Steering(), (5, 6))
    found.append({"vocab": 0, "allowed": [], "words": [], "sampling": sampling, "history": history})
    return found


def text() -> str:
    tables = {
        "routes": routes(),
        "placed": places(),
        "spans": spans(),
        "tells": telling(),
        "given": given(),
        "late": late(),
        "over": over(),
        "masks": masks(),
    }
    return written("rules of peer/session: routes, evidence, what is remembered of what is over", tables)


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
