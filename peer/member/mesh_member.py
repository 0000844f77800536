"""This process as a member of a mesh: asking, serving what plans give it, saying how it is, leaving.

Edge. `peer.member.joining` makes a `Mesh`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from peer.coordination.coordinator_service import body_of
from peer.coordination.repair_order import load_order
from peer.errors import BadCommand, NoPlan, PeerError
from peer.member.epoch_recovery import answered, requested
from peer.member.failure_domain_watch import Around, begin_telling, with_surroundings
from peer.member.frame_router import Node
from peer.member.peer_options import PeerOptions
from peer.member.rate_meter import Meter
from peer.member.reconnect import Away, Returning
from peer.member.report_checks import checked_report
from peer.member.status_report import kv_digest, report_of
from peer.model.fetcher import Fetcher, PieceSource
from peer.model.piece_exchange import Pieces
from peer.model.tokenizer import Text, text_of
from peer.origin.answer_stream import Conversation
from peer.origin.pinned_ends import OwnEnds
from peer.replication.log_keeping import LogKeeping
from peer.replication.replica import Beginning, Replica
from peer.runtime.self_benchmark import MEETING_BYTES, UnitTimes
from peer.session.prefix_cache import LENT_SHARE, MOST_BYTES
from peer.session.seat import Run_
from peer.stage.kv_transfer_service import Caches
from peer.stage.slowdown_reports import Pacing
from peer.stage.unit_host import Room, Serving
from peer.stage.unit_loader import Holding
from peer.state.display_names import named, plain
from peer.state.mesh_state import (
    AWAY,
    Command,
    LinkFacts,
    MemberMeasured,
    MeshState,
    PlanStage,
    Profile,
    UnitsHeld,
)
from peer.state.upkeep import CutsFixed
from peer.state.version_negotiation import too_new
from peer.storage.journal import Journal
from peer.transport.link_probe import both_ways, link_words
from peer.transport.signaling_client import SignalingClient
from peer.transport.udp_relay import ThirdPeer, way_asked
from peer.wire.frame_codec import SESSION_BYTES
from peer.wire.json_codec import Body
from planner.model.manifest import Manifest
from planner.model.store import BlobRef, Store
from signaling.errors import SignalingError
from signaling.invites import Grant, InviteLink, Role, make_invite
from signaling.keys import SEED_BYTES, Identity

if TYPE_CHECKING:
    from peer.audit.accounting import Accounts

HELD_WITHIN_S: Final = 60.0  # units that were held before a restart are loaded before anything is planned
LEAVE_WITHIN_S: Final = (
    5.0  # a polite leave waits this long for another leader, and for answers to move elsewhere
)
TOLD_WITHIN_S: Final = 2.5  # a goodbye that nobody takes is found out by the others
BREATH_S: Final = 0.7  # without a coordinator, before anybody is told
RECOVER_WITHIN_S: Final = 10.0
HAND_OVER_S: Final = 3.0  # for one peer to become leader
METER_S: Final = 0.5  # between readings of the token counter
CLOSED: Final = "the last peer that kept the mesh left"
WITHDRAWN: Final = "the invite this peer came with was withdrawn"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Phase:
    """Progress of joining, for people: what is going on, and how far (0, 0: no measure)."""

    what: str
    done: int
    total: int


Report = Callable[[Phase], None]


def silent(_: Phase) -> None:
    """Reports to nobody."""


class Mesh:
    """This process as a member. Made by `found` and `join`."""

    def __init__(
        self,
        node: Node,
        client: SignalingClient,
        store: Store,
        report: Report,
        third: ThirdPeer | None = None,
    ) -> None:
        """`third`: what this peer hands on between others that cannot connect; None: nothing."""
        self.node = node
        self.client = client
        self.store = store
        self.report = report
        self.manifest: Manifest | None = None
        self.link: InviteLink | None = None
        self.invites: dict[str, Grant] = {}
        self.holding: Holding | None = None
        self.serving: Serving | None = None
        self.caches: Caches | None = None
        self.options: PeerOptions | None = None
        self.ended = asyncio.Event()
        self.why_ended = ""
        self.own_ends: OwnEnds | None = None  # None: the stages have embedding and head
        self._text: Text | None = None
        self.meter = Meter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._returning: Returning | None = None
        self._searching = False
        self._found = asyncio.Event()  # something changed that a search may end with
        self.breath_s = BREATH_S
        self.led_by = ""  # who coordinated when this peer was last a whole member
        self.log: LogKeeping | None = None
        self.leaving = False
        self.on_away: list[Callable[[], None]] = []  # `away` changed
        self.accounts: Accounts | None = None  # what this peer owes to whom, and what was checked
        self.around: Around | None = None  # None: it lends nothing
        self.journal = Journal()
        node.answer_more = self._answer
        node.dialer.way = way_asked(node)
        self._third = third

    # --- asking

    def conversation(self) -> Conversation:
        """A new conversation with the model. Close it when it is over. Raises NoPlan before the model is known."""
        return Conversation(self.node, self.text, os.urandom(SESSION_BYTES), self.own_ends)

    @property
    def text(self) -> Text:
        """The model's tokenizer and chat template, read when first needed: tens of MiB that a peer that only computes
        does without. Raises NoPlan before the model is known.
        """
        if self._text is None:
            if self.manifest is None:
                raise NoPlan("the model's tokenizer is not here yet")
            self._text = text_of(self.store, self.manifest)
        return self._text

    async def until_serving(self, timeout_s: float | None = None) -> None:
        """Waits until the mesh can answer. Raises NoPlan, saying why not, when it cannot in time."""
        if not await self.node.until(lambda state: state.serving() is not None, timeout_s):
            state = self.node.state
            raise NoPlan(named(state.refused, state.members) or "the peers of this mesh are still loading")

    async def status(self) -> dict[str, Any]:
        """What every member says of itself, by peer id; members that do not answer are left out."""
        found: dict[str, Any] = {self.node.me: await self._answer(self.node.me, "status", {})}
        others = [peer for peer in self.node.state.members if peer != self.node.me]

        async def ask(peer: str) -> None:
            try:
                await self.node.dialer.dial(peer)
                found[peer] = checked_report(await self.node.calls.call(peer, "status", {}, 5.0))
            except (PeerError, TimeoutError) as error:
                log.info("no status of %s: %s", peer[:8], error)

        await asyncio.gather(*(ask(peer) for peer in others))
        return found

    # --- leaving

    async def leave(self, reason: str = "left") -> None:
        """Hands over what it leads, lets running answers move elsewhere, tells the coordinator, then says goodbye."""
        node = self.node
        if self.holding is not None:
            self.holding.leaving = True
        self.leaving = True
        try:
            async with asyncio.timeout(LEAVE_WITHIN_S):
                if node.replica is not None and node.me in node.state.members:
                    await node.line.ask("leaving", {}, TOLD_WITHIN_S)
                    if node.replica.leads and not await self._hand_over():
                        reason = CLOSED
                node.perform(node.core.leave())
                await node.idle()
        except (TimeoutError, PeerError) as error:
            log.info("leaving without waiting: %s", error)
        follows = node.replica is not None and not node.replica.leads
        if reason != CLOSED and follows and node.me in node.state.members:
            with suppress(PeerError):
                await node.line.ask("left", {}, TOLD_WITHIN_S)
        await self.close(reason)

    async def _hand_over(self) -> bool:
        """Lets another peer lead, if it does in time; False where nobody is there who can keep the mesh."""
        node = self.node

        def over(_: MeshState) -> bool:
            return node.coordinator not in (None, node.me) or self._alone()

        await node.until(over, HAND_OVER_S)
        return not self._alone()

    def _alone(self) -> bool:
        coordinating = self.node.coordinating
        if coordinating is not None:
            coordinating.tend()
        return coordinating is not None and coordinating.alone

    async def close(self, reason: str) -> None:
        """Ends this membership; no task, socket or worker is left."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.node.pieces is not None:
            await self.node.pieces.close()
        if self.caches is not None:
            await self.caches.close()
        await self.node.close(reason)
        if self.own_ends is not None:
            await self.own_ends.close()
        if self._third is not None:
            self._third.close()
        if self.holding is not None:
            await self.holding.close()
        await self.journal.close()
        if self.log is not None:
            self.log.close()
        self.end(reason)

    # --- the founder's part

    async def invite(
        self, mesh_key: Identity, server: str, role: Role, expires_s: int, uses: int
    ) -> InviteLink:
        """Makes an invite link and registers it with the signaling server. Founder only."""
        expires = int(time.time()) + expires_s if expires_s else 0
        link, grant = make_invite(mesh_key, server, os.urandom(SEED_BYTES), role, expires, uses)
        await self.client.register(grant)
        self.invites[link.url()] = grant
        return link

    def set_cuts(self, cuts: tuple[int, ...] | None) -> None:
        """Fixes the stage borders by hand (None: the planner decides), soon. Founder only. Raises BadCommand."""
        if self.node.coordinating is not None:
            self.node.coordinating.set_cuts(cuts)
        else:
            self.start(self._fix_cuts(cuts))

    async def _fix_cuts(self, cuts: tuple[int, ...] | None) -> None:
        try:
            await self.propose(CutsFixed(cuts))
        except PeerError as error:
            log.warning("the borders were not fixed: %s", error)

    async def propose(self, command: Command) -> None:
        """Has the log say so; returns when it is committed. Raises MeshError, as where it is not this peer's to say."""
        leader = self.node.coordinator
        if leader is not None and (why := too_new(command, [leader], self.node.dialer.speaks)):
            raise BadCommand(why)
        await self.node.line.ask("propose", body_of(command))

    # --- inner moves

    def know(self, manifest: Manifest) -> None:
        """The model is known: this peer can ask, and give others pieces of weights that it has."""
        self.manifest = manifest
        self.node.pieces = Pieces(self.store, manifest, self.node.dialer.connection, self.node.send)

    def piece_sources(self, ref: BlobRef) -> Sequence[PieceSource]:
        """The connected members that hold a unit of this blob; the coordinator, whose store the server shows, last."""
        node, manifest, pieces = self.node, self.manifest, self.node.pieces
        if manifest is None or pieces is None:
            return ()

        def has(runs: Sequence[Run_]) -> bool:
            return ref == manifest.tokenizer or any(ref in manifest.blobs(*run) for run in runs)

        def get(peer: str) -> Callable[[BlobRef, int], Awaitable[bytes]]:
            return lambda ref, index: pieces.fetch(
                peer, bytes.fromhex(ref.pieces[index]), ref.piece_bytes(index)
            )

        boss, members = node.coordinator, node.state.members
        return [
            PieceSource(peer, get(peer), last_resort=peer == boss)
            for peer in node.dialer.connected_peers()
            if peer == boss or (peer in members and has(members[peer].held))
        ]

    def compute(self, options: PeerOptions, fetcher: Fetcher) -> None:
        """Begins to hold what plans give this peer."""
        model, manifest = self.node.state.model, self.manifest
        assert model is not None
        assert manifest is not None
        self.options = options
        before_call = options.disturbance.before_call if options.disturbance is not None else None
        room = Room(options.provider, options.threads, model.sessions, model.context, before_call)
        self.serving = Serving(self.store, fetcher, manifest, room, self.node.results)
        self.node.serving = self.serving
        self.serving.asker_of = self.node.core.asker
        fronts = self.node.core.prefixes
        fronts.position_bytes = self.serving.position_bytes
        fronts.most_bytes = min(MOST_BYTES, options.memory_bytes // LENT_SHARE)
        self.caches = Caches(self.node, self.serving, manifest)
        self.node.on_state.append(self.caches.state_changed)
        self.node.journal = self.journal
        self.holding = Holding(
            self.node.me,
            self.node.core,
            self.serving,
            model.sessions,
            lambda: self.node.state,
            self._report_held,
            self.node.dialer.dial,
            self.node.perform,
            lambda run: (
                lambda done, total: self.report(Phase(f"fetch units {run[0]}-{run[1] - 1}", done, total))
            ),
            self.end,
            self.journal,
        )
        self._follow_protection()
        if self.journal.kept:
            self.holding.keep(self._held_before(manifest, options.memory_bytes))
        self.node.on_state.append(self._follow_protection)
        self.holding.order = self._load_order
        self.node.on_state.append(self.holding.state_changed)
        self.start(self._meter_tokens())
        node = self.node
        tell = partial(node.tell_coordinator, "measured")
        self.serving.pacing = Pacing(node.me, manifest, lambda: node.state, tell)
        self.start(self.serving.pacing.follow(node.ticks.after))
        self.around = begin_telling(self, options)
        self.holding.start()
        self.holding.state_changed()

    def _follow_protection(self) -> None:
        self.journal.turn(self.node.state.protection.transactions)

    def _held_before(self, manifest: Manifest, most_bytes: int) -> list[Run_]:
        """The runs of units that this peer held when it ended, of which every blob is still in its store."""
        found: list[Run_] = []
        for run in self.journal.recovered.held:
            blobs = manifest.blobs(run.first, run.stop) if run.stop <= len(manifest.units) else ()
            most_bytes -= sum(ref.bytes for ref in blobs)
            if blobs and most_bytes >= 0 and all(self.store.has_blob(ref) for ref in blobs):
                found.append((run.first, run.stop))
                self.report(
                    Phase(f"units {run.first}-{run.stop - 1} were held before; they load again", 0, 0)
                )
        return found

    async def held_again(self) -> None:
        """Waits until what was held before a restart serves again and the coordinator knows, or that takes too long."""
        if self.holding is None or not self.journal.core.kept:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(HELD_WITHIN_S):
                await self.holding.given_back.wait()

    def _load_order(self, runs: Collection[Run_]) -> tuple[Run_, ...]:
        """Earlier stages first, before all others those with units that the mesh repairs first."""
        state = self.node.state
        plan = state.proposed or state.plan
        stages = [(stage.first, stage.stop) for stage in plan.stages] if plan is not None else []
        units = [unit.name for unit in self.manifest.units] if self.manifest is not None else []
        return load_order(stages, runs, units, state.protection.priority)

    async def measured(self, options: PeerOptions, times: UnitTimes) -> MemberMeasured:
        """This peer's profile and its links to the other compute members, as one command."""
        members = sorted(
            self.node.state.members.items()
        )  # of those who are away each measures when it is back
        others = [p for p, m in members if m.compute and m.status not in AWAY and p != self.node.me]
        links: list[LinkFacts] = []
        for peer in others:
            self.report(Phase(f"measure the link to {self.node.state.members[peer].name}", 0, 0))
            try:
                await self.node.dialer.dial(peer)
                there = await self.node.prober.measure(peer)
                back = await self.node.calls.call(peer, "measure_link", {})
                words = link_words(there, self.node.dialer.relayed(peer))
                links += both_ways(self.node.me, peer, words, back)
            except (PeerError, TimeoutError) as error:
                log.info("no link to %s: %s", peer[:8], error)
                continue
        profile = with_surroundings(profile_of(options, times), self.around)
        return MemberMeasured(self.node.me, profile, tuple(links))

    @property
    def away(self) -> Away | None:
        """Set from the moment the coordinator is lost until this peer is back with it, or gave up."""
        return self._returning.away if self._returning is not None else None

    def try_now(self) -> None:
        """Looks for a lost coordinator at once instead of after the next pause."""
        if self._returning is not None:
            self._returning.try_now()

    def watch_coordinator(self, rejoin: Callable[[], Awaitable[None]]) -> None:
        """Says so while nobody coordinates, and comes back when this peer is left out; ends with the mesh."""

        def gone(peer: str, reason: str, polite: bool) -> None:
            if self.ended.is_set():
                return
            if reason == WITHDRAWN:
                self.end("the founder withdrew the invite you came with: ask for a new link")
            elif polite and reason == CLOSED:
                self.end("the founder closed the mesh: it is back when the founder serves it again")
            else:
                self._look_for_mesh()

        self._returning = Returning(self._missing, rejoin, self._away_changed)

        def log_lost(why: str) -> None:
            self.start(self._live_again(why))

        self.node.on_log_lost.append(log_lost)
        if self.log is not None and self.log.beside is not None:
            self.start(self._recover_when_asked(self.log.beside, rejoin))
        self.node.on_gone.append(gone)
        self.node.on_role.append(self._look_for_mesh)
        self.node.on_state.append(self._look_for_mesh)

    def take_part(self, begin: Beginning) -> None:
        """Starts this peer's copy of the log. Raises BadBoot."""
        assert self.log is not None
        store = self.log.store if self.log.durable else None
        self.node.keep_log(Replica(begin, store, self.node.send_message, self.node))

    async def recover(self, rejoin: Callable[[], Awaitable[None]]) -> int:
        """Begins the next epoch from what this peer knows; its number. Raises BadCommand, StateUnusable."""
        node, replica, kept = self.node, self.node.replica, self.log
        if replica is None or kept is None or self._missing(0) is None:
            raise BadCommand("nothing was changed: somebody coordinates this mesh")
        state, epoch = replica.state, replica.epoch + 1
        await node.leave_log()
        self.take_part(await asyncio.to_thread(kept.found, state, epoch))
        await node.until_leads(RECOVER_WITHIN_S)
        await rejoin()
        return epoch

    async def _live_again(self, why: str) -> None:
        """What is kept here can be trusted no more: this peer joins as another one, and keeps nothing from now on."""
        assert self.log is not None
        self.report(Phase(f"the log of the mesh cannot be kept here: {why}", 0, 0))
        await self.node.leave_log()
        self.log.close()
        self.log = LogKeeping(self.log.mesh, self.node.me, None)
        self._look_for_mesh()

    async def _recover_when_asked(self, beside: Path, rejoin: Callable[[], Awaitable[None]]) -> None:
        while True:
            await requested(beside, self.node.ticks.after)
            try:
                epoch = await self.recover(rejoin)
            except (PeerError, SignalingError, TimeoutError) as error:
                text = str(error) or "nobody of the mesh answered in time"
            else:
                text = f"epoch {epoch} of the mesh has begun here; the others join it as they come back"
                self.report(Phase(text, 0, 0))
            await asyncio.to_thread(answered, beside, text)

    def _look_for_mesh(self) -> None:
        if self._returning is None or self.ended.is_set() or self.leaving:
            return
        if self._searching:
            self._found.set()
            if self._missing(0) is None:
                self._returning.try_now()
        elif self._missing(0) is not None:
            self._searching = True
            self.start(self._search(self._returning))

    async def _search(self, returning: Returning) -> None:
        try:
            await self._hold_breath()
            await returning.search()
        finally:
            self._searching = False

    async def _hold_breath(self) -> None:
        """Leadership that is handed over is back in a moment: nobody need hear of it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.breath_s):
                while self._missing(0) is not None:
                    self._found.clear()
                    await self._found.wait()

    def _missing(self, attempt: int) -> Away | None:
        """What this peer lacks to be a whole member: somebody who leads, a way there, its place among the members."""
        node, replica = self.node, self.node.replica
        leader = node.coordinator
        there = leader == node.me or (leader is not None and node.dialer.connection(leader) is not None)
        if there and (node.me in node.state.members or (replica is not None and replica.order[1] == 0)):
            self.led_by = leader or ""
            return None
        state, plan = node.state, node.state.serving()
        member = state.members.get(self.led_by)
        alone = [stage for stage in plan.stages if stage.primary == self.led_by] if plan is not None else []
        voters = replica.config.voters if replica is not None else ()
        here = [peer for peer in voters if peer == node.me or node.dialer.connection(peer) is not None]
        return Away(
            plain(member.name) if member is not None else "",
            any(not self._stands_by(stage) for stage in alone),
            len(voters),
            len([peer for peer in here if peer == node.me or peer != self.led_by]),
            attempt,
        )

    def _stands_by(self, stage: PlanStage) -> bool:
        members = self.node.state.members
        run = (stage.first, stage.stop)
        return any(peer in members and run in members[peer].held for peer in stage.standbys)

    def _away_changed(self) -> None:
        for listener in self.on_away:
            listener()

    async def _report_held(self, runs: tuple[Run_, ...]) -> None:
        await self.node.tell_coordinator("held", UnitsHeld(self.node.me, runs))
        state = self.node.state
        for plan in (state.proposed, state.plan):
            if plan is not None and self.node.me in plan.route:
                self.report(Phase("ready", 1, 1))
                return

    async def _answer(self, peer: str, method: str, body: Body) -> Body:
        if method == "kv_digest":
            return await kv_digest(self, peer, body)
        if method == "relay" and self._third is not None:
            return await self._third.opened(peer, body, self.node)
        if method == "kv_copy" and self.caches is not None:
            return await self.caches.lend(peer, body)
        if method != "status":
            raise BadCommand(f"unknown request {method[:40]!r}")
        return report_of(self)

    async def _meter_tokens(self) -> None:
        while True:
            self.meter.read(time.monotonic(), self.node.core.tokens_sampled)
            await self.node.ticks.after(METER_S)

    def end(self, why: str) -> None:
        """This membership is over for a reason that people should read; whoever waits for `ended` leaves."""
        if not self.ended.is_set():
            self.why_ended = why
            self.ended.set()

    def start(self, step: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(step)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of this member failed", exc_info=error)
            self.end(f"a defect, please report it: {type(error).__name__}: {error}")


def profile_of(options: PeerOptions, times: UnitTimes) -> Profile:
    """What was measured here, as it goes into the log."""

    def nanoseconds(table: Any) -> dict[str, int]:
        return {str(kind): round(seconds * 1e9) for kind, seconds in sorted(table.items())}

    return Profile(
        memory_bytes=options.memory_bytes,
        overhead_bytes=times.overhead_bytes + MEETING_BYTES,
        decode_ns=nanoseconds(times.decode_s),
        prefill_ns=nanoseconds(times.prefill_s),
        batch_ns=nanoseconds(times.batch_s),
        step_ns=round(times.step_s * 1e9),
        provider=options.provider,
        threads=options.threads,
        arithmetic="" if options.older else times.arithmetic,
    )
