"""Writes a transaction log without end, in a process that is killed: says each step on standard output.

"begun" is said once the record lies in the file, "noted" once the step was handed to the writer.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from peer.storage.journal import Journal
from peer.storage.journal_core import Standing
from peer.storage.journal_records import Load, Migrate, Operation, Run, Unload


async def write(path: Path, seed: int) -> None:
    rng = random.Random(seed)
    journal = await Journal.open(path)
    for run in journal.core.kept:
        await journal.begin(Unload(run))
        journal.commit(Unload(run))
    while True:
        run = Run(rng.randint(0, 4), rng.randint(5, 9))
        held = journal.core.standing(run) is Standing.PRESENT
        operation: Operation = rng.choice((Unload(run), Migrate(run, "p1"))) if held else Load(run)
        say("begin", operation)
        await journal.begin(operation)
        say("begun", operation)
        for _ in range(rng.randint(0, 3)):
            session = rng.randbytes(16)
            journal.opened(session)
            journal.tokens(rng.randint(1, 200))
            if rng.random() < 0.8:
                journal.closed(session)
        if rng.random() < 0.2:
            journal.roll_back(operation)
            say("rolled_back", operation)
        else:
            journal.commit(operation)
            say("committed", operation)


def say(what: str, operation: Operation) -> None:
    assert isinstance(operation, Load | Unload | Migrate)
    print(what, type(operation).__name__, operation.run.first, operation.run.stop, flush=True)


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), int(sys.argv[2])))
