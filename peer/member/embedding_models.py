"""The models of a mesh that make embeddings of texts: which they are, and vectors of them. Edge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from peer.errors import CannotServe, NoPlan, PeerError
from peer.member.mesh_member import MeshMember
from peer.origin.text_vectors import dimensions_of, text_vectors
from peer.session.evidence import Floats
from planner.errors import PlannerError
from planner.model.graph_manifest import GraphManifest

MANIFESTS_WITHIN_S: Final = 5.0  # what is not there by then is no embedding model as yet


class EmbeddingModels:
    """As far as `look` has learnt what the models are that the mesh offers."""

    def __init__(self, mesh: MeshMember) -> None:
        self._mesh = mesh
        self._known: dict[str, GraphManifest] = {}  # by model id

    async def look(self) -> None:
        """Learns what is offered now."""
        wanted = {offer.model for offer in self._mesh.view.state.offers.values()}
        self._known = {model: manifest for model, manifest in self._known.items() if model in wanted}
        missing = wanted - self._known.keys()
        if missing:
            with suppress(TimeoutError):
                async with asyncio.timeout(MANIFESTS_WITHIN_S):
                    await asyncio.gather(*map(self._learn, missing))

    async def _learn(self, model: str) -> None:
        with suppress(PeerError, PlannerError):  # whoever runs it by name hears why
            self._known[model] = await self._mesh.graph_manifest(model)

    @property
    def found(self) -> dict[str, tuple[str, GraphManifest]]:
        """Ids and manifests by name, sorted."""
        return {
            name: (offer.model, manifest)
            for name, offer in sorted(self._mesh.view.state.offers.items())
            if (manifest := self._known.get(offer.model)) is not None and dimensions_of(manifest)
        }

    def pick(self, called: str | None) -> str:
        """The name of the model of this name or id; of None: of the only one. Raises NoPlan, CannotServe."""
        found, offers = self.found, self._mesh.view.state.offers
        have = f"it has {', '.join(found)}" if found else "shoal offer has it run one"
        if called is None:
            if len(found) == 1:
                return next(iter(found))
            raise NoPlan(
                f"say which of {len(found)} models is to make embeddings: {', '.join(found)}"
                if found
                else f"this mesh has no model that makes embeddings: {have}"
            )
        for name, (model, _) in found.items():
            if called in (name, model):
                return name
        if called in offers and offers[called].model in self._known:
            raise CannotServe(f"{called} makes no embeddings of texts: {have}")
        raise NoPlan(f"this mesh has no embedding model {called}: {have}")


async def embeddings(
    mesh: MeshMember,
    texts: Sequence[str],
    model: str | None = None,
    done: Callable[[int], None] = lambda _: None,
) -> Floats:
    """A vector of each text, (texts, dimensions), computed over the peers of the mesh; `done` hears how many more are
    there.

    `model`: by name or id; None: the only one that makes embeddings. Raises NoPlan, CannotServe, RunFailed; BadCommand
    for a text that is too long, or of no token.
    """
    models = EmbeddingModels(mesh)
    await models.look()
    name = models.pick(model)
    reader = await mesh.text_reader(models.found[name][1])
    rows = await asyncio.to_thread(reader.rows, texts)
    run = await mesh.open_run(name)
    try:
        return await text_vectors(run, reader, rows, done)
    finally:
        await run.close()
