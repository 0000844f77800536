"""Steps that a stage wants run, as its runtime takes them."""

from __future__ import annotations

from peer.runtime.stage_runtime import Step
from peer.session.effects import RunStep


def runtime_step(step: RunStep, asker: str) -> Step:
    """What a stage wants run, for its runtime."""
    return Step(
        session=step.session,
        turn=step.epoch,
        position=step.position,
        tokens=step.tokens,
        hidden=step.hidden,
        last=step.last,
        finish=step.finish,
        prompt=step.prompt,
        most_rows=step.most_rows,
        behind=step.behind,
        asker=asker,
        shift=step.shift,
    )
