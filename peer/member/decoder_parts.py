"""The further models that answer in words, as this peer has them: parts for each that the mesh offers. Edge.

They come and go with the offers. Who lends this machine holds what plans give it of each; who asks one has its
manifest and tokenizer fetched first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from peer.audit.model_audit import ModelAudit
from peer.coordination.decoder_planning import taken_bytes
from peer.coordination.repair_order import load_order
from peer.errors import BadCommand, NoPlan, PeerError
from peer.member.model_parts import ModelParts
from peer.member.peer_options import PeerOptions
from peer.member.progress import Phase, Report, fetching
from peer.model.fetcher import Fetcher, Progress
from peer.origin.answering_model import AnsweringModel
from peer.origin.pinned_ends import own_ends
from peer.replication.decoder_view import DecoderView
from peer.replication.mesh_view import MeshView
from peer.runtime.shared_sessions import SharedSessions
from peer.session.prefix_cache import LENT_SHARE, MOST_BYTES
from peer.session.seat import Run_
from peer.stage.unit_host import Room, Serving
from peer.stage.unit_loader import Holding
from peer.state.decoders import MARK_BYTES, mark_of
from peer.storage.journal import Journal
from peer.transport.peer_links import PeerLinks
from planner.errors import PlannerError
from planner.model.manifest import Manifest
from planner.model.store import Store

AGAIN_S: Final = 5.0  # after a manifest that could not be had, or units that did not load
WITHDRAWN: Final = "the model is not offered any more"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Lent:
    options: PeerOptions
    fetcher: Fetcher
    shared: SharedSessions
    report: Report


class DecoderParts:
    """Of the further model `name`, whose manifest has the id `model_id`."""

    def __init__(
        self, links: PeerLinks, view: MeshView, store: Store, numbers: Iterator[int], name: str, model_id: str
    ) -> None:
        self.name = name
        self.model_id = model_id
        self.mark = mark_of(name, model_id)
        self.view = DecoderView(view, name)
        self.parts = ModelParts(links, self.view, store, numbers)
        self.audit: ModelAudit | None = None
        self._links = links
        self._mesh = view
        self._audits: set[asyncio.Task[None]] = set()
        self._learning = asyncio.Lock()
        self._report: Report = lambda _: None
        self._holding: Holding | None = None
        self._task: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None

    async def learn(self, fetcher: Fetcher) -> Manifest:
        """Has the manifest, the tokenizer and the graphs here, after which the model can be asked. Raises CannotServe
        or CorruptStore.
        """
        async with self._learning:
            manifest = self.parts.model.manifest
            if manifest is None:
                manifest = await fetcher.manifest(self.model_id)
                await fetcher.blobs([manifest.tokenizer, *manifest.graphs()])
                self.parts.model.know(manifest)
            return manifest

    @property
    def answering(self) -> AnsweringModel:
        """The model as it is asked here, once `learn` has been called."""
        return AnsweringModel(self.view, self.parts.model, self.parts.sessions, self.mark)

    def keep_accounts(self, fetcher: Fetcher | None) -> None:
        """Says from here on what this peer owes for this model, has its steps checked, and tries others while it leads.
        `fetcher` None: everything of the model is here.
        """

        def others_bytes() -> int:
            return taken_bytes(self._mesh.state, self.name).get(self._links.me, 0)

        self.audit = ModelAudit(self._links, self.answering, self.parts.stage, self._start, others_bytes)
        self.audit.begin(fetcher)

    async def keep_ends(self, fetcher: Fetcher, threads: int) -> None:
        """Has embedding and head here, once `learn` has been called: answers that begin tell no other peer token ids.
        Raises CannotServe.
        """
        async with self._learning:
            model, sessions = self.parts.model, self.parts.sessions
            if sessions.own_ends is None and model.manifest is not None:
                sessions.keep_ends(await own_ends(model.manifest, model.store, fetcher, threads))

    def lend(self, lent: _Lent) -> None:
        """Begins to hold what plans give this peer."""
        if self._task is None:
            self._report = lent.report
            self._task = asyncio.ensure_future(self._hold(lent))

    def report_again(self) -> None:
        """The leader was lost: tells it again what is held here."""
        if self._holding is not None:
            self._holding.forget_report()

    def leave(self) -> None:
        """Loads and unloads nothing any more."""
        if self._holding is not None:
            self._holding.leave()

    def gone(self, peer: str) -> None:
        """Takes that the connection to a peer ended: pieces and stages."""
        self.parts.gone(peer)

    async def close(self, why: str) -> None:
        """Ends answers, and unloads what is held."""
        if self._again is not None:
            self._again.cancel()
        tasks = [*self._audits, *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.view.close()
        await self.parts.close(why)
        if self.audit is not None:
            await self.audit.close()
        if self.parts.sessions.own_ends is not None:
            await self.parts.sessions.own_ends.close()
        if self._holding is not None:
            await self._holding.close()

    def _start(self, step: Coroutine[Any, Any, None]) -> None:
        """Runs a task of checks or accounts until the model is withdrawn."""
        task = asyncio.ensure_future(step)
        self._audits.add(task)
        task.add_done_callback(self._audit_ended)

    def _audit_ended(self, task: asyncio.Task[None]) -> None:
        self._audits.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of checks failed", exc_info=error)

    async def _hold(self, lent: _Lent) -> None:
        """Never holds before the manifest is here, for which it tries again and again."""
        while True:
            try:
                manifest = await self.learn(lent.fetcher)
                break
            except (PeerError, PlannerError) as error:
                self._report(Phase(f"{self.name} is not held here yet: {error}", 0, 0))
                await asyncio.sleep(AGAIN_S)
        chosen, options = self.view.state.model, lent.options
        if chosen is None:
            return  # withdrawn meanwhile
        before_call = options.disturbance.before_call if options.disturbance is not None else None
        room = Room(
            options.provider,
            options.threads,
            chosen.sessions,
            chosen.context,
            options.memory_bytes,
            before_call,
            lent.shared,
        )
        stage, journal = self.parts.stage, Journal()
        units = Serving(self.parts.model.store, lent.fetcher, manifest, room, stage.results, stage.core.asker)
        stage.lend(units, journal, min(MOST_BYTES, options.memory_bytes // LENT_SHARE) // 2)
        self._holding = Holding(self._links, self.view, stage, units, journal, chosen.sessions, self)
        self._holding.start()

    # --- HoldingOwner

    def order(self, runs: Collection[Run_]) -> Iterable[Run_]:
        """Earlier stages first."""
        plan = self.view.state.proposed or self.view.state.plan
        stages = [(stage.first, stage.stop) for stage in plan.stages] if plan is not None else []
        return load_order(stages, runs, (), ())

    def progress(self, run: Run_) -> Progress:
        """What is told how far the fetching of `run` is."""
        return fetching(self._report, f"units {run[0]}-{run[1] - 1} of {self.name}")

    def reported(self) -> None:
        """The leader knows what is held here."""

    def failed(self, why: str) -> None:
        """What a plan wants cannot be held: it is tried again, and the other models go on."""
        self._report(Phase(f"{self.name} cannot be held here: {why}", 0, 0))
        if self._holding is not None:
            loop = asyncio.get_running_loop()
            self._again = loop.call_later(AGAIN_S, self._holding.forget_report)


class AllDecoders:
    """Of all further models of the mesh, by name."""

    def __init__(self, links: PeerLinks, view: MeshView, store: Store, numbers: Iterator[int]) -> None:
        self._links = links
        self._view = view
        self._store = store
        self._numbers = numbers
        self._by_name: dict[str, DecoderParts] = {}
        self._by_mark: dict[bytes, DecoderParts] = {}
        self._lent: _Lent | None = None
        self._fetchers: list[Fetcher | None] = []  # one where accounts are kept
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False
        view.subscribe(self._look)

    def __iter__(self) -> Iterator[DecoderParts]:
        return iter(tuple(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def of_session(self, session: bytes) -> ModelParts | None:
        """The parts of the further model whose session it is; None: it is of the mesh's own."""
        if not self._by_mark:
            return None
        found = self._by_mark.get(session[:MARK_BYTES])
        return found.parts if found is not None else None

    def audit_of(self, session: bytes) -> ModelAudit | None:
        """What is checked of the further model whose session it is; None: it is of the mesh's own."""
        found = self._by_mark.get(session[:MARK_BYTES])
        return found.audit if found is not None else None

    def keep_accounts(self, fetcher: Fetcher | None) -> None:
        """Has all of them checked and accounted from here on, as the mesh's own."""
        self._fetchers = [fetcher]
        for each in self:
            each.keep_accounts(fetcher)

    def named(self, name: str) -> DecoderParts:
        """Raises NoPlan where no further model of that name answers in words."""
        found = self._by_name.get(name)
        if found is None:
            raise NoPlan(f"no model that answers in words is offered under the name {name}")
        return found

    def lend(self, options: PeerOptions, fetcher: Fetcher, shared: SharedSessions, report: Report) -> None:
        """Holds from here on what plans give this peer of each. Raises BadCommand when it does already."""
        if self._lent is not None:
            raise BadCommand("this peer lends already")
        self._lent = _Lent(options, fetcher, shared, report)
        for each in self:
            each.lend(self._lent)

    def report_again(self) -> None:
        """The leader was lost: tells it again what is held here."""
        for each in self:
            each.report_again()

    def leave(self) -> None:
        """Loads and unloads nothing any more."""
        for each in self:
            each.leave()

    def leave_stages(self) -> None:
        """Refuses what comes, and tells every asker, so that answers can go on elsewhere."""
        for each in self:
            each.parts.stage.leave()

    async def close(self, why: str) -> None:
        """Ends everything; no task is left."""
        self._closed = True
        for each in self:
            self._end(each, why)
        while self._ending:
            await asyncio.gather(*self._ending, return_exceptions=True)

    def _look(self) -> None:
        """Parts come and go with what the mesh offers."""
        if self._closed:
            return
        state, offered = self._view.state, self._view.state.decoders
        is_whole = self._view.me in state.members  # else its log has just begun anew, and is still to come
        for name, parts in list(self._by_name.items()):
            if is_whole and (name not in offered or offered[name].model != parts.model_id):
                self._end(parts, WITHDRAWN)
        for name, decoder in offered.items():
            if name not in self._by_name:
                made = DecoderParts(self._links, self._view, self._store, self._numbers, name, decoder.model)
                self._by_name[name] = self._by_mark[made.mark] = made
                for fetcher in self._fetchers:
                    made.keep_accounts(fetcher)
                if self._lent is not None:
                    made.lend(self._lent)

    def _end(self, parts: DecoderParts, why: str) -> None:
        del self._by_name[parts.name], self._by_mark[parts.mark]
        task = asyncio.ensure_future(parts.close(why))
        self._ending.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the parts of a model did not end", exc_info=error)
