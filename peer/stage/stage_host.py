"""This peer's stages at work: what `peer.session.stage` decides is performed here, and results come back. Edge.

Every member has one. It computes nothing before `lend`, and refuses sessions; from then on the units that are loaded
serve.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final, assert_never

from peer.errors import BadCommand, PeerError
from peer.model.local_model import LocalModel
from peer.replication.decoder_view import ModelView
from peer.session.effects import FreeSlot, NotRan, PrefixWork, Ran, Reason, RunStep, Send, Spare, StageEffect
from peer.session.seat import Seat
from peer.session.stage import StageCore, StageRules
from peer.stage.kv_transfer_service import Caches
from peer.stage.seat_waiting import Queue
from peer.stage.unit_host import Serving
from peer.state.conversations import asker_of
from peer.state.fairness import counted_milli, may_ask
from peer.storage.journal import Journal
from peer.transport.listeners import Listeners
from peer.transport.peer_links import PeerLinks
from peer.wire.bundles import bundled
from peer.wire.generated.frames import Frame
from peer.wire.generated.requests import (
    CachedRun,
    KvCopyAnswer,
    KvCopyRequest,
    KvDigestAnswer,
    KvDigestRequest,
)

MAX_WHY: Final = 500  # characters of a refusal


class StageHost:
    """`units` is None until this peer lends. `touched` is set whenever something came that a session may wait for."""

    def __init__(self, links: PeerLinks, view: ModelView, model: LocalModel) -> None:
        self.units: Serving | None = None
        self.transfers: Caches | None = None
        self.touched = asyncio.Event()
        self._links = links
        self._view = view
        self._model = model
        self._journal: Journal | None = None
        self._noted_tokens = 0
        self._on_ran = Listeners[Callable[[Ran], None]]()
        rules = StageRules(self._author_of, self.may_ask, self._owed_milli, self._bring)
        self.core = StageCore(links.me, rules=rules)
        self.queue = Queue(self.core)  # those who wait for a seat here
        view.subscribe(self._protect)

    def lend(self, units: Serving, journal: Journal, most_prefix_bytes: int) -> None:
        """Runs `units` from here on; what happens to sessions is noted in `journal`. Prompts that begin alike are kept
        up to `most_prefix_bytes`. Raises ValueError when it lends already.
        """
        if self.units is not None:
            raise ValueError("this peer lends already")
        self.units = units
        self._journal = journal
        self.core.prefixes.resize(units.position_bytes, most_prefix_bytes)
        self.transfers = Caches(self._links, self._view, self._model, self.core, units, self.perform)

    def may_ask(self, peer: str) -> str:
        """Returns why `peer` may not ask now, for people; "": it may."""
        return may_ask(self._view.state.fairness, self._view.state.ledger, peer)

    async def digest(self, peer: str, said: KvDigestRequest) -> KvDigestAnswer:
        """What this peer caches of a session at positions [first, stop), for its asker only. Raises BadCommand."""
        session = bytes.fromhex(said.session)
        if self.units is None or self.core.asker(session) != peer:
            raise BadCommand("kv_digest: expected a session of the asker's own")
        runs = []
        for run in self.units.serving:
            found = await self.units.digest(run, session, said.first, said.stop)
            if found is not None and found.have:
                runs.append(CachedRun(run, found.have, dict(found.arrays)))
        return KvDigestAnswer(tuple(runs))

    async def lend_cache(self, peer: str, said: KvCopyRequest) -> KvCopyAnswer:
        """The answer to `kv_copy`. Raises BadCommand."""
        if self.transfers is None:
            raise BadCommand("kv_copy: expected a session that is computed here")
        return await self.transfers.lend(peer, said)

    # --- what happens

    def on_ran(self, listener: Callable[[Ran], None]) -> Callable[[], None]:
        """Calls `listener(result)` for each step that was computed here, until what is returned is called."""
        return self._on_ran.add(listener)

    def touch(self) -> None:
        """Wakes who waits for sessions here: a frame came."""
        self.touched.set()

    def perform(self, effects: Sequence[StageEffect]) -> None:
        """Does what the stages decided."""
        sends: dict[str, list[Frame]] = {}
        spare: list[Spare] = []
        for effect in effects:
            if isinstance(effect, Send):
                sends.setdefault(effect.peer, []).append(effect.frame)
            elif isinstance(effect, Spare):
                spare.append(effect)
        for peer, frames in sends.items():
            for frame in frames if peer == self._links.me or len(frames) == 1 else bundled(frames):
                self._links.send_or_lose(peer, frame)
        for effect in effects:  # after the sends: the worker, once woken, competes with this thread
            match effect:
                case Send() | Spare():
                    continue
                case RunStep() | FreeSlot() | PrefixWork() if self.units is not None:
                    self.units.do(effect)
                case RunStep() | FreeSlot() | PrefixWork():
                    raise BadCommand("this peer runs no units")
                case _:
                    assert_never(effect)
        for extra in spare:
            self._links.spare(extra.peer, extra.frame)
        self._note()

    def results(self, results: Sequence[Ran | NotRan]) -> None:
        """Takes steps that workers finished or refused."""
        self.touch()
        effects: list[StageEffect] = []
        for result in results:
            match result:
                case Ran():
                    for listener in self._on_ran:
                        listener(result)
                    try:
                        effects += self.core.ran(time.monotonic(), result)
                    except PeerError as error:  # it ends this session, and no other whose result came along
                        effects += self.core.not_ran(time.monotonic(), _failed(result, error))
                case NotRan():
                    effects += self.core.not_ran(time.monotonic(), result)
        self.perform(effects)

    def gone(self, peer: str) -> None:
        """Takes that the connection to a peer ended."""
        self.perform(self.core.peer_gone(time.monotonic(), peer))

    def congestion(self, peer: str, full: bool) -> None:
        """Takes that the way to a peer is full, or free again."""
        self.perform(self.core.congestion(peer, full))

    def tick(self, now: float) -> None:
        """Looks at deadlines. `now`: monotonic seconds."""
        self.perform(self.core.tick(now))
        self.queue.look()

    def leave(self) -> None:
        """Refuses what comes, and tells every asker, so that answers can go on elsewhere."""
        self.perform(self.core.leave())

    async def idle(self) -> None:
        """Waits until no session is being answered on this peer's stages."""
        while self.core.active():
            self.touched.clear()
            await self.touched.wait()

    async def close(self) -> None:
        """Ends every copy of a cache that is under way. Units are unloaded by who loaded them."""
        if self.transfers is not None:
            await self.transfers.close()

    # --- inner moves

    def _protect(self) -> None:
        """Keeps to the mesh's protection settings."""
        protection = self._view.state.protection
        self.core.keep_logs(
            protection.log_session_bytes, protection.log_total_bytes, only=protection.shadow == "log"
        )

    def _author_of(self, session: bytes) -> str | None:
        return asker_of(self._view.state.conversations, session.hex())

    def _owed_milli(self, peer: str) -> int:
        return counted_milli(self._view.state.fairness, self._view.state.ledger, peer)

    def _bring(self, seat: Seat) -> bool:
        return self.transfers is not None and self.transfers.bring(seat)

    def _note(self) -> None:
        """Tells the transaction log what happened to sessions here."""
        notes = self.core.notes()
        journal = self._journal
        if journal is None:
            return
        for note in notes:
            match note.what:
                case "opened":
                    journal.opened(note.session, note.stage)
                case "taken over":
                    journal.took_over(note.session, note.stage)
                case "closed":
                    journal.closed(note.session, note.stage)
                case _:
                    assert_never(note.what)
        if self.core.tokens_sampled > self._noted_tokens:
            journal.tokens(self.core.tokens_sampled - self._noted_tokens)
            self._noted_tokens = self.core.tokens_sampled


def _failed(result: Ran, error: PeerError) -> NotRan:
    return NotRan(
        result.run, result.session, result.epoch, result.position, 0, Reason.FAILED, str(error)[:MAX_WHY]
    )
