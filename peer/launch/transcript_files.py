"""A conversation out of a file, without holding this process up: bounds first, then a process and a budget.

Edge around peer.conversation.transcripts. Few bytes of JSON can take seconds, and this process carries heartbeats.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from peer.conversation.transcripts import MAX_FILE_BYTES, Transcript, from_json
from peer.errors import BadCommand
from planner.errors import JobError
from planner.jobs.jobs import Budget, Jobs

SHORT_BYTES: Final = 64 << 10  # read here: some milliseconds
BUDGET: Final = Budget(cpu_s=20.0, memory_bytes=2 << 30)


async def read_transcript(path: Path, budget: Budget = BUDGET) -> Transcript:
    """The conversation of a file that `as_json` wrote. Raises BadCommand, which says what is wrong with the file."""
    try:
        data = await asyncio.to_thread(_bytes, path)
    except OSError as error:
        raise BadCommand(f"{path}: expected a file that can be read: {error.strerror}") from None
    if not SHORT_BYTES < len(data) <= MAX_FILE_BYTES:
        return from_json(data)
    jobs = Jobs(_nothing, budget=budget, quick_cpu_s=budget.cpu_s)
    try:
        return await jobs.run(_read, data)
    except JobError as error:
        raise BadCommand(
            f"{path}: expected a file that can be read within {budget.cpu_s:g} s: {error}"
        ) from error
    finally:
        await jobs.close()


def _bytes(path: Path) -> bytes:
    """As many as are looked at, and one more where there are more."""
    with path.open("rb") as file:
        return file.read(MAX_FILE_BYTES + 1)


def _nothing() -> None:
    return None


def _read(_: None, data: bytes) -> Transcript:
    return from_json(data)
