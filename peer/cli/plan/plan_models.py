"""`shoal plan` of models that are graphs of units: who runs what, in time, in a mesh or on peers of a file."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from peer.cli.chat import asker
from peer.coordination.offer_schedule import OfferSchedule, running, would_be
from peer.errors import BadCommand, PeerError
from peer.launch.offered_models import graph_of_store
from peer.launch.served_models import decoder_shown
from peer.launch.terminal import interrupts, out, say
from peer.member.mesh_member import MeshMember
from peer.state.decoder_sight import seen_as
from peer.state.display_names import name_of, named, names
from peer.state.mesh_state import MeshState
from planner.cost.graph_cost import GraphRequest
from planner.cost.graph_peers import graph_peers
from planner.cost.graph_schedule import Schedule, schedule
from planner.cost.objectives import Wish
from planner.errors import ModelError, PlannerError, RequestError
from planner.model.graph_work import work_of
from planner.model.store import Store
from planner.model.yardstick import UNITS
from planner.reports.graph_text import run_lines
from planner.service.request_codec import decode_wished
from planner.solvers.graph_placement import place
from planner.types import Infeasible, Objective, PlanRequest

RUNS: Final = "It runs so now."
WOULD: Final = "It is not offered: so it would be placed now, beside what runs."
MADE_UP: Final = "So it would be placed on these peers, with all the memory that they lend."
SAMPLE: Final = "a sample is examples/cluster.json in the source"
NOWHERE: Final = "It runs nowhere."


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """What is shown of one model. `found` has names for peers; None where there is nothing to draw."""

    name: str
    when: str
    found: Schedule | None
    why: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """For people."""
        if self.found is None:
            return (f"{self.name} runs nowhere: {'; '.join(self.why)}",)
        return (f"{self.name}: {self.when}", *run_lines(self.found), *self.why)

    @property
    def fields(self) -> dict[str, Any]:
        """For programs. Times are seconds from the start of a run."""
        return {
            "name": self.name,
            "runs": self.when == RUNS and self.found is not None,
            "schedule": None if self.found is None else asdict(self.found),
            "why": list(self.why),
        }


async def of_mesh(mesh: MeshMember, chosen: str | None, store: Store) -> tuple[ModelPlan, ...]:
    """The models that the mesh offers, by name; or the one that is `chosen`, of the mesh or of the store.

    Raises PeerError and PlannerError for a chosen one that cannot be had.
    """
    state = mesh.view.state
    units = mesh.manifest.planner_units() if mesh.manifest is not None else UNITS
    flops: dict[str, int] = {unit.kind: unit.flops_per_token for unit in units}
    if chosen is not None and chosen not in state.offers:
        try:
            model, manifest = await asyncio.to_thread(graph_of_store, store, chosen)
        except ModelError as error:
            have = ", ".join(sorted(state.offers)) or "nothing"
            raise BadCommand(f"--model: the mesh offers {have:.400}; and of the store: {error}") from None
        found = await asyncio.to_thread(would_be, state, model, work_of(manifest), flops)
        return (_told(state, manifest.name, WOULD, found),)
    shown = sorted(state.offers) if chosen is None else [chosen]
    return tuple([await _offered(mesh, state, name, flops) for name in shown])


async def _offered(mesh: MeshMember, state: MeshState, name: str, flops: Mapping[str, int]) -> ModelPlan:
    try:
        work = work_of(await mesh.graph_manifest(state.offers[name].model))
    except (PeerError, PlannerError) as error:
        return _told(state, name, RUNS, OfferSchedule(None, (f"its manifest cannot be had: {error}",)))
    return _told(state, name, RUNS, running(state, name, work, flops))


def _told(state: MeshState, name: str, when: str, found: OfferSchedule) -> ModelPlan:
    called = names(state.members)
    drawn = None if found.found is None else found.found.named(lambda peer: name_of(peer, called))
    return ModelPlan(name, when, drawn, tuple(named(line, state.members) for line in found.why))


def on_peers_of(request: PlanRequest, store: Store, model: str, objective: Objective) -> ModelPlan:
    """A model of the store, imported where it is not there, on the peers of a request for another model. May take
    seconds. Raises PlannerError.
    """
    _, manifest = graph_of_store(store, model)
    asked = GraphRequest(
        work_of(manifest),
        graph_peers(request),
        request.links,
        origin=request.origin,
        objective=objective,
        standbys=1 if request.spare else 0,
    )
    match place(asked):
        case Infeasible(reason):
            return ModelPlan(manifest.name, MADE_UP, None, (reason,))
        case plan:
            return ModelPlan(manifest.name, MADE_UP, schedule(asked, plan.stages), plan.why)


async def plan_model(args: argparse.Namespace, running_lines: Callable[[MeshState], Sequence[str]]) -> int:
    """Draws the model `args.model`: in the mesh that `args.what` leads to, or on the peers that a file describes; 1
    where it runs nowhere. `running_lines(state)` tells the plan of one that answers in words, which is not drawn.
    """
    if "#" not in args.what:
        store, objective = Store(args.store), objective_of(args)
        asked, _ = await asyncio.to_thread(request_of_file, args.what)
        plan = await asyncio.to_thread(on_peers_of, asked, store, args.model, objective)
    else:
        args.link = args.what
        with interrupts() as ctrl:
            async with asker(args, ctrl) as mesh:
                if args.model in mesh.view.state.decoders:
                    return _told_in_words(args, mesh.view.state, running_lines)
                with ctrl.cancelling():
                    [plan] = await of_mesh(mesh, args.model, Store(args.store))
    if args.html is not None:
        await asyncio.to_thread(draw, args.html, page_of([plan]))
    if args.json:
        out.print_json(json.dumps(plan.fields), ensure_ascii=True)
    else:
        for line in plan.lines:
            out.print(line, markup=False)
    if args.html is not None:
        say(f"drawn in {args.html}: open it in a browser")
    return 0 if plan.found is not None else 1


def _told_in_words(
    args: argparse.Namespace, state: MeshState, running_lines: Callable[[MeshState], Sequence[str]]
) -> int:
    """The plan of a further model that answers in words. Raises BadCommand for a drawing."""
    if args.html is not None:
        raise BadCommand(f"{args.model} answers in words: its plan is told and not drawn; leave out --html")
    seen = seen_as(state, args.model)
    if args.json:
        out.print_json(json.dumps(decoder_shown(state, args.model)), ensure_ascii=True)
    else:
        for line in running_lines(seen):
            out.print(line, markup=False)
    return 0 if seen.plan is not None else 1


def request_of_file(name: str) -> tuple[PlanRequest, Wish | None]:
    """What a file says of peers. Raises BadCommand."""
    try:
        return decode_wished(Path(name).read_bytes())
    except OSError as error:
        raise BadCommand(
            f"{name!r:.200} is neither an invite link (in quotes) nor a file with a plan request: {error.strerror}; "
            f"{SAMPLE}"
        ) from None
    except RequestError as error:
        raise BadCommand(f"{name}: expected a plan request in JSON: {error}; {SAMPLE}") from None


def draw(file: Path, html: str) -> None:
    """Writes a page. Raises BadCommand."""
    try:
        file.write_text(html, encoding="utf-8")
    except OSError as error:
        raise BadCommand(f"{file}: expected a file that can be written: {error.strerror}") from None


def objective_of(args: argparse.Namespace) -> Objective:
    """What a placement on peers of a file is to be good at. Raises BadCommand for what only decoders have."""
    if args.goal not in (None, "latency", "throughput"):
        raise BadCommand("with --model of a file with peers, only --goal latency or throughput can be chosen")
    return "throughput" if args.goal == "throughput" else "latency"


def sections(plans: Sequence[ModelPlan]) -> str:
    """The same for a page."""
    from planner.reports.graph_charts import model_section

    return "".join(
        model_section(plan.name, plan.found, plan.why, plan.when if plan.found is not None else NOWHERE)
        for plan in plans
    )


def page_of(plans: Sequence[ModelPlan]) -> str:
    """A page of its own."""
    from planner.reports.page_kit import page

    return page("Who runs what, in time", f"<h1>Who runs what, in time</h1>{sections(plans)}")
