"""`shoal analyze`: what a model is made of, where it can be split, and what teams of described peers would take."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from peer.cli.plan.plan_models import draw, request_of_file
from peer.launch.model_import import find_or_import_any
from peer.launch.stored_models import Kind
from peer.launch.terminal import out, say
from planner.cost.team_cost import TeamCost, team_costs
from planner.model.graph_manifest import decode_graph_manifest
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from planner.reports.analysis_text import analysis_lines
from planner.slices.analysis import Analysis, analyzed, analyzed_graph
from planner.slices.cuts import cut_units
from planner.types import Unit


def analyze(args: argparse.Namespace) -> int:
    """Prints what a model of the store is made of, imported where it is not there. Raises ModelError, StoreError and
    BadCommand for a file that cannot be read or written.
    """
    request = None if args.on is None else request_of_file(str(args.on))[0]
    store = Store(args.store)
    found, units = _analyzed(store, args)
    teams = () if request is None else team_costs(request, units)
    if args.html is not None:
        from planner.reports.analysis_page import analysis_page

        draw(args.html, analysis_page(found, teams))
    if args.json:
        out.print_json(json.dumps(_fields(found, teams)), ensure_ascii=True)
    else:
        for line in analysis_lines(found, teams):
            out.print(line, markup=False)
    if args.html is not None:
        say(f"drawn in {args.html}: open it in a browser")
    return 0


def _analyzed(store: Store, args: argparse.Namespace) -> tuple[Analysis, tuple[Unit, ...]]:
    """The analysis, and the units of a decoder with how they can be cut."""
    model = find_or_import_any(store, args.model, args.weights)
    encoded = store.manifest_bytes(model.model_id)
    if model.kind in (Kind.ANSWERS, Kind.SPEECH):
        manifest = decode_manifest(encoded)
        return analyzed(manifest, store), cut_units(manifest, store)
    return analyzed_graph(decode_graph_manifest(encoded)), ()


def _fields(found: Analysis, teams: Sequence[TeamCost]) -> dict[str, Any]:
    totals = {"bytes": found.bytes, "flops": found.flops}
    paid = [dict(zip(("decode", "prompts"), team.pays, strict=True)) for team in teams]
    return {
        **asdict(found),
        **totals,
        "teams": [{**asdict(team), "pays": pays} for team, pays in zip(teams, paid, strict=True)],
    }
