"""An asker that dies in the middle: joins the mesh named on standard input, opens sessions, and waits to be killed.

Started by `peer.validation.runs.soak` as `python -m peer.validation.runs.lone_asker_process STORE SESSIONS TRANSPORT`;
says "asking" once every session has a token.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from peer.launch.tether import end_with_parent
from peer.limits import SESSION_BYTES
from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import PeerOptions
from peer.origin.answer_stream import Conversation, Delta, Settings
from peer.session.sampling import GREEDY
from planner.model.store import Store

PROMPT = "Count slowly from one to a thousand."


async def ask_on(link: str, store: Path, sessions: int, transport: str) -> None:
    """Never ends by itself."""
    options = PeerOptions("lone asker", 0, 1, "cpu", transport, ("127.0.0.1",))
    async with join(link, options, Store(store)) as mesh:
        asking = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            left = [sessions]
            for _ in range(sessions):
                group.create_task(_ask(mesh, left, asking))
            await asking.wait()
            sys.stdout.write("asking\n")
            sys.stdout.flush()


async def _ask(mesh: MeshMember, left: list[int], asking: asyncio.Event) -> None:
    while True:
        talk = Conversation(mesh.sessions, mesh.model.prompts, os.urandom(SESSION_BYTES))
        first = True
        async for piece in talk.complete(PROMPT, Settings(GREEDY, ignore_end=True)):
            if first and isinstance(piece, Delta):
                first = False
                left[0] -= 1
                if left[0] <= 0:
                    asking.set()
        talk.close()


if __name__ == "__main__":
    meeting = sys.stdin.readline().strip()
    end_with_parent()
    asyncio.run(ask_on(meeting, Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
