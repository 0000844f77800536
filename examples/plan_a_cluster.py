"""Plans a model for a cluster that a file describes: JSON in, JSON and a picture out. The planner alone, no network.

    python examples/plan_a_cluster.py                              # writes cluster.json, plan.json and plan.html
    python examples/plan_a_cluster.py cluster.json --out folder    # your own: change what the first call wrote
    python examples/plan_a_cluster.py cluster.json --goal throughput

cluster.json is a plan request as `shoal plan FILE` takes it: units of a model, peers with their measured times and
memory, links in both directions.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import get_args

from planner.adapt.serving_plan import choose
from planner.cost.objectives import Goal, Wish
from planner.errors import RequestError
from planner.reports.plan_page import plan_page
from planner.reports.plan_text import explain
from planner.service.request_codec import decode_request, encode_answer, encode_request
from planner.types import Infeasible, Link, PeerProfile, PlanRequest, Unit, UnitKind

GIB = 1 << 30
HIDDEN, BLOCKS, VOCABULARY, KV_WIDTH, FFN = 3072, 28, 128_256, 1024, 8192  # a Llama of 3 billion parameters


def described() -> PlanRequest:
    """Two flats and a phone: the model in 8 bits, three sessions at a time."""

    def unit(name: str, kind: UnitKind, weights: int, kv_bytes: int, out_bytes: int) -> Unit:
        return Unit(name, kind, weights * 9 // 8, 2 * weights, kv_bytes, out_bytes)

    attention, table = 2 * HIDDEN * HIDDEN + 2 * HIDDEN * KV_WIDTH, VOCABULARY * HIDDEN
    units = [unit("embed", "embed", table, 0, 4 * HIDDEN)]
    for block in range(BLOCKS):
        units.append(unit(f"attn.{block}", "attn", attention, 8 * KV_WIDTH, 4 * HIDDEN))
        units.append(unit(f"ffn.{block}", "ffn", 3 * HIDDEN * FFN, 0, 4 * HIDDEN))
    units.append(unit("head", "head", table, 0, 4))

    def peer(name: str, gib: float, slowness: float) -> PeerProfile:
        decode: dict[UnitKind, float] = {"embed": 1e-5, "attn": 0.5e-3, "ffn": 1.5e-3, "head": 8e-3}
        times = {kind: seconds * slowness for kind, seconds in decode.items()}
        prefill = {kind: seconds / 8 for kind, seconds in times.items()}
        batch = {kind: seconds / 3 for kind, seconds in times.items()}
        return PeerProfile(name, int(gib * GIB), 160 << 20, times, prefill, 0.3e-3, batch)

    peers = (
        peer("Ana's desktop", 2.6, 0.6),
        peer("Ana's laptop", 2.2, 1.3),
        peer("Ben's laptop", 2.6, 1.0),
        peer("old server", 6.0, 3.2),
        peer("phone", 0.9, 2.8),
    )
    flat = {"Ana's desktop": "a", "Ana's laptop": "a", "phone": "a", "Ben's laptop": "b", "old server": "b"}
    links = [
        Link(x, y, 2e-3, 40e6) if flat[x] == flat[y] else Link(x, y, 24e-3, 5e6)
        for x in flat
        for y in flat
        if x != y
    ]
    return PlanRequest(tuple(units), peers, tuple(links), context=2048, sessions=3)


def main() -> int:
    """Exit status 1 when no plan exists, 2 for a file that is no request."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("cluster", nargs="?", type=Path, help="JSON of a plan request [one is made up]")
    arguments.add_argument(
        "--goal", choices=get_args(Goal), default="latency", help="what to be good at [latency]"
    )
    arguments.add_argument("--out", type=Path, default=Path(), help="folder [here]")
    args = arguments.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        if args.cluster is None:
            request = described()
            shown = json.dumps(json.loads(encode_request(request)), indent=1)  # to be changed by hand
            (args.out / "cluster.json").write_text(shown, encoding="utf-8")
        else:
            request = decode_request(args.cluster.read_bytes())
        answer = choose(request, Wish(args.goal))
    except (OSError, RequestError) as error:
        print(f"{args.cluster}: {error}", file=sys.stderr)
        return 2
    (args.out / "plan.json").write_bytes(encode_answer(answer))
    (args.out / "plan.html").write_text(plan_page(request, answer), encoding="utf-8")
    print("\n".join(explain(request, answer)))
    print(f"written: {args.out / 'plan.json'}, {args.out / 'plan.html'}")
    return 1 if isinstance(answer, Infeasible) else 0


if __name__ == "__main__":
    raise SystemExit(main())
