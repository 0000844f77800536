"""Asks a mesh from a program without an event loop.

python examples/ask_blocking.py 'http://127.0.0.1:8765/#...' 'What is the capital of France?'
"""

from __future__ import annotations

import sys

from peer import Mesh
from peer.errors import PeerError
from peer.launch.streams import take_any_text
from signaling.errors import SignalingError


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
        with Mesh.join_blocking(sys.argv[1]) as mesh:
            for token in mesh.chat(sys.argv[2], max_tokens=100):
                print(token.text, end="", flush=True)
            answer = mesh.ask(sys.argv[2], max_tokens=1, top_logprobs=3)
            print("\nit might have begun with", [other.text for other in answer.likely[0].others])
    except (PeerError, SignalingError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
