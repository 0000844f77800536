"""The teams that this peer computes in: those it leads, and those it helps. Edge (Python).

The lead opens a team once all its helpers hold their slices: it asks each which calls its machine needs, and has it
join. From then on frames go between the workers of the members. A team is over for all of its members when one of
them is lost or cannot go on; the lead opens another one when there are helpers again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from peer.errors import BadCommand, CannotServe, MeshError, PeerError, TeamBroken
from peer.limits import MAX_TEXT_BYTES
from peer.replication.decoder_view import ModelView
from peer.runtime.execution import Execution
from peer.runtime.forms import Form
from peer.runtime.stage_runtime import Done, Refused, StageRuntime
from peer.runtime.teams.helper_worker import HelperWorker
from peer.runtime.teams.mailbox import Mailbox
from peer.runtime.teams.member_execution import Channel, MemberExecution
from peer.runtime.teams.team import form_words, joint_form, told_form
from peer.runtime.teams.team_execution import TeamExecution
from peer.session.seat import Run_
from peer.stage.team_slices import Slices
from peer.stage.unit_host import Serving
from peer.state.generated.commands import HeldSlice, PlanStage
from peer.state.plan_record import slice_of, team_of
from peer.transport.peer_links import PeerLinks
from peer.wire.generated.frames import TeamEnd, TeamPart, TeamRows, TeamStep
from peer.wire.generated.requests import (
    TEAM_FORM,
    TEAM_HERE,
    TEAM_OPEN,
    TeamFormAnswer,
    TeamFormRequest,
    TeamHereRequest,
    TeamOpenRequest,
)
from planner.errors import PlannerError
from planner.model.lowering import make_shard

OPEN_TIMEOUT_S: Final = 60.0  # a helper connects to the others first, and may be in a call of the team before
SESSION_BYTES: Final = 16
HERE_S: Final = (
    0.4  # for a member that is waited for to say that it is there: its loop answers, not its worker
)
HERE_TRIES: Final = 2  # before it counts as lost; a busy machine may miss one

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Open:
    """A team that was opened. `worker` at helpers, `run` at the lead."""

    session: bytes
    members: tuple[str, ...]
    part: HeldSlice
    mailbox: Mailbox
    worker: HelperWorker | None = None
    asking: set[int] = field(default_factory=set)  # members that are asked whether they are there


class TeamHost:
    """Nothing is loaded, and no team opened, before `lend`. `lost(run)` is called when a team is over that this peer
    led; `changed()` when there may be more to open or to tell.
    """

    def __init__(self, links: PeerLinks, view: ModelView) -> None:
        self.slices: Slices | None = None
        self._links = links
        self._view = view
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serving: Serving | None = None
        self._lost: Callable[[Run_], None] = lambda _: None
        self._changed: Callable[[], None] = lambda: None
        self._opened: dict[bytes, _Open] = {}
        self._led: dict[HeldSlice, bytes] = {}  # by own slice: the team that computes
        self._ending: dict[HeldSlice, asyncio.Task[None]] = {}
        self._asking: set[asyncio.Task[None]] = set()
        links.on(TEAM_FORM, self._form)
        links.on(TEAM_OPEN, self._join)
        links.on(TEAM_HERE, self._here)

    def lend(
        self, slices: Slices, serving: Serving, lost: Callable[[Run_], None], changed: Callable[[], None]
    ) -> None:
        """Computes with `slices` from here on. Raises ValueError when it lends already."""
        if self.slices is not None:
            raise ValueError("this peer lends already")
        self._loop = asyncio.get_running_loop()
        self.slices, self._serving, self._lost, self._changed = slices, serving, lost, changed

    # --- what is loaded

    def told(self) -> tuple[HeldSlice, ...]:
        """The slices with which this peer can compute now: as helper those that are loaded, as lead those of open
        teams.
        """
        loaded = self.slices.loaded if self.slices is not None else ()
        return tuple(part for part in loaded if part.place or part in self._led)

    def is_open(self, part: HeldSlice) -> bool:
        """Whether a team computes that this peer leads with `part`."""
        return part in self._led

    def in_use(self, part: HeldSlice) -> bool:
        """Whether a team is open that computes with `part`."""
        return any(opened.part == part for opened in self._opened.values())

    async def unload(self, part: HeldSlice) -> None:
        """Ends the team that computes with `part`, and gives its memory back."""
        for opened in [opened for opened in self._opened.values() if opened.part == part]:
            self._end(opened, "the slice is unloaded")
        await self._ended(part)
        if self.slices is not None:
            await self.slices.unload(part)

    # --- the lead

    async def open(self, stage: PlanStage) -> None:
        """Has the team of `stage` compute, which this peer leads. Raises MeshError, ConnectFailed, TimeoutError or
        CannotServe.
        """
        part, slices = slice_of(stage, self._links.me), self.slices
        own = slices.execution(part) if part is not None and slices is not None else None
        if part is None or own is None or part in self._led:
            return
        await self._ended(part)
        members = team_of(stage)
        forms = await asyncio.gather(*(self._asked_form(stage, peer) for peer in stage.helpers))
        form = replace(joint_form([own.form, *forms]), plain=own.form.plain, fused=own.form.fused)
        opened = self._team(os.urandom(SESSION_BYTES), members, part)
        self._opened[opened.session] = opened
        try:
            await asyncio.gather(*(self._asked_to_join(stage, peer, opened, form) for peer in stage.helpers))
            if opened.mailbox.broken:
                raise TeamBroken(opened.mailbox.broken)
            self._lead(stage, opened, own, form)
        except BaseException as error:
            self._end(opened, f"the lead did not open the team: {type(error).__name__}")
            raise
        log.info("a team of %d computes units %d-%d", len(members), stage.first, stage.stop - 1)

    async def _asked_form(self, stage: PlanStage, peer: str) -> Form:
        part = slice_of(stage, peer)
        assert part is not None
        said = TeamFormRequest(part.first, part.stop, part.place, part.shares)
        answer = await self._links.ask(peer, TEAM_FORM, said)
        try:
            return told_form(answer.form)
        except ValueError as error:
            raise BadCommand(f"the answer to team_form: {error}") from None

    async def _asked_to_join(self, stage: PlanStage, peer: str, opened: _Open, form: Form) -> None:
        part = slice_of(stage, peer)
        assert part is not None
        said = TeamOpenRequest(
            opened.session.hex(),
            part.first,
            part.stop,
            part.place,
            part.shares,
            opened.members,
            form_words(form),
        )
        await self._links.ask(peer, TEAM_OPEN, said, OPEN_TIMEOUT_S)

    def _lead(self, stage: PlanStage, opened: _Open, own: MemberExecution, form: Form) -> None:
        slices, serving, run = self.slices, self._serving, (stage.first, stage.stop)
        assert slices is not None
        assert serving is not None
        manifest, store, room = slices.manifest, slices.store, slices.room

        def make(deliver: Callable[[Done | Refused], None]) -> StageRuntime:
            shard = make_shard(manifest, store, *run, exact=form.plain)
            embedding = None
            if not stage.first:
                first = make_shard(manifest, store, 0, 1, exact=form.plain)
                embedding = Execution(
                    first, threads=room.threads, context=room.context, form=form, brief=True
                )
            execution = TeamExecution(
                own,
                embedding,
                self._channel(opened),
                form,
                self._teller(opened),
                lambda why: self._from_worker(self._broken, opened, why),
                has_head=stage.stop == len(manifest.units),
            )
            return StageRuntime(
                replace(shard, weight_bytes=0),  # counted with the slices
                threads=room.threads,
                slots=2 * room.slots,
                context=room.context,
                form=form,
                deliver=deliver,
                before_call=room.before_call,
                execution=execution,
            )

        try:
            serving.lead(run, make)
        except (RuntimeError, MemoryError, ValueError) as error:
            raise CannotServe(f"units {run[0]}-{run[1] - 1} do not load: {error}") from error
        self._led[opened.part] = opened.session

    def _teller(self, opened: _Open) -> Callable[[TeamStep | TeamRows], None]:
        def tell(frame: TeamStep | TeamRows) -> None:
            for peer in opened.members[1:]:
                self._from_worker(self._links.send_or_lose, peer, frame)

        return tell

    # --- helpers

    async def _form(self, peer: str, said: TeamFormRequest) -> TeamFormAnswer:
        part = HeldSlice(said.first, said.stop, said.place, said.shares)
        execution = self._helping(peer, part, None)
        return TeamFormAnswer(form_words(execution.form))

    async def _join(self, peer: str, said: TeamOpenRequest) -> None:
        part = HeldSlice(said.first, said.stop, said.place, said.shares)
        execution, slices = self._helping(peer, part, said.members), self.slices
        assert slices is not None
        try:
            form = told_form(said.form)
        except ValueError as error:
            raise BadCommand(f"team_open: {error}") from None
        session = bytes.fromhex(said.session)
        if session in self._opened:
            raise BadCommand("team_open: expected the id of a new team")
        for other in said.members[1:]:
            if other != self._links.me:
                await self._links.dialer.dial(other)
        for before in [opened for opened in self._opened.values() if opened.part == part]:
            self._end(before, "the lead opens another team")
        await self._ended(part)
        if slices.execution(part) is not execution or not self._links.is_connected(peer):
            raise CannotServe("team_open: the slice is not loaded any more, or its lead is gone")
        opened = self._team(session, said.members, part)
        opened.worker = HelperWorker(
            execution,
            self._channel(opened),
            form,
            slices.manifest.hidden,
            2 * slices.room.slots,
            slices.room.context,
            lambda why: self._from_worker(self._broken, opened, why),
        )
        self._opened[session] = opened

    def _helping(self, peer: str, part: HeldSlice, members: tuple[str, ...] | None) -> MemberExecution:
        """The slice with which a plan has this peer help `peer`. Raises BadCommand, or CannotServe while it loads."""
        state = self._view.state
        stages = [
            stage
            for plan in (state.plan, state.proposed)
            for stage in (plan.stages if plan is not None else ())
            if part.place and slice_of(stage, self._links.me) == part and stage.primary == peer
        ]
        if not any(members in (None, team_of(stage)) for stage in stages):
            raise BadCommand("expected a team that a plan has the sender lead and this peer help")
        execution = self.slices.execution(part) if self.slices is not None else None
        if execution is None:
            raise CannotServe(f"the slice of units {part.first}-{part.stop - 1} is not loaded here yet")
        return execution

    async def _here(self, peer: str, said: TeamHereRequest) -> None:
        opened = self._opened.get(bytes.fromhex(said.session))
        if opened is None or peer not in opened.members:
            raise BadCommand("team_here: expected a team that is open here, and its member")

    # --- frames

    def step(self, peer: str, frame: TeamStep | TeamRows) -> None:
        """Takes what the lead has computed, or kept. Raises BadCommand for what comes from anybody else."""
        opened = self._opened.get(frame.session)
        if opened is None:
            return  # it was ended a moment ago
        if opened.worker is None or peer != opened.members[0]:
            raise BadCommand("a call of a team by its lead expected")
        opened.worker.take(frame)

    def part(self, peer: str, frame: TeamPart) -> None:
        """Takes a part. Raises BadCommand for what comes from anybody else."""
        opened = self._opened.get(frame.session)
        if opened is None:
            return
        if frame.member >= len(opened.members) or opened.members[frame.member] != peer:
            raise BadCommand("TEAM_PART: a part of the sender's own expected")
        opened.mailbox.put(frame)

    def end(self, peer: str, frame: TeamEnd) -> None:
        """Takes that the team is over for another member."""
        opened = self._opened.get(frame.session)
        if opened is not None and peer in opened.members:
            self._end(opened, frame.message, told_by=peer)

    def gone(self, peer: str) -> None:
        """Takes that the connection to a peer ended."""
        for opened in list(self._opened.values()):
            if peer in opened.members:
                self._end(opened, "a member of the team was lost")

    async def close(self) -> None:
        """Ends all teams, and unloads everything."""
        for opened in list(self._opened.values()):
            self._end(opened, "this peer leaves")
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        while self._ending:
            await asyncio.gather(*self._ending.values(), return_exceptions=True)
        if self.slices is not None:
            await self.slices.close()

    # --- inner moves

    def _team(self, session: bytes, members: tuple[str, ...], part: HeldSlice) -> _Open:
        def late(member: int) -> None:
            self._from_worker(self._ask_late, session, member)

        return _Open(session, members, part, Mailbox(late))

    def _ask_late(self, session: bytes, member: int) -> None:
        """Asks a member that the worker waits for whether it is there, unless it is asked already."""
        opened = self._opened.get(session)
        if opened is None or member in opened.asking:
            return
        opened.asking.add(member)
        task = asyncio.ensure_future(self._ask_whether_here(opened, member))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _ask_whether_here(self, opened: _Open, member: int) -> None:
        """Ends the team for a member that does not answer, or for which it is over: whoever asks goes on elsewhere."""
        said, why = TeamHereRequest(opened.session.hex()), ""
        for _ in range(HERE_TRIES):
            try:
                await self._links.call(opened.members[member], TEAM_HERE, said, HERE_S)
                why = ""
                break
            except TimeoutError:
                why = "a member of the team is silent"
            except PeerError as error:
                why = f"a member of the team is gone: {error}"
                break
        opened.asking.discard(member)
        if why:
            self._broken(opened, why)

    def _channel(self, opened: _Open) -> Channel:
        def send(member: int, part: TeamPart) -> None:
            self._from_worker(self._links.send_or_lose, opened.members[member], part)

        return Channel(opened.session, opened.part.place, len(opened.members), send, opened.mailbox)

    def _from_worker(self, call: Callable[..., object], *args: object) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop closed meanwhile
            self._loop.call_soon_threadsafe(call, *args)

    def _broken(self, opened: _Open, why: str) -> None:
        if self._opened.get(opened.session) is opened:
            self._end(opened, why)

    def _end(self, opened: _Open, why: str, told_by: str = "") -> None:
        """The team is over here: its members hear of it, its worker ends, its sessions go on elsewhere."""
        self._opened.pop(opened.session, None)
        opened.mailbox.end(why)
        log.info("a team of units %d-%d is over: %s", opened.part.first, opened.part.stop - 1, why)
        text = why.encode()[:MAX_TEXT_BYTES].decode(errors="ignore")
        for peer in opened.members:
            if peer not in (self._links.me, told_by) and self._links.is_connected(peer):
                self._links.send_or_lose(peer, TeamEnd(opened.session, text))
        if self._led.get(opened.part) == opened.session:
            del self._led[opened.part]
            run = (opened.part.first, opened.part.stop)
            assert self._serving is not None
            self._lost(run)
            self._start_ending(opened.part, self._serving.lead_no_more(run))
        elif opened.worker is not None:
            self._start_ending(opened.part, asyncio.to_thread(opened.worker.close, why))

    def _start_ending(self, part: HeldSlice, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._ending[part] = task

        def ended(task: asyncio.Task[None]) -> None:
            if self._ending.get(part) is task:
                del self._ending[part]
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("a team did not end", exc_info=error)
            self._changed()

        task.add_done_callback(ended)

    async def _ended(self, part: HeldSlice) -> None:
        """Waits until nothing computes with `part` any more."""
        while (task := self._ending.get(part)) is not None:
            with suppress(PeerError, PlannerError, MeshError):
                await asyncio.shield(task)
