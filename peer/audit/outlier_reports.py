"""Looks at how long the rows are that come to this peer's stages, and tells their asker of odd ones.

Edge around `peer.audit.norm_envelopes`. Who asked has the stage before checked at once; that a row is odd convicts
nobody.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from peer.audit.envelope_recording import FILE, recorded
from peer.audit.norm_envelopes import MOST_BYTES, Envelopes, decode_envelopes
from peer.errors import PeerError
from peer.member.mesh_member import Mesh
from peer.model.fetcher import Fetcher
from peer.session.effects import RunStep

AGAIN_S: Final = 10.0  # between two words about one asker's sessions
TELL_S: Final = 5.0

log = logging.getLogger(__name__)


class Oddities:
    """`seen`: odd rows so far; `told`: of how many an asker heard."""

    def __init__(self, mesh: Mesh, fetcher: Fetcher | None) -> None:
        self._mesh = mesh
        self._node = mesh.node
        self._fetcher = fetcher
        self._told_s: dict[str, float] = {}
        self.envelopes: Envelopes | None = None
        self.seen = 0
        self.told = 0

    async def run(self) -> None:
        """Begins to look once this peer computes, if envelopes of the model are found."""
        node, mesh = self._node, self._mesh
        await node.until(lambda s: None not in (node.serving, s.model, mesh.manifest), None)
        assert node.serving is not None
        assert node.state.model is not None
        assert mesh.manifest is not None
        model, units = node.state.model.model, len(mesh.manifest.units)
        self.envelopes = await asyncio.to_thread(recorded, mesh.store, model)
        if self.envelopes is None and self._fetcher is not None:
            encoded = await self._fetcher.beside(model, FILE, MOST_BYTES)
            self.envelopes = decode_envelopes(encoded, units) if encoded is not None else None
        if self.envelopes is not None:
            node.serving.look = self.look

    def look(self, step: RunStep) -> None:
        """A step is about to be computed here."""
        if self.envelopes is None or step.hidden is None:
            return
        odd = self.envelopes.odd(step.run[0], step.hidden)
        if odd is None:
            return
        self.seen += 1
        serving, now_s = self._node.serving, asyncio.get_running_loop().time()
        asker = serving.asker_of(step.session) if serving is not None else None
        if asker is None or now_s < self._told_s.get(asker, 0.0):
            return
        self._told_s[asker] = now_s + AGAIN_S
        self._mesh.start(self._tell(asker, step.session, step.run, step.position + odd))

    async def _tell(self, asker: str, session: bytes, run: tuple[int, int], position: int) -> None:
        body = {"session": session.hex(), "units": list(run), "position": position}
        try:
            if asker == self._node.me and self._node.answer_more is not None:
                await self._node.answer_more(asker, "odd", body)
            else:
                await self._node.calls.call(asker, "odd", body, TELL_S)
            self.told += 1
        except (PeerError, TimeoutError) as error:
            log.debug("an asker did not hear of an odd row: %s", error)
