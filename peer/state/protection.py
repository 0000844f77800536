"""Decides what protects answers: how many copies, how standbys follow, how a loss is repaired, what is logged.

Pure; web_peer/src/state/protection.ts has the same. A level is a named preset; each setting can be given alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal, get_args

from peer.errors import BadCommand
from peer.state.generated.commands import Protection, RepairStrategy, Shadow

Level = Literal["basic", "standard", "high", "critical"]
SHADOWS: Final[tuple[Shadow, ...]] = get_args(Shadow)
STRATEGIES: Final[tuple[RepairStrategy, ...]] = get_args(RepairStrategy)
LEVELS: Final[tuple[Level, ...]] = get_args(Level)
MIN_REDUNDANCY: Final = 1000
MAX_REDUNDANCY: Final = 8000
MAX_PRIORITY: Final = 64  # units named
MIB: Final = 2**20


STANDARD: Final = Protection()
PRESETS: Final[Mapping[Level, Protection]] = {
    "basic": Protection(1000, False, "off", "simple", False, (), False, 8 * MIB, 64 * MIB),
    "standard": STANDARD,
    "high": Protection(2000, True, "shadow", "parallel"),
    "critical": Protection(3000, True, "shadow", "coordinated", True, (), True, 64 * MIB, 512 * MIB),
}


def chosen(
    level: Level = "standard",
    redundancy_milli: int | None = None,
    shadow: Shadow | None = None,
    strategy: RepairStrategy | None = None,
    priority: tuple[str, ...] = (),
) -> Protection:
    """A level with the settings given alone in place of its own. A redundancy given alone is kept to exactly."""
    found = replace(PRESETS[level], priority=priority)
    if redundancy_milli is not None:
        found = replace(found, redundancy_milli=redundancy_milli, spare=False)
    if shadow is not None:
        found = replace(found, shadow=shadow)
    return found if strategy is None else replace(found, strategy=strategy)


def check_protection(protection: Protection, units: tuple[str, ...] = ()) -> None:
    """Raises BadCommand on numbers that nobody can keep to, and (with `units`) on priority units that are none."""
    if not MIN_REDUNDANCY <= protection.redundancy_milli <= MAX_REDUNDANCY:
        raise BadCommand(
            f"redundancy: expected {MIN_REDUNDANCY // 1000} to {MAX_REDUNDANCY // 1000} copies, "
            f"got {protection.redundancy_milli / 1000:g}"
        )
    if len(protection.priority) > MAX_PRIORITY:
        raise BadCommand(f"priority: expected at most {MAX_PRIORITY} units")
    strangers = [name for name in protection.priority if units and name not in units]
    if strangers:
        raise BadCommand(
            f"priority: the model has no unit {strangers[0]!r:.60}; such as embed, attn.0, ffn.0, head"
        )
    if protection.log_session_bytes > protection.log_total_bytes:
        raise BadCommand("log: expected no more bytes for a session than for all of them")


def level_of(protection: Protection) -> Level | None:
    """The level whose preset this is; None for settings given alone."""
    return next((level for level, preset in PRESETS.items() if preset == protection), None)
