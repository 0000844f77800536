"""Asks the same question with several seeds at once, and says how far the answers agree.

python examples/compare_seeds.py 'http://127.0.0.1:8765/#...' 'Name a fruit.' [seeds, such as 1,2,3] [temperature]
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from peer import Answer, Mesh
from peer.errors import PeerError
from peer.launch.streams import take_any_text
from signaling.errors import SignalingError

MAX_TOKENS = 40


async def answers(link: str, question: str, seeds: Sequence[int], temperature: float) -> list[Answer]:
    """One answer for each seed, then those of the first again: the same seed gives the same words."""
    async with Mesh.join(link) as mesh:
        await mesh.ready()

        async def ask(seed: int) -> Answer:
            return await mesh.ask(question, seed=seed, temperature=temperature, max_tokens=MAX_TOKENS)

        return await asyncio.gather(*(ask(seed) for seed in (*seeds, seeds[0])))


def alike(a: str, b: str) -> float:
    """The share of words that two answers have in common."""
    left, right = set(a.split()), set(b.split())
    return len(left & right) / max(len(left | right), 1)


def show(found: Sequence[Answer]) -> None:
    *each, again = found
    for answer in each:
        others = [alike(answer.text, other.text) for other in each if other is not answer]
        shared = sum(others) / len(others) if others else 1.0
        print(f"seed {answer.seed:>4}  {shared:4.0%} as the others  {answer.text!r}")
    same = "the same" if again.text == each[0].text else "NOT the same"
    print(f"{len({answer.text for answer in each})} different answers; seed {again.seed} again gives {same}")


def main() -> int:
    """Exit status 1 and one line when the mesh cannot answer."""
    take_any_text()
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return 0
    if not 3 <= len(sys.argv) <= 5:
        print(__doc__, file=sys.stderr)
        return 2
    link, question, *more = sys.argv[1:]
    try:
        seeds = [int(seed) for seed in (more[0] if more else "1,2,3").split(",")]
        temperature = float(more[1]) if len(more) > 1 else 0.9
        show(asyncio.run(answers(link, question, seeds, temperature)))
    except ValueError:
        print(__doc__, file=sys.stderr)
        return 2
    except (PeerError, SignalingError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
