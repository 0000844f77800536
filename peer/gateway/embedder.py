"""Answers requests for embeddings or ranks by one model: texts to tokens, tokens to numbers, a bounded line of
requests. Edge.

An encoder makes the numbers: on this machine (`LocalEncoder`, a whole model in onnxruntime, one batch after another on
one thread), or over the peers of the mesh (peer.gateway.mesh_texts). Requests take turns by batch, so that a short
one does not wait for all of a long one; where the program went away no further batch is made.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Protocol

import numpy as np

from peer.errors import ApiError, CannotServe
from peer.gateway.embedding_requests import EmbeddingRequest, embedding_answer, too_long
from peer.gateway.request_queue import RETRY_AFTER_S, too_many
from peer.gateway.rerank_requests import RerankRequest, pair_too_long, rerank_answer
from peer.model.text_inputs import CHARACTERS_PER_TOKEN, TextReader, TextRow
from peer.origin.text_vectors import (
    BATCH_TEXTS,
    batches,
    dimensions_of,
    filled_batch,
    fixed_texts,
    text_output,
)
from peer.runtime.graph_runtime import GraphRuntime
from peer.session.evidence import Floats
from planner.model.compose import compose
from planner.model.graph_manifest import decode_graph_manifest
from planner.model.store import Store

MAX_REQUESTS: Final = 64  # that wait or are being answered; half of them of one client

Rows = Sequence[TextRow]
InTurn = Callable[[Callable[[], Any]], Awaitable[Any]]  # runs work on the thread of an Embedder


class Encoder(Protocol):
    """What makes vectors or scores of token ids. `max_tokens`: of one text or pair; `vocab`: how many token ids there
    are.
    """

    @property
    def name(self) -> str:
        """What requests call it."""

    @property
    def model_id(self) -> str:
        """The hash of its manifest."""

    @property
    def max_tokens(self) -> int:
        """Of one text, the marks at its ends included."""

    @property
    def dimensions(self) -> int:
        """Of a vector."""

    @property
    def vocab(self) -> int:
        """How many token ids there are."""

    def row(self, text: str) -> TextRow:
        """The tokens of a text, with the marks at its ends. Called on a thread."""

    def pair(self, first: str, second: str) -> TextRow:
        """The tokens of two texts, with the marks at their ends. Called on a thread."""

    async def outputs(self, rows: Rows, in_turn: InTurn) -> Floats:
        """(rows, dimensions), or (rows, 1) of scores. Raises PeerError."""


class Embedder:
    """A line of requests before one encoder."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._worker = ThreadPoolExecutor(1, "embedding")
        self._turn = asyncio.Lock()  # first come, first served
        self._requests: Counter[str] = Counter()  # by client

    @property
    def name(self) -> str:
        """What requests call the model."""
        return self._encoder.name

    @property
    def model_id(self) -> str:
        """The hash of its manifest."""
        return self._encoder.model_id

    @property
    def max_tokens(self) -> int:
        """Of one text, the marks at its ends included."""
        return self._encoder.max_tokens

    @property
    def dimensions(self) -> int:
        """Of a vector."""
        return self._encoder.dimensions

    def close(self) -> None:
        """Ends the thread after the batch it is in."""
        self._worker.shutdown(cancel_futures=True)

    async def answer(self, asked: EmbeddingRequest, client: str = "") -> bytes:
        """The answer as JSON. Raises ApiError for what cannot be embedded, or when too many wait; PeerError of the
        mesh.
        """
        if asked.dimensions not in (None, self.dimensions):
            raise ApiError(
                f"{self.name} makes vectors of {self.dimensions} dimensions and of no other number: leave "
                "dimensions out",
                param="dimensions",
            )
        async with self._in_line(client):
            rows: list[TextRow] = []
            for at in range(0, len(asked.inputs), BATCH_TEXTS):
                some = asked.inputs[at : at + BATCH_TEXTS]
                rows += await self._in_turn(partial(self._tokens, some, at, len(asked.inputs)))
            vectors = await self._encoder.outputs(rows, self._in_turn)
            used = sum(len(row) for row in rows)
            made: bytes = await self._in_turn(
                partial(embedding_answer, self.name, vectors, used, asked.base64)
            )
            return made

    async def rank(self, asked: RerankRequest, client: str = "") -> bytes:
        """The same for a request to rank documents, of a model that scores pairs."""
        async with self._in_line(client):
            rows: list[TextRow] = []
            for at in range(0, len(asked.documents), BATCH_TEXTS):
                rows += await self._in_turn(
                    partial(self._pairs, asked.query, asked.documents[at : at + BATCH_TEXTS], at)
                )
            scores = (await self._encoder.outputs(rows, self._in_turn))[:, 0]
            return rerank_answer(self.name, asked, scores, sum(len(row) for row in rows))

    @asynccontextmanager
    async def _in_line(self, client: str) -> AsyncIterator[None]:
        """While a request waits or is answered. Raises ApiError for one too many."""
        self._check_line(client)
        self._requests[client] += 1
        try:
            yield
        finally:
            self._requests[client] -= 1
            if not self._requests[client]:
                del self._requests[client]

    def _check_line(self, client: str) -> None:
        if self._requests.total() >= MAX_REQUESTS:
            raise ApiError(
                f"{MAX_REQUESTS} requests for {self.name} wait already: try again",
                503,
                "server_error",
                code="gateway_full",
                retry_after_s=RETRY_AFTER_S,
            )
        share = max(1, MAX_REQUESTS // 2)
        if client and self._requests[client] >= share:
            raise too_many(
                f"{share} requests of yours for {self.name} wait already: try again", RETRY_AFTER_S
            )

    async def _in_turn(self, work: Callable[[], Any]) -> Any:
        async with self._turn:
            return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    def _tokens(self, inputs: Sequence[str | tuple[int, ...]], first: int, count: int) -> list[TextRow]:
        """Token ids of some of `count` inputs, from the one at `first` on, with the marks at its ends where it is text.

        Raises ApiError.
        """
        rows: list[TextRow] = []
        for place, one in enumerate(inputs, first):
            where = f"input {place}: " if count > 1 else ""
            if isinstance(one, str):
                if len(one) > CHARACTERS_PER_TOKEN * self.max_tokens:
                    raise too_long(f"{where}{len(one)} characters", self.name, self.max_tokens)
                row = self._encoder.row(one)
            elif any(token >= self._encoder.vocab for token in one):
                raise ApiError(
                    f"{where}token ids of {self.name} are from 0 to {self._encoder.vocab - 1}", param="input"
                )
            else:
                row = TextRow(one)
            if len(row) > self.max_tokens:
                raise too_long(f"{where}{len(row)} tokens", self.name, self.max_tokens)
            if not len(row):
                raise ApiError(f"{where}{self.name} makes no token of it", param="input")
            rows.append(row)
        return rows

    def _pairs(self, query: str, documents: Sequence[str], first: int) -> list[TextRow]:
        """Token ids of the query with each of some documents, from the one at `first` on. Raises ApiError."""
        rows: list[TextRow] = []
        for place, document in enumerate(documents, first):
            characters = len(query) + len(document)
            if characters > CHARACTERS_PER_TOKEN * self.max_tokens:
                raise pair_too_long(place, f"{characters} characters", self.name, self.max_tokens)
            row = self._encoder.pair(query, document)
            if len(row) > self.max_tokens:
                raise pair_too_long(place, f"{len(row)} tokens", self.name, self.max_tokens)
            rows.append(row)
        return rows


class LocalEncoder:
    """A whole embedding model of the store, loaded; its bytes are checked against the hashes of the manifest first.
    Raises CorruptStore, NotInStore, or CannotServe when onnxruntime refuses it.
    """

    def __init__(self, store: Store, model_id: str, threads: int) -> None:
        self._manifest = manifest = decode_graph_manifest(store.manifest_bytes(model_id))
        made = text_output(manifest)
        if manifest.text is None or made is None:
            raise CannotServe(f"{manifest.name} makes no embeddings of texts")
        count = len(manifest.units)
        for blob in (manifest.text.tokenizer, *manifest.blobs(0, count)):
            store.verify_blob(blob)
        self.name = manifest.name
        self.model_id = model_id
        self.max_tokens = manifest.text.longest
        self.dimensions = dimensions_of(manifest)
        self._reader = TextReader(manifest, store.blob_path(manifest.text.tokenizer.sha256).read_bytes())
        self.vocab = self._reader.vocab
        self._output, self._width = made
        blobs = store.blob_path(manifest.text.tokenizer.sha256).parent
        self._runtime = GraphRuntime(compose(manifest, store, 0, count), blobs, threads, fused=manifest.fused)

    def row(self, text: str) -> TextRow:
        """The tokens of a text, with the marks at its ends."""
        return TextRow(self._reader.ids(text))

    def pair(self, first: str, second: str) -> TextRow:
        """The tokens of two texts, with the marks at their ends."""
        return self._reader.pair(first, second)

    async def outputs(self, rows: Rows, in_turn: InTurn) -> Floats:
        """(rows, dimensions), or (rows, 1) of scores; a batch of rows of like length at a time."""
        fixed = fixed_texts(self._manifest)
        found = np.empty((len(rows), self._width), np.float32)
        for batch in batches([len(row) for row in rows], fixed or BATCH_TEXTS):
            found[batch] = await in_turn(partial(self._run, rows, batch, fixed))
        return found

    def _run(self, rows: Rows, batch: Sequence[int], fixed: int) -> Floats:
        """(texts, numbers). Raises CannotServe, also for what is no number."""
        made: Floats = self._runtime.run(filled_batch(self._reader, rows, batch, fixed))[self._output]
        if made.shape != (fixed or len(batch), self._width) or not np.isfinite(made).all():
            raise CannotServe(f"{self.name} made no {self._width} finite numbers of each text")
        return made[: len(batch)]
