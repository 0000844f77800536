"""Decides when the chronicle of a mesh is asked, and hands its facts to the writer of the history; plans go by it.

Edge over the clock, the node and the disk. Opening and closing the file may take seconds, so another thread does it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from peer.chronicle import Chronicle
from peer.effects import Ran
from peer.foreseeing import Foresight
from peer.mesh import Mesh
from planner.errors import HistoryError
from planner.history.facts import Fact, SessionTimes
from planner.history.writing import HistoryWriter


@asynccontextmanager
async def keep_history(
    mesh: Mesh, file: Path, tell: Callable[[str], None], foresight: Foresight | None = None
) -> AsyncIterator[None]:
    """Writes the history of this mesh to `file` while it lasts. Where it cannot, says why; the mesh goes on.

    `foresight` asks the history for the times that plans are made with.
    """
    foresight = foresight or Foresight()
    try:
        writer = await asyncio.to_thread(HistoryWriter, file)
    except HistoryError as error:
        tell(f"no history is kept: {error}")
        yield
        return
    except OSError as error:
        tell(f"no history is kept: {file}: {error.strerror}")
        yield
        return
    node = mesh.node
    units = mesh.manifest.planner_units() if mesh.manifest is not None else ()

    def agent(peer: str) -> str:
        connection = node.dialer.connection(peer)
        remote = connection.remote if connection is not None else None
        return remote.agent if remote is not None else node.agent if peer == node.me else ""

    chronicle = Chronicle(mesh.link.mesh if mesh.link is not None else "", units, agent)

    def look() -> None:
        now = time.monotonic()
        foresight.saw(node.state, agent)
        note([*chronicle.state(now, node.state), *chronicle.idle(now)])

    def ran(result: Ran) -> None:
        note(chronicle.ran(time.monotonic(), result))

    def note(facts: list[Fact]) -> None:
        writer.record(facts)
        answers = sum(isinstance(fact, SessionTimes) for fact in facts)
        if answers and foresight.answered(answers) and node.coordinating is not None:
            node.coordinating.reconsider()

    node.on_state.append(look)
    node.on_ran.append(ran)
    look()
    foresight.opened(writer.view)
    try:
        yield
    finally:
        node.on_state.remove(look)
        node.on_ran.remove(ran)
        writer.record(chronicle.close(time.monotonic()))
        await asyncio.to_thread(foresight.closed)
        await asyncio.to_thread(writer.close)
