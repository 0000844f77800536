"""Models of texts that the mesh offers: found by their manifests, asked by runs over its peers. Edge."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from peer.gateway.embedder import Embedder, InTurn
from peer.member.mesh_member import MeshMember
from peer.member.text_models import TextModels, Use
from peer.model.text_inputs import TextReader, TextRow
from peer.origin.text_vectors import dimensions_of, text_vectors
from peer.session.evidence import Floats
from planner.model.graph_manifest import GraphManifest, TextInputs


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

    def row(self, text: str) -> TextRow:
        """The tokens of a text, with the marks at its ends."""
        return TextRow(self._reader.ids(text))

    def pair(self, first: str, second: str) -> TextRow:
        """The tokens of two texts, with the marks at their ends."""
        return self._reader.pair(first, second)

    async def outputs(self, rows: Sequence[TextRow], _: InTurn) -> Floats:
        """(rows, dimensions), or (rows, 1) of scores, by a run of its own. Raises NoPlan, RunFailed, CannotServe."""
        run = await self._mesh.open_run(self.name)
        try:
            return await text_vectors(run, self._reader, rows)
        finally:
            await run.close()


class MeshEmbedders:
    """The models of a mesh that make embeddings or rank texts, each with a line of requests of its own."""

    def __init__(self, mesh: MeshMember) -> None:
        self._mesh = mesh
        self.models = TextModels(mesh)
        self._open: dict[tuple[Use, str], Embedder] = {}  # by name
        self._opening = asyncio.Lock()

    def close(self) -> None:
        """Ends the threads of all."""
        self.models.close()
        for embedder in self._open.values():
            embedder.close()

    async def embedder(self, use: Use, called: str) -> Embedder | None:
        """What answers for this name or id; None where it is not for this use (any more). Raises PeerError."""
        async with self._opening:
            known = {each: self.models.found(each) for each in Use}
            self._open = {  # what is no more ends with its last request
                (each, name): one
                for (each, name), one in self._open.items()
                if name in known[each] and known[each][name][0] == one.model_id
            }
            found = known[use]
            names = (each for each, (model, _) in found.items() if called in (each, model))
            if (name := next(names, None)) is None:
                return None
            if (use, name) not in self._open:
                model_id, manifest = found[name]
                assert manifest.text is not None  # as it has an output of texts
                reader = await self._mesh.text_reader(manifest)
                encoder = MeshEncoder(self._mesh, name, model_id, manifest, manifest.text, reader)
                self._open[use, name] = Embedder(encoder)
            return self._open[use, name]
