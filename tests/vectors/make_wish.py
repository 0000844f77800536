"""Writes wish.json: what a mesh wishes of its plans where its log says nothing, and which wishes a model can keep."""

from __future__ import annotations

from typing import Any

from tracing import beside, shown, written

from peer.coordination.planner_goal import wished
from peer.errors import BadCommand
from peer.state.generated.commands import Group, ModelChosen, PlanWished
from peer.state.mesh_state import MeshState
from peer.state.plan_goal import GOALS, STRATEGIES, check_wish

PATH = beside(__file__, "wish.json")
UNITS = 8
GROUPS = (
    (),
    ((0, 8),),
    ((0, 3), (3, 8)),
    ((0, 3),),
    ((1, 8),),
    ((0, 9),),
    ((0, 3), (4, 8)),
    ((0, 3), (3, 3), (3, 8)),
    ((0, 5), (3, 8)),
)


def bare(wish: PlanWished | None) -> Any:
    """As the log has it: without a least size of what is cut where none is said."""
    if wish is None or wish.min_tensor_bytes:
        return shown(wish)
    return {name: value for name, value in shown(wish).items() if name != "min_tensor_bytes"}


def check(wish: PlanWished) -> dict[str, Any]:
    try:
        check_wish(wish, UNITS)
    except BadCommand as error:
        return {"wish": bare(wish), "units": UNITS, "why": str(error)}
    return {"wish": bare(wish), "units": UNITS, "why": ""}


def standing(wish: PlanWished | None, objective: str) -> dict[str, Any]:
    state = MeshState(model=ModelChosen("m", "toy", UNITS, 16, 1, objective), wish=wish)  # type: ignore[arg-type]
    return {"wish": bare(wish), "objective": objective, "gives": bare(wished(state))}


def text() -> str:
    groups = [tuple(Group(f"g{first}", first, stop, "") for first, stop in each) for each in GROUPS]
    checks = [check(PlanWished(strategy, "latency", each)) for strategy in STRATEGIES for each in groups]
    said = (None, *(PlanWished("layer", goal) for goal in GOALS))
    return written(
        "check: a wish for a model of so many units, and why it cannot be kept. wished: what the log says and the "
        "model's objective, and what counts.",
        {
            "check": checks,
            "wished": [standing(wish, objective) for wish in said for objective in ("latency", "throughput")],
        },
    )


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
