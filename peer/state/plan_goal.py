"""Decides what a mesh wishes of its plans: the strategy by which units are cut, and what a plan is to be good at.

Pure; the same in web_peer/src/state/plan_goal.ts.
"""

from __future__ import annotations

from typing import Final, get_args

from peer.errors import BadCommand
from peer.state.generated.commands import Goal, PlanStrategy, PlanWished

STRATEGIES: Final[tuple[PlanStrategy, ...]] = get_args(PlanStrategy)
GOALS: Final[tuple[Goal, ...]] = get_args(Goal)


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
