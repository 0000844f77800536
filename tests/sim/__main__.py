"""Runs simulated schedules by their seeds: `python -m tests.sim --seed 7 --verbose` draws what happens in one."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.sim.schedule import calm, make_schedule
from tests.sim.world import run_schedule


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument(
        "--verbose", action="store_true", help="everything that happens, with its virtual time"
    )
    parser.add_argument("--calm", action="store_true", help="the same questions, and nothing goes wrong")
    args = parser.parse_args()

    def trace(now: float, who: str, what: str) -> None:
        print(f"{now:9.4f} {who:>6} {what}")

    begun = time.perf_counter()
    wrong: Counter[str] = Counter()
    ended = failed = events = 0
    for seed in range(args.seed, args.seed + args.count):
        schedule = calm(make_schedule(seed)) if args.calm else make_schedule(seed)
        if args.verbose:
            print(schedule)
        report = run_schedule(schedule, trace if args.verbose else None)
        ended, failed, events = ended + report.ended, failed + report.failed, events + report.events
        for problem in report.problems:
            print(f"seed {seed}: {problem}")
        if report.problems:
            wrong["schedules"] += 1
    took_s = time.perf_counter() - begun
    print(
        f"{args.count} schedules, {ended} answers, {failed} failed as they may, {events} events, "
        f"{wrong['schedules']} schedules wrong, {took_s / args.count * 1000:.1f} ms each"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
