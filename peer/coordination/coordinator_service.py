"""The coordinator at work: answers members, runs the planner off the loop, and proposes what is decided for the log.

Edge around `peer.coordination.coordinator`, which decides. It lives as long as this peer leads: it begins with the
state that is committed, runs ahead of it by what it proposed itself, and ends when it leads no more or a proposal is
refused.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from peer.audit.receipts import Till, priced
from peer.consensus.events import Change, Status
from peer.coordination.coordinator import SILENT, Coordinator, Wanted, solve
from peer.coordination.decoder_planning_service import DecoderPlanning
from peer.coordination.electorate import Electorate
from peer.coordination.offer_placement_service import Placing
from peer.coordination.plan_forecast import Foresight
from peer.coordination.remeasure_requests import Freshening
from peer.coordination.suspicion import Findings, Reach, Suspicions
from peer.coordination.voter_policy import PATIENCE, HandOver, Patience, Situation, next_move
from peer.errors import BadCommand, BeginAnew, NotAdmitted
from peer.limits import HIGHEST_VERSION, LOWEST_VERSION, MAX_ENTRY_BYTES
from peer.state.decoders import MARK_BYTES, mark_of
from peer.state.display_names import name_fault, plain
from peer.state.generated.commands import (
    CutsFixed,
    DecoderHeld,
    LinkFacts,
    Member,
    MemberDraining,
    MemberJoined,
    MemberLeaving,
    MemberLeft,
    MemberMeasured,
    MemberPaused,
    ParticipantInvited,
    Profile,
    Protection,
    ProtectionChosen,
    UnitsHeld,
    WorkRecorded,
)
from peer.state.member_commands import Command, decode_command, encode_command
from peer.state.mesh_state import MeshState, apply, refusal
from peer.state.proposal_rights import may_say
from peer.state.version_negotiation import needed_to_lead, too_new
from peer.state.work_ledger import tally
from peer.wire.generated.requests import (
    DRAIN,
    HELD,
    JOIN,
    LEAVING,
    LEFT,
    MEASURED,
    PAUSED,
    PROPOSE,
    SUSPECT,
    WORK,
    DrainRequest,
    HeldRequest,
    JoinRequest,
    MeasuredRequest,
    PausedRequest,
    ProposeRequest,
    SuspectRequest,
    WorkRequest,
)
from peer.wire.json_codec import has_more_values
from peer.wire.request_kind import RequestKind, Sender
from planner.errors import JobBroken, PlannerError
from planner.predict.forecast import explained
from planner.service.planning_jobs import OWN_BUDGET, PlanningJobs
from planner.types import Infeasible, Plan

MAX_REASON: Final = 500
MAX_PEER: Final = 128
MAX_VALUES: Final = (
    16384  # of a member's command: what it measured has one for each link, what it says long texts
)
MAX_COMMANDS: Final = 120  # reports of one member in COMMANDS_S; an honest one has a handful for each plan
MAX_PROPOSALS: Final = (
    1200  # of what people of one member say in COMMANDS_S, texts of running answers among it
)
COMMANDS_S: Final = 60.0
MISSING_S: Final = 5.0  # without a connection to the coordinator, which dials it meanwhile, a member has left
REFUSED_MS: Final = 500  # a change of the group is proposed again after that: a learner may have caught up
BILL_EVERY_S: Final = 2.0  # work enters the log in batches
TEND_EVERY_S: Final = 0.75  # members, work and the group are looked at this often where nothing calls for it
IN_THREAD_PEERS: Final = 3  # a plan of so few takes some hundredths of a second
SAME_PEER_S: Final = 3.0  # how long the strategy `simple` waits for a peer that was lost before it plans anew

T = TypeVar("T")
log = logging.getLogger(__name__)


Order = tuple[int, int]  # (term, index) of an entry of the log


class Log(Protocol):
    """Where proposals go. The future is done when the entry is committed; NotLeader where nobody can say so."""

    @property
    def epoch(self) -> int:
        """The epoch of the mesh that the log belongs to."""

    def status(self) -> Status:
        """What the core of this peer says of itself."""

    def propose(self, data: bytes) -> asyncio.Future[Order]:
        """Appends a command."""

    def change(self, change: Change) -> asyncio.Future[Order]:
        """Changes the members of the group."""

    def transfer(self, to: str) -> asyncio.Future[Order]:
        """Hands leadership over to `to`."""

    def incarnation_of(self, peer: str) -> int:
        """Of the server of that name in the group; 0: none."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What the log is kept from. `speaks(peer)`: the version it was heard to speak; `proven(command)`: whether who
    comes in holds the invite.
    """

    speaks: Callable[[str], int] = lambda _: HIGHEST_VERSION
    proven: Callable[[ParticipantInvited], bool] = lambda _: False


OPEN_GATE: Final = Gate()


class Coordinating:
    """`failed()` is called once when a proposal was refused: what was decided since is void, and another must begin."""

    def __init__(
        self,
        coordinator: Coordinator,
        log_: Log,
        may_compute: Callable[[str], bool],
        reach: Reach | None = None,
        failed: Callable[[], None] = lambda: None,
        connected: Callable[[str], bool] = lambda _: True,
        patience: Patience = PATIENCE,
        gate: Gate = OPEN_GATE,
        foresight: Foresight | None = None,
        freshening: Freshening | None = None,
        placing: Callable[[Callable[[], MeshState], Callable[[Command], None]], Placing] | None = None,
        decoders: Callable[[Callable[[], MeshState], Callable[[Command], None]], DecoderPlanning]
        | None = None,
    ) -> None:
        """`foresight`: what a history says of the times to plan with; `freshening` asks for fresh measurements;
        `placing(state, submit)` makes what places offered models, `decoders(state, submit)` what plans those that
        answer in words.
        """
        self._core = coordinator
        self._gate = gate
        self._log = log_
        self._may_compute = may_compute
        self._failed = failed
        self._connected = connected
        self._last: asyncio.Future[Order] | None = None  # the latest proposal
        self._closed = False
        self._spent: dict[str, tuple[float, int]] = {}  # by peer: since when, how many reports
        self._proposals: dict[str, tuple[float, int]] = {}  # as above
        self._missing: dict[str, float] = {}  # members without a connection: since when
        self._electorate = Electorate(patience)
        self._patience = patience
        self._handing: asyncio.Future[Order] | None = None  # leadership
        self._handed_over_ms: int | None = None
        self.alone = False  # nobody is here who could lead instead
        self._changing: asyncio.Future[Order] | None = None  # the group
        self._refused: dict[Change, int] = {}  # by the core: not again before
        self._planning: asyncio.Task[None] | None = None
        self._foresight = foresight
        self._freshening = freshening
        self._away: dict[
            str, tuple[Member, tuple[LinkFacts, ...]]
        ] = {}  # silent and gone, as they were known
        self._waits: dict[str, asyncio.TimerHandle] = {}  # for lost peers to come back
        findings = Findings(self._silent, self._silent_and_gone, self._back)
        self._suspicions = None if reach is None else Suspicions(reach, findings, self._wait_s)
        self._placing = None if placing is None else placing(lambda: self.state, self._submit_placement)
        self._decoders = None if decoders is None else decoders(lambda: self.state, self._submit_placement)
        self._jobs = PlanningJobs(OWN_BUDGET, OWN_BUDGET.cpu_s)  # one at a time, in one lane
        self._jobs_loaded = False
        self._till = Till()
        self._billed = 0.0  # when work was last put into the log
        self._tended = 0.0  # when the group was last looked at because time has passed

    @property
    def state(self) -> MeshState:
        """What all commands so far build, proposed ones among them."""
        return self._core.state

    def submit(self, command: Command) -> None:
        """Proposes it and what follows; plans anew when members changed. Raises BadCommand when it is too long."""
        if len(encode_command(command)) > MAX_ENTRY_BYTES:
            raise BadCommand(f"expected an entry of at most {MAX_ENTRY_BYTES} bytes for the log")
        self._publish(self._core.submit(command))
        self._plan_if_wanted()
        for peer in self._core.awaited - self._waits.keys():
            loop = asyncio.get_running_loop()
            self._waits[peer] = loop.call_later(SAME_PEER_S, self._waited, peer)

    def begin(self, before: str) -> None:
        """Takes over, after `before` led ("": nobody known): what was under way goes on."""
        self._publish(self._core.go_on())
        if before and before != self._core.me:
            self.hinted(before)
        for peer, member in self.state.members.items():
            if self._suspicions is not None and (member.status, member.reason) == ("draining", SILENT):
                self._suspicions.watch(peer)
        self._plan_if_wanted()

    async def settled(self) -> Order:
        """(term, index) of the latest proposal once it is committed, and so are all before. Raises NotLeader."""
        return await asyncio.shield(self._last) if self._last is not None else (0, 0)

    def look(self, now: float) -> None:
        """Time has passed: who has had no connection for long has left, and the group may be changed."""
        if now - self._tended < TEND_EVERY_S:
            return
        self._tended = now
        for peer in [
            peer for peer in self.state.members if peer != self._core.me and not self._connected(peer)
        ]:
            if now - self._missing.setdefault(peer, now) > MISSING_S:
                self.gone(peer, "there is no connection to it")
        for peer in [p for p in self._missing if p not in self.state.members or self._connected(p)]:
            del self._missing[peer]
        if len(self._till) and now - self._billed >= BILL_EVERY_S:
            self._billed = now
            self._bill()
        self._publish(self._core.relieve(now))
        if self._placing is not None:
            self._placing.look(thoroughly=True)
        if self._decoders is not None:
            self._decoders.look(thoroughly=True)
        if self._freshening is not None and not self._closed:
            calm = self._core.settled and (self._planning is None or self._planning.done())
            if self._freshening.look(now, self.state, calm=calm):
                self.reconsider()
        self.tend()

    def _bill(self) -> None:
        """Has the log take what counts of the work that askers said."""
        state = self.state
        batch = self._till.batch()
        _, why = tally(state.ledger, batch)
        counts = tuple(work for work, reason in zip(batch, why, strict=True) if not reason)
        if counts and not refusal(state, WorkRecorded(counts)):
            self.submit(WorkRecorded(counts))

    def tend(self) -> None:
        """Brings the group nearer to who is here, and leadership to whom it suits: one step at a time."""
        if self._closed or any(
            step is not None and not step.done() for step in (self._changing, self._handing)
        ):
            return
        now_ms, me = _now_ms(), self._core.me
        status = self._log.status()
        here = frozenset(peer for peer in self.state.members if peer == me or self._connected(peer))
        every = self._electorate.candidates(now_ms, self.state, status, here)
        needed = needed_to_lead(self.state)
        candidates = tuple(
            replace(each, may_vote=each.may_vote and self._gate.speaks(each.id) >= needed) for each in every
        )
        fit = [c for c in candidates if c.id != me and c.may_vote and not c.leaving and c.sight.connected]
        self.alone = not fit
        situation = Situation(now_ms, me, status.config, candidates, True, self._handed_over_ms)
        move = next_move(situation, self._patience)
        if move is None:
            return
        if isinstance(move.do, HandOver):
            log.info("hands over to %s: %s", move.do.to[:8], move.why)
            self._handed_over_ms = now_ms
            self._handing = self._log.transfer(move.do.to)
        elif now_ms >= self._refused.get(move.do, 0):
            log.info("%s: %s", type(move.do).__name__, move.why)
            self._changing = self._log.change(move.do)
            self._changing.add_done_callback(partial(self._changed, move.do))

    def _changed(self, change: Change, done: asyncio.Future[Order]) -> None:
        if done.cancelled() or self._closed:
            return
        if (error := done.exception()) is not None:
            log.debug("%s: %s", change, error)
            self._refused = {change: _now_ms() + REFUSED_MS}
        else:
            self.tend()

    def protect(self, protection: Protection) -> None:
        """How answers are protected from now on."""
        if protection != self.state.protection:
            self.submit(ProtectionChosen(protection))

    def hinted(self, peer: str) -> None:
        """The signaling server says that `peer` left: maybe it did."""
        if self._suspicions is not None and peer in self.state.members and peer != self._core.me:
            self._suspicions.look(peer)

    def set_cuts(self, cuts: tuple[int, ...] | None) -> None:
        """Fixes the borders of stages by hand, or hands them back to the planner. Raises BadCommand."""
        self._publish(self._core.set_cuts(cuts))
        self._plan_if_wanted()

    def answer(self, peer: str, kind: RequestKind[T, Any], said: T) -> None:
        """Does what a member asks of the coordinator, one of LEADER_REQUESTS. Raises BadCommand or NotAdmitted."""
        if kind.sender is Sender.MEMBERS and peer not in self.state.members:  # of the state that runs ahead
            raise NotAdmitted("join first")
        _ANSWERS[kind.method](self, peer, said)

    def is_fresh(self, peer: str, profile: Profile) -> bool:
        """Returns whether `profile` is what a member measured once more because it was asked."""
        return self._freshening is not None and self._freshening.due.is_fresh(peer, profile)

    def fresh(self) -> list[str]:
        """Returns who measured itself once more because it was asked, and is planned with by that, sorted."""
        return sorted(self._freshening.due.fresh(self.state)) if self._freshening is not None else []

    def put_out(self, peer: str) -> None:
        """It said goodbye, or its invite was withdrawn: nothing is kept for it."""
        if peer in self.state.members:
            self.submit(MemberLeft(peer, "left"))
        self._electorate.left(peer)
        self.tend()

    def breakers(self) -> list[tuple[str, str]]:
        """The peers that this coordinator leaves alone, with the state of each breaker."""
        if self._suspicions is None:
            return []
        return [*self._suspicions.breakers.shown(round(time.monotonic() * 1000))]

    def gone(self, peer: str, reason: str) -> None:
        """The connection to a member ended."""
        self._spent.pop(peer, None)
        self._proposals.pop(peer, None)
        self._missing.pop(peer, None)
        self._away.pop(peer, None)
        if self._suspicions is not None:
            self._suspicions.ended(peer)
        member = self.state.members.get(peer)
        if member is not None:
            self._electorate.lost(_now_ms(), member)
            self.submit(MemberLeft(peer, plain(reason)[:MAX_REASON]))
            self.tend()  # the next voter may go within the second

    async def close(self) -> None:
        """Ends a planner run under way, and every question to others."""
        self._closed = True
        for wait in self._waits.values():
            wait.cancel()
        if self._suspicions is not None:
            await self._suspicions.close()
        if self._freshening is not None:
            await self._freshening.close()
        if self._placing is not None:
            await self._placing.close()
        if self._decoders is not None:
            await self._decoders.close()
        if self._planning is not None:
            self._planning.cancel()
            await asyncio.gather(self._planning, return_exceptions=True)
        await self._jobs.close()

    # --- silence

    def _wait_s(self) -> float:
        return SAME_PEER_S if self.state.protection.strategy == "simple" else 0.0

    def _waited(self, peer: str) -> None:
        self._waits.pop(peer, None)
        self._publish(self._core.stop_waiting(peer))
        self._plan_if_wanted()

    def _silent(self, peer: str) -> bool:
        """Its connection holds, but it says nothing: plans leave it out where they can."""
        member = self.state.members.get(peer)
        if member is None or not member.compute or member.status not in ("measured", "draining"):
            return False
        self.submit(MemberDraining(peer, SILENT))
        return True

    def _silent_and_gone(self, peer: str) -> bool:
        member = self.state.members.get(peer)
        if member is None:
            return False
        links = tuple(link for link in self.state.links if peer in (link.src, link.dst))
        self._away[peer] = (member, links)
        self._electorate.lost(_now_ms(), member)
        self.submit(MemberLeft(peer, "silent, and gone from the signaling server"))
        self.tend()
        return True

    def _back(self, peer: str) -> None:
        """It speaks again, and was quiet for long enough: it is as it was, and lends what it lent."""
        member, links = self._away.pop(peer, (self.state.members.get(peer), ()))
        if member is None:
            return
        if peer not in self.state.members:
            if self._log.incarnation_of(peer) != member.incarnation:
                return  # its place is taken away: it joins again
            self.submit(
                MemberJoined(
                    peer, member.name, member.compute, member.headless, member.durable, member.incarnation
                )
            )
            if member.held or member.slices:
                self.submit(UnitsHeld(peer, member.held, member.slices))
        elif member.reason != SILENT:
            return
        if member.profile is not None:
            here = [link for link in links if {link.src, link.dst} <= self.state.members.keys()]
            self.submit(MemberMeasured(peer, member.profile, tuple(here)))

    # --- members

    def _join(self, peer: str, said: JoinRequest) -> None:
        if fault := name_fault(said.name):
            raise BadCommand(f"join: {fault}; choose another with --name")
        if not LOWEST_VERSION <= said.protocol <= HIGHEST_VERSION:
            raise NotAdmitted(
                f"this mesh speaks protocol {LOWEST_VERSION} to {HIGHEST_VERSION}, not {said.protocol}; update shoal"
            )
        if said.compute and not self._may_compute(peer):
            raise NotAdmitted(
                "this invite lets you ask, not lend memory; ask for an invite with the role peer"
            )
        if said.incarnation == 0:
            raise BadCommand("join: expected an incarnation from 1 to 2^53-1")
        if said.epoch != self._log.epoch:
            raise BadCommand(f"join: this mesh is in epoch {self._log.epoch}; look again who leads")
        incarnation = said.incarnation
        state, place = self.state, self._log.incarnation_of(peer)
        member = state.members.get(peer)
        known = place == incarnation or (member is not None and member.incarnation == incarnation)
        highest = max(place, state.incarnations.get(peer, 0))
        if not known and (not said.fresh or incarnation <= highest):
            raise BeginAnew(
                "this log is of a life of this peer that is over; join again with an empty one", highest
            )
        joined = MemberJoined(peer, said.name, said.compute, said.headless, said.durable, incarnation)
        if member is None or member != Member(
            peer,
            said.name,
            said.compute,
            "joining",
            headless=joined.headless,
            durable=joined.durable,
            incarnation=incarnation,
        ):
            self.submit(joined)  # what it measured and held was of a process that may have ended
        self.tend()

    def _left(self, peer: str, _: None) -> None:
        self.put_out(peer)

    def _suspected(self, peer: str, said: SuspectRequest) -> None:
        _spend(self._spent, peer, MAX_COMMANDS)
        self.hinted(said.peer)

    def _proposed(self, peer: str, said: ProposeRequest) -> None:
        """What a member says in its own name. Raises BadCommand."""
        _spend(self._proposals, peer, MAX_PROPOSALS)
        command = _command(said.command)
        why = may_say(self.state, peer, command)
        if not why:
            why = refusal(self.state, command)
        if not why:
            why = too_new(command, self._log.status().config.voters, self._gate.speaks)
        if not why and isinstance(command, ParticipantInvited) and not self._gate.proven(command):
            why = "expected a signature by the key of that invite: ask for the link again"
        if why:
            raise BadCommand(f"propose: {why}")
        if isinstance(command, CutsFixed):
            self.set_cuts(command.cuts)
        else:
            self.submit(command)

    def _measured(self, peer: str, said: MeasuredRequest) -> None:
        command = self._own_word(peer, said.command, MemberMeasured)
        if said.again and self._freshening is not None and isinstance(command, MemberMeasured):
            self._freshening.heard(command)
        self._submitted(command)

    def _held(self, peer: str, said: HeldRequest) -> None:
        self._submitted(self._own_word(peer, said.command, UnitsHeld, DecoderHeld))

    def _own_word(
        self, peer: str, spelled: str, *kinds: type[MemberMeasured | UnitsHeld | DecoderHeld]
    ) -> Command | None:
        """What a member itself measured or holds; None: nothing new."""
        _spend(self._spent, peer, MAX_COMMANDS)
        command = _command(spelled)
        if not isinstance(command, kinds):
            raise BadCommand(f"expected a {kinds[0].__name__} of this peer itself")
        return self._core.told(peer, command)

    def _lends_less(self, kind: type[MemberDraining] | type[MemberPaused], peer: str, why: str) -> None:
        _spend(self._spent, peer, MAX_COMMANDS)
        command = kind(peer, plain(why)[:MAX_REASON])
        if apply(self.state, command).members != self.state.members:
            self._submitted(command)  # else it lends nothing anyway, or said so before

    def _drains(self, peer: str, said: DrainRequest) -> None:
        self._lends_less(MemberDraining, peer, said.why)

    def _paused(self, peer: str, said: PausedRequest) -> None:
        self._lends_less(MemberPaused, peer, said.why)

    def _leaves(self, peer: str, _: None) -> None:
        _spend(self._spent, peer, MAX_COMMANDS)
        leaving = self.state.members[peer].status == "leaving"
        self._submitted(None if leaving else MemberLeaving(peer))

    def _submitted(self, command: Command | None) -> None:
        if command is not None:
            self.submit(command)

    def _work(self, peer: str, said: WorkRequest) -> None:
        """What `peer` says was computed for it: it pays."""
        _spend(self._spent, peer, MAX_COMMANDS)
        state = self.state
        known = [c for c in said.entries if c.peer in state.members or c.peer in state.ledger.balances]
        own, further = self._core.unit_costs(), self._costs_by_mark()
        priced_by = [(claim, further.get(claim.session[: 2 * MARK_BYTES], own)) for claim in known]
        # What no manifest is known for yet is said again.
        self._till.put([priced(claim, peer, costs) for claim, costs in priced_by if costs is not None])

    def _costs_by_mark(self) -> dict[str, tuple[int, ...] | None]:
        """What units of further models cost, by what the ids of their sessions begin with in hex; None: not known."""
        found: dict[str, tuple[int, ...] | None] = {}
        for name, decoder in self.state.decoders.items():
            costs = self._decoders.unit_costs(name, decoder.model) if self._decoders is not None else None
            found[mark_of(name, decoder.model).hex()] = costs
        return found

    def _publish(self, commands: list[Command]) -> None:
        for command in commands:
            self._last = self._log.propose(encode_command(command))
            self._last.add_done_callback(self._settled)
        if self._placing is not None:
            self._placing.look()
        if self._decoders is not None:
            self._decoders.look()

    def _submit_placement(self, command: Command) -> None:
        if not self._closed:
            self.submit(command)

    def _settled(self, proposal: asyncio.Future[Order]) -> None:
        if not proposal.cancelled() and proposal.exception() is not None and not self._closed:
            self._closed = True
            self._failed()

    def reconsider(self) -> None:
        """What plans go by is known better: looks whether another plan is better by enough, for long enough."""
        if not self._closed:
            self._core.reconsider()
            self._plan_if_wanted()

    def _plan_if_wanted(self) -> None:
        if self._planning is not None and not self._planning.done():
            return  # looked at again when that run is done
        wanted = self._core.wanted()
        if wanted is not None:
            self._planning = asyncio.ensure_future(self._plan(wanted))

    async def _solved(self, wanted: Wanted) -> Plan | Infeasible:
        """In a process of its own, which leaves this one to frames and heartbeats. In a thread: what is soon done, and
        what is urgent while that process is not there yet.
        """
        if len(wanted.request.peers) > IN_THREAD_PEERS:
            if self._jobs_loaded or not wanted.before:
                try:
                    result = await self._jobs.solved(solve, wanted)
                    self._jobs_loaded = True
                    return result
                except JobBroken as error:
                    log.warning("plans are made in this process: %s", error)
            else:
                self._jobs.start()
                self._jobs_loaded = True  # by the next time
        return await asyncio.to_thread(solve, wanted)

    async def _plan(self, wanted: Wanted) -> None:
        try:
            found = (
                None
                if self._foresight is None or wanted.before  # after a loss nobody waits for the history
                else await self._foresight.look(wanted.request, self.state, self.reconsider)
            )
            wanted = wanted if found is None else replace(wanted, request=found.request)
            again: frozenset[str] = frozenset()
            if self._freshening is not None and self._foresight is not None and self._foresight.is_open:
                self._freshening.looked(found)
                again = self._freshening.due.fresh(self.state)
            result = self._core.by_hand(wanted.request)
            if result is None:
                result = await self._solved(wanted)
            if found is not None and isinstance(result, Plan):
                result = explained(result, found, again)
        except PlannerError as error:
            result = Infeasible(str(error))
        except Exception as error:  # a defect, which must not end planning for good
            log.exception("planning failed")
            result = Infeasible(f"the planner failed: {type(error).__name__}")
        self._publish(self._core.planned(wanted, result))
        self._planning = None
        self._plan_if_wanted()


_ANSWERS: Final[Mapping[str, Callable[[Coordinating, str, Any], None]]] = {
    JOIN.method: Coordinating._join,
    LEFT.method: Coordinating._left,
    SUSPECT.method: Coordinating._suspected,
    MEASURED.method: Coordinating._measured,
    HELD.method: Coordinating._held,
    DRAIN.method: Coordinating._drains,
    PAUSED.method: Coordinating._paused,
    LEAVING.method: Coordinating._leaves,
    PROPOSE.method: Coordinating._proposed,
    WORK.method: Coordinating._work,
}  # of LEADER_REQUESTS


def _command(spelled: str) -> Command:
    """What a member says. Raises BadCommand, before it is read where that would take long."""
    data = spelled.encode()
    if has_more_values(data, MAX_VALUES):
        raise BadCommand(f"a command of {len(data)} bytes: expected at most {MAX_VALUES} values")
    return decode_command(data)


def _spend(spent: dict[str, tuple[float, int]], peer: str, most: int) -> None:
    """Every command goes to every member: nobody may send them in floods. Raises BadCommand."""
    now = time.monotonic()
    since, count = spent.get(peer, (now, 0))
    if now - since > COMMANDS_S:
        since, count = now, 0
    if count >= most:
        raise BadCommand(f"expected at most {most} reports in {COMMANDS_S:.0f} s; slow down")
    spent[peer] = (since, count + 1)


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
