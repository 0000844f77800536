"""Decides, on the one peer that coordinates: who is in, when to plan anew, when a plan takes over.

Pure: commands and planner results in, commands for the log out. The founding peer runs this; a replicated log can take
the place of the list that `Coordinator` returns without any other change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peer.errors import BadCommand
from peer.mesh_state import (
    Command,
    MemberLeaving,
    MemberLeft,
    MeshState,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanRefused,
    apply,
    plan_record,
    planner_link,
    planner_profile,
)
from planner.cost import evaluate, make_stage, profiles
from planner.errors import RequestError
from planner.placement import replan_held
from planner.types import Infeasible, Plan, PlanRequest, Stage, Unit

WORTH_MOVING = 0.95  # a new plan replaces a working one only below this share of its predicted time


@dataclass(frozen=True, slots=True)
class Wanted:
    """A planner run to make: `request`, and the cuts that people fixed by hand (empty: the planner decides)."""

    request: PlanRequest
    key: str  # what the request was made of; a result for an older key is dropped


class Coordinator:
    """The log's writer. `state` is what all commands so far build."""

    def __init__(
        self, me: str, units: Sequence[Unit], cuts: tuple[int, ...] | None = None, term: int = 1
    ) -> None:
        self.me = me
        self.state = MeshState(term=term)
        self._units = tuple(units)
        self._cuts = cuts  # unit borders fixed by hand; stages go to peers in the order they joined
        self._planned_key = ""
        self._joined: list[str] = []  # order of joining, for hand-made cuts

    def set_cuts(self, cuts: tuple[int, ...] | None) -> None:
        """Fixes the borders by hand, or with None hands them back to the planner. Raises BadCommand on bad borders."""
        if cuts is not None:
            check_cuts(cuts, len(self._units))
        self._cuts = cuts
        self._planned_key = ""

    def submit(self, command: Command) -> list[Command]:
        """Applies `command` and whatever follows from it at once; returns all of them in log order."""
        log = [command]
        self._apply(command)
        if isinstance(command, MemberLeaving | MemberLeft) and (quick := self._without_loading()) is not None:
            log.append(quick)
            self._apply(quick)
        while (follow := self._follow_up()) is not None:
            log.append(follow)
            self._apply(follow)
        return log

    def wanted(self) -> Wanted | None:
        """The planner run that the present members call for, unless it was made already."""
        model = self.state.model
        if model is None:
            return None
        members = [m for _, m in sorted(self.state.members.items()) if m.compute and m.status == "measured"]
        if not members:
            return None  # nobody has measured yet; the founder will
        measured = {member.peer for member in members}
        key = repr((model, self._cuts, sorted(measured)))
        if key == self._planned_key:
            return None
        self._planned_key = key
        request = PlanRequest(
            units=self._units,
            peers=tuple(planner_profile(member) for member in members),
            links=tuple(planner_link(x) for x in self.state.links if x.src in measured and x.dst in measured),
            context=model.context,
            sessions=model.sessions,
            objective=model.objective,
        )
        return Wanted(request, key)

    def by_hand(self, request: PlanRequest) -> Plan | Infeasible | None:
        """The plan for cuts fixed by hand: the stages in order of joining. None when the planner decides."""
        if self._cuts is None:
            return None
        borders = (0, *self._cuts, len(self._units))
        here = {profile.peer for profile in request.peers}
        order = [peer for peer in self._joined if peer in here]
        wanted = len(borders) - 1
        if len(order) < wanted:
            return Infeasible(f"the cuts {list(self._cuts)} need {wanted} peers, here: {len(order)}")
        profile = profiles(request)
        spans = zip(borders, borders[1:], order, strict=False)
        stages = tuple(make_stage(request, profile[peer], first, stop) for first, stop, peer in spans)
        try:
            found = evaluate(request, stages)
        except RequestError as error:
            return Infeasible(f"the cuts {list(self._cuts)} cannot be served: {error}")
        why = (
            f"The borders {list(self._cuts)} were fixed by hand; stages go to peers in the order they joined.",
        )
        return Plan(stages, request.objective, found.decode_s, found.tokens_per_s, found.bottleneck_s, why)

    def planned(self, wanted: Wanted, result: Plan | Infeasible) -> list[Command]:
        """What a planner run leads to: a proposal, a refusal, or nothing when the present plan is as good."""
        if wanted.key != self._planned_key:
            return []
        if isinstance(result, Infeasible):
            serving = self.state.serving() is not None
            return [] if serving else self.submit(PlanRefused(result.reason[:500]))
        record = plan_record(result, self.state.last_version + 1)
        serving_plan = self.state.serving()
        if serving_plan is not None and self._good_enough(serving_plan, record, wanted.request):
            return []
        return self.submit(PlanProposed(record))

    def _good_enough(self, serving: PlanRecord, fresh: PlanRecord, request: PlanRequest) -> bool:
        if self._cuts is not None or fresh.holders() == serving.holders():
            return fresh.holders() == serving.holders()
        try:
            present = evaluate(request, tuple(Stage(s.first, s.stop, s.primary) for s in serving.stages))
        except RequestError:
            return False
        idle = fresh.holders().keys() - serving.holders().keys()
        if request.objective == "latency":
            better = fresh.predicted_token_us < present.decode_s * 1e6 * WORTH_MOVING
        else:
            better = fresh.predicted_rate_milli * WORTH_MOVING > present.tokens_per_s * 1000
        return not better and not idle

    def _without_loading(self) -> Command | None:
        """After a loss: a plan over units that the others hold already, which can serve at once."""
        state = self.state
        if state.plan is None or state.model is None or state.serving() is not None or self._cuts is not None:
            return None
        members = [m for _, m in sorted(state.members.items()) if m.compute and m.status == "measured"]
        here = {member.peer for member in members}
        request = PlanRequest(
            units=self._units,
            peers=tuple(planner_profile(member) for member in members),
            links=tuple(planner_link(x) for x in state.links if x.src in here and x.dst in here),
            context=state.model.context,
            sessions=state.model.sessions,
            objective=state.model.objective,
        )
        plan = replan_held(request, {member.peer: member.held for member in members})
        return None if plan is None else PlanProposed(plan_record(plan, state.last_version + 1))

    def _follow_up(self) -> Command | None:
        proposed = self.state.proposed
        if proposed is None:
            return None
        if any(stage.primary not in self.state.members for stage in proposed.stages):
            return PlanRefused("a peer of the next plan is gone")
        return PlanActivated(proposed.version) if self.state.ready_for(proposed) else None

    def _apply(self, command: Command) -> None:
        self.state = apply(self.state, command)
        members = self.state.members
        self._joined = [peer for peer in self._joined if peer in members]
        self._joined += [peer for peer in members if peer not in self._joined]


def check_cuts(cuts: tuple[int, ...], units: int) -> None:
    """Raises BadCommand unless `cuts` are rising borders inside a model of `units` units."""
    if list(cuts) != sorted(set(cuts)) or any(not 0 < cut < units for cut in cuts):
        raise BadCommand(f"cuts must rise and lie between 1 and {units - 1}, got {list(cuts)}")
