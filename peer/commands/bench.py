"""`shoal bench`: chooses the benchmark and prints its figures."""

from __future__ import annotations

import argparse
import json

from peer.commands.terminal import out
from peer.processor import processor


def bench(args: argparse.Namespace) -> int:
    """Runs one benchmark."""
    match args.what:
        case "single":
            from peer.bench_single import bench_single

            figures = bench_single(args)
        case "browser":
            from peer.bench_browser import bench_browser

            figures = bench_browser(args)
        case "planner":
            from peer.bench_planner import bench_planner

            figures = bench_planner(args)
        case "consensus":
            from peer.bench_consensus import bench_consensus

            figures = bench_consensus(args)
        case "checks" if args.browsers:
            from peer.bench_tab_checks import bench_tab_checks

            figures = bench_tab_checks(args)
        case "checks":
            from peer.bench_checks import bench_checks

            figures = bench_checks(args)
        case "plans":
            from peer.bench_plans import bench_plans

            figures = bench_plans(args)
        case "wan":
            from peer.bench_wan import bench_wan

            figures = bench_wan(args)
        case "memory":
            from peer.bench_memory import bench_memory

            figures = bench_memory(args)
        case _:
            from peer.bench_pipeline import bench_pipeline

            figures = bench_pipeline(args)
    shown: dict[str, object] = {"processor": processor(), **figures}
    if args.json:
        out.print(json.dumps(shown), markup=False)
    else:
        for name, value in shown.items():
            out.print(f"{name:28} {value}", markup=False)
    return 0
