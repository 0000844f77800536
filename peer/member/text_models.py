"""The models of a mesh that make embeddings of texts, rank them or sort them: which these are, what they make. Edge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import Final

from peer.errors import CannotServe, NoPlan, PeerError
from peer.member.mesh_member import MeshMember
from peer.model.text_inputs import TextReader, TextRow
from peer.origin.text_vectors import dimensions_of, ranks_texts, sorts_texts, text_vectors
from peer.session.evidence import Floats
from planner.errors import PlannerError
from planner.model.graph_manifest import GraphManifest

MANIFESTS_WITHIN_S: Final = 5.0  # what is not there by then is no such model as yet
RETRY_S: Final = 15.0  # after which a manifest that could not be had is asked for again

Found = dict[str, tuple[str, GraphManifest]]  # ids and manifests by name, sorted


class Use(Enum):
    """What a model of texts is for, in the middle of a sentence."""

    EMBED = "makes embeddings"
    RANK = "ranks texts"
    SORT = "sorts texts into classes"


_DOES_NOT: Final = {
    Use.EMBED: "makes no embeddings of texts",
    Use.RANK: "ranks no texts",
    Use.SORT: "sorts no texts into classes",
}
_CALLED: Final = {
    Use.EMBED: "embedding model",
    Use.RANK: "model for ranking",
    Use.SORT: "model that sorts texts",
}


class TextModels:
    """As far as `look` has learnt what the models are that the mesh offers. Close it: manifests that cannot be had are
    asked for again behind the scenes.
    """

    def __init__(self, mesh: MeshMember) -> None:
        self._mesh = mesh
        self._known: dict[str, GraphManifest] = {}  # by model id
        self._learning: dict[str, asyncio.Task[None]] = {}  # the same; until it is known
        self._tried: dict[str, asyncio.Event] = {}  # by model id: a first attempt ended, or was waited for

    def close(self) -> None:
        """Ends all that is under way."""
        for task in self._learning.values():
            task.cancel()
        self._learning.clear()

    async def look(self) -> None:
        """Learns what is offered now. Each model is waited for once; one whose manifest cannot be had by then is known
        as soon as it comes.
        """
        wanted = {offer.model for offer in self._mesh.view.state.offers.values()}
        self._known = {model: manifest for model, manifest in self._known.items() if model in wanted}
        self._tried = {model: tried for model, tried in self._tried.items() if model in wanted}
        for gone in self._learning.keys() - wanted:
            self._learning.pop(gone).cancel()
        for model in wanted - self._known.keys() - self._learning.keys():
            tried = self._tried.setdefault(model, asyncio.Event())
            self._learning[model] = asyncio.create_task(self._learn(model, tried))
        fresh = [tried for tried in self._tried.values() if not tried.is_set()]
        if fresh:
            with suppress(TimeoutError):
                async with asyncio.timeout(MANIFESTS_WITHIN_S):
                    await asyncio.gather(*(tried.wait() for tried in fresh))
            for tried in fresh:
                tried.set()
        self._learning = {model: task for model, task in self._learning.items() if not task.done()}

    async def _learn(self, model: str, tried: asyncio.Event) -> None:
        """Asks for the manifest until it is there."""
        while True:
            with suppress(PeerError, PlannerError):  # whoever runs it by name hears why
                self._known[model] = await self._mesh.graph_manifest(model)
            tried.set()
            if model in self._known:
                return
            await asyncio.sleep(RETRY_S)

    def found(self, use: Use) -> Found:
        """The models for this use."""
        return {
            name: (offer.model, manifest)
            for name, offer in sorted(self._mesh.view.state.offers.items())
            if (manifest := self._known.get(offer.model)) is not None and _is_for(manifest, use)
        }

    def pick(self, use: Use, called: str | None) -> str:
        """The name of the model of this name or id; of None: of the only one. Raises NoPlan, CannotServe."""
        found, offers = self.found(use), self._mesh.view.state.offers
        have = f"it has {', '.join(found)}" if found else "shoal offer has it run one"
        if called is None:
            if len(found) == 1:
                return next(iter(found))
            raise NoPlan(
                f"say which of {len(found)} models is asked: {', '.join(found)}"
                if found
                else f"this mesh has no model that {use.value}: {have}"
            )
        for name, (model, _) in found.items():
            if called in (name, model):
                return name
        if called in offers and offers[called].model in self._known:
            raise CannotServe(f"{called} {_DOES_NOT[use]}: {have}")
        raise NoPlan(f"this mesh has no {_CALLED[use]} {called}: {have}")


def _is_for(manifest: GraphManifest, use: Use) -> bool:
    match use:
        case Use.EMBED:
            return dimensions_of(manifest) > 0
        case Use.RANK:
            return ranks_texts(manifest)
        case Use.SORT:
            return sorts_texts(manifest)


def _untold(_: int) -> None:
    pass


async def embeddings(
    mesh: MeshMember,
    texts: Sequence[str],
    model: str | None = None,
    done: Callable[[int], None] = _untold,
) -> Floats:
    """A vector of each text, (texts, dimensions), computed over the peers of the mesh; `done` hears how many more are
    there.

    `model`: by name or id; None: the only one that makes embeddings. Raises NoPlan, CannotServe, RunFailed; BadCommand
    for a text that is too long, or of no token.
    """
    found, _ = await _made(mesh, Use.EMBED, model, lambda reader: reader.rows(texts), done)
    return found


async def text_scores(
    mesh: MeshMember,
    query: str,
    documents: Sequence[str],
    model: str | None = None,
    done: Callable[[int], None] = _untold,
) -> Floats:
    """How well each document answers the query, (documents,), more being better; as `embeddings`."""
    found, _ = await _made(mesh, Use.RANK, model, lambda reader: reader.pairs(query, documents), done)
    return found[:, 0]


async def text_classes(
    mesh: MeshMember,
    texts: Sequence[str],
    model: str | None = None,
    done: Callable[[int], None] = _untold,
) -> list[dict[str, float]]:
    """How well each label of a model fits each text, the best first; as `embeddings`. They are shares of 1, or each by
    itself between 0 and 1 where several may fit.
    """
    found, manifest = await _made(mesh, Use.SORT, model, lambda reader: reader.rows(texts), done)
    labels = manifest.text.labels if manifest.text is not None else ()
    pairs = (zip(labels, map(float, each), strict=True) for each in found)
    return [dict(sorted(each, key=lambda pair: (-pair[1], pair[0]))) for each in pairs]


async def _made(
    mesh: MeshMember,
    use: Use,
    model: str | None,
    rows_of: Callable[[TextReader], Sequence[TextRow]],
    done: Callable[[int], None],
) -> tuple[Floats, GraphManifest]:
    models = TextModels(mesh)
    try:
        await models.look()
        name = models.pick(use, model)
        _, manifest = models.found(use)[name]
        reader = await mesh.text_reader(manifest)
    finally:
        models.close()
    rows = await asyncio.to_thread(rows_of, reader)
    run = await mesh.open_run(name)
    try:
        return await text_vectors(run, reader, rows, done), manifest
    finally:
        await run.close()
