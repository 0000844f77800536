"""Decides how the log says among which plans a plan was chosen, with figures in whole numbers.

Pure; the same in web_peer/src/state/plan_alternatives.ts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from peer.limits import MAX_INT, MAX_TEXT
from peer.wire.json_codec import Codec, flag, listed, record, text, uint
from planner.types import PlanChoice

MAX_CHOICES: Final = 16


@dataclass(frozen=True, slots=True)
class ChoiceRecord:
    """A plan that was looked at; `token_us` 0: it cannot run, and has no figures."""

    name: str  # "PEER FIRST-STOP > PEER FIRST-STOP", or words
    token_us: int  # of one answer
    prefill_us: int  # of one token of a prompt
    rate_milli: int  # thousandths of tokens per second, all promised sessions together
    memory_bytes: int  # on the peer that it fills most
    chosen: bool
    best: bool  # none beats it in both time and rate
    knee: bool
    why_not: str  # in numbers, for people


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


choices_codec: Final[Codec[tuple[ChoiceRecord, ...]]] = listed(
    record(
        ChoiceRecord,
        {
            "name": text,
            "token_us": uint,
            "prefill_us": uint,
            "rate_milli": uint,
            "memory_bytes": uint,
            "chosen": flag,
            "best": flag,
            "knee": flag,
            "why_not": text,
        },
    ),
    MAX_CHOICES,
)
