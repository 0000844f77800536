"""Joins a mesh by its link, only to ask, and streams one answer.

python examples/generate.py 'http://127.0.0.1:8765/#...' 'What is the capital of France?'
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from peer.errors import PeerError
from peer.launch.streams import take_any_text
from peer.member.joining import join
from peer.member.peer_options import PeerOptions
from peer.model.chat_template import Message
from peer.origin.answer_stream import Delta, Finished, Settings
from peer.session.sampling import Sampling
from planner.model.store import Store
from signaling.errors import SignalingError


async def answer(link: str, question: str, store: Store) -> None:
    """Prints the mesh's answer as it comes, then how it went."""
    asker = PeerOptions(name="example", memory_bytes=0, threads=1, provider="cpu", transport="auto", bind=())
    settings = Settings(Sampling(temperature=0.8, top_p=0.95, seed=7), max_tokens=200)
    async with join(link, asker, store) as mesh:
        conversation = mesh.conversation()
        async for piece in conversation.chat([Message("user", question)], settings):
            match piece:
                case Delta(text):
                    print(text, end="", flush=True)
                case Finished() as end:
                    print(
                        f"\n[{end.tokens} tokens, {end.tokens_per_s:.1f} a second, over {len(end.route)} peers]"
                    )
        conversation.close()


def main() -> int:
    """Reads the two arguments. Exit status 1 and one line when the mesh cannot answer."""
    take_any_text()
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return 0
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    with (
        tempfile.TemporaryDirectory() as folder
    ):  # an asker fetches the manifest and the tokenizer, no weights
        try:
            asyncio.run(answer(sys.argv[1], sys.argv[2], Store(Path(folder))))
        except (PeerError, SignalingError) as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
