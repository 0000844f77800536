"""`shoal bench`: chooses the benchmark and prints its figures."""

from __future__ import annotations

import argparse
import json

from peer.launch.terminal import out
from peer.runtime.processor import processor


def bench(args: argparse.Namespace) -> int:
    """Runs one benchmark."""
    match args.what:
        case "single":
            from peer.bench.single import bench_single

            figures = bench_single(args)
        case "browser":
            from peer.bench.browser import bench_browser

            figures = bench_browser(args)
        case "planner":
            from peer.bench.planner import bench_planner

            figures = bench_planner(args)
        case "consensus":
            from peer.bench.consensus import bench_consensus

            figures = bench_consensus(args)
        case "checks" if args.browsers:
            from peer.bench.browser_check_distances import bench_tab_checks

            figures = bench_tab_checks(args)
        case "checks":
            from peer.bench.check_distances import bench_checks

            figures = bench_checks(args)
        case "plans":
            from peer.bench.plans import bench_plans

            figures = bench_plans(args)
        case "wan":
            from peer.bench.wan import bench_wan

            figures = bench_wan(args)
        case "run":
            from peer.bench.runs import bench_runs

            figures = bench_runs(args)
        case "inside":
            from peer.bench.inside import bench_inside

            figures = bench_inside(args)
        case "memory":
            from peer.bench.memory import bench_memory

            figures = bench_memory(args)
        case "abuse":
            from peer.bench.abuse.measurement import bench_abuse

            figures = bench_abuse(args)
        case _:
            from peer.bench.pipeline import bench_pipeline

            figures = bench_pipeline(args)
    shown: dict[str, object] = {"processor": processor(), **figures}
    if args.json:
        out.print(json.dumps(shown), markup=False)
    else:
        for name, value in shown.items():
            out.print(f"{name:28} {value}", markup=False)
    return 0
