"""Embedding models that the mesh offers: found by their manifests, asked by runs over its peers. Edge."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from peer.gateway.embedder import Embedder, InTurn, Rows
from peer.member.embedding_models import EmbeddingModels
from peer.member.mesh_member import MeshMember
from peer.model.text_inputs import TextReader
from peer.origin.text_vectors import dimensions_of, text_vectors
from peer.session.evidence import Floats
from planner.model.graph_manifest import GraphManifest, TextInputs

MANIFESTS_WITHIN_S: Final = 5.0  # what is not there by then makes no embeddings as yet


class MeshEncoder:
    """The model that the mesh offers as `name`. `text`: how texts become its inputs."""

    def __init__(
        self,
        mesh: MeshMember,
        name: str,
        model_id: str,
        manifest: GraphManifest,
        text: TextInputs,
        reader: TextReader,
    ) -> None:
        self.name = name
        self.model_id = model_id
        self.max_tokens = text.longest
        self.dimensions = dimensions_of(manifest)
        self.vocab = reader.vocab
        self._mesh = mesh
        self._reader = reader

    def ids(self, text: str) -> Sequence[int]:
        """The tokens of a text, with the marks at its ends."""
        return self._reader.ids(text)

    async def vectors(self, rows: Rows, _: InTurn) -> Floats:
        """(rows, dimensions), by a run of its own. Raises NoPlan, RunFailed, CannotServe."""
        run = await self._mesh.open_run(self.name)
        try:
            return await text_vectors(run, self._reader, rows)
        finally:
            await run.close()


class MeshEmbedders:
    """The models of a mesh that make embeddings, each with a line of requests of its own."""

    def __init__(self, mesh: MeshMember) -> None:
        self._mesh = mesh
        self.models = EmbeddingModels(mesh)
        self._open: dict[str, Embedder] = {}  # by name
        self._opening = asyncio.Lock()

    def close(self) -> None:
        """Ends the threads of all."""
        for embedder in self._open.values():
            embedder.close()

    async def embedder(self, called: str) -> Embedder | None:
        """What answers for this name or id; None where it makes no embeddings (any more). Raises PeerError."""
        async with self._opening:
            found = self.models.found
            self._open = {  # what is no more ends with its last request
                each: one
                for each, one in self._open.items()
                if each in found and found[each][0] == one.model_id
            }
            names = (each for each, (model, _) in found.items() if called in (each, model))
            if (name := next(names, None)) is None:
                return None
            if name not in self._open:
                model_id, manifest = found[name]
                assert manifest.text is not None  # as it has dimensions
                reader = await self._mesh.text_reader(manifest)
                encoder = MeshEncoder(self._mesh, name, model_id, manifest, manifest.text, reader)
                self._open[name] = Embedder(encoder)
            return self._open[name]
