"""Decides what a mesh wishes of its plans: the strategy by which units are cut, and what a plan is to be good at.

Pure; the same in web_peer/src/state/plan_goal.ts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from peer.errors import BadCommand
from peer.wire.json_codec import Codec, listed, maybe, one_of, record, text, uint

Strategy = Literal["optimal", "layer", "attention-ffn", "pipeline", "component", "hybrid"]
Goal = Literal["latency", "throughput", "memory", "balanced"]
STRATEGIES: Final[tuple[Strategy, ...]] = get_args(Strategy)
GOALS: Final[tuple[Goal, ...]] = get_args(Goal)
MAX_COMPONENTS: Final = 64


@dataclass(frozen=True, slots=True)
class Group:
    """Units [first, stop) under one name. `prefers`: the id or the name of the peer that is to hold them; "": any."""

    name: str
    first: int
    stop: int
    prefers: str


@dataclass(frozen=True, slots=True)
class PlanWished:
    """How plans are made from now on. `components` cover all units, in order; of the strategy `component` only."""

    strategy: Strategy
    goal: Goal
    components: tuple[Group, ...] = ()


def check_wish(wish: PlanWished, units: int) -> None:
    """Raises BadCommand unless the components, if any are needed, hold all `units` units of the model in order."""
    if wish.strategy != "component":
        if wish.components:
            raise BadCommand("component: expected the strategy component with it")
        return
    at = 0
    for group in wish.components:
        if group.first != at or not group.first < group.stop <= units:
            got = f"{group.first}-{group.stop - 1}"
            raise BadCommand(
                f"component {group.name}: expected units from {at} to at most {units - 1}, got {got}"
            )
        at = group.stop
    if at != units:
        raise BadCommand(f"component: expected groups that hold all {units} units, got the first {at}")


# --- wire -------------------------------------------------------------------------------------------------

_group: Final = record(Group, {"name": text, "first": uint, "stop": uint, "prefers": text})
wish_codec: Final = record(
    PlanWished,
    {
        "strategy": one_of(*STRATEGIES),
        "goal": one_of(*GOALS),
        "components": listed(_group, MAX_COMPONENTS),
    },
)
wish: Final = maybe(wish_codec)
WISH_COMMANDS: Final[Mapping[type[Any], Codec[Any]]] = {PlanWished: wish_codec}
