"""This process as a member of a mesh: asking, lending, saying how it is, and leaving. Edge.

`peer.member.joining` makes a `MeshMember`; what it does is done by its parts, which anybody may use.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from peer.audit.accounting import Accounts
from peer.audit.canaries import Canaries
from peer.audit.model_audit import ModelAudit
from peer.audit.step_checks import CheckRequests, Checks, added_up
from peer.consensus.events import Settings
from peer.conversation.conversation_client import Talking
from peer.coordination.decoder_planning import taken_bytes
from peer.errors import BadCommand, CannotServe, NoPlan, PeerError
from peer.member.epoch_recovery import answered, best_state, requested
from peer.member.leader_watch import HANDOVER_GRACE_S, LeaderWatch
from peer.member.lending import Lending
from peer.member.peer_options import PeerOptions
from peer.member.peer_parts import PeerParts
from peer.member.progress import Phase, Report
from peer.member.reconnect import Away
from peer.member.report_checks import shown_report
from peer.member.status_report import report_of
from peer.model.fetcher import Fetcher, PieceSource
from peer.model.local_model import LocalModel
from peer.model.pictures import PictureJobs
from peer.model.piece_exchange import Pieces
from peer.model.text_inputs import TextReader
from peer.model.tokenizer import Text
from peer.origin.answer_stream import Conversation
from peer.origin.answering_model import AnsweringModel
from peer.origin.pinned_ends import OwnEnds, own_ends
from peer.origin.run_client import RunClient, open_run
from peer.replication.log_keeping import LogKeeping
from peer.replication.replica import Beginning, Replica
from peer.session.seat import Run_
from peer.state.display_names import name_fault
from peer.state.generated.commands import CutsFixed, MemberRenamed
from peer.state.member_commands import Command
from peer.state.mesh_state import MeshState
from peer.state.readiness import runs_any, why_no_words, why_not_ready
from peer.storage.journal import Journal
from peer.transport.signaling_client import SignalingClient
from peer.wire.generated.requests import LEAVING, LEFT, STATUS, StatusAnswer
from planner.model.graph_manifest import GraphManifest
from planner.model.manifest import Manifest
from planner.model.store import BlobRef
from signaling.errors import SignalingError
from signaling.invites import Grant, InviteLink, Role, make_invite
from signaling.keys import SEED_BYTES, Identity

LEAVE_WITHIN_S: Final = (
    5.0  # a polite leave waits this long for another leader, and for answers to move elsewhere
)
TOLD_WITHIN_S: Final = 2.5  # a goodbye that nobody takes is found out by the others
RECOVER_WITHIN_S: Final = 10.0
HAND_OVER_S: Final = 3.0  # for one peer to become leader
GIVE_UP_DISK_S: Final = (
    10.0  # a disk that is full or forbidden for longer is done without, where others keep the log
)
KEEP_AGAIN_S: Final = 15.0  # between looks whether it takes something again
STATUS_S: Final = 5.0
CLOSED: Final = "the last peer that kept the mesh left"
WITHDRAWN: Final = "the invite this peer came with was withdrawn"

log = logging.getLogger(__name__)


class MeshMember:
    """This process as a member. Made by `found` and `join`."""

    def __init__(
        self,
        parts: PeerParts,
        client: SignalingClient,
        log_keeping: LogKeeping,
        report: Report,
        *,
        link: InviteLink | None = None,
        pace: Settings | None = None,
        handover_grace_s: float = HANDOVER_GRACE_S,
    ) -> None:
        """`link`: the one it came by; None: it founds the mesh. `pace`: of the consensus; None: that of all meshes."""
        self.parts = parts
        self.links = parts.links
        self.view = parts.view
        self.model = parts.model
        self.stage = parts.stage
        self.sessions = parts.sessions
        self.leadership = parts.leadership
        self.me = parts.me
        self.client = client
        self.log = log_keeping
        self.report = report
        self.link = link
        self.invites: dict[str, Grant] = {}
        self.lending: Lending | None = None  # None: it only asks, so far
        self._pictures: PictureJobs | None = None
        self._fetcher: Fetcher | None = None  # of models that are offered beside the mesh's own
        self.audit: ModelAudit | None = None  # of the mesh's own model
        self.ended = asyncio.Event()
        self.why_ended = ""
        self.leaving = False
        self.renamed = ""  # the name that it took since it joined
        self._pins: int | None = None  # threads for ends of models that stay here; None: stages have them
        self.leader_watch = LeaderWatch(parts.links, parts.view, self.start, handover_grace_s)
        self._pace = pace
        self._tasks: set[asyncio.Task[None]] = set()
        self.links.on(STATUS, self._status)

    # --- asking

    @property
    def pictures(self) -> PictureJobs:
        """What prepares pictures for models that see, without holding this peer up."""
        if self._pictures is None:
            self._pictures = PictureJobs()
        return self._pictures

    @property
    def accounts(self) -> Accounts | None:
        """What this peer owes to whom, and what was checked, of the mesh's own model."""
        return self.audit.accounts if self.audit is not None else None

    @property
    def canaries(self) -> Canaries | None:
        """Whom this peer tries with the mesh's own model while it leads."""
        return self.audit.canaries if self.audit is not None else None

    @property
    def manifest(self) -> Manifest | None:
        """The model's manifest; None before it is known."""
        return self.model.manifest

    @property
    def text(self) -> Text:
        """The model's tokenizer and chat template. Raises NoPlan before the model is known."""
        return self.model.text

    def conversation(self) -> Conversation:
        """A new conversation with the model. Close it when it is over. Raises NoPlan before the model is known."""
        return AnsweringModel(self.view, self.model, self.sessions, open_run=self.open_run).conversation()

    async def answering(self, name: str | None = None) -> AnsweringModel:
        """The model that answers in words under that name, once its tokenizer is here; None: the mesh's own. Raises
        NoPlan where there is none, CannotServe where its tokenizer cannot be had, or its ends where this peer keeps
        them.
        """
        own = self.view.state.model
        if name is None or (own is not None and own.name == name):
            return AnsweringModel(self.view, self.model, self.sessions, open_run=self.open_run)
        if self._fetcher is None:
            raise NoPlan("this peer is not in its mesh yet")
        found = self.parts.decoders.named(name)
        await found.learn(self._fetcher)
        if self._pins is not None:
            await found.keep_ends(self._fetcher, self._pins)
        return replace(found.answering, open_run=self.open_run)

    def fetch_by(self, fetcher: Fetcher) -> None:
        """Takes what gets the manifests of the models that are offered beside the mesh's own."""
        self._fetcher = fetcher

    async def pin_ends(self, threads: int) -> None:
        """Keeps embedding and head of what answers here from now on, of the mesh's own model and of each further one
        that is asked. Raises NoPlan, CannotServe.
        """
        self._pins = threads
        if self.model.manifest is not None:
            self.sessions.keep_ends(await self.ends_of(self.model, threads))

    async def open_run(self, name: str) -> RunClient:
        """A run of the model that the mesh offers as `name`. Close it when it is over. Raises NoPlan, RunFailed."""
        if self._fetcher is None:
            raise NoPlan("this peer is not in its mesh yet")
        return await open_run(self.links, self.view, self.parts.flow, self._fetcher, name)

    async def graph_manifest(self, model: str) -> GraphManifest:
        """The manifest of a model that the mesh offers, remembered. Raises NoPlan, CannotServe or CorruptStore."""
        if self._fetcher is None:
            raise NoPlan("this peer is not in its mesh yet")
        return await self.parts.flow.manifest(model, self._fetcher)

    async def decoder_manifest(self, name: str) -> Manifest:
        """The manifest of the further model of that name, remembered. Raises NoPlan, CannotServe or CorruptStore."""
        if self._fetcher is None:
            raise NoPlan("this peer is not in its mesh yet")
        return await self.parts.decoders.named(name).learn(self._fetcher)

    async def fetch(self, blobs: Sequence[BlobRef]) -> None:
        """Brings blobs of such a model into the store of this peer. Raises NoPlan, CannotServe."""
        if self._fetcher is None:
            raise NoPlan("this peer is not in its mesh yet")
        await self._fetcher.blobs(blobs)

    async def ends_of(self, model: LocalModel, threads: int) -> OwnEnds:
        """Embedding and head of a model that is known, to be run here. Raises NoPlan, CannotServe."""
        if self._fetcher is None or model.manifest is None:
            raise NoPlan("this peer is not in its mesh yet")
        return await own_ends(model.manifest, model.store, self._fetcher, threads)

    async def text_reader(self, manifest: GraphManifest) -> TextReader:
        """What makes inputs of texts for such a model. Raises NoPlan; CannotServe, also for a model that takes none."""
        if manifest.text is None:
            raise CannotServe(f"{manifest.name} does not say how texts become its inputs")
        tokenizer = manifest.text.tokenizer
        await self.fetch([tokenizer])
        path = self.model.store.blob_path(tokenizer.sha256)
        return await asyncio.to_thread(lambda: TextReader(manifest, path.read_bytes()))

    def talking(
        self, changed: Callable[[], None] = lambda: None, refused: Callable[[str], None] = lambda _: None
    ) -> Talking:
        """Takes part in the conversations of the mesh, once a membership. Close it before the member."""
        return Talking(self.links, self.view, lambda name: self.answering(name or None), changed, refused)

    @property
    def serves(self) -> bool:
        """Whether the mesh can answer now; where no model of it answers in words: whether it can run one."""
        state = self.view.state
        in_words = state.model is not None or not state.members
        return self.sessions.can_answer if in_words else runs_any(state)

    async def until_serving(self, timeout_s: float | None = None) -> None:
        """Waits until the mesh can answer. Raises NoPlan, saying why not, when it cannot in time, and at once where it
        never will: no model of it answers in words.
        """
        if self.view.state.model is None and self.me in self.view.state.members:
            raise NoPlan(why_no_words(self.view.state))
        if not await self.view.until(lambda state: state.serving() is not None, timeout_s):
            raise NoPlan(f"the mesh cannot answer yet: {why_not_ready(self.view.state)}")

    async def status(self) -> dict[str, Any]:
        """What every member says of itself, by peer id; members that do not answer are left out."""
        found: dict[str, Any] = {self.me: self.report_of_self()}
        others = [peer for peer in self.view.state.members if peer != self.me]

        async def ask(peer: str) -> None:
            try:
                found[peer] = shown_report(await self.links.ask(peer, STATUS, None, STATUS_S))
            except (PeerError, TimeoutError) as error:
                log.info("no status of %s: %s", peer[:8], error)

        await asyncio.gather(*(ask(peer) for peer in others))
        return found

    def report_of_self(self) -> dict[str, Any]:
        """What this peer says of itself, for people."""
        return shown_report(self._report())

    def _report(self) -> StatusAnswer:
        own = [self.audit.checks.report()] if self.audit is not None else []
        further = [each.audit.checks.report() for each in self.parts.decoders if each.audit is not None]
        return report_of(self.parts, self.lending, added_up([*own, *further]) if own else None)

    async def _status(self, _: str, __: None) -> StatusAnswer:
        return self._report()

    # --- what it does beside

    def keep_accounts(self, fetcher: Fetcher | None = None) -> None:
        """From here on says what it owes, has steps checked, and tries others while it leads. `fetcher` None:
        everything of the model is here.
        """

        def others_bytes() -> int:
            return taken_bytes(replace(self.view.state, plan=None, proposed=None)).get(self.me, 0)

        answering = AnsweringModel(self.view, self.model, self.sessions, open_run=self.open_run)
        own = self.audit = ModelAudit(self.links, answering, self.stage, self.start, others_bytes)
        if fetcher is not None:
            fetcher.on_given(own.accounts.given)  # pieces of any model

        def checks_of(session: bytes) -> Checks:
            further = self.parts.decoders.audit_of(session)
            return (further or own).checks

        CheckRequests(self.links, checks_of)
        own.begin(fetcher)
        self.parts.decoders.keep_accounts(fetcher)

    def runs_only(self) -> None:
        """This peer is in a mesh without a model that answers in words: it ends where the mesh gets one, which asks for
        other measurements, and whoever comes back takes part in that.
        """

        def look() -> None:
            if self.view.state.model is not None:
                self.end(f"{self.view.state.model.name} answers in this mesh from now on: join once more")

        self.view.subscribe(look)
        look()

    def lend(self, options: PeerOptions, fetcher: Fetcher, journal: Journal) -> Lending:
        """Begins to hold what plans and placements give this peer. It is known whether a model answers here."""
        lending = Lending(self.parts, self.log.mesh, options, journal, self.report, self.start, self.end)
        self.lending = lending
        lending.begin(fetcher)
        return lending

    def piece_sources(self, ref: BlobRef) -> Sequence[PieceSource]:
        """The connected members that hold a unit of this blob, of any model that answers in words; the leader, whose
        store the server shows, last.
        """
        state = self.view.state
        models = [(self.model, {peer: member.held for peer, member in state.members.items()})]
        for parts in self.parts.decoders:
            if (decoder := state.decoders.get(parts.name)) is not None:
                models.append((parts.parts.model, dict(decoder.held)))
        for model, held in models:
            manifest, pieces = model.manifest, model.pieces
            if manifest is None or pieces is None:
                continue
            if any(pieces.has(bytes.fromhex(each)) for each in ref.pieces):
                return self._holders_of(ref, manifest, pieces, held)
        return ()

    def _holders_of(
        self, ref: BlobRef, manifest: Manifest, pieces: Pieces, held: Mapping[str, Sequence[Run_]]
    ) -> Sequence[PieceSource]:
        everywhere = ref in (manifest.tokenizer, *manifest.graphs())

        def has(runs: Sequence[Run_]) -> bool:
            return everywhere or any(ref in manifest.blobs(*run) for run in runs)

        def get(peer: str) -> Callable[[BlobRef, int], Awaitable[bytes]]:
            return lambda ref, index: pieces.fetch(
                peer, bytes.fromhex(ref.pieces[index]), ref.piece_bytes(index)
            )

        leader = self.view.leader
        return [
            PieceSource(peer, get(peer), last_resort=peer == leader)
            for peer in self.links.dialer.connected_peers()
            if peer == leader or (peer in held and has(held[peer]))
        ]

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

    def show(self, link: InviteLink) -> None:
        """Takes the link that people are shown. Founder only."""
        self.link = link

    def set_cuts(self, cuts: tuple[int, ...] | None) -> None:
        """Fixes the stage borders by hand (None: the planner decides), soon. Founder only. Raises BadCommand."""
        if self.leadership.current is not None:
            self.leadership.current.set_cuts(cuts)
        else:
            self.start(self._fix_cuts(cuts))

    async def _fix_cuts(self, cuts: tuple[int, ...] | None) -> None:
        try:
            await self.propose(CutsFixed(cuts))
        except PeerError as error:
            log.warning("the borders were not fixed: %s", error)

    async def propose(self, command: Command) -> None:
        """Has the log say so; returns when it is committed. Raises MeshError, as where it is not this peer's to say."""
        await self.view.propose(command)

    async def rename(self, name: str) -> None:
        """Has everybody call this peer `name`, also after it was away. Raises BadCommand for a name that none has."""
        if fault := name_fault(name):
            raise BadCommand(fault)
        await self.propose(MemberRenamed(self.me, name))
        self.renamed = name

    # --- the log

    @property
    def away(self) -> Away | None:
        """Set from the moment the leader is lost until this peer is back with it, or gave up."""
        return self.leader_watch.away

    def take_part(self, begin: Beginning) -> None:
        """Starts this peer's copy of the log. Raises BadBoot."""
        self.view.take_part(begin, self.log.store if self.log.durable else None, self._pace)

    async def leave_log(self) -> None:
        """Forgets what this peer knows of the mesh, which is void: it is to begin anew."""
        await self.parts.leave_log()

    def watch_leader(self, rejoin: Callable[[], Awaitable[None]]) -> None:
        """Says so while nobody leads, and comes back when this peer is left out; ends with the mesh."""

        def gone(peer: str, reason: str, polite: bool) -> None:
            if self.ended.is_set():
                return
            if reason == WITHDRAWN:
                self.end("the founder withdrew the invite you came with: ask for a new link")
            elif polite and reason == CLOSED:
                self.end("the founder closed the mesh: it is back when the founder serves it again")
            else:
                self.leader_watch.look()

        self.leader_watch.begin(rejoin, self.is_over)
        self.view.on_log_refused(self._log_refused)
        self.view.on_log_lost(self._log_lost)
        self.links.on_gone(gone)
        if self.log.beside is not None:
            self.start(self._recover_when_asked(self.log.beside, rejoin))

    async def recover(self, rejoin: Callable[[], Awaitable[None]]) -> int:
        """Begins the next epoch from what this peer knows; its number. Raises BadCommand, StateUnusable."""
        replica = self.view.replica
        if replica is None or self.leader_watch.missing(0) is None:
            raise BadCommand("nothing was changed: somebody coordinates this mesh")
        epoch = await self.begin_epoch(replica)
        await rejoin()
        return epoch

    async def begin_epoch(self, before: Replica) -> int:
        """Begins the epoch after that of `before` with what this peer knows, alone; its number. Raises StateUnusable,
        and CannotServe where it does not lead in time.
        """
        state = await asyncio.to_thread(best_state, self.log, before.state, before.fresh, self.tell)
        await self.leave_log()
        epoch = before.epoch + 1
        self.take_part(await asyncio.to_thread(self.log.found, state, epoch))
        if not await self.leadership.until_leads(RECOVER_WITHIN_S):
            raise CannotServe("this peer could not begin the log of its mesh; look at its state folder")
        return epoch

    def tell(self, text: str) -> None:
        """A line for people."""
        self.report(Phase(text, 0, 0))

    def _log_refused(self, why: str) -> None:
        """Who votes alone waits for its disk; elsewhere the mesh goes on, and this peer with it before long."""
        if why and not self._votes_alone():
            self.start(self._give_up_disk())

    def _log_lost(self, why: str) -> None:
        if self._votes_alone():
            self.end(
                f"the log of the mesh cannot be kept here: {why}"
            )  # whoever watches over it starts it again
        else:
            self.start(self._live_again(why))

    def _votes_alone(self) -> bool:
        replica = self.view.replica
        return replica is not None and replica.config.voters == (self.me,)

    async def _give_up_disk(self) -> None:
        replica = self.view.replica
        await self.parts.ticks.after(GIVE_UP_DISK_S)
        if replica is not None and replica is self.view.replica and replica.refused:
            await self._live_again(replica.refused)

    async def _live_again(self, why: str) -> None:
        """What is kept here is not trusted: this peer joins as another one, in memory until the disk takes a log."""
        self.tell(f"the log of the mesh cannot be kept here: {why}; goes on without it")
        kept = self.log
        await self.leave_log()
        kept.close()
        self.log = LogKeeping(kept.mesh, self.me, None)
        self.leader_watch.look()
        while True:
            await self.parts.ticks.after(KEEP_AGAIN_S)
            if await asyncio.to_thread(kept.can_write) and self._copy_is_spare():
                break
        self.tell("the log of the mesh is kept here again")
        await self.leave_log()
        self.log = kept
        self.leader_watch.look()

    def _copy_is_spare(self) -> bool:
        """Whether the mesh is led, and the voters that are reached from here are a majority without this one.

        Otherwise the vote of this life may be what the next leader needs.
        """
        replica, leader = self.view.replica, self.view.leader
        if replica is None or replica.fresh:
            return True
        voters = replica.config.voters
        others = [peer for peer in voters if peer != self.me and self.links.is_connected(peer)]
        return leader not in (None, self.me) and (self.me not in voters or 2 * len(others) > len(voters))

    async def _recover_when_asked(self, beside: Path, rejoin: Callable[[], Awaitable[None]]) -> None:
        while True:
            await requested(beside, self.parts.ticks.after)
            try:
                epoch = await self.recover(rejoin)
            except (PeerError, SignalingError, TimeoutError) as error:
                text = str(error) or "nobody of the mesh answered in time"
            else:
                text = f"epoch {epoch} of the mesh has begun here; the others join it as they come back"
                self.report(Phase(text, 0, 0))
            await asyncio.to_thread(answered, beside, text)

    # --- leaving

    async def leave(self, reason: str = "left") -> None:
        """Hands over what it leads, lets running answers move elsewhere, tells the leader, then says goodbye."""
        if self.lending is not None:
            self.lending.leave()
        self.leaving = True
        view = self.view
        try:
            async with asyncio.timeout(LEAVE_WITHIN_S):
                if view.replica is not None and self.me in view.state.members:
                    await view.ask_leader(LEAVING, None, TOLD_WITHIN_S)
                    if view.replica.leads and not await self._hand_over():
                        reason = CLOSED
                self.stage.leave()
                self.parts.decoders.leave_stages()
                await self.stage.idle()
                for decoder in self.parts.decoders:
                    await decoder.parts.stage.idle()
        except (TimeoutError, PeerError) as error:
            log.info("leaving without waiting: %s", error)
        follows = view.replica is not None and not view.replica.leads
        if reason != CLOSED and follows and self.me in view.state.members:
            with suppress(PeerError):
                await view.ask_leader(LEFT, None, TOLD_WITHIN_S)
        await self.close(reason)

    async def _hand_over(self) -> bool:
        """Lets another peer lead, if it does in time; False where nobody is there who can keep the mesh."""

        def over(_: MeshState) -> bool:
            return self.view.leader not in (None, self.me) or self._alone()

        await self.view.until(over, HAND_OVER_S)
        return not self._alone()

    def _alone(self) -> bool:
        leading = self.leadership.current
        if leading is not None:
            leading.tend()
        return leading is not None and leading.alone

    async def close(self, reason: str) -> None:
        """Ends this membership; no task, socket or worker is left."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self.parts.close(reason)  # nobody is answered any more, so no check loads units again
            if self.audit is not None:
                await self.audit.close()
            if self.sessions.own_ends is not None:
                await self.sessions.own_ends.close()
            if self._pictures is not None:
                await self._pictures.close()
            if self.lending is not None:
                await self.lending.close()
        finally:
            self.log.close()
            self.end(reason)

    def is_over(self) -> bool:
        """Returns whether this peer leaves, or the membership has ended."""
        return self.leaving or self.ended.is_set()

    def end(self, why: str) -> None:
        """This membership is over for a reason that people should read; whoever waits for `ended` leaves."""
        if not self.ended.is_set():
            self.why_ended = why
            self.ended.set()

    # --- tasks

    def start(self, step: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs `step` until this member closes. A defect in it ends the membership."""
        task = asyncio.ensure_future(step)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of this member failed", exc_info=error)
            if isinstance(
                error, OSError | MemoryError
            ):  # of the machine: whoever watches over it starts it again
                self.end(f"this machine refuses what a peer needs ({str(error) or 'memory'}): start it again")
            else:
                self.end(f"a defect, please report it: {type(error).__name__}: {error}")
