"""Plans a model over machines that exist only on paper: the planner alone, no network and no weights.

    python examples/plan.py

A model of Llama 3.2 3B's size in 8 bits is placed on a laptop, a desktop and a small board: first for one fast
answer, then for many at once, then with too little memory.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from planner.reports.plan_text import explain
from planner.solvers.placement import plan
from planner.types import Link, PeerProfile, PlanRequest, Unit, UnitKind

MIB = 1 << 20
HIDDEN, BLOCKS, VOCABULARY, KV_WIDTH, FFN = 3072, 28, 128_256, 1024, 8192


def units() -> tuple[Unit, ...]:
    """Embedding, 28 times attention and feed-forward, head: 8-bit weights with a scale for each 32."""

    def unit(name: str, kind: UnitKind, weights: int, kv_bytes: int, out_bytes: int) -> Unit:
        return Unit(name, kind, weights * 9 // 8, 2 * weights, kv_bytes, out_bytes)

    table = VOCABULARY * HIDDEN
    attention = 2 * HIDDEN * HIDDEN + 2 * HIDDEN * KV_WIDTH
    made = [unit("embed", "embed", table, 0, 4 * HIDDEN)]
    for block in range(BLOCKS):
        made.append(unit(f"attn.{block}", "attn", attention, 8 * KV_WIDTH, 4 * HIDDEN))
        made.append(unit(f"ffn.{block}", "ffn", 3 * HIDDEN * FFN, 0, 4 * HIDDEN))
    return (*made, unit("head", "head", table, 0, 4))


def machine(name: str, memory_mib: int, slowness: float) -> PeerProfile:
    """A machine that needs `slowness` times what the desktop needs."""
    decode: dict[UnitKind, float] = {"embed": 1e-5, "attn": 0.9e-3, "ffn": 2.7e-3, "head": 14e-3}
    times = {kind: seconds * slowness for kind, seconds in decode.items()}
    return PeerProfile(
        peer=name,
        memory_bytes=memory_mib * MIB,
        overhead_bytes=150 * MIB,
        decode_s=times,
        prefill_s={kind: seconds / 4 for kind, seconds in times.items()},
        step_s=0.3e-3,
        batch_s={kind: seconds / 3 for kind, seconds in times.items()},
    )


def main() -> int:
    """Prints three plans and why each is the best."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return 0
    machines = (machine("laptop", 3000, 1.4), machine("desktop", 2500, 1.0), machine("board", 1500, 4.0))
    names = [peer.peer for peer in machines]
    links = tuple(Link(a, b, rtt_s=2e-3, bytes_per_s=20e6) for a in names for b in names if a != b)
    request = PlanRequest(units(), machines, links, context=2048, sessions=1, origin="laptop")
    for title, asked in (
        ("one fast answer", request),
        ("many answers at once", replace(request, objective="throughput", sessions=4)),
        ("too little memory", replace(request, peers=machines[:1])),
    ):
        print(f"== {title}")
        print("\n".join(explain(asked, plan(asked))), end="\n\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
