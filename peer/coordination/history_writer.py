"""Decides when the chronicle of a mesh is asked, and hands its facts to the writer of the history; plans go by it.

Edge over the clock, the parts of a peer and the disk. Opening and closing the file may take seconds, so another thread
does it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from peer.coordination.chronicle import Chronicle
from peer.coordination.leadership import Leadership
from peer.coordination.plan_forecast import Foresight
from peer.replication.mesh_view import MeshView
from peer.session.effects import Ran
from peer.stage.stage_host import StageHost
from planner.errors import HistoryError
from planner.history.facts import Fact, SessionTimes
from planner.history.writing import HistoryWriter


@asynccontextmanager
async def open_history(
    file: Path, tell: Callable[[str], None], foresight: Foresight
) -> AsyncIterator[HistoryWriter | None]:
    """The writer of `file`, which `foresight` asks from here on. Where there is none, says why; the mesh goes on."""
    try:
        writer = await asyncio.to_thread(HistoryWriter, file, mend=tell)
    except HistoryError as error:
        tell(f"no history is kept: {error}")
        yield None
        return
    except OSError as error:
        tell(f"no history is kept: {file}: {error.strerror}")
        yield None
        return
    foresight.opened(writer.view)
    try:
        yield writer
    finally:
        await asyncio.to_thread(foresight.closed)
        await asyncio.to_thread(writer.close)


@contextmanager
def follow_mesh(
    chronicle: Chronicle,
    view: MeshView,
    stage: StageHost,
    leadership: Leadership,
    writer: HistoryWriter,
    foresight: Foresight,
) -> Iterator[None]:
    """Writes the history of this mesh while it lasts. Plans are looked at again when `foresight` wants them to be."""

    def look() -> None:
        now = time.monotonic()
        note([*chronicle.state(now, view.state), *chronicle.idle(now)])

    def ran(result: Ran) -> None:
        note(chronicle.ran(time.monotonic(), result))

    def note(facts: list[Fact]) -> None:
        writer.record(facts)
        answers = sum(isinstance(fact, SessionTimes) for fact in facts)
        if answers and foresight.answered(answers) and leadership.current is not None:
            leadership.current.reconsider()

    ends = (view.subscribe(look), stage.on_ran(ran))
    look()
    try:
        yield
    finally:
        for end in ends:
            end()
        writer.record(chronicle.close(time.monotonic()))
