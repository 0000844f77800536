"""`shoal bench plans`: runs every plan of a small mesh that the planner admits, and compares what it predicted.

Four peers with 1, 1, 2 and 2 threads, one of the links slow. The plans are all ways to give contiguous runs of units,
with borders at equal parts of the blocks (`--grain`), to different peers in any order, and the plan that the planner
chooses itself. One thing happens at a time: peers measure themselves alone, and one answer runs, so
that at any moment one stage works and peers do not compete for the cores.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from pathlib import Path
from typing import Any, Final

from peer.bench.plan_residuals import (
    Compared,
    against_best,
    coverage,
    interval,
    learned,
    median_abs_error,
)
from peer.coordination.coordinator import plan_request
from peer.errors import CannotServe
from peer.launch.local_mesh import QUESTION
from peer.launch.model_import import find_or_import
from peer.launch.terminal import say
from peer.member.joining import Founding, found
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import Lent, MeshOptions, PeerOptions
from peer.model.chat_template import Message
from peer.origin.answer_stream import Delta, Settings
from peer.session.sampling import GREEDY
from peer.state.generated.commands import PlanProposed
from peer.state.mesh_state import MeshState, plan_record
from peer.state.protection import PRESETS
from peer.validation.scenarios.link_conditions import Conditions
from peer.validation.world.child_processes import How, JoinedProcess
from peer.validation.world.injection import Injection, disturbance
from peer.validation.world.relay_client import relay
from planner.cost.evaluator import evaluate, make_stage, profiles
from planner.errors import RequestError
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from planner.solvers.placement import plan as choose_plan
from planner.types import Plan, PlanRequest, Stage, Unit
from signaling.keys import SEED_BYTES, identity_from_seed
from signaling.server import ServerOptions

THREADS: Final = (1, 1, 2, 2)
SLOW_LINK: Final = (("peer 1", "peer 4"),)
SLOW: Final = Conditions(delay_s=0.02)
CONTEXT: Final = 512
PLEDGE_BYTES: Final = 4 << 30  # each peer has room for the whole model, so that no plan is refused for memory
ASKER: Final = "asker"
WITHIN_S: Final = 120.0
ATTEMPTS: Final = 4  # to have a plan served, in that time
AGAIN: Final = 4  # of the fastest plans are measured again beside the chosen one, `--rounds` times
WARM_TOKENS: Final = 8


@dataclass(slots=True)
class Tried:
    """One plan that was run."""

    plan: Plan
    names: tuple[str, ...]
    classes: str
    gaps_s: list[float] = field(default_factory=list)
    rounds_s: list[float] = field(default_factory=list)  # medians of the rounds among the fastest

    @property
    def compared(self) -> Compared:
        """Returns the plan's prediction beside the median gap between its tokens."""
        measured_s = statistics.median(self.gaps_s)
        return Compared(self.classes, self.plan.decode_s, measured_s, len(self.plan.stages))


def placements(units: int, peers: Sequence[str], grain: int) -> list[tuple[tuple[int, int, str], ...]]:
    """All ways to cut `units` at multiples of 1/`grain` of the blocks, over different peers in any order."""
    blocks = (units - 2) // 2
    borders = sorted({1 + 2 * round(blocks * place / grain) for place in range(1, grain)})
    found = []
    for count in range(min(len(borders) + 1, len(peers))):
        for cuts in combinations(borders, count):
            runs = list(zip((0, *cuts), (*cuts, units), strict=True))
            for order in permutations(peers, count + 1):
                found.append(
                    tuple((first, stop, peer) for (first, stop), peer in zip(runs, order, strict=True))
                )
    return found


def admitted(request: PlanRequest, placement: Sequence[tuple[int, int, str]]) -> Plan | None:
    """The plan of a placement with what it is predicted to take; None when the planner refuses it."""
    profile = profiles(request)
    stages = tuple(make_stage(request, profile[peer], first, stop) for first, stop, peer in placement)
    try:
        figures = evaluate(request, stages)
    except RequestError:
        return None
    return Plan(stages, request.objective, figures.decode_s, figures.tokens_per_s, figures.bottleneck_s, ())


def bench_plans(args: argparse.Namespace) -> dict[str, Any]:
    """The figures by name."""
    store = Store(args.store)
    model_id = find_or_import(store, args.model, "8bit")
    return asyncio.run(_bench(args, store, model_id))


async def _bench(args: argparse.Namespace, store: Store, model_id: str) -> dict[str, Any]:
    manifest = decode_manifest(store.manifest_bytes(model_id))
    begun = time.perf_counter()
    async with AsyncExitStack() as stack:
        mesh = await _mesh(stack, store, model_id)
        names = {peer: member.name for peer, member in mesh.view.state.members.items() if member.compute}
        units = manifest.planner_units()
        request = replace(plan_request(mesh.view.state, units), redundancy=1000, spare=False)
        threads = {peer: _threads(mesh.view.state, peer) for peer in names}
        tried = _plans(request, units, names, threads, 2 if args.quick else args.grain)
        chosen = tried[0]
        say(f"{len(tried)} plans; the planner chooses {'-'.join(chosen.names)}")
        with closing(mesh.conversation()) as talk:
            prompt = (await talk.prompt([Message("user", QUESTION)])).tokens
        tokens = 16 if args.quick else args.tokens
        for number, one in enumerate(tried, start=1):
            one.gaps_s += await _measured(mesh, one.plan, prompt, tokens)
            compared = one.compared
            say(
                f"{number}/{len(tried)} {'-'.join(one.names)} {_runs(one.plan)}: predicted "
                f"{compared.predicted_s * 1000:.1f} ms, measured {compared.measured_s * 1000:.1f} ms"
            )
        ranked = sorted(tried, key=lambda one: one.compared.measured_s)
        finalists = list(dict.fromkeys([id(chosen), *(id(one) for one in ranked[:AGAIN])]))
        by_id = {id(one): one for one in tried}
        for number in range(args.rounds):
            for key in finalists if number % 2 == 0 else reversed(finalists):
                gaps_s = await _measured(mesh, by_id[key].plan, prompt, tokens)
                by_id[key].gaps_s += gaps_s
                by_id[key].rounds_s.append(statistics.median(gaps_s))
            say(f"round {number + 1} of {args.rounds} among the {len(finalists)} fastest")
    return _figures(tried, chosen, [by_id[key] for key in finalists], time.perf_counter() - begun)


async def _mesh(stack: AsyncExitStack, store: Store, model_id: str) -> MeshMember:
    """The mesh, once every peer has measured itself and its links, one after the other."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-bench-")))
    way = await stack.enter_async_context(relay(folder, 1))
    await way.set_links(SLOW, SLOW_LINK)
    led = disturbance(Injection(folder / "none", way.path, ASKER))
    options = PeerOptions(ASKER, 0, 1, "cpu", "auto", ("127.0.0.1",), disturbance=led)
    promise = Founding(model_id, MeshOptions(CONTEXT, 1, "latency", None, PRESETS["basic"]), ServerOptions())
    key = identity_from_seed(os.urandom(SEED_BYTES))
    mesh = await stack.enter_async_context(found(promise, options, store, key))
    assert mesh.link is not None
    how = How(mesh.link.url(), store.root, folder, Lent(PLEDGE_BYTES), 1, "auto", way.path)
    for number, threads in enumerate(THREADS, start=1):
        child = JoinedProcess(f"peer {number}", replace(how, threads=threads))
        stack.push_async_callback(child.end)
        say(f"peer {number} with {threads} thread{'s' if threads > 1 else ''} measures itself")
        await child.start()

        def measured(state: MeshState, count: int = number) -> bool:
            return sum(member.profile is not None for member in state.members.values()) >= count

        if not await mesh.view.until(measured, WITHIN_S):
            raise CannotServe(f"peer {number} did not measure itself within {WITHIN_S:.0f} s")
    await mesh.until_serving(WITHIN_S)
    return mesh


def _plans(
    request: PlanRequest,
    units: Sequence[Unit],
    names: dict[str, str],
    threads: dict[str, int],
    grain: int,
) -> list[Tried]:
    """The chosen plan first, then all others, in an order that a machine which warms up cannot favour."""
    best = choose_plan(request)
    if not isinstance(best, Plan):
        raise CannotServe(f"the planner finds no plan: {best.reason}")
    plans = [
        plan for place in placements(len(units), sorted(names), grain) if (plan := admitted(request, place))
    ]
    random.Random(len(plans)).shuffle(plans)
    plans = [best, *(plan for plan in plans if _same(plan) != _same(best))]
    return [
        Tried(
            plan,
            tuple(names[stage.peer] for stage in plan.stages),
            "+".join(sorted(str(threads[stage.peer]) for stage in plan.stages)),
        )
        for plan in plans
    ]


def _same(plan: Plan) -> list[tuple[int, int, str]]:
    return [(stage.first, stage.stop, stage.peer) for stage in plan.stages]


def _threads(state: MeshState, peer: str) -> int:
    profile = state.members[peer].profile
    return profile.threads if profile is not None else 0


async def _measured(mesh: MeshMember, plan: Plan, prompt: Sequence[int], tokens: int) -> list[float]:
    """Seconds from token to token of one answer over `plan`, once it serves."""
    coordinating = mesh.leadership.current
    if coordinating is None:
        raise CannotServe("another peer coordinates this mesh; run the benchmark again")
    stages = tuple(
        Stage(s.first, s.stop, s.peer, (), s.weight_bytes, s.kv_bytes, s.overhead_bytes) for s in plan.stages
    )
    places = [(stage.first, stage.stop, stage.peer) for stage in stages]

    def settled(state: MeshState) -> bool:
        held = {(peer, run) for peer, member in state.members.items() for run in member.held}
        wanted = {(stage.peer, (stage.first, stage.stop)) for stage in stages}
        serves = (
            [(stage.first, stage.stop, stage.primary) for stage in state.plan.stages] if state.plan else []
        )
        return serves == places and held == wanted and state.proposed is None

    for _ in range(
        ATTEMPTS
    ):  # a plan of the coordinator's own may come between, or in the middle of the answer
        version = coordinating.state.last_version + 1
        coordinating.submit(PlanProposed(plan_record(replace(plan, stages=stages), version)))
        if not await mesh.view.until(settled, WITHIN_S / ATTEMPTS):
            continue
        at, way = await _answered(mesh, prompt, WARM_TOKENS + tokens)
        if way == tuple(stage.peer for stage in stages) and settled(mesh.view.state):
            return [
                later - earlier
                for earlier, later in zip(at[WARM_TOKENS:], at[WARM_TOKENS + 1 :], strict=False)
            ]
    raise CannotServe(f"the plan {places} does not serve within {WITHIN_S:.0f} s")


async def _answered(
    mesh: MeshMember, prompt: Sequence[int], tokens: int
) -> tuple[list[float], tuple[str, ...]]:
    """When each token came, and over which peers the last one did."""
    talk = mesh.conversation()
    at: list[float] = []
    try:
        async for piece in talk.tokens(prompt, Settings(GREEDY, tokens, ignore_end=True)):
            if isinstance(piece, Delta) and piece.token >= 0:
                at.append(time.perf_counter())
        return at, talk.route
    finally:
        talk.close()


def _runs(plan: Plan) -> str:
    return ",".join(f"{stage.first}-{stage.stop}" for stage in plan.stages)


def _figures(
    tried: Sequence[Tried], chosen: Tried, finalists: Sequence[Tried], seconds: float
) -> dict[str, Any]:
    compared = [one.compared for one in tried]
    others = [one.rounds_s for one in finalists if one is not chosen]
    bias = statistics.median(one.measured_s / one.predicted_s for one in compared)
    corrected = dict(zip(map(id, tried), learned(compared), strict=True))
    table = []
    for one in sorted(tried, key=lambda each: each.compared.measured_s):
        mine = one.compared
        around = interval(mine, [other for other in compared if other.classes != mine.classes])
        table.append(
            {
                "peers": list(one.names),
                "units": _runs(one.plan),
                "classes": one.classes,
                "predicted_ms": round(mine.predicted_s * 1000, 2),
                "learned_ms": round(corrected[id(one)].predicted_s * 1000, 2),
                "measured_ms": round(mine.measured_s * 1000, 2),
                "interval_ms": [round(end * 1000, 2) for end in around] if around is not None else None,
                "chosen": one is chosen,
            }
        )
    return {
        "plans": len(tried),
        "chosen_vs_best": round(against_best(chosen.rounds_s, others), 3),
        "median_abs_error": _rounded(median_abs_error(learned(compared))),
        "unlearned_error": _rounded(median_abs_error(compared)),
        "coverage_90": _rounded(coverage(compared)),
        "measured_over_predicted": round(bias, 3),
        "seconds": round(seconds, 1),
        "load_1m": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "table": table,
    }


def _rounded(value: float | None) -> float | None:
    return round(value, 3) if value is not None else None
