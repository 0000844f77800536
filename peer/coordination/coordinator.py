"""Decides, on the one peer that coordinates: who is in, when to plan anew, when a plan takes over.

Pure: commands and planner results in, commands for the log out. Whoever leads runs this; `state` runs ahead of the
log by what is not committed yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from peer.audit.receipts import unit_costs
from peer.coordination.planner_goal import planner_wish
from peer.coordination.rebalance import Case, Relief
from peer.coordination.repair_order import chained, priority_stages, waves
from peer.errors import BadCommand
from peer.state.generated.commands import (
    MAX_SHARE,
    CheckFailed,
    CutsFixed,
    DecoderHeld,
    HeldSlice,
    LinkFacts,
    Member,
    MemberDraining,
    MemberLeaving,
    MemberLeft,
    MemberMeasured,
    MemberPaused,
    PeerPardoned,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanRefused,
    PlanWished,
    ProtectionChosen,
    UnitsHeld,
)
from peer.state.member_commands import Command
from peer.state.mesh_state import AWAY, MeshState, apply, plan_record, planner_link, planner_profile
from peer.state.plan_record import computing_in, holders_of, slices_of
from planner.adapt.plan_comparison import with_other_standbys
from planner.adapt.serving_plan import better, choose, choose_after_loss
from planner.cost.evaluator import check_request, evaluate, make_stage, profiles
from planner.cost.independent_copies import COPIES, doubts
from planner.cost.objectives import Wish
from planner.cost.standbys import with_standbys
from planner.errors import RequestError
from planner.solvers.placement import replan_held
from planner.types import Held, Infeasible, Plan, PlanRequest, SharedRun, Stage, Unit

SLOWEST_RTT_US = 60_000_000  # a link slower than these is as good as none, whoever measured it
SLOWEST_BYTES_PER_S = 1000
SILENT = "it does not answer"  # the reason of a member that the coordinator itself drains
KEPT = "The stages stay; who stands by for them has changed."


@dataclass(frozen=True, slots=True)
class Wanted:
    """A planner run to make: `request`, and the cuts that people fixed by hand (empty: the planner decides)."""

    request: PlanRequest
    key: str  # what the request was made of; a result for an older key is dropped
    held: Held  # runs of units that members hold
    wish: Wish
    before: tuple[Stage, ...] = ()  # of a plan that can serve no more: what moves then counts most
    first: tuple[int, ...] = ()  # places of `before` that are lost, in the order of their repair


def solve(wanted: Wanted) -> Plan | Infeasible:
    """The planner's answer. May take seconds."""
    if wanted.before:
        return choose_after_loss(wanted.request, wanted.wish, wanted.held, wanted.before, wanted.first)
    return choose(wanted.request, wanted.wish)


News = Literal["all", "pace", "surroundings"]

_PLANNED_ANEW = (
    MemberMeasured
    | MemberDraining
    | MemberPaused
    | MemberLeaving
    | MemberLeft
    | CheckFailed
    | PeerPardoned
    | ProtectionChosen
    | CutsFixed
    | PlanWished
)  # a plan made after these is not for somebody's pace alone


class Coordinator:
    """The log's writer. `state` is what all commands so far build, those of the coordinators before among them."""

    def __init__(
        self,
        me: str,
        units: Sequence[Unit],
        cuts: tuple[int, ...] | None = None,
        state: MeshState | None = None,
        shared: tuple[SharedRun, ...] = (),
        cut_units: Sequence[Unit] = (),
        slices: Callable[[str], bool] = lambda peer: False,
    ) -> None:
        """`shared`: where other models have the weights of these units loaded. `cut_units`: the units with how they can
        be cut, where that is known; `slices`: whether a peer computes slices of them.
        """
        self.me = me
        self._shared = shared
        self.state = state or MeshState()
        if cuts is not None:
            self.state = replace(self.state, cuts=cuts)
        self._units = tuple(units)
        self._cut_units = tuple(cut_units)
        self._slices = slices
        self._together = False  # no plan exists in which nobody computes slices
        self._planned_key = ""
        self._joined = [*self.state.members]  # order of joining, for hand-made cuts
        self._needed = False  # no plan exists without the members that drain
        self._relief = Relief()
        self._case: tuple[Wanted, Plan] | None = None  # for somebody's pace: looked at for a while
        self._paced = False  # what is planned anew is for somebody's pace alone
        self._unplanned = False  # something came since the last plan was made
        self._stays = False  # and it was surroundings alone: who serves stays, others may stand by
        self._awaited: set[str] = set()  # lost members that may come back before anything is planned anew

    def set_cuts(self, cuts: tuple[int, ...] | None) -> list[Command]:
        """Fixes the borders by hand, or with None hands them back to the planner. Raises BadCommand on bad borders."""
        if cuts is not None:
            check_cuts(cuts, len(self._units))
        self._planned_key = ""
        return self.submit(CutsFixed(cuts)) if cuts != self.state.cuts else []

    def told(self, sender: str, command: MemberMeasured | UnitsHeld | DecoderHeld) -> Command | None:
        """What `sender` says of itself as it may enter the log; None when the log has it already.

        Raises BadCommand. Whatever passes can be planned with, so that no member can stop the planner.
        """
        member = self.state.members.get(sender)
        if member is None or command.peer != sender or not member.compute:
            raise BadCommand("expected what a member that computes says of itself")
        if isinstance(command, DecoderHeld):
            decoder = self.state.decoders.get(command.name)
            units = decoder.units if decoder is not None else 0
            if len(command.held) > units or any(stop > units for _, stop in command.held):
                raise BadCommand(f"held: expected runs of the {units} units of {command.name}")
            known = decoder.held.get(sender, ()) if decoder is not None else ()
            return None if command.held == known else command
        if isinstance(command, UnitsHeld):
            most = len(self._units) if self.state.model is not None else 0
            if len(command.held) > most or any(stop > most for _, stop in command.held):
                raise BadCommand(f"held: expected runs of the model's {most} units")
            if len(command.slices) > most or not all(_sliceable(part, most) for part in command.slices):
                raise BadCommand(f"slices: expected parts of the model's {most} units")
            return None if (command.held, command.slices) == (member.held, member.slices) else command
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
        quick = max(link.rtt_us, link.overhead_us) <= SLOWEST_RTT_US
        fast = quick and link.bytes_per_s >= SLOWEST_BYTES_PER_S
        return bool(others) and others <= self.state.members.keys() and fast

    def submit(self, command: Command) -> list[Command]:
        """Applies `command` and whatever follows from it at once; returns all of them in log order."""
        log = [command]
        if isinstance(command, _PLANNED_ANEW):
            news = news_of(self.state, command)
            if news != "surroundings":
                self._paced, self._case = news == "pace", None
            self._stays = news == "surroundings" and (self._stays or not self._unplanned)
            self._unplanned = True
        awaited = self._worth_waiting(command)
        self._apply(command)
        self._awaited |= awaited
        if isinstance(
            command,
            MemberMeasured | MemberDraining | MemberPaused | MemberLeaving | MemberLeft | CheckFailed,
        ):
            self._needed = self._together = False
        if isinstance(command, MemberDraining | MemberPaused | MemberLeaving | MemberLeft | CheckFailed):
            log += self._quick()
        return log + self._follow_ups()

    def go_on(self) -> list[Command]:
        """What follows from the state that another coordinator left behind."""
        return [*self._quick(), *self._follow_ups()]

    def follow(self, state: MeshState, shared: tuple[SharedRun, ...] = ()) -> list[Command]:
        """Takes a state that another coordinator builds, which this one plans a further model in, and where other
        models have its weights loaded; what follows from it at once.
        """
        before, self.state, self._shared = self.state, state, shared
        log: list[Command] = []
        if _standing(before) != _standing(state):
            self._needed = self._together = False
            log += self._quick()
        return log + self._follow_ups()

    def stop_waiting(self, peer: str) -> list[Command]:
        """`peer` was waited for long enough: what follows from its loss, unless it is back."""
        if peer not in self._awaited:
            return []
        self._awaited.discard(peer)
        log = self._quick()
        return log + self._follow_ups()

    @property
    def awaited(self) -> frozenset[str]:
        """Lost members that are waited for."""
        return frozenset(self._awaited)

    def _worth_waiting(self, command: Command) -> set[str]:
        """Who is lost by `command`, not politely, from the plan that serves, where the strategy is to wait first."""
        if not isinstance(command, MemberLeft) or self.state.protection.strategy != "simple":
            return set()
        member, serving = self.state.members.get(command.peer), self.state.serving()
        impolite = member is not None and member.status not in AWAY
        return (
            {command.peer}
            if impolite and serving is not None and command.peer in computing_in(serving)
            else set()
        )

    def _quick(self) -> list[Command]:
        quick = None if self._awaited else self._without_loading()
        if quick is None:
            return []
        self._apply(quick)
        return [quick]

    def _follow_ups(self) -> list[Command]:
        log: list[Command] = []
        while (follow := self._follow_up()) is not None:
            log.append(follow)
            self._apply(follow)
        return log

    def wanted(self) -> Wanted | None:
        """The planner run that the present members call for, unless it was made already."""
        model = self.state.model
        if model is None or self._awaited:
            return None
        spared = frozenset() if self._needed else self._draining()
        ready = [member for member in ready_to_serve(self.state) if member.peer not in spared]
        if not ready and spared:
            self._needed = True
            return self.wanted()
        if not ready:
            return None  # nobody has measured yet; the founder will
        lost = self._lost()
        known = [(member.peer, member.profile) for member in ready]
        chosen = (model, self.state.cuts, self.state.wish, self.state.protection)
        key = repr((*chosen, bool(lost), known, self._shared, self._together))
        if key == self._planned_key:
            return None
        self._planned_key = key
        cut = self._may_slice(ready) and (self._together or planner_wish(self.state).strategy == "tensor")
        request = plan_request(self.state, self._cut_units if cut else self._units, spared, self._shared)
        here = {peer.peer for peer in ready}
        return Wanted(request, key, self._held(), planner_wish(self.state), lost, self._repairs(lost, here))

    def _may_slice(self, ready: Sequence[Member]) -> bool:
        """Whether plans may have teams: it is known how units are cut, and all that lend compute slices."""
        return bool(self._cut_units) and all(self._slices(member.peer) for member in ready)

    def reconsider(self) -> None:
        """The members are planned with once more; the result counts as one for somebody's pace alone."""
        if self.state.serving() is not None:
            self._planned_key, self._paced = "", True
            self._unplanned, self._stays = True, False

    @property
    def settled(self) -> bool:
        """Whether nobody is about to be relieved, and no plan is on its way."""
        return self._case is None and self.state.proposed is None and not self._awaited

    def unit_costs(self) -> tuple[int, ...]:
        """What the units cost beside one another, as the members measured them."""
        profiles = [m.profile.decode_ns for m in self.state.members.values() if m.profile is not None]
        return unit_costs([unit.kind for unit in self._units], profiles)

    def by_hand(self, request: PlanRequest) -> Plan | Infeasible | None:
        """The plan for cuts fixed by hand: the stages in order of joining. None when the planner decides."""
        if self.state.cuts is None:
            return None
        borders = (0, *self.state.cuts, len(self._units))
        here = {profile.peer for profile in request.peers}
        present = [peer for peer in self._joined if peer in here]
        wanted = len(borders) - 1
        if len(present) < wanted:
            return Infeasible(f"the cuts {list(self.state.cuts)} need {wanted} peers, here: {len(present)}")
        profile = profiles(request)
        spans = list(pairwise(borders))
        now = {(s.first, s.stop): s.primary for s in self.state.plan.stages} if self.state.plan else {}
        stay = {run: now[run] for run in spans if now.get(run) in here} if now.keys() == set(spans) else {}
        if len(set(stay.values())) < len(stay):
            stay = {}  # after a loss one peer served several
        others = iter([peer for peer in present if peer not in stay.values()])
        order = [stay[run] if run in stay else next(others) for run in spans]
        bare = [make_stage(request, profile[peer], *run) for run, peer in zip(spans, order, strict=True)]
        try:
            evaluate(request, bare)
            stages = with_standbys(request, bare, prefer=self._held())
            found = evaluate(request, stages)
        except RequestError as error:
            return Infeasible(f"the cuts {list(self.state.cuts)} cannot be served: {error}")
        why = (
            f"The borders {list(self.state.cuts)} were fixed by hand; stages go to peers in the order they joined.",
            *doubts(request, stages),
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
        if (
            isinstance(result, Infeasible)
            and not self._together
            and self._may_slice(ready_to_serve(self.state))
        ):
            self._together = True  # units that fit nobody may be sliced
            self._planned_key = ""
            return []
        if isinstance(result, Infeasible):
            serving = self.state.serving() is not None
            return [] if serving else self.submit(PlanRefused(result.reason[:500]))
        serving_plan = self.state.serving()
        stays = self._stays and serving_plan is not None
        self._unplanned = self._stays = False
        if self._paced and not stays and serving_plan is not None and self.state.cuts is None:
            self._case = wanted, result
            return []
        record = plan_record(result, self.state.last_version + 1)
        if serving_plan is not None and (stays or self._good_enough(serving_plan, record, wanted.request)):
            record = self._with_other_standbys(serving_plan, wanted.request) or record
            if _given(record) == _given(serving_plan):
                return []
        return self.submit(PlanProposed(record))

    def relieve(self, now: float) -> list[Command]:
        """Called often: a plan for peers that became slower or faster, once what it gains has held for a while."""
        serving = self.state.serving()
        if self._case is None or serving is None or self.state.proposed is not None:
            return []
        wanted, fresh = self._case
        case = Case(wanted.request, wanted.wish, _stages(serving), fresh, self._held())
        plan = self._relief.check(now, case)
        if plan is None:
            self._case = None if self._relief.over else self._case
            return []
        self._case = None
        return self.submit(PlanProposed(plan_record(plan, self.state.last_version + 1)))

    def _with_other_standbys(self, serving: PlanRecord, request: PlanRequest) -> PlanRecord | None:
        """The plan that serves, with standbys as they are promised for the members there are.

        None: a member of it drains, so that it is not planned with.
        """
        try:
            found = with_other_standbys(request, _stages(serving), self._held())
        except (RequestError, KeyError):
            return None
        kept = replace(found, why=(*kept_reasons(serving.why), *found.why, KEPT))
        return replace(plan_record(kept, self.state.last_version + 1), choices=serving.choices)

    def _good_enough(self, serving: PlanRecord, fresh: PlanRecord, request: PlanRequest) -> bool:
        now, new = _stages(serving), _stages(fresh)
        if self.state.cuts is not None:
            return now == new
        return not better(request, planner_wish(self.state), now, new)

    def _without_loading(self) -> Command | None:
        """After a loss: a plan over units that the others hold already, which can serve at once."""
        state = self.state
        if state.model is None or not self._lost():
            return None
        request = plan_request(state, self._units, self._silent(), self._shared)
        found = replan_held(request, self._held(), self._lost())
        if found is None or (self.state.cuts is not None and _borders(found) != self.state.cuts):
            return None
        if state.protection.strategy == "parallel":  # new standbys load while the old ones serve
            stages = with_standbys(request, found.stages, prefer=self._held())
            found = replace(found, stages=stages)
        return PlanProposed(plan_record(found, state.last_version + 1))

    def _lost(self) -> tuple[Stage, ...]:
        """The stages of the last plan when it can no longer serve, or only with somebody who is silent; else none."""
        state = self.state
        if state.plan is None:
            return ()
        serving = state.serving()
        if serving is not None and not self._silent() & computing_in(serving):
            return ()
        return tuple(
            replace(bare, standbys=stage.standbys)
            for bare, stage in zip(_stages(state.plan), state.plan.stages, strict=True)
        )

    def _repairs(self, before: Sequence[Stage], here: Set[str]) -> tuple[int, ...]:
        """The places of `before` whose peers are not `here`, in the order of their repair."""
        lost = [place for place, stage in enumerate(before) if not {*stage.team} <= here]
        runs, names = [(stage.first, stage.stop) for stage in before], [unit.name for unit in self._units]
        protection = self.state.protection
        urgent = priority_stages(runs, names, protection.priority)
        order = waves(chained(lost), urgent, together=protection.together)
        return tuple(place for wave in order for place in wave)

    def _silent(self) -> frozenset[str]:
        members = self.state.members.items()
        return frozenset(
            peer for peer, member in members if member.status == "draining" and member.reason == SILENT
        )

    def _held(self) -> Held:
        return {peer: member.held for peer, member in self.state.members.items()}

    def _draining(self) -> frozenset[str]:
        return frozenset(peer for peer, member in self.state.members.items() if member.status == "draining")

    def _follow_up(self) -> Command | None:
        proposed = self.state.proposed
        if proposed is None:
            return None
        if not computing_in(proposed) <= self.state.members.keys():
            return PlanRefused("a peer of the next plan is gone")
        return PlanActivated(proposed.version) if self.state.ready_for(proposed) else None

    def _apply(self, command: Command) -> None:
        self.state = apply(self.state, command)
        members = self.state.members
        if self._awaited and self.state.serving() is not None:
            self._awaited.clear()
        self._joined = [peer for peer in self._joined if peer in members]
        self._joined += [peer for peer in members if peer not in self._joined]


def _standing(state: MeshState) -> dict[str, str]:
    return {peer: member.status for peer, member in state.members.items()}


def ready_to_serve(state: MeshState) -> list[Member]:
    """The members that a plan may use, by peer id; those that drain only where there is none without them."""
    return [m for _, m in sorted(state.members.items()) if m.compute and m.status in ("measured", "draining")]


def plan_request(
    state: MeshState,
    units: Sequence[Unit],
    without: frozenset[str] = frozenset(),
    shared: Sequence[SharedRun] = (),
) -> PlanRequest:
    """What the planner is asked in this state. Without a model that answers in words there is nothing to ask, and this
    holds what profiles are checked with. `shared`: where other models have the weights of these units loaded.
    """
    model = state.model
    members = [member for member in ready_to_serve(state) if member.peer not in without]
    here = {member.peer for member in members}
    return PlanRequest(
        units=tuple(units),
        peers=tuple(planner_profile(member) for member in members),
        links=tuple(planner_link(x) for x in state.links if x.src in here and x.dst in here),
        context=model.context if model is not None else 1,
        sessions=model.sessions if model is not None else 1,
        objective=model.objective if model is not None else "latency",
        redundancy=state.protection.redundancy_milli,
        spare=state.protection.spare,
        shared=tuple(each for each in shared if each.peer in here),
    )


def news_of(state: MeshState, command: Command) -> News:
    """What a command says that is planned anew: "pace", where a member that serves says no more than that it has become
    slower or faster, and maybe what its surroundings are; "surroundings", where it says these alone.
    """
    if not isinstance(command, MemberMeasured) or command.links:
        return "all"
    member = state.members.get(command.peer)
    if member is None or member.status != "measured" or member.profile is None:
        return "all"
    before = member.profile
    now = replace(command.profile, surroundings=before.surroundings)
    if now == before:
        return "surroundings"
    times = (before.decode_ns, before.prefill_ns, before.batch_ns, before.step_ns)
    paced = replace(now, decode_ns=times[0], prefill_ns=times[1], batch_ns=times[2], step_ns=times[3])
    return "pace" if paced == before else "all"


def kept_reasons(why: Sequence[str]) -> tuple[str, ...]:
    """Of a plan whose stages stay: not what was said of those who stood by for them."""
    return tuple(each for each in why if each != KEPT and not each.startswith(COPIES))


def _stages(record: PlanRecord) -> tuple[Stage, ...]:
    return tuple(
        Stage(stage.first, stage.stop, stage.primary, helpers=stage.helpers, shares=stage.shares)
        for stage in record.stages
    )


def _given(plan: PlanRecord) -> tuple[object, ...]:
    """What everybody is to hold."""
    return holders_of(plan), slices_of(plan)


def _sliceable(part: HeldSlice, units: int) -> bool:
    run = part.first < part.stop <= units
    return run and part.place < len(part.shares) and all(0 < share <= MAX_SHARE for share in part.shares)


def _borders(found: Plan) -> tuple[int, ...]:
    return tuple(stage.stop for stage in found.stages[:-1])


def check_cuts(cuts: tuple[int, ...], units: int) -> None:
    """Raises BadCommand unless `cuts` are rising borders inside a model of `units` units."""
    if list(cuts) != sorted(set(cuts)) or any(not 0 < cut < units for cut in cuts):
        raise BadCommand(f"cuts must rise and lie between 1 and {units - 1}, got {list(cuts)}")
