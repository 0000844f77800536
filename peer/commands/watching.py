"""`shoal status` and `shoal plan`: what the mesh is doing, and why its plan is what it is."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.table import Table

from peer.commands.asking import asker
from peer.commands.terminal import either, interrupts, out
from peer.errors import BadCommand
from peer.mesh import Mesh
from peer.mesh_state import MeshState, planner_link, planner_profile
from peer.options import bytes_text
from planner.codec import decode_request, encode_answer
from planner.explain import explain
from planner.manifest import Manifest
from planner.placement import plan
from planner.types import Infeasible, PlanRequest

REFRESH_S = 1.0


async def status(args: argparse.Namespace) -> int:
    """A live table of peers, stages, memory, delays and tokens per second."""
    with interrupts() as asked:
        async with asker(args) as mesh:
            if args.json:
                out.print_json(json.dumps(await snapshot(mesh)))
                return 0
            if args.once:
                out.print(table(await snapshot(mesh)))
                return 0
            with Live(console=out, auto_refresh=False) as live:
                while not asked.is_set() and not mesh.ended.is_set():
                    live.update(table(await snapshot(mesh)), refresh=True)
                    pause = asyncio.Event()
                    handle = asyncio.get_running_loop().call_later(REFRESH_S, pause.set)
                    await either(asked, mesh.ended, pause)
                    handle.cancel()
    return 0


async def snapshot(mesh: Mesh) -> dict[str, Any]:
    """Mesh state and every member's own report, as plain data."""
    reports = await mesh.status()
    state = mesh.node.state
    model = state.model
    shown = state.plan or state.proposed
    planned: dict[str, dict[str, int]] = {}
    for stage in shown.stages if shown is not None else ():
        for peer in (stage.primary, *stage.standbys):
            part = planned.setdefault(peer, {"weight_bytes": 0, "kv_bytes": 0, "overhead_bytes": 0})
            part["weight_bytes"] += stage.weight_bytes
            part["kv_bytes"] += stage.kv_bytes
            part["overhead_bytes"] = stage.overhead_bytes
    return {
        "model": model.name if model else None,
        "model_id": model.model if model else None,
        "context": model.context if model else 0,
        "sessions": model.sessions if model else 0,
        "serving": state.serving() is not None,
        "refused": state.refused,
        "plan": _plan_dict(state),
        "members": [
            {
                "peer": peer,
                "name": member.name,
                "compute": member.compute,
                "status": member.status,
                "stage": _stage_of(state, peer),
                "planned": planned.get(peer),
                "report": reports.get(peer),
            }
            for peer, member in sorted(
                state.members.items(), key=lambda item: (not item[1].compute, item[1].name)
            )
        ],
        "links": [
            {"src": x.src, "dst": x.dst, "rtt_us": x.rtt_us, "bytes_per_s": x.bytes_per_s}
            for x in state.links
        ],
    }


def _plan_dict(state: MeshState) -> dict[str, Any] | None:
    shown = state.plan
    if shown is None:
        return None
    return {
        "version": shown.version,
        "stages": [
            {"first": s.first, "stop": s.stop, "primary": s.primary, "standbys": list(s.standbys)}
            for s in shown.stages
        ],
        "predicted_ms_per_token": shown.predicted_token_us / 1000,
        "predicted_tokens_per_s": shown.predicted_rate_milli / 1000,
        "why": list(shown.why),
    }


def _stage_of(state: MeshState, peer: str) -> str:
    for number, stage in enumerate(state.plan.stages if state.plan else (), start=1):
        if peer == stage.primary:
            return f"{number}"
        if peer in stage.standbys:
            return f"{number} standby"
    return "-"


def table(data: dict[str, Any]) -> Table:
    """The snapshot for people."""
    serving = "answering" if data["serving"] else f"not answering: {data['refused'] or 'peers are loading'}"
    title = f"{data['model']}  context {data['context']} x {data['sessions']} sessions  {serving}"
    shown = Table(title=title, title_justify="left")
    for heading in (
        "peer",
        "stage",
        "units",
        "weights",
        "KV",
        "process",
        "pledge",
        "sessions",
        "tok/s",
        "delay",
    ):
        shown.add_column(
            heading, justify="left" if heading in ("peer", "stage", "units", "delay") else "right"
        )
    for member in data["members"]:
        report = member["report"]
        if report is None:
            shown.add_row(member["name"], member["stage"], "no answer", *[""] * 7)
            continue
        rtts = sorted(value for value in report["rtt_us"].values() if value)
        delay = "-" if not rtts else f"{rtts[0] / 1000:.1f}-{rtts[-1] / 1000:.1f} ms"
        shown.add_row(
            member["name"] if member["compute"] else f"{member['name']} (asks)",
            member["stage"],
            " ".join(f"{first}-{stop - 1}" for first, stop in report["runs"]) or "-",
            bytes_text(report["weight_bytes"]),
            bytes_text(report["kv_bytes"]),
            bytes_text(report["rss_bytes"]),
            bytes_text(report["pledge_bytes"]) if report["pledge_bytes"] else "-",
            f"{report['active']}/{report['sessions']}",
            f"{report['tokens_per_s_milli'] / 1000:.1f}" if report["tokens_per_s_milli"] else "-",
            delay,
        )
    plan_data = data["plan"]
    if plan_data is not None:
        shown.caption = (
            f"plan {plan_data['version']}: {plan_data['predicted_ms_per_token']:.1f} ms per token predicted"
        )
        shown.caption_justify = "left"
    return shown


async def run_plan(args: argparse.Namespace) -> int:
    """Explains the plan of a mesh (LINK), or of a described cluster (a JSON file)."""
    path = Path(args.what)
    if "#" not in args.what:
        try:
            request = decode_request(await asyncio.to_thread(path.read_bytes))
        except FileNotFoundError:
            raise BadCommand(
                f"{args.what!r} is neither an invite link nor a file with a plan request"
            ) from None
    else:
        args.link = args.what
        async with asker(args) as mesh:
            assert mesh.manifest is not None
            request = request_of(mesh.node.state, mesh.manifest)
    answer = await asyncio.to_thread(plan, request)
    if args.json:
        out.print(encode_answer(answer).decode(), markup=False)
    else:
        for line in explain(request, answer):
            out.print(line, markup=False)
    return 1 if isinstance(answer, Infeasible) else 0


def request_of(state: MeshState, manifest: Manifest) -> PlanRequest:
    """What the coordinator asks the planner, rebuilt from the state every member has."""
    model = state.model
    assert model is not None
    members = [m for _, m in sorted(state.members.items()) if m.compute and m.status == "measured"]
    here = {member.peer for member in members}
    return PlanRequest(
        units=manifest.planner_units(),
        peers=tuple(planner_profile(member) for member in members),
        links=tuple(planner_link(x) for x in state.links if x.src in here and x.dst in here),
        context=model.context,
        sessions=model.sessions,
        objective=model.objective,
    )
