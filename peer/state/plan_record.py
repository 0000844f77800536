"""Plans as they stand in the log: which units each stage holds, on which peers, and what was predicted.

Pure. The types have methods, so that they are written by hand (schema/commands.toml names them).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from peer.state.plan_alternatives import ChoiceRecord, choices_codec
from peer.wire.json_codec import listed, record, text, uint


@dataclass(frozen=True, slots=True)
class PlanStage:
    """Units [first, stop) on `primary`; `standbys` hold them too."""

    first: int
    stop: int
    primary: str
    standbys: tuple[str, ...] = ()
    weight_bytes: int = 0
    kv_bytes: int = 0
    overhead_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan numbered by a version that only rises."""

    version: int
    stages: tuple[PlanStage, ...]
    predicted_token_us: int
    predicted_rate_milli: int  # thousandths of tokens per second, all promised sessions together
    why: tuple[str, ...] = ()
    choices: tuple[ChoiceRecord, ...] = ()  # this plan among others, as it was chosen; for people only

    @property
    def route(self) -> tuple[str, ...]:
        """The primary of each stage, in pipeline order."""
        return tuple(stage.primary for stage in self.stages)

    def holders(self) -> dict[str, frozenset[tuple[int, int]]]:
        """Which runs of units each peer must hold for this plan."""
        runs: dict[str, set[tuple[int, int]]] = {}
        for stage in self.stages:
            for peer in (stage.primary, *stage.standbys):
                runs.setdefault(peer, set()).add((stage.first, stage.stop))
        return {peer: frozenset(ranges) for peer, ranges in runs.items()}


_plan_stage: Final = record(
    PlanStage,
    {
        "first": uint,
        "stop": uint,
        "primary": text,
        "standbys": listed(text),
        "weight_bytes": uint,
        "kv_bytes": uint,
        "overhead_bytes": uint,
    },
)
plan_codec: Final = record(
    PlanRecord,
    {
        "version": uint,
        "stages": listed(_plan_stage),
        "predicted_token_us": uint,
        "predicted_rate_milli": uint,
        "why": listed(text),
        "choices": choices_codec,
    },
    since={"choices": ()},
)
