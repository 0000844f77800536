"""Runs simulated schedules by their seeds: `python -m tests.sim --seed 7 --verbose` draws what happens in one."""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import nullcontext

from tests.sim.many import catch_all
from tests.sim.schedule import calm, make_schedule
from tests.sim.switches import SWITCHES
from tests.sim.world import run_schedule


def trace(now: float, who: str, what: str) -> None:
    """One line of what happens."""
    print(f"{now:9.4f} {who:>6} {what}")


def table() -> int:
    """Each switch, the first seed that shows it and what that run says, as Markdown."""
    found = catch_all(os.cpu_count() or 1, 2000)
    print("| Switch | What it does | First seed | What that run says |\n|---|---|---|---|")
    for caught in found:
        print(f"| `{caught.switch}` | {SWITCHES[caught.switch].what} | {caught.seed} | {caught.problem} |")
    return int(any(caught.seed is None for caught in found))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument(
        "--verbose", action="store_true", help="everything that happens, with its virtual time"
    )
    parser.add_argument("--calm", action="store_true", help="the same questions, and nothing goes wrong")
    parser.add_argument("--switch", choices=sorted(SWITCHES), help="with this defect in the cores")
    parser.add_argument("--switches", action="store_true", help="looks for every defect and writes a table")
    args = parser.parse_args()
    if args.switches:
        return table()
    with SWITCHES[args.switch].applied() if args.switch else nullcontext():
        return runs(args)


def runs(args: argparse.Namespace) -> int:
    """The seeds that `args` names, one after the other."""
    begun = time.perf_counter()
    wrong = ended = failed = events = 0
    for seed in range(args.seed, args.seed + args.count):
        schedule = calm(make_schedule(seed)) if args.calm else make_schedule(seed)
        if args.verbose:
            print(schedule)
        report = run_schedule(schedule, trace if args.verbose else None)
        ended, failed, events = ended + report.ended, failed + report.failed, events + report.events
        for problem in report.problems:
            print(f"seed {seed}: {problem}")
        if report.problems:
            wrong += 1
    took_s = time.perf_counter() - begun
    print(
        f"{args.count} schedules, {ended} answers, {failed} failed as they may, {events} events, "
        f"{wrong} schedules wrong, {took_s / args.count * 1000:.1f} ms each"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
