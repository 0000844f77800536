"""Asks a mesh from an async program: an answer as it comes, then one held to a JSON schema.

python examples/ask.py 'http://127.0.0.1:8765/#...' 'What is the capital of France?'
"""

from __future__ import annotations

import asyncio
import sys

from peer import Mesh
from peer.errors import PeerError
from peer.launch.streams import take_any_text
from signaling.errors import SignalingError

SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 40}, "sure": {"type": "boolean"}},
    "required": ["answer", "sure"],
    "additionalProperties": False,
}


async def run(link: str, question: str) -> None:
    async with Mesh.join(link) as mesh:
        async for token in mesh.chat(question, max_tokens=100, temperature=0.8, seed=7):
            print(token.text, end="", flush=True)
        answer = await mesh.ask(question, max_tokens=60, schema=SCHEMA)
        print(f"\n{answer.text}\n[{mesh.model}: {answer.tokens} tokens in {answer.seconds:.1f} s]")


def main() -> int:
    """Exit status 1 and one line when the mesh cannot answer."""
    take_any_text()
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return 0
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        asyncio.run(run(sys.argv[1], sys.argv[2]))
    except (PeerError, SignalingError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
