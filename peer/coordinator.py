"""Decides, on the one peer that coordinates: who is in, when to plan anew, when a plan takes over.

Pure: commands and planner results in, commands for the log out. The founding peer runs this; a replicated log can take
the place of the list that `Coordinator` returns without any other change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from peer.errors import BadCommand
from peer.mesh_state import (
    Command,
    LinkFacts,
    Member,
    MemberDraining,
    MemberLeaving,
    MemberLeft,
    MemberMeasured,
    MemberPaused,
    MeshState,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanRefused,
    UnitsHeld,
    apply,
    plan_record,
    planner_link,
    planner_profile,
)
from planner.cost import check_request, evaluate, make_stage, profiles
from planner.errors import RequestError
from planner.placement import replan_held
from planner.types import Infeasible, Plan, PlanRequest, Stage, Unit

WORTH_MOVING = 0.95  # a new plan replaces a working one only below this share of its predicted time
SLOWEST_RTT_US = 60_000_000  # a link slower than these is as good as none, whoever measured it
SLOWEST_BYTES_PER_S = 1000


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
        self._needed = False  # no plan exists without the members that drain

    def set_cuts(self, cuts: tuple[int, ...] | None) -> None:
        """Fixes the borders by hand, or with None hands them back to the planner. Raises BadCommand on bad borders."""
        if cuts is not None:
            check_cuts(cuts, len(self._units))
        self._cuts = cuts
        self._planned_key = ""

    def told(self, sender: str, command: MemberMeasured | UnitsHeld) -> Command | None:
        """What `sender` says of itself as it may enter the log; None when the log has it already.

        Raises BadCommand. Whatever passes can be planned with, so that no member can stop the planner.
        """
        member = self.state.members.get(sender)
        if member is None or command.peer != sender or not member.compute:
            raise BadCommand("expected what a member that computes says of itself")
        if isinstance(command, UnitsHeld):
            most = len(self._units)
            if len(command.held) > most or any(stop > most for _, stop in command.held):
                raise BadCommand(f"held: expected runs of the model's {most} units")
            return None if command.held == member.held else command
        kinds = {unit.kind for unit in self._units}
        profile = command.profile
        for table in (profile.decode_ns, profile.prefill_ns, profile.batch_ns):
            if not table.keys() <= kinds:
                raise BadCommand(f"profile: expected times of {', '.join(sorted(kinds))} only")
        links = tuple(link for link in command.links if self._usable(sender, link))
        kept = replace(command, links=links)
        try:
            check_request(plan_request(apply(self.state, kept), self._units))
        except RequestError as error:
            raise BadCommand(f"profile: {error}") from None
        return kept

    def _usable(self, sender: str, link: LinkFacts) -> bool:
        """Raises BadCommand for a link between others. One to a peer that left meanwhile is not worth an error."""
        if sender not in (link.src, link.dst):
            raise BadCommand("links: expected links of the peer that measured them")
        others = {link.src, link.dst} - {sender}
        fast = link.rtt_us <= SLOWEST_RTT_US and link.bytes_per_s >= SLOWEST_BYTES_PER_S
        return bool(others) and others <= self.state.members.keys() and fast

    def submit(self, command: Command) -> list[Command]:
        """Applies `command` and whatever follows from it at once; returns all of them in log order."""
        log = [command]
        self._apply(command)
        if isinstance(command, MemberMeasured | MemberDraining | MemberPaused | MemberLeaving | MemberLeft):
            self._needed = False
        if (
            isinstance(command, MemberPaused | MemberLeaving | MemberLeft)
            and (quick := self._without_loading()) is not None
        ):
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
        spared = frozenset() if self._needed else self._draining()
        ready = [member for member in ready_to_serve(self.state) if member.peer not in spared]
        if not ready and spared:
            self._needed = True
            return self.wanted()
        if not ready:
            return None  # nobody has measured yet; the founder will
        key = repr((model, self._cuts, [(member.peer, member.profile) for member in ready]))
        if key == self._planned_key:
            return None
        self._planned_key = key
        return Wanted(plan_request(self.state, self._units, spared), key)

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
        if isinstance(result, Infeasible) and self._draining() and not self._needed:
            self._needed = True  # they serve on; looked at again when somebody comes
            self._planned_key = ""
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
        held = {peer: member.held for peer, member in state.members.items()}
        plan = replan_held(plan_request(state, self._units), held)
        return None if plan is None else PlanProposed(plan_record(plan, state.last_version + 1))

    def _draining(self) -> frozenset[str]:
        return frozenset(peer for peer, member in self.state.members.items() if member.status == "draining")

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


def ready_to_serve(state: MeshState) -> list[Member]:
    """The members that a plan may use, by peer id; those that drain only where there is none without them."""
    return [m for _, m in sorted(state.members.items()) if m.compute and m.status in ("measured", "draining")]


def plan_request(
    state: MeshState, units: Sequence[Unit], without: frozenset[str] = frozenset()
) -> PlanRequest:
    """What the planner is asked in this state, once a model is chosen."""
    model = state.model
    assert model is not None
    members = [member for member in ready_to_serve(state) if member.peer not in without]
    here = {member.peer for member in members}
    return PlanRequest(
        units=tuple(units),
        peers=tuple(planner_profile(member) for member in members),
        links=tuple(planner_link(x) for x in state.links if x.src in here and x.dst in here),
        context=model.context,
        sessions=model.sessions,
        objective=model.objective,
    )


def check_cuts(cuts: tuple[int, ...], units: int) -> None:
    """Raises BadCommand unless `cuts` are rising borders inside a model of `units` units."""
    if list(cuts) != sorted(set(cuts)) or any(not 0 < cut < units for cut in cuts):
        raise BadCommand(f"cuts must rise and lie between 1 and {units - 1}, got {list(cuts)}")
