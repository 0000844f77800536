"""The scenario `liars` of `shoal validate`: rounds of four meshes, in each of which one peer lies in another way."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from peer.launch.terminal import Interrupts, out, say
from peer.validation.runs.liar_runner import lie_round
from peer.validation.runs.loss_runner import Load
from peer.validation.scenarios.liar_figures import SCENARIO, Lied, all_held, figures
from peer.validation.world.mesh import Shape
from peer.validation.world.wrong_results import MEANING, Lie
from planner.model.store import Store


class LiarsFound:
    """What the rounds showed, by kind of lie."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.rounds: dict[Lie, list[Lied]] = {lie: [] for lie in Lie}

    def figures(self) -> dict[str, Any]:
        """Returns the figures of each kind of lie, and whether all rounds held."""
        shown: dict[str, Mapping[str, Any]] = {
            lie.value: figures(rounds, self.wanted) for lie, rounds in self.rounds.items()
        }
        return {"held": all_held(shown), **shown}


async def run_liars(
    shape: Shape,
    store: Store,
    load: Load,
    first: int,
    found: LiarsFound,
    until_s: float,
    ctrl: Interrupts,
) -> None:
    """All rounds, as long as there is time to begin one."""
    for number in range(first, first + found.wanted):
        for lie in Lie:
            if time.monotonic() >= until_s:
                return
            lied = await lie_round(shape, store, load, lie, number, ctrl.last_words)
            found.rounds[lie].append(lied)
            say(f"{SCENARIO} {number}, {lie.value}: {_line(lied)}")


def tell_liars(shown: Mapping[str, Any]) -> None:
    """A line for each kind of lie."""
    for lie in Lie:
        figured = shown[lie.value]
        held = "held  " if figured["held"] else "FAILED"
        steps = f"after {figured['steps_p50']} tokens, at most {figured['steps_worst']}"
        out.print(
            f"{SCENARIO + ', ' + lie.value:20} {held}, {figured['rounds']} rounds, convicted in "
            f"{figured['found']} {steps}   {MEANING[lie]}",
            markup=False,
        )


def _line(lied: Lied) -> str:
    if lied.trouble:
        return lied.trouble
    parts = [
        f"stage {lied.stage + 1}",
        "never convicted" if lied.steps is None else f"convicted after {lied.steps} tokens",
        f"lost {lied.lost_milli / 1000:g} credits",
        f"{lied.marked} sessions marked",
        "answers go on as before" if lied.answered else "ANSWERS DIFFER",
    ]
    if lied.accused:
        parts.append(f"{lied.accused} OTHERS ACCUSED")
    if not lied.balanced:
        parts.append("THE LEDGER IS NOT BALANCED")
    return ", ".join(parts)
