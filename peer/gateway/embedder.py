"""Answers requests for embeddings by one model: texts to tokens, tokens to vectors, a bounded line of requests. Edge.

An encoder makes the vectors: on this machine (`LocalEncoder`, a whole model in onnxruntime, one batch after another on
one thread), or over the peers of the mesh (peer.gateway.mesh_encoder). Requests take turns by batch, so that a short
one does not wait for all of a long one; where the program went away no further batch is made.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
from tokenizers import Tokenizer

from peer.errors import ApiError, CannotServe
from peer.gateway.embedding_requests import EmbeddingRequest, embedding_answer, too_long
from peer.gateway.request_queue import RETRY_AFTER_S, too_many
from peer.model.text_inputs import CHARACTERS_PER_TOKEN
from peer.origin.text_vectors import BATCH_TEXTS, batches
from peer.runtime.execution import session_options
from peer.session.evidence import Floats
from planner.model.encoder import EncoderManifest, decode_encoder
from planner.model.encoder_graph import encoder_graph
from planner.model.onnxruntime_import import ort
from planner.model.store import Store

MAX_REQUESTS: Final = 64  # that wait or are being answered; half of them of one client

Rows = Sequence[Sequence[int]]
InTurn = Callable[[Callable[[], Any]], Awaitable[Any]]  # runs work on the thread of an Embedder


class Encoder(Protocol):
    """What makes vectors of token ids. `max_tokens`: of one text; `vocab`: how many token ids there are."""

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

    def ids(self, text: str) -> Sequence[int]:
        """The tokens of a text, with the marks at its ends. Called on a thread."""

    async def vectors(self, rows: Rows, in_turn: InTurn) -> Floats:
        """(rows, dimensions). Raises PeerError."""


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
        self._check_line(client)
        self._requests[client] += 1
        try:
            rows: list[Sequence[int]] = []
            for at in range(0, len(asked.inputs), BATCH_TEXTS):
                some = asked.inputs[at : at + BATCH_TEXTS]
                rows += await self._in_turn(partial(self._tokens, some, at, len(asked.inputs)))
            vectors = await self._encoder.vectors(rows, self._in_turn)
            used = sum(len(row) for row in rows)
            made: bytes = await self._in_turn(
                partial(embedding_answer, self.name, vectors, used, asked.base64)
            )
            return made
        finally:
            self._requests[client] -= 1
            if not self._requests[client]:
                del self._requests[client]

    def _check_line(self, client: str) -> None:
        if self._requests.total() >= MAX_REQUESTS:
            raise ApiError(
                f"{MAX_REQUESTS} requests for embeddings wait already: try again",
                503,
                "server_error",
                code="gateway_full",
                retry_after_s=RETRY_AFTER_S,
            )
        share = max(1, MAX_REQUESTS // 2)
        if client and self._requests[client] >= share:
            raise too_many(f"{share} requests of yours for embeddings wait already: try again", RETRY_AFTER_S)

    async def _in_turn(self, work: Callable[[], Any]) -> Any:
        async with self._turn:
            return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    def _tokens(self, inputs: Sequence[str | tuple[int, ...]], first: int, count: int) -> list[Sequence[int]]:
        """Token ids of some of `count` inputs, from the one at `first` on, with the marks at its ends where it is text.

        Raises ApiError.
        """
        rows: list[Sequence[int]] = []
        for place, one in enumerate(inputs, first):
            where = f"input {place}: " if count > 1 else ""
            if isinstance(one, str):
                if len(one) > CHARACTERS_PER_TOKEN * self.max_tokens:
                    raise too_long(f"{where}{len(one)} characters", self.name, self.max_tokens)
                one = tuple(self._encoder.ids(one))
            elif any(token >= self._encoder.vocab for token in one):
                raise ApiError(
                    f"{where}token ids of {self.name} are from 0 to {self._encoder.vocab - 1}", param="input"
                )
            if len(one) > self.max_tokens:
                raise too_long(f"{where}{len(one)} tokens", self.name, self.max_tokens)
            if not one:
                raise ApiError(f"{where}{self.name} makes no token of it", param="input")
            rows.append(one)
        return rows


class LocalEncoder:
    """A whole embedding model of the store, loaded; its weights are checked against the hashes of the manifest first.
    Raises CorruptStore, NotInStore, or CannotServe when onnxruntime refuses it.
    """

    def __init__(self, store: Store, model_id: str, threads: int) -> None:
        manifest = decode_encoder(store.manifest_bytes(model_id))
        for blob in (manifest.tokenizer, *(part.blob for part in manifest.parts)):
            store.verify_blob(blob)
        self.name = manifest.name
        self.model_id = model_id
        self.max_tokens = manifest.numbers.max_tokens
        self.dimensions = manifest.numbers.hidden
        self.vocab = manifest.numbers.vocab
        self._tokenizer = _tokenizer(store, manifest)
        self._session = _session(store, manifest, threads)

    def ids(self, text: str) -> Sequence[int]:
        """The tokens of a text, with the marks at its ends."""
        found: list[int] = self._tokenizer.encode_batch([text])[0].ids  # a batch lets other threads run
        return found

    async def vectors(self, rows: Rows, in_turn: InTurn) -> Floats:
        """(rows, dimensions); a batch of rows of like length at a time."""
        vectors = np.empty((len(rows), self.dimensions), np.float32)
        for batch in batches([len(row) for row in rows]):
            vectors[batch] = await in_turn(partial(self._run, [rows[place] for place in batch]))
        return vectors

    def _run(self, rows: Sequence[Sequence[int]]) -> Floats:
        """(texts, dimensions)."""
        longest = max(len(row) for row in rows)
        tokens = np.zeros((len(rows), longest), np.int64)
        mask = np.zeros((len(rows), longest), np.float32)
        for place, row in enumerate(rows):
            tokens[place, : len(row)] = row
            mask[place, : len(row)] = 1
        made: Floats = self._session.run(["embedding"], {"tokens": tokens, "mask": mask})[0]
        return made


def _tokenizer(store: Store, manifest: EncoderManifest) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_buffer(store.blob_path(manifest.tokenizer.sha256).read_bytes())
    except Exception as error:  # the library raises bare Exception
        raise CannotServe(f"the tokenizer of {manifest.name} cannot be read: {str(error)[:200]}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = (
        True  # a text that spells [SEP] has these words; the marks at its ends are added
    )
    if tokenizer.get_vocab_size() > manifest.numbers.vocab:
        raise CannotServe(f"the tokenizer of {manifest.name} has more tokens than its embedding has rows")
    return tokenizer


def _session(store: Store, manifest: EncoderManifest, threads: int) -> ort.InferenceSession:
    folder = store.blob_path(manifest.parts[0].blob.sha256).parent
    try:
        return ort.InferenceSession(
            encoder_graph(manifest), session_options(folder, threads), ["CPUExecutionProvider"]
        )
    except Exception as error:
        raise CannotServe(f"onnxruntime refused {manifest.name}: {error}") from error
