"""Decides what is done to the coordinator of a mesh and to its links, and what that shows over many runs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from peer.validation.scenarios.faults import LAST_TOKENS, pick
from peer.validation.scenarios.figures import Judged, percentile


class Leading(Enum):
    """The scenarios, by the name people give."""

    LEADER_KILLED = "leader_killed"
    LEADER_FROZEN = "leader_frozen"
    LINK_ONE_WAY = "link_one_way"
    LEADER_BRIDGE = "leader_bridge"


MEANING: Final = {
    Leading.LEADER_KILLED: "SIGKILL of the peer that coordinates, among five voters",
    Leading.LEADER_FROZEN: "SIGSTOP of the peer that coordinates, SIGCONT 10 s later",
    Leading.LINK_ONE_WAY: "three voters; from the coordinator to one of them nothing passes, the other way all",
    Leading.LEADER_BRIDGE: "three voters; one reaches both others, who do not reach each other",
}
LINKS: Final = frozenset({Leading.LINK_ONE_WAY, Leading.LEADER_BRIDGE})  # need a relay between peers
VOTERS: Final = {
    Leading.LEADER_KILLED: 5,
    Leading.LEADER_FROZEN: 5,
    Leading.LINK_ONE_WAY: 3,
    Leading.LEADER_BRIDGE: 3,
}
FROZEN_S: Final = 10.0
CUT_S: Final = 20.0  # longer than a connection may be silent, so that it ends and is dialled again


@dataclass(frozen=True, slots=True)
class Moment:
    """When a run's fault comes: with token number `after_token` of answer number `session`."""

    session: int
    after_token: int


def moment(sessions: int, tokens: int, draw: Callable[[], float]) -> Moment:
    """`draw()` is uniform in [0, 1)."""
    session = pick(draw, range(sessions))
    return Moment(session, 1 + int(draw() * max(1, tokens - LAST_TOKENS - 1)))


@dataclass(frozen=True, slots=True)
class Led:
    """One run. Times are from the fault on; None: it never came."""

    judged: tuple[Judged, ...]
    pauses_s: tuple[float, ...]  # the longest gap of each disturbed answer
    served: bool  # whether an answer needed the peer that was hit
    leader_s: float | None  # another one leads, and has committed an entry of its own term
    written_s: float | None  # a command was acknowledged that was said after the fault
    restored_s: (
        float | None
    )  # from the end of the answers until everybody votes and every stage has its standby
    trouble: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kept:
    """What writing and reading all the time came to."""

    said: int
    acknowledged: int
    lost: int  # of those, missing on the disk of some voter in the end
    unknown: int
    reads: int
    refused_reads: int
    stale_reads: int
    old_orders: int  # that some peer was given, which refused it, or that went back at the asker


def figures(
    runs: Sequence[Led], kept: Sequence[Kept], calm_s: Sequence[float], within_ms: float | None
) -> dict[str, Any]:
    """Held: every answer completed with the right tokens, nothing lost, stale or out of order, the mesh whole again.

    With `within_ms` also the 95th percentile of the time without a leader within that. `calm_s`: the longest gap of
    each undisturbed answer.
    """
    judged = [answer for run in runs for answer in run.judged]
    leader = [run.leader_s for run in runs if run.leader_s is not None]
    written = [run.written_s for run in runs if run.written_s is not None]
    restored = [run.restored_s for run in runs if run.restored_s is not None]
    p95 = percentile(leader, 0.95)
    totals = {name: sum(getattr(each, name) for each in kept) for name in Kept.__slots__}
    right = [answer.completed and answer.equal for answer in judged]
    sound = totals["lost"] == totals["stale_reads"] == totals["old_orders"] == 0 and bool(kept)
    fast = within_ms is None or (p95 is not None and p95 * 1000 <= within_ms)
    whole = all(run.restored_s is not None and not run.trouble for run in runs)

    def pauses(served: bool) -> list[float]:
        return [pause for run in runs if run.served is served for pause in run.pauses_s]

    found: dict[str, Any] = {
        "held": bool(runs) and all(right) and sound and fast and whole,
        "runs": len(runs),
        "without_leader": sum(run.leader_s is None for run in runs),
        "leader_p50_s": percentile(leader, 0.5),
        "leader_p95_s": p95,
        "leader_worst_s": max(leader, default=None),
        "written_p50_s": percentile(written, 0.5),
        "written_p95_s": percentile(written, 0.95),
        **totals,
        "answers": len(judged),
        "completed": sum(answer.completed for answer in judged),
        "equal": sum(answer.equal for answer in judged),
    }
    for name, values in (("calm", calm_s), ("bystander", pauses(False)), ("served", pauses(True))):
        found[f"{name}_pause_p50_ms"] = _ms(percentile(values, 0.5))
        found[f"{name}_pause_p95_ms"] = _ms(percentile(values, 0.95))
    found["restored_p50_s"] = percentile(restored, 0.5)
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in found.items()}


def _ms(value: float | None) -> float | None:
    return None if value is None else round(value * 1000, 1)
