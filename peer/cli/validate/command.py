"""`shoal validate`: hurts a mesh of this machine's processes while it answers, and says whether the answers held."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from peer.bench.pipeline import balanced_cuts
from peer.cli.serve_join import protection
from peer.cli.validate.leaders import LeaderFound, run_leaders, tell_leaders
from peer.cli.validate.ledger import run_ledger, tell_ledger
from peer.cli.validate.liars import LiarsFound, run_liars, tell_liars
from peer.cli.validate.slowdowns import run_slowed, tell_slowed
from peer.errors import CannotServe, Interrupted, PeerError
from peer.launch.browsers import check_app
from peer.launch.local_mesh import SESSIONS, largest_stage, unit_bytes
from peer.launch.model_import import find_or_import
from peer.launch.terminal import Interrupts, interrupts, out, say
from peer.member.peer_options import INTERRUPTED, Lent, MeshOptions
from peer.state.protection import level_of
from peer.validation.reports.results import Results, Start, open_results
from peer.validation.runs.ledger_runner import SCENARIO as LEDGER
from peer.validation.runs.ledger_runner import Kills
from peer.validation.runs.loss_runner import Load, Run, Runner
from peer.validation.scenarios.faults import MEANING, RELAYED, Name
from peer.validation.scenarios.figures import Figures, Ran, figures
from peer.validation.scenarios.leader_faults import Leading
from peer.validation.scenarios.liar_figures import SCENARIO as LIARS
from peer.validation.scenarios.slowdowns import PEER_SLOWED, Slowed
from peer.validation.scenarios.slowdowns import figures as slow_figures
from peer.validation.world.mesh import Shape, rig
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from planner.types import WeightFormat

CONTEXT: Final = 1024
OVERHEAD_BYTES: Final = 512 << 20  # of a tab before any weight, generously
MIN_TAB_BYTES: Final = 1_500_000_000
NOT_HELD: Final = 1


def validate(args: argparse.Namespace) -> int:
    """Exit status 0: everything held; 1: something did not."""
    if sys.platform == "win32":
        raise CannotServe("shoal validate freezes processes with SIGSTOP, which Windows does not have")
    if args.what == "report":
        from peer.validation.reports.report import write_report

        with open_results(args.results) as results:
            for path in write_report(results, args.out):
                out.print(str(path), markup=False)
        return 0
    check_app(args.browsers)
    store = Store(args.store)
    weights: WeightFormat = args.weights or ("f32" if args.browsers else "8bit")
    model_id = find_or_import(store, args.model, weights)
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 31)
    say(f"seed {seed}")
    shape = shape_of(args, store, model_id)
    return asyncio.run(_validate(args, store, shape, seed, Keeping(args, start_of(args, seed))))


class Keeping:
    """Puts rows into the file of results, unless --no-results was given."""

    def __init__(self, args: argparse.Namespace, start: Start) -> None:
        self._file: Path | None = None if args.no_results else args.results
        self._started = 0
        self.keep(lambda results, _: self._begin(results, start))

    def keep(self, rows: Callable[[Results, int], None]) -> None:
        """Calls `rows` with the open file and the id of this start."""
        if self._file is not None:
            with open_results(self._file) as results:
                rows(results, self._started)

    def _begin(self, results: Results, start: Start) -> None:
        self._started = results.start(start)


def shape_of(args: argparse.Namespace, store: Store, model_id: str) -> Shape:
    """The mesh that the arguments describe. Raises CannotServe for one that cannot be."""
    if args.peers < args.stages:
        raise CannotServe(f"{args.stages} stages need as many peers, got --peers {args.peers}")
    manifest = decode_manifest(store.manifest_bytes(model_id))
    context = min(CONTEXT, manifest.context)
    cuts = (
        tuple(map(int, balanced_cuts(len(manifest.units), args.stages).split(","))) if args.stages > 1 else ()
    )
    sessions = max(args.sessions, SESSIONS)
    sizes = unit_bytes(manifest, context, sessions)
    needed = 2 * max(2 * sum(sizes) // args.stages, largest_stage(sizes, cuts))
    memory = Lent(args.memory) if args.memory else Lent(needed, beside_program=True)
    return Shape(
        model_id,
        MeshOptions(context, sessions, "latency", cuts, protection(args)),
        args.peers,
        memory,
        1,
        args.transport,
        tuple(args.browsers),
        max(args.memory or OVERHEAD_BYTES + needed, MIN_TAB_BYTES),
    )


def start_of(args: argparse.Namespace, seed: int) -> Start:
    """How results name this start."""
    return Start(
        level=level_words(args),
        strategy=protection(args).strategy,
        protection=protection(args).shadow,
        seed=seed,
        peers=args.peers,
        stages=args.stages,
        sessions=args.sessions,
        tokens=args.tokens,
        weights=args.weights or ("f32" if args.browsers else "8bit"),
        transport=args.transport,
        browsers=",".join(args.browsers),
    )


def level_words(args: argparse.Namespace) -> str:
    """The level with the settings given alone, as one types them after --level."""
    if level_of(protection(args)) == args.protection:
        return str(args.protection)
    redundancy = None if args.redundancy is None else f"{args.redundancy / 1000:g}"
    given = {"redundancy": redundancy, "shadow": args.shadow, "recovery": args.recovery}
    if args.priority:
        given["priority"] = ",".join(args.priority)
    return " ".join([args.protection, *(f"--{name} {value}" for name, value in given.items() if value)])


async def _validate(args: argparse.Namespace, store: Store, shape: Shape, seed: int, keeping: Keeping) -> int:
    about_leaders = {each.value for each in Leading}
    wanted = [
        Name(name) for name in args.scenario if name not in {*about_leaders, LIARS, PEER_SLOWED, LEDGER}
    ]
    leading = [Leading(name) for name in args.scenario if name in about_leaders]
    if not args.scenario:
        wanted, leading = list(Name), list(Leading)
    found: dict[Name, list[Ran]] = {}
    led: dict[Leading, LeaderFound] = {}
    liars = LiarsFound(args.count) if LIARS in args.scenario or not args.scenario else None
    slowed: list[Slowed] | None = [] if PEER_SLOWED in args.scenario or not args.scenario else None
    kills = Kills(args.count) if LEDGER in args.scenario or not args.scenario else None
    with interrupts() as ctrl:
        try:
            with ctrl.cancelling():
                if args.cost:
                    return await _cost(args, store, shape, seed, ctrl, keeping)
                if args.soak:
                    return await _soak(args, store, shape, seed, ctrl, keeping)
                until_s = time.monotonic() + args.minutes * 60
                load = Load(args.sessions, args.tokens, seed)
                for relayed in (False, True):
                    names = [name for name in wanted if (name in RELAYED) is relayed]
                    if names:
                        await _run(args, store, shape, load, names, found, until_s, ctrl, keeping)
                if slowed is not None:
                    await run_slowed(args, store, shape, load, slowed, until_s, ctrl)
                for each in leading:
                    led[each] = LeaderFound()
                    level = level_words(args)
                    await run_leaders(args, store, shape, load, each, led[each], until_s, ctrl, level)
                if liars is not None:
                    await run_liars(shape, store, load, args.first, liars, until_s, ctrl)
                if kills is not None:
                    await run_ledger(args, store, shape, load, kills, until_s, ctrl, level_words(args))
        except Interrupted:
            if found or led or liars is not None or slowed is not None or kills is not None:
                _tell(args, wanted, found, led, liars, slowed, kills, seed)
            return INTERRUPTED
    return _tell(args, wanted, found, led, liars, slowed, kills, seed)


async def _cost(
    args: argparse.Namespace, store: Store, shape: Shape, seed: int, ctrl: Interrupts, keeping: Keeping
) -> int:
    from peer.validation.reports.cost import measure_cost

    costs, rows = await measure_cost(shape, store, args.rounds, args.tokens, seed, ctrl.last_words, say)
    keeping.keep(lambda results, started: results.cost(started, rows))
    _print(args, costs)
    return 0


async def _soak(
    args: argparse.Namespace, store: Store, shape: Shape, seed: int, ctrl: Interrupts, keeping: Keeping
) -> int:
    from peer.validation.runs.soak import soak

    left, readings = await soak(shape, store, args.soak, args.minutes, seed, ctrl.last_words, say)
    keeping.keep(lambda results, started: results.soak(started, readings))
    _print(args, left)
    return 0 if left["held"] else NOT_HELD


async def _run(
    args: argparse.Namespace,
    store: Store,
    shape: Shape,
    load: Load,
    names: list[Name],
    found: dict[Name, list[Ran]],
    until_s: float,
    ctrl: Interrupts,
    keeping: Keeping,
) -> None:
    """Scenarios that share a mesh. A mesh that could not be made whole again is given up, and the next is another."""
    todo = [(name, number) for name in names for number in range(args.first, args.first + args.count)]
    while todo and time.monotonic() < until_s:
        async with AsyncExitStack() as stack:
            relayed = names[0] in RELAYED
            say(f"starting {shape.peers} peers{', their links through a relay' if relayed else ''}")
            entering = rig(shape, store, relayed=relayed, seed=load.seed, last_words=ctrl.last_words)
            runner = Runner(await stack.enter_async_context(entering), load, say)
            while todo and time.monotonic() < until_s:
                name, number = todo.pop(0)
                run = await _one(runner, name, number)
                found.setdefault(name, []).append(run.ran)
                keeping.keep(partial(_keep_run, run))
                if run.ran.trouble:
                    say(f"{name.value} {number}: {run.ran.trouble}")
                    break
        ctrl.last_words.clear()


def _keep_run(run: Run, results: Results, started: int) -> None:
    results.run(started, run)


async def _one(runner: Runner, name: Name, number: int) -> Run:
    """One run; a mesh that cannot even answer undisturbed is a run that did not hold."""
    try:
        return await runner.run(name, number)
    except PeerError as error:
        return Run(name, number, Ran((), False, None, 0, None, str(error)), ())


def _tell(
    args: argparse.Namespace,
    wanted: list[Name],
    found: dict[Name, list[Ran]],
    led: dict[Leading, LeaderFound],
    liars: LiarsFound | None,
    slowed: list[Slowed] | None,
    kills: Kills | None,
    seed: int,
) -> int:
    shown: dict[str, Any] = {}
    held = True
    for name in wanted:
        runs = found.get(name, [])
        got = figures(runs, args.within)
        held = held and got.held and len(runs) == args.count
        shown[name.value] = _figures(got, seed)
        if not args.json:
            out.print(f"{name.value:20} {_words(got)}   {MEANING[name]}", markup=False)
    for title, figured, whole, tell in _apart(args, led, liars, slowed, kills):
        held = held and whole and figured["held"]
        shown[title] = {**figured, "seed": seed}
        if not args.json:
            tell()
    if args.json:
        _print(args, {"held": held, "seed": seed, "level": level_words(args), "scenarios": shown})
    elif not held:
        say(f"not everything held; `shoal validate --seed {seed}` with the same options repeats it")
    return 0 if held else NOT_HELD


def _apart(
    args: argparse.Namespace,
    led: dict[Leading, LeaderFound],
    liars: LiarsFound | None,
    slowed: list[Slowed] | None,
    kills: Kills | None,
) -> Iterator[tuple[str, dict[str, Any], bool, Callable[[], None]]]:
    """Of each scenario with meshes of its own: its name, its figures, whether all of its runs were made, and how people
    are told.
    """
    for each, seen in led.items():
        figured = seen.figures(args.within)
        yield each.value, figured, len(seen.runs) == args.count, partial(tell_leaders, each, figured)
    if liars is not None:
        figured = liars.figures()
        yield LIARS, figured, True, partial(tell_liars, figured)
    if slowed is not None:
        figured = slow_figures(slowed)
        yield PEER_SLOWED, figured, len(slowed) == args.count, partial(tell_slowed, figured)
    if kills is not None:
        figured = kills.figures()
        yield LEDGER, figured, True, partial(tell_ledger, figured)


def _figures(got: Figures, seed: int) -> dict[str, Any]:
    def tidy(value: Any) -> Any:
        return round(value, 4) if isinstance(value, float) else value

    return {**{name: tidy(value) for name, value in asdict(got).items()}, "seed": seed}


def _words(got: Figures) -> str:
    if not got.runs:
        return "not run"
    times = "-"
    if got.recovery_p50_ms is not None and got.recovery_p95_ms is not None:
        times = f"{got.recovery_p50_ms:.0f}/{got.recovery_p95_ms:.0f} ms"
    parts = (
        "held  " if got.held else "FAILED",
        f"{got.runs} runs",
        f"{got.completed:.0%} complete",
        f"{got.equal:.0%} equal",
        f"recovery {times}",
    )
    return ", ".join(parts)


def _print(args: argparse.Namespace, shown: dict[str, Any]) -> None:
    if args.json:
        out.print(json.dumps(shown), markup=False)
        return
    for name, value in shown.items():
        out.print(f"{name:28} {value}", markup=False)
