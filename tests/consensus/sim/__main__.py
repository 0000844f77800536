"""Runs simulated groups by their seeds: `python -m tests.consensus.sim --from 7 --verbose` draws one of them."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.consensus.mutants import core_of, mutants
from tests.consensus.sim.foreign import Child, missing, mixed
from tests.consensus.sim.healing import run_schedule
from tests.consensus.sim.many import Sum, catch_all, run_many, shrink
from tests.consensus.sim.schedule import Schedule, make_schedule

PROGRESS = 20_000  # schedules between two lines of a long run


def trace(now: int, who: str, what: str) -> None:
    """One line of what happens."""
    print(f"{now:7d} {who:>2} {what}")


def show(seed: int, problem: str, mutant: str) -> None:
    """A failing run, made as small as it gets, and what happens in it."""
    print(f"seed {seed}: {problem}")
    make_core = core_of(mutant)
    small = shrink(
        make_schedule(seed), lambda schedule: run_schedule(schedule, make_core=make_core).problem is not None
    )
    draw(small, mutant)
    more = f" --mutant {mutant}" if mutant else ""
    print(f"again: python -m tests.consensus.sim --from {seed}{more} --verbose")


def draw(schedule: Schedule, mutant: str) -> None:
    print(f"voters {schedule.voters}, learners {schedule.learners}, spares {schedule.spares}")
    print(schedule.timing, schedule.pace, sep="\n")
    for action in schedule.actions:
        print(f"  {action}")
    report = run_schedule(schedule, trace, make_core=core_of(mutant))
    print(report)


def table(names: list[str], most: int, workers: int) -> int:
    """Prints each mutant, the first seed that shows its defect and what that run says, as Markdown."""
    what = mutants()
    found = catch_all(names, workers, most)
    print("| Mutant | What it breaks | Seed | What that run says |\n|---|---|---|---|")
    for caught in found:
        print(f"| `{caught.mutant}` | {what[caught.mutant].defect} | {caught.seed} | {caught.problem} |")
    return int(any(caught.seed is None for caught in found))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.consensus.sim", description=__doc__)
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="SEED", help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="how many seeds")
    parser.add_argument("--mutant", default="", choices=["", *mutants()], help="with this defect in the core")
    parser.add_argument(
        "--mutants", action="store_true", help="looks for every defect in N seeds, writes a table"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="everything that happens, with its virtual time"
    )
    parser.add_argument(
        "--mixed", action="store_true", help="about half of the servers run the core in TypeScript"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--keep-going", action="store_true", help="tells of every seed that fails, shrinks none"
    )
    args = parser.parse_args()
    if args.mutants:
        return table(list(mutants()), args.seeds, args.workers)
    if args.verbose:
        for seed in range(args.first, args.first + args.seeds):
            draw(make_schedule(seed), args.mutant)
        return 0
    return runs_mixed(args) if args.mixed else runs(args)


def runs_mixed(args: argparse.Namespace) -> int:
    """All the seeds that `args` names, one after the other, in groups of both languages."""
    if missing():
        print(f"expected {missing()} for the core in TypeScript, found none", file=sys.stderr)
        return 2
    child, wrong = Child(), 0
    for seed in range(args.first, args.first + args.seeds):
        report = run_schedule(make_schedule(seed), make_core=mixed(child, 7 * seed + 1))
        if report.problem is not None:
            wrong += 1
            print(f"seed {seed}: {report.problem}", flush=True)
    child.close()
    print(f"{args.seeds} schedules of both languages, {wrong} wrong")
    return int(wrong > 0)


def runs(args: argparse.Namespace) -> int:
    """All the seeds that `args` names."""
    begun, total = time.perf_counter(), Sum()
    for block in run_many(args.first, args.seeds, args.workers, args.mutant):
        before = total.schedules
        total.join(block)
        if args.keep_going:
            for seed, problem in block.problems:
                print(f"seed {seed}: {problem}", flush=True)
        elif total.problems:
            break
        if total.schedules // PROGRESS != before // PROGRESS:
            print(f"{total.schedules} schedules, {len(total.problems)} wrong", flush=True)
    took_s = time.perf_counter() - begun
    if total.problems and not args.keep_going:
        show(*total.problems[0], args.mutant)
    print(
        f"{total.schedules} schedules, {total.steps} steps, {len(total.problems)} wrong, "
        f"{total.hopeless} without hope, {total.schedules / took_s:.0f} schedules/s; "
        f"healed after at most {total.slowest_ms} ms of virtual time"
    )
    print(", ".join(f"{count} {what}" for what, count in sorted(total.done.items())))
    return 1 if total.problems else 0


if __name__ == "__main__":
    sys.exit(main())
