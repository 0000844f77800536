"""Makes this peer hold the units that the plan gives it: loads, reports, and unloads what nobody needs.

Edge. One task does one thing at a time: stages of the next plan first, then standbys, so that primaries serve early.
Units that no plan wants any more stay while answers use them, which move away meanwhile; that they go is said to the
mesh before they do, so that no plan counts on them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Final, Protocol

from peer.errors import CannotServe, ConnectFailed, ConnectionLost, PeerError
from peer.model.fetcher import Progress
from peer.replication.decoder_view import ModelView
from peer.session.seat import Run_
from peer.stage.stage_host import StageHost
from peer.stage.team_host import TeamHost
from peer.stage.unit_host import Serving
from peer.state.generated.commands import HeldSlice, PlanRecord, PlanStage
from peer.state.plan_record import slice_of
from peer.storage.journal import Journal
from peer.storage.journal_records import Load, Migrate, Operation, Run, Unload
from peer.transport.peer_links import PeerLinks
from planner.errors import PlannerError

REMEMBERED_PLANS: Final = 4  # sessions may open over a plan that was replaced a moment ago
REPORT_AGAIN_S: Final = 1.0  # after a report that did not arrive
OPEN_AGAIN_S: Final = 0.5  # after a team whose helpers were not ready
DRAIN_S: Final = (
    150.0  # how long answers may keep units loaded that no plan wants any more; moving takes less
)
DRAINED_AGAIN_S: Final = 0.25  # between two looks whether answers still use them
TOLD_WITHIN_S: Final = 5.0  # from what was committed to this peer's own copy of the log
KEPT_S: Final = 30.0  # how long units that were held before a restart wait for a plan that wants them

log = logging.getLogger(__name__)


class HoldingOwner(Protocol):
    """Whom a holding asks in which order to load, and tells how far it is."""

    def order(self, runs: Collection[Run_]) -> Iterable[Run_]:
        """In which order runs are loaded."""

    def progress(self, run: Run_) -> Progress:
        """What is told how far the fetching of `run` is."""

    def reported(self) -> None:
        """The leader knows what is held here."""

    def failed(self, why: str) -> None:
        """What the plan wants cannot be held."""


class Holding:
    """Of the units that `units` hosts, each with `slots` sessions. Loads and unloads are begun and ended in the
    `journal`.
    """

    def __init__(
        self,
        links: PeerLinks,
        view: ModelView,
        stage: StageHost,
        units: Serving,
        journal: Journal,
        slots: int,
        owner: HoldingOwner,
        teams: TeamHost | None = None,
    ) -> None:
        """`teams`: what loads slices for the teams that plans name; None: no plan of this model has any."""
        self._me = view.me
        self._links = links
        self._view = view
        self._stage = stage
        self._core = stage.core
        self._serving = units
        self._journal = journal
        self._slots = slots
        self._owner = owner
        self._teams = teams
        self._kept: list[Run_] = []  # held before a restart, and not yet given up
        self._kept_since: int | None = None  # the last plan's version when this peer was measured
        self.given_back = asyncio.Event()  # what was kept is loaded again, or given up, and reported
        self._plans: dict[int, PlanRecord] = {}
        self._reported: tuple[tuple[Run_, ...], tuple[HeldSlice, ...]] | None = None
        self._unwanted: dict[Run_, float] = {}  # since when no plan wants them
        self._unwanted_slices: dict[HeldSlice, float] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._leaving = False

    def keep(self, runs: Sequence[Run_]) -> None:
        """Loads these too, until a plan is made that could have wanted them. Before `start`."""
        self._kept = list(runs)
        for run in self._journal.core.kept:
            if (run.first, run.stop) not in self._kept:
                self._journal.give_up(run)

    def start(self) -> None:
        """Begins to follow the state."""
        self._task = asyncio.ensure_future(self._follow())
        self._view.subscribe(self._state_changed)
        self._state_changed()

    def leave(self) -> None:
        """Loads and unloads nothing any more: what is held now is what the log tells after a restart."""
        self._leaving = True

    def _state_changed(self) -> None:
        """Looks again at what the plans want, soon."""
        state = self._view.state
        for plan in (state.plan, state.proposed):
            if plan is not None:
                self._plans[plan.version] = plan
        for version in sorted(self._plans)[:-REMEMBERED_PLANS]:
            del self._plans[version]
        self._tell_core()
        self._changed.set()

    def forget_report(self) -> None:
        """The coordinator was lost: tell it again what is held here."""
        self._reported = None
        self._changed.set()

    async def close(self) -> None:
        """Stops and unloads everything."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._teams is not None:
            await self._teams.close()
        await self._serving.close()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._step()
            except (PeerError, PlannerError) as error:
                log.error("cannot hold what the plan wants: %s", error)
                self._owner.failed(str(error))
            except Exception as error:
                log.exception("holding failed")
                self._owner.failed(f"a defect while loading units: {type(error).__name__}: {error}")

    async def _step(self) -> None:
        """One load or unload; asks to be called again while there is more to do."""
        self._look_at_kept()
        wanted = self._wanted()
        loaded = set(self._serving.runs)
        if self._leaving:
            return
        self._unwanted = {run: since for run, since in self._unwanted.items() if run in loaded - set(wanted)}
        for run in sorted(loaded - set(wanted)):
            if not self._in_use(run) and await self._given_up(run):
                await self._unload(run)
        await self._give_up_slices()
        for run in wanted:
            if run not in loaded:
                await self._load(run)
                self._tell_core()
                self._changed.set()
                break
        else:
            await self._hold_slices()
        await self._meet_neighbours()
        if self._reported != (held := self._held()):
            try:
                await self._report(held)
                self._reported = held
            except (PeerError, TimeoutError) as error:  # maybe it lost this peer, which then joins again
                log.info("the coordinator did not take what is held here: %s", error)
                asyncio.get_running_loop().call_later(REPORT_AGAIN_S, self._changed.set)
                return
        if set(self._kept) <= set(self._serving.runs):
            self.given_back.set()

    def _held(self) -> tuple[tuple[Run_, ...], tuple[HeldSlice, ...]]:
        """The runs that are loaded whole, and the slices with which this peer can compute."""
        return self._serving.runs, self._teams.told() if self._teams is not None else ()

    def _known(self) -> tuple[tuple[Run_, ...], tuple[HeldSlice, ...]] | None:
        """What the mesh knows of what is held here."""
        member = self._view.state.members.get(self._me)
        return (member.held, member.slices) if member is not None else None

    async def _report(self, held: tuple[tuple[Run_, ...], tuple[HeldSlice, ...]]) -> None:
        await self._view.holds(*held)
        self._owner.reported()

    # --- slices, for stages that teams compute

    def team_lost(self, run: Run_) -> None:
        """A team is over that this peer led: its sessions go on elsewhere, or here when there is another one."""
        self._stage.perform(self._core.lose(run, "a member of the team that computes these units was lost"))
        self._tell_core()
        self._changed.set()

    def look_again(self) -> None:
        """Something changed about teams."""
        self._changed.set()

    def _slice_stages(self) -> dict[HeldSlice, PlanStage]:
        """What plans give this peer of the stages of teams: those of the next plan first."""
        state = self._view.state
        found: dict[HeldSlice, PlanStage] = {}
        for plan in (state.proposed, state.plan):
            for stage in plan.stages if plan is not None else ():
                if (part := slice_of(stage, self._me)) is not None:
                    found.setdefault(part, stage)
        return found

    async def _give_up_slices(self) -> None:
        """Unloads slices that no plan wants, unless answers still use them."""
        if self._teams is None or self._teams.slices is None:
            return
        wanted = self._slice_stages()
        self._unwanted_slices = {p: since for p, since in self._unwanted_slices.items() if p not in wanted}
        for part in self._teams.slices.loaded:
            if part not in wanted and not self._slice_in_use(part):
                await self._teams.unload(part)
                self._unwanted_slices.pop(part, None)
                self._tell_core()
                self._changed.set()

    def _slice_in_use(self, part: HeldSlice) -> bool:
        """Whether answers still use it, which no plan wants; looked at again soon if so. A helper waits for
        its lead.
        """
        assert self._teams is not None
        loop = asyncio.get_running_loop()
        since = self._unwanted_slices.setdefault(part, loop.time())
        run = (part.first, part.stop)
        used = self._teams.in_use(part) if part.place else bool(self._core.active_on(run))
        if not used or loop.time() - since > DRAIN_S:
            return False
        loop.call_later(DRAINED_AGAIN_S, self._changed.set)
        return True

    async def _hold_slices(self) -> None:
        """Loads one slice that a plan wants, or else opens the teams that this peer leads."""
        if self._teams is None or self._teams.slices is None:
            return
        wanted = self._slice_stages()
        for part in wanted:
            if part not in self._teams.slices.loaded:
                await self._teams.slices.load(part, self._owner.progress((part.first, part.stop)))
                self._changed.set()
                return
        for part, stage in wanted.items():
            ready = all(self._view.state.holds(helper, stage) for helper in stage.helpers)
            if part.place or self._teams.is_open(part) or not ready:
                continue
            try:
                await self._teams.open(stage)
            except (PeerError, TimeoutError) as error:
                log.info("a team is not open yet: %s", error)
                asyncio.get_running_loop().call_later(OPEN_AGAIN_S, self._changed.set)
            self._tell_core()

    async def _load(self, run: Run_) -> None:
        operation = Load(Run(*run))
        await self._journal.begin(operation)
        try:
            await self._serving.load(run, self._owner.progress(run))
        except BaseException as error:
            self._journal.roll_back(operation)
            if run not in self._kept or not isinstance(error, CannotServe | PlannerError):
                raise
            self._kept.remove(run)  # nobody may want it; a plan that does has it loaded again
            log.warning("what was held before the restart does not load: %s", error)
            return
        self._journal.commit(operation)

    def _in_use(self, run: Run_) -> bool:
        """Whether answers still use `run`, which no plan wants; looked at again soon if so."""
        loop = asyncio.get_running_loop()
        since = self._unwanted.setdefault(run, loop.time())
        if not self._core.active_on(run) or loop.time() - since > DRAIN_S:
            return False
        loop.call_later(DRAINED_AGAIN_S, self._changed.set)
        return True

    async def _given_up(self, run: Run_) -> bool:
        """Tells the mesh that `run` goes. False: it did not hear, or a plan that came before it wants the units."""
        held = (tuple(other for other in self._serving.runs if other != run), self._held()[1])
        loop = asyncio.get_running_loop()
        try:
            await self._report(held)
            self._reported = held
            async with asyncio.timeout(TOLD_WITHIN_S):
                while (member := self._view.state.members.get(self._me)) is None or (
                    member.held,
                    member.slices,
                ) != held:
                    self._changed.clear()
                    await self._changed.wait()
        except (PeerError, TimeoutError) as error:
            log.info("the coordinator did not take what goes from here: %s", error)
            loop.call_later(REPORT_AGAIN_S, self._changed.set)
            return False
        self._changed.set()
        return run not in self._wanted() and not self._in_use(run)  # an answer may have begun meanwhile

    async def _unload(self, run: Run_) -> None:
        operation = self._way_out(run)
        await self._journal.begin(operation)
        try:
            self._stage.perform(self._core.drop(run))
            await self._serving.unload(run)
        except BaseException:
            self._journal.roll_back(operation)
            raise
        self._journal.commit(operation)
        self._unwanted.pop(run, None)
        self._tell_core()

    def _way_out(self, run: Run_) -> Operation:
        """Whether these units go to another peer, or are just wanted no longer."""
        plan = self._view.state.serving()
        for stage in plan.stages if plan is not None else ():
            if stage.first <= run[0] < stage.stop and stage.primary != self._me:
                return Migrate(Run(*run), stage.primary)
        return Unload(Run(*run))

    def _look_at_kept(self) -> None:
        """Gives up what was kept once a plan is made that knew of it, or nobody made one for long."""
        state = self._view.state
        member = state.members.get(self._me)
        if not self._kept or member is None or member.status == "joining":
            return
        if self._kept_since is None:
            self._kept_since = state.last_version
            asyncio.get_running_loop().call_later(KEPT_S, self._give_up)
        elif state.last_version > self._kept_since:
            self._kept = []

    def _give_up(self) -> None:
        self._kept = []
        self._changed.set()

    def _wanted(self) -> list[Run_]:
        state = self._view.state
        first: dict[Run_, None] = {}
        later: dict[Run_, None] = {}
        for plan in (state.proposed, state.plan):
            for stage in plan.stages if plan is not None else ():
                run = (stage.first, stage.stop)
                if stage.primary == self._me and not stage.helpers:
                    first[run] = None
                elif self._me in stage.standbys:
                    later[run] = None
        ready = state.proposed is None and state.serving() is not None
        standby = [run for run in later if run not in first and (ready or run in self._serving.runs)]
        first, standby = dict.fromkeys(self._owner.order(first)), [*self._owner.order(standby)]
        kept = [run for run in self._kept if run not in first and run not in standby]
        return [*first, *standby, *kept]

    async def _meet_neighbours(self) -> None:
        """Connects to everyone who may hold the next stage of each plan (of the last: the first), so that neither the
        first token nor one after a loss need wait.
        """
        state = self._view.state
        wanted: dict[str, None] = {}
        for plan in (state.proposed, state.plan):
            stages = plan.stages if plan is not None else ()
            for place, stage in enumerate(stages):
                if self._me in (stage.primary, *stage.standbys):
                    following = stages[(place + 1) % len(stages)]
                    wanted |= dict.fromkeys((following.primary, *following.standbys))
        for peer in wanted:
            if peer != self._me and peer in state.members:
                try:
                    await self._links.dialer.dial(peer)
                except (ConnectFailed, ConnectionLost) as error:
                    log.info("no connection to the next stage: %s", error)

    def _tell_core(self) -> None:
        plans = {
            version: tuple(
                (frozenset((stage.primary, *stage.standbys)), (stage.first, stage.stop))
                for stage in plan.stages
            )
            for version, plan in self._plans.items()
        }
        self._core.serve(plans, dict.fromkeys(self._serving.serving, self._slots))
