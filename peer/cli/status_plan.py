"""`shoal status` and `shoal plan`: what the mesh is doing, and why its plan is what it is."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from peer.cli.arguments.placement import settings_of
from peer.cli.arguments.plan_goal import wish_of
from peer.cli.chat import asker
from peer.cli.fairness_view import lines_of, snapshot_of
from peer.cli.offers import saved_lines, saved_shown
from peer.cli.plan.placements import chosen, compared
from peer.cli.plan.plan_models import (
    ModelPlan,
    draw,
    of_mesh,
    page_of,
    plan_model,
    request_of_file,
    sections,
)
from peer.coordination.coordinator import plan_request
from peer.coordination.planner_goal import planner_wish, wish_line, wished
from peer.errors import BadCommand
from peer.launch.served_models import decoder_line, decoders_shown, holding_words, offer_line, offers_shown
from peer.launch.terminal import either, interrupts, out, say
from peer.member.byte_sizes import bytes_text
from peer.member.mesh_member import MeshMember
from peer.state.decoder_sight import seen_as
from peer.state.display_names import name_of, named, names, plain
from peer.state.mesh_state import AWAY, MeshState
from peer.state.plan_record import route_of, team_of
from peer.state.protection import level_of
from peer.state.readiness import NO_WORDS, NOTHING, why_no_words, why_not_ready
from planner.adapt.serving_plan import choose, default_wish
from planner.cost.objectives import Component, Wish
from planner.cost.wording import AGAIN, TIMES, units_text
from planner.model.arithmetic_class import shown as shown_class
from planner.model.manifest import Manifest
from planner.model.store import Store
from planner.reports.plan_text import explain
from planner.service.request_codec import encode_answer
from planner.types import Infeasible, Plan, PlanRequest

REFRESH_S = 1.0
NAME_CHARS = 18  # of a name in the table, which fits 80 columns


async def status(args: argparse.Namespace) -> int:
    """A live table of peers, stages, memory, delays and tokens per second."""
    with interrupts() as ctrl:
        async with asker(args, ctrl) as mesh:
            with ctrl.cancelling():
                if args.json:
                    out.print_json(json.dumps(await snapshot(mesh)), ensure_ascii=True)
                    return 0
                if args.once or not out.is_terminal:
                    out.print(view(await snapshot(mesh)))
                    return 0
            with Live(console=out, auto_refresh=False) as live:
                while not ctrl.asked.is_set() and not mesh.ended.is_set():
                    live.update(view(await snapshot(mesh)), refresh=True)
                    pause = asyncio.Event()
                    handle = asyncio.get_running_loop().call_later(REFRESH_S, pause.set)
                    await either(ctrl.asked, mesh.ended, pause)
                    handle.cancel()
            if not ctrl.asked.is_set():
                raise BadCommand(mesh.why_ended)
    return 0


async def snapshot(mesh: MeshMember) -> dict[str, Any]:
    """Mesh state and every member's own report, as plain data."""
    reports = await mesh.status()
    state = mesh.view.state
    model = state.model
    shown = state.plan or state.proposed
    called = names(state.members)
    units = mesh.manifest.planner_units() if mesh.manifest is not None else ()
    planned: dict[str, dict[str, int]] = {}
    own = {peer for stage in (shown.stages if shown else ()) for peer in (*team_of(stage), *stage.standbys)}
    further = (each.plan or each.proposed for each in state.decoders.values() if not each.refused)
    every = [stage for plan in (shown, *further) if plan is not None for stage in plan.stages]
    for stage in every:
        for peer in (*team_of(stage), *stage.standbys):
            part = planned.setdefault(peer, {"weight_bytes": 0, "kv_bytes": 0, "overhead_bytes": 0})
            part["weight_bytes"] += stage.weight_bytes
            part["kv_bytes"] += stage.kv_bytes
            part["overhead_bytes"] = stage.overhead_bytes
    return {
        "model": plain(model.name) if model else None,
        "model_id": model.model if model else None,
        "units": len(units),
        "context": model.context if model else 0,
        "sessions": model.sessions if model else 0,
        "serving": mesh.serves,
        "unreached": sorted(called[peer] for peer in mesh.links.unreached if peer in own),
        "refused": named(state.refused, state.members),
        "consensus": _consensus(mesh, reports),
        "signaling": list(state.signaling),
        "wish": asdict(wished(state)),
        "wished": wish_line(state),
        "protection": {"level": level_of(state.protection), **asdict(state.protection)},
        "shares": snapshot_of(state),
        "plan": _plan_dict(state),
        "decoders": decoders_shown(state),
        "offers": offers_shown(state),
        "saved": await saved_shown(mesh),
        "members": [
            {
                "peer": peer,
                "name": called[peer],
                "self": peer == mesh.me,
                "compute": member.compute,
                "status": member.status,
                "reason": plain(member.reason),
                "stage": _stage_of(state, peer),
                "planned": planned.get(peer),
                "surroundings": asdict(member.profile.surroundings) if member.profile is not None else None,
                "arithmetic": member.profile.arithmetic if member.profile is not None else "",
                "hop_us": _hop_us(state, peer, reports.get(peer)),
                "report": reports.get(peer),
            }
            for peer, member in sorted(
                state.members.items(),
                key=lambda item: (not item[1].compute, _stage_of(state, item[0]), called[item[0]]),
            )
        ],
        "links": [
            {
                "src": x.src,
                "dst": x.dst,
                "rtt_us": x.rtt_us,
                "bytes_per_s": x.bytes_per_s,
                "relayed": x.relayed,
            }
            for x in state.links
        ],
    }


def _consensus(mesh: MeshMember, reports: dict[str, Any]) -> dict[str, Any]:
    """Who leads, who votes, who learns, and how far each is behind what is committed."""
    replica = mesh.view.replica
    if replica is None:
        return {
            "leader": None,
            "term": 0,
            "epoch": 0,
            "voters": [],
            "learners": [],
            "commit": 0,
            "lag": {},
            "away": None,
        }
    status = replica.status()
    applied = {peer: report["applied"] for peer, report in reports.items() if "applied" in report}
    commit = max([status.commit, *(report.get("commit", 0) for report in reports.values())])
    return {
        "leader": status.leader or None,
        "term": status.term,
        "epoch": replica.epoch,
        "voters": list(status.config.voters),
        "learners": [server.id for server in status.config.servers if not server.voter],
        "commit": commit,
        "lag": {peer: max(0, commit - count) for peer, count in sorted(applied.items())},
        "away": str(mesh.away) if mesh.away is not None else None,
    }


def consensus_line(shown: dict[str, Any], called: dict[str, str]) -> str:
    """Who coordinates and who could, in words; why nobody does, and what works all the same."""

    voters = ", ".join(name_of(peer, called) for peer in shown["voters"])
    if shown["leader"] is None:
        away = (
            shown["away"]
            or "nobody coordinates now: answers go on, but peers that come or go are not planned for"
        )
        return f"{away}; voters: {voters or 'unknown'}"
    learners = f", {len(shown['learners'])} more learn along" if shown["learners"] else ""
    behind = [f"{name_of(peer, called)} {lag} behind" for peer, lag in shown["lag"].items() if lag]
    lag = f" ({', '.join(behind)})" if behind else ""
    epoch = f", epoch {shown['epoch']}" if shown["epoch"] > 1 else ""
    return (
        f"{name_of(shown['leader'], called)} coordinates (term {shown['term']}{epoch}); voters: {voters}{learners}; "
        f"{shown['commit']} entries committed{lag}"
    )


def _plan_dict(state: MeshState) -> dict[str, Any] | None:
    shown = state.plan
    if shown is None:
        return None
    return {
        "version": shown.version,
        "stages": [
            {
                "first": s.first,
                "stop": s.stop,
                "primary": s.primary,
                "helpers": list(s.helpers),
                "standbys": list(s.standbys),
                "ready": [peer for peer in s.standbys if _holds(state, peer, (s.first, s.stop))],
            }
            for s in shown.stages
        ],
        "predicted_ms_per_token": shown.predicted_token_us / 1000,
        "predicted_tokens_per_s": shown.predicted_rate_milli / 1000,
        "why": [named(line, state.members) for line in shown.why],
        "choices": [
            {
                **asdict(each),
                "name": named(each.name, state.members),
                "why_not": named(each.why_not, state.members),
            }
            for each in shown.choices
        ],
    }


def _holds(state: MeshState, peer: str, run: tuple[int, int]) -> bool:
    """Whether a standby could take over now."""
    member = state.members.get(peer)
    return member is not None and member.status not in AWAY and run in member.held


def _stage_of(state: MeshState, peer: str) -> str:
    """The places of `peer`, those it serves first: "2, 1 standby"."""
    stages = list(enumerate(state.plan.stages if state.plan else (), start=1))
    serves = [
        f"{number} helper" if peer in stage.helpers else f"{number}"
        for number, stage in stages
        if peer in team_of(stage)
    ]
    stands_by = [f"{number} standby" for number, stage in stages if peer in stage.standbys]
    return ", ".join([*serves, *stands_by]) or "-"


def _hop_us(state: MeshState, peer: str, report: dict[str, Any] | None) -> int | None:
    """Measured delay from a stage's primary to the next stage (from the last to the first): half the round trip."""
    route = route_of(state.plan) if state.plan else ()
    if report is None or peer not in route or len(route) < 2:
        return None
    following = route[(route.index(peer) + 1) % len(route)]
    rtt = report["rtt_us"].get(following)
    return rtt // 2 if isinstance(rtt, int) and rtt else None


def view(data: dict[str, Any]) -> Group:
    """The snapshot for people: one line on the mesh, one row for each peer that computes, and the plan."""
    in_words = data["model"] is not None
    lines = [f"{data['model']}, {data['sessions']} conversations of {data['context']} tokens"]
    if not in_words:
        lines = [_runs_only_line(data["offers"])]
    elif not data["serving"]:
        lost = f"no connection to {', '.join(data['unreached'])}" if data["unreached"] else ""
        lines.append(f"not answering: {lost or data['refused'] or 'peers are loading'}")
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    shown.add_column("peer", no_wrap=True, max_width=NAME_CHARS)
    for heading in ("stage", "units", "memory", "planned", "lent", "in use", "tok/s", "hop"):
        shown.add_column(heading, justify="left" if heading in ("stage", "units") else "right", no_wrap=True)
    for member in data["members"]:
        if member["compute"]:
            shown.add_row(*map(Text, _row(member)))  # as it is: a name may look like markup
    lines.append(data["wished"] if in_words else f"models are placed for {data['wish']['goal']}")
    lines.append(_protection_line(data["protection"]))
    lines.append(
        consensus_line(data["consensus"], {member["peer"]: member["name"] for member in data["members"]})
    )
    asking = [member["name"] for member in data["members"] if not member["compute"] and not member["self"]]
    tail = [f"{member['name']} {_less(member)}" for member in data["members"] if member["reason"]]
    tail += [f"asking: {', '.join(asking)}"] if asking else []
    plan_data = data["plan"]
    called = {member["peer"]: member["name"] for member in data["members"]}
    tail += _arithmetic_lines(data["members"])
    tail += _left_alone(data["members"], called)
    tail += _measured_again(data["members"], data["consensus"]["leader"], called)
    tail += lines_of(data["shares"], called)
    if plan_data is not None:
        tail += _standby_lines(plan_data["stages"], called)
        rate = plan_data["predicted_tokens_per_s"]
        tail.append(
            f"plan {plan_data['version']} expects {plan_data['predicted_ms_per_token']:.1f} ms a token for one "
            f"conversation, {rate:.0f} tokens/s for all"
        )
        tail += plan_data["why"][:1]
    tail += [decoder_line(each, called) for each in data["decoders"]]
    tail += [offer_line(shown_offer["name"], shown_offer, called) for shown_offer in data["offers"]]
    tail += saved_lines(data["saved"])
    return Group(*map(Text, lines), shown, *map(Text, tail))


def _runs_only_line(offers: list[dict[str, Any]]) -> str:
    """What a mesh does that answers nothing in words."""
    if not offers:
        return f"{NO_WORDS}, and {NOTHING}"
    running = sum(bool(offer["stages"]) for offer in offers)
    return f"{NO_WORDS}; it runs {running} of {len(offers)} offered, which shoal run asks"


_SHADOWS = {
    "off": "standbys get nothing",
    "log": "standbys keep activations",
    "shadow": "standbys compute along",
}
_STRATEGIES = {
    "simple": "a loss waits for the same peer",
    "progressive": "a loss goes to the standby, then to a new plan",
    "parallel": "a loss goes to the standby and to a new plan at once",
    "coordinated": "a loss goes where the coordinator says",
}


def _protection_line(chosen: dict[str, Any]) -> str:
    """How answers are protected, in words."""
    spare = ", spare peers stand by" if chosen["spare"] else ""
    parts = [
        f"protection {chosen['level'] or 'of its own'}: {chosen['redundancy_milli'] / 1000:g} copies{spare}",
        _SHADOWS[chosen["shadow"]],
        _STRATEGIES[chosen["strategy"]],
    ]
    return "; ".join([*parts, *([f"first {', '.join(chosen['priority'])}"] if chosen["priority"] else [])])


def _standby_lines(stages: list[dict[str, Any]], called: dict[str, str]) -> list[str]:
    """Who could take over which stage, and who still loads; nothing where nobody stands by for any."""
    if not any(stage["standbys"] for stage in stages):
        return []
    lines = []
    for number, stage in enumerate(stages, start=1):
        names_of = [
            f"{name_of(peer, called)} {'ready' if peer in stage['ready'] else 'not ready'}"
            for peer in stage["standbys"]
        ]
        lines.append(f"stage {number} stands by: {', '.join(names_of) or 'nobody'}")
    return lines


def _arithmetic_lines(members: list[dict[str, Any]]) -> list[str]:
    """Who computes with which class of arithmetic; nothing where none is known."""
    by_class: dict[str, list[str]] = {}
    for member in members:
        if member["compute"]:
            by_class.setdefault(member["arithmetic"], []).append(member["name"])
    if not any(by_class):
        return []
    told = [
        f"{shown_class(each) or 'unknown'}: {', '.join(peers)}"
        for each, peers in sorted(by_class.items(), key=lambda item: (not item[0], -len(item[1]), item[0]))
    ]
    return [f"arithmetic {'; '.join(told)}"]


def _left_alone(members: list[dict[str, Any]], called: dict[str, str]) -> list[str]:
    """Whom members leave alone for a while, after it failed or was slow."""
    by_key: dict[tuple[str, str], list[str]] = {}
    for member in members:
        for key, state in (member["report"] or {}).get("breakers", []):
            by_key.setdefault((key, state), []).append(member["name"])
    lines = []
    for (key, state), seen_by in sorted(by_key.items()):
        what = " to ".join(name_of(peer, called) for peer in key.split(">"))
        how = "is left alone by" if state == "open" else "is being tried again by"
        lines.append(f"{what} {how} {', '.join(seen_by)}")
    return lines


def _measured_again(members: list[dict[str, Any]], leader: str | None, called: dict[str, str]) -> list[str]:
    """Whom the coordinator asked for a fresh measurement, by which it plans."""
    reports = [member["report"] for member in members if member["peer"] == leader and member["report"]]
    fresh = {peer for report in reports for peer in report.get("fresh", [])}
    return [f"{TIMES.lower()}{called[peer]}: {AGAIN}" for peer in sorted(fresh & called.keys())]


def _less(member: dict[str, Any]) -> str:
    """How a member that lends less than it could stands, and why."""
    how = "serves only while nobody else can" if member["status"] == "draining" else f"is {member['status']}"
    return f"{how}: {member['reason']}"


def _row(member: dict[str, Any]) -> tuple[str, ...]:
    report, planned = member["report"], member["planned"]
    if report is None:
        return (member["name"], member["stage"], "no answer")
    # The plan promises the KV of all conversations at their longest; what is occupied grows with them.
    promised = planned and sum(planned.values())
    return (
        member["name"],
        member["stage"].replace(" standby", "s").replace(", ", " "),
        " ".join(f"{first}-{stop - 1}" for first, stop in report["runs"]) or member["status"],
        _mib(report["rss_bytes"]),
        _mib(promised) if promised else "-",
        _mib(report["pledge_bytes"]) if report["pledge_bytes"] else "-",
        f"{report['active']}/{report['sessions']}" if report["sessions"] else "-",
        f"{report['tokens_per_s_milli'] / 1000:.1f}" if report["tokens_per_s_milli"] else "-",
        f"{member['hop_us'] / 1000:.1f} ms" if member["hop_us"] else "-",
    )


def _mib(count: int) -> str:
    return bytes_text(count) if count >= 10 << 30 else f"{count / (1 << 20):.0f} MiB"


def holders(mesh: MeshMember) -> Table:
    """Who holds what: the stages of the plan in force, in the words of the planner."""
    state = mesh.view.state
    assert mesh.manifest is not None
    request = request_of(state, mesh.manifest)
    called = names(state.members)
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in ("peer", "holds", "weights", "KV", "lends"):
        shown.add_column(heading, justify="left" if heading in ("peer", "holds") else "right")
    for stage in state.plan.stages if state.plan is not None else ():
        for peer in team_of(stage):
            member = state.members[peer]
            part = "a slice of " if stage.helpers else ""
            shown.add_row(
                Text(called[peer]),
                part + units_text(request, stage.first, stage.stop),
                _mib(stage.weight_bytes),
                _mib(stage.kv_bytes),
                _mib(member.profile.memory_bytes) if member.profile is not None else "-",
            )
    return shown


@dataclass(frozen=True, slots=True)
class Described:
    """What `shoal plan` plans for: a mesh, or a cluster that a file describes."""

    request: PlanRequest | None  # None: of a mesh without a model that answers in words
    wish: Wish | None
    called: Mapping[str, str] = field(default_factory=dict)  # names of peers, by id
    mesh: MeshState | None = None  # None: of a file, where nothing runs
    models: tuple[ModelPlan, ...] = ()  # that the mesh offers beside its own


async def run_plan(args: argparse.Namespace) -> int:
    """Explains the plans of a mesh (LINK): the one that runs, the one that would be made now, and those of the models
    that it offers. Of a cluster that a JSON file describes there is only the second. `--model`: one other model alone.
    """
    if args.model is not None:
        return await plan_model(args, running_lines)
    of = await (_of_mesh(args) if "#" in args.what else asyncio.to_thread(_of_file, args.what))
    if of.request is None:
        return await _plan_offered(args, of)
    wish = _wish(args, of)
    if args.compare:
        return await _compare(args, of.request, wish)
    if args.placement == "auto":
        answer = await asyncio.to_thread(choose, of.request, wish)
    else:
        answer = await asyncio.to_thread(chosen, of.request, wish, args.placement, settings_of(args))
    request, named_answer = with_names(of.request, answer, of.called)
    running = running_lines(of.mesh) if of.mesh is not None else []
    if args.html is not None:
        title = "The plan that would be made now" if of.mesh is not None else "Where the model runs"
        beside = await asyncio.to_thread(sections, of.models)
        await asyncio.to_thread(_draw, args.html, request, named_answer, title, running, beside)
    if args.json:
        planned = json.loads(encode_answer(answer))
        shown = planned
        if of.mesh is not None:
            models = [model.fields for model in of.models]
            words = decoders_shown(of.mesh)
            shown = {
                "running": _plan_dict(of.mesh),
                "would_be": planned,
                "models": models,
                "decoders": words,
            }
        out.print(json.dumps(shown), markup=False)
    else:
        by = default_wish(request) if wish is None else wish
        goal = f"strategy {by.strategy}, for {by.goal}"
        heading = [*running, "", f"would be, if it were made now: {goal}"] if running else [goal]
        others = [line for model in of.models for line in ("", *model.lines)]
        for name in sorted(of.mesh.decoders) if of.mesh is not None else ():
            assert of.mesh is not None
            others += ["", f"{name}, which answers in words, too:", *running_lines(seen_as(of.mesh, name))]
        for line in (*heading, *explain(request, named_answer), *others):
            out.print(line, markup=False)
    if args.html is not None:
        say(f"drawn in {args.html}: open it in a browser")
    return 1 if isinstance(answer, Infeasible) else 0


async def _compare(args: argparse.Namespace, request: PlanRequest, wish: Wish | None) -> int:
    """Tells what every placement finds; 1 where none finds a plan."""
    found = await asyncio.to_thread(compared, request, wish, settings_of(args))
    if args.json:
        out.print(json.dumps(found.fields), markup=False)
    else:
        for line in found.lines:
            out.print(line, markup=False)
    return 0 if any(each.found is not None for each in found.made) else 1


async def _plan_offered(args: argparse.Namespace, of: Described) -> int:
    """Explains where offered models run, which is all there is where none answers in words; 1 where none runs."""
    assert of.mesh is not None
    if wish_of(args) is not None:
        raise BadCommand(
            f"{why_no_words(of.mesh)}; --goal, --strategy and --component are about plans of one that does: leave them "
            "out, or say shoal wish --goal"
        )
    if args.html is not None:
        await asyncio.to_thread(draw, args.html, page_of(of.models))
    if args.json:
        models = [model.fields for model in of.models]
        out.print(json.dumps({"running": None, "would_be": None, "models": models}), markup=False)
    else:
        for line in (why_no_words(of.mesh), *(line for model in of.models for line in ("", *model.lines))):
            out.print(line, markup=False)
    if args.html is not None:
        say(f"drawn in {args.html}: open it in a browser")
    return 0 if any(model.found is not None for model in of.models) else 1


def running_lines(state: MeshState) -> list[str]:
    """The plan that the mesh computes by, for people; why there is none where none is."""
    plan, serving = state.plan, state.serving()
    if plan is None:
        why = why_not_ready(state)
        return [f"running now: no plan, {why}"]
    called = names(state.members)
    told = _plan_dict(state)
    assert told is not None
    lines = [
        f"running now: plan {plan.version}, expected {told['predicted_ms_per_token']:.1f} ms a token for one "
        f"conversation, {told['predicted_tokens_per_s']:.0f} tokens/s for all"
        + ("" if serving is not None else "; it cannot answer, a peer of it is away")
    ]
    lines += [
        f"stage {number}: {holding_words(stage, called)}" for number, stage in enumerate(plan.stages, start=1)
    ]
    return [*lines, *_standby_lines(told["stages"], called), *told["why"]]


def _wish(args: argparse.Namespace, of: Described) -> Wish | None:
    """What the command line wishes for, else what the mesh or the file does."""
    given = wish_of(args)
    if given is None:
        return of.wish
    ids = {name: peer for peer, name in of.called.items()}
    groups = tuple(
        Component(group.name, group.first, group.stop, ids.get(group.prefers, group.prefers) or None)
        for group in given.components
    )
    goal = args.goal or (of.wish.goal if of.wish is not None else given.goal)
    return Wish(goal, given.strategy, components=groups, min_tensor_bytes=given.min_tensor_bytes)


def _draw(
    file: Path,
    request: PlanRequest,
    answer: Plan | Infeasible,
    title: str,
    running: Sequence[str],
    beside: str,
) -> None:
    from planner.reports.plan_page import plan_page

    draw(file, plan_page(request, answer, title, running, beside))


def _of_file(name: str) -> Described:
    return Described(*request_of_file(name))


async def _of_mesh(args: argparse.Namespace) -> Described:
    args.link = args.what
    with interrupts() as ctrl:
        async with asker(args, ctrl) as mesh:
            state = mesh.view.state
            with ctrl.cancelling():
                models = await of_mesh(mesh, None, Store(args.store))
            if mesh.manifest is None:
                return Described(None, None, names(state.members), state, models)
            return Described(
                request_of(state, mesh.manifest), planner_wish(state), names(state.members), state, models
            )


def request_of(state: MeshState, manifest: Manifest) -> PlanRequest:
    """What the coordinator asks the planner, rebuilt from the state every member has."""
    return plan_request(state, manifest.planner_units())


def with_names(
    request: PlanRequest, answer: Plan | Infeasible, called: Mapping[str, str]
) -> tuple[PlanRequest, Plan | Infeasible]:
    """Both with names for peer ids. The planner itself works on ids: names must not break its ties."""

    def name(peer: str) -> str:
        return called.get(peer, peer)

    def words(text: str) -> str:
        for peer, its_name in called.items():
            text = text.replace(peer, its_name)
        return text

    shown = replace(
        request,
        peers=tuple(replace(peer, peer=name(peer.peer)) for peer in request.peers),
        links=tuple(replace(link, src=name(link.src), dst=name(link.dst)) for link in request.links),
    )
    match answer:
        case Infeasible():
            return shown, replace(answer, reason=words(answer.reason))
        case Plan():
            stages = tuple(
                replace(
                    stage,
                    peer=name(stage.peer),
                    standbys=tuple(map(name, stage.standbys)),
                    helpers=tuple(map(name, stage.helpers)),
                )
                for stage in answer.stages
            )
            return shown, replace(answer, stages=stages, why=tuple(map(words, answer.why)))
