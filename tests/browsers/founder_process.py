"""A founder in a process of its own, which a test can kill: STORE MODEL WEB_APP; prints the link."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from peer.launch.tether import end_with_parent
from peer.member.joining import Founding, found
from peer.member.peer_options import MeshOptions, PeerOptions
from planner.model.store import Store
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.patience import WITHIN_S


async def main(store: Path, model: str, web_app: Path) -> None:
    promise = Founding(model, MeshOptions(512, 4, "latency", None), ServerOptions(web_app=web_app))
    options = PeerOptions("founder", 4 << 30, 1, "cpu", "aiortc", ("127.0.0.1",))
    async with found(promise, options, Store(store), identity_from_seed(os.urandom(32))) as mesh:
        await mesh.until_serving(WITHIN_S)
        assert mesh.link is not None
        print(mesh.link.url(), flush=True)
        await mesh.ended.wait()


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
