"""What this process occupied at most between two moments: what no file is behind, code, scratch.

On Linux the kernel keeps the peak, so that scratch which lives for a millisecond counts; elsewhere what is resident at
the end counts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import psutil

from peer.runtime.execution import Execution, Row
from peer.runtime.kv_slots import KvSlots
from peer.runtime.piece_sizes import PIECE_TOKENS

LONGEST: Final = 4096  # positions under the clock; scratch beyond grows with them
_RESET: Final = Path("/proc/self/clear_refs")
_STATUS: Final = Path("/proc/self/status")


def forget_peak() -> None:
    """From now on `peak_bytes` counts."""
    try:
        _RESET.write_text("5")
    except OSError:
        return


def peak_bytes() -> int:
    """The most that was resident since `forget_peak`."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return resident_bytes()
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")]
    return found[0] if found else resident_bytes()


def resident_bytes() -> int:
    """Resident now."""
    resident: int = psutil.Process().memory_info().rss
    return resident


def scratch_of(run: Callable[[], object]) -> int:
    """What a call takes beyond what was there before it, once it has run before."""
    run()
    forget_peak()
    before = resident_bytes()
    run()
    return max(0, peak_bytes() - before)


def longer_bytes(execution: Execution, width: int, context: int, measured: int) -> int:
    """What attention over `context` positions takes beyond that over `measured` ones, while a piece of a prompt runs.
    `execution` has one attention unit and room for LONGEST positions.
    """
    longest = min(context, LONGEST)
    if longest <= measured:
        return 0
    slots = KvSlots(1, longest, execution.form)
    slots.admit(b"")
    execution.ensure(slots, 1, longest + execution.form.spare_tokens)
    hidden = np.random.default_rng(0).standard_normal((PIECE_TOKENS, width), np.float32)
    short, long = (
        scratch_of(lambda stop=stop: execution.prompt(hidden, Row(0, stop - PIECE_TOKENS)))  # type: ignore[misc]
        for stop in (measured, longest)
    )
    return max(0, long - short) * (context - measured) // (longest - measured)
