"""Decides how the log says among which plans a plan was chosen, with figures in whole numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from peer.limits import MAX_INT, MAX_TEXT
from peer.state.generated.commands import MAX_CHOICES, ChoiceRecord
from planner.types import PlanChoice


def choice_records(found: Iterable[PlanChoice]) -> tuple[ChoiceRecord, ...]:
    """The planner's choices as they stand in the log."""
    return tuple(
        ChoiceRecord(
            each.name[:MAX_TEXT],
            min(round(each.decode_s * 1e6), MAX_INT),
            min(round(each.prefill_s * 1e6), MAX_INT),
            min(round(each.tokens_per_s * 1000), MAX_INT),
            min(each.memory_bytes, MAX_INT),
            each.chosen,
            each.best,
            each.knee,
            each.why_not[:MAX_TEXT],
        )
        for each in list(found)[:MAX_CHOICES]
    )
