"""What protection costs: one answer's decode rate with standbys that get nothing, keep inputs, or compute along.

Edge. One mesh; how standbys are fed alternates within each round, so that figures of one run compare.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any, Final

import psutil

from peer.errors import CannotServe
from peer.state.generated.commands import ProtectionChosen, Shadow
from peer.state.protection import SHADOWS
from peer.validation.scenarios.figures import Stream
from peer.validation.scenarios.workload import questions
from peer.validation.world.answer_streams import answer_all
from peer.validation.world.mesh import Rig, Shape, rig
from planner.model.store import Store

WARM_TOKENS: Final = 8  # of an answer that is not counted, after each change
# Round, how standbys are fed, tokens per second, bytes (RSS, KV, weights), and how many steps standbys ran for it.
Row = tuple[int, str, float, int, int, int, int]


async def measure_cost(
    shape: Shape,
    store: Store,
    rounds: int,
    tokens: int,
    seed: int,
    last_words: list[Callable[[], None]],
    tell: Callable[[str], None],
) -> tuple[dict[str, Any], list[Row]]:
    """The figures by name, and what they are medians of."""
    tell(f"starting {shape.peers} peers")
    rows: list[Row] = []
    seen: set[tuple[int, ...]] = set()
    async with rig(shape, store, relayed=False, seed=seed, last_words=last_words) as made:
        for number in range(rounds):
            # Each round begins with another, so that none always runs first.
            for place in range(len(SHADOWS)):
                shadow = SHADOWS[(place + number) % len(SHADOWS)]
                stream, row = await _measured(made, shadow, number, tokens, seed)
                seen.add(stream.tokens)
                rows.append(row)
                tell(f"round {number + 1} of {rounds}, standbys {shadow}: {row[2]:.1f} tok/s")
        standbys = sum(stage.weight_bytes * len(stage.standbys) for stage in made.plan().stages)
    return {
        **costs_of(rows),
        "standby_weight_bytes": standbys,
        "same_tokens": len(seen) == 1,
        "seed": seed,
    }, rows


async def _measured(made: Rig, shadow: Shadow, number: int, tokens: int, seed: int) -> tuple[Stream, Row]:
    chosen = replace(made.founder.view.state.protection, shadow=shadow)
    if chosen != made.founder.view.state.protection:
        await made.founder.propose(ProtectionChosen(chosen))
    await made.until_whole()
    asked = questions(1, tokens, random.Random(f"{seed}/cost").random)
    await answer_all(made.founder, [replace(asked[0], tokens=WARM_TOKENS)], digests=False)
    before = await made.founder.status()
    (answered,) = await answer_all(made.founder, asked, digests=False)
    stream = answered.stream
    if stream.error:
        raise CannotServe(f"an answer failed with nothing disturbed: {stream.error}")
    rate = (len(stream.at_s) - 1) / (stream.at_s[-1] - stream.at_s[0])
    memory = [psutil.Process(pid).memory_info().rss for child in made.children.values() if (pid := child.pid)]
    after = await made.founder.status()
    kv, weights = (
        sum(int(report[name]) for report in after.values()) for name in ("kv_bytes", "weight_bytes")
    )
    idle = [peer for peer in after if peer in before and peer not in stream.route]
    steps = sum(int(after[peer]["steps"]) - int(before[peer]["steps"]) for peer in idle)
    return stream, (number, shadow, rate, sum(memory), kv, weights, steps)


def costs_of(rows: list[Row]) -> dict[str, Any]:
    """Medians by how standbys are fed, and their share of the rate without."""
    rates = {shadow: median(row[2] for row in rows if row[1] == shadow) for shadow in SHADOWS}
    found: dict[str, Any] = {}
    for shadow in SHADOWS:
        mine = [row for row in rows if row[1] == shadow]
        found[f"{shadow}_tok_s"] = round(rates[shadow], 2)
        found[f"{shadow}_rss_mib"] = round(median(row[3] for row in mine) / 2**20)
        found[f"{shadow}_kv_mib"] = round(median(row[4] for row in mine) / 2**20, 1)
        found[f"{shadow}_standby_steps"] = median(row[6] for row in mine)
        found[f"{shadow}_ratio"] = round(rates[shadow] / rates["off"], 3)
    found["rounds"] = 1 + max(row[0] for row in rows)
    return found
