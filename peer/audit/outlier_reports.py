"""Looks at how long the rows are that come to this peer's stages, and tells their asker of odd ones.

Edge around `peer.audit.norm_envelopes`. Who asked has the stage before checked at once; that a row is odd convicts
nobody.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from peer.audit.envelope_recording import recorded
from peer.audit.norm_envelopes import FILE, MOST_BYTES, Envelopes, decode_envelopes
from peer.audit.recomputation import Start
from peer.errors import PeerError
from peer.model.fetcher import Fetcher
from peer.model.local_model import LocalModel
from peer.replication.decoder_view import ModelView
from peer.session.effects import RunStep
from peer.stage.stage_host import StageHost
from peer.transport.peer_links import PeerLinks
from peer.wire.generated.requests import ODD, OddRequest

AGAIN_S: Final = 10.0  # between two words about one asker's sessions
TELL_S: Final = 5.0

log = logging.getLogger(__name__)


class Oddities:
    """`seen`: odd rows so far; `told`: of how many an asker heard."""

    def __init__(
        self,
        links: PeerLinks,
        view: ModelView,
        stage: StageHost,
        model: LocalModel,
        fetcher: Fetcher | None,
        start: Start,
    ) -> None:
        """`fetcher` None: everything of the model is here; `start` runs a task of the owner's."""
        self._links = links
        self._view = view
        self._stage = stage
        self._model = model
        self._start = start
        self._fetcher = fetcher
        self._told_s: dict[str, float] = {}
        self.envelopes: Envelopes | None = None
        self.seen = 0
        self.told = 0

    async def run(self) -> None:
        """Begins to look once this peer computes, if envelopes of the model are found."""
        view, stage, here = self._view, self._stage, self._model
        await view.until(lambda state: None not in (stage.units, state.model, here.manifest), None)
        assert stage.units is not None
        assert view.state.model is not None
        assert here.manifest is not None
        model, units = view.state.model.model, len(here.manifest.units)
        self.envelopes = await asyncio.to_thread(recorded, here.store, model)
        if self.envelopes is None and self._fetcher is not None:
            encoded = await self._fetcher.beside(model, FILE, MOST_BYTES)
            self.envelopes = decode_envelopes(encoded, units) if encoded is not None else None
        if self.envelopes is not None:
            stage.units.on_step(self.look)

    def look(self, step: RunStep) -> None:
        """A step is about to be computed here."""
        if self.envelopes is None or step.hidden is None:
            return
        odd = self.envelopes.odd(step.run[0], step.hidden)
        if odd is None:
            return
        self.seen += 1
        units, now_s = self._stage.units, asyncio.get_running_loop().time()
        asker = units.asker_of(step.session) if units is not None else None
        if asker is None or now_s < self._told_s.get(asker, 0.0):
            return
        self._told_s[asker] = now_s + AGAIN_S
        self._start(self._tell(asker, step.session, step.position + odd))

    async def _tell(self, asker: str, session: bytes, position: int) -> None:
        try:
            await self._links.call(asker, ODD, OddRequest(session.hex(), position), TELL_S)
            self.told += 1
        except (PeerError, TimeoutError) as error:
            log.debug("an asker did not hear of an odd row: %s", error)
