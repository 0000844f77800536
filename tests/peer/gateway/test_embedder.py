"""Embeddings: what a request means, which texts are computed together, and that the real model's vectors are right."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tokenizers import Tokenizer

from peer.errors import ApiError
from peer.gateway import embedder as module
from peer.gateway.embedder import Embedder, LocalEncoder
from peer.gateway.embedding_requests import (
    MAX_INPUTS,
    EmbeddingRequest,
    embedding_request,
)
from peer.origin.text_vectors import BATCH_TEXTS, BATCH_TOKENS, batches
from planner.errors import CorruptStore
from planner.importers.encoders.folder import open_encoder
from planner.model.graph_manifest import decode_graph_manifest
from planner.model.store import Store
from tests.planner.importers.encoders.checkpoints import TEXTS, real_vectors
from tests.planner.plain_bert import TinyBert, plain_bert
from tests.planner.stored_encoder import put_encoder

ASK: dict[str, Any] = {"model": "m", "input": "Hi"}
SENTENCES = (
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "A man is riding a horse.",
    "A man is riding a white horse on an enclosed ground.",
)


# --- requests


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, EmbeddingRequest("m", ("Hi",), False, None)),
        ({"encoding_format": "base64", "user": "me"}, EmbeddingRequest("m", ("Hi",), True, None)),
        ({"dimensions": 32, "encoding_format": "float"}, EmbeddingRequest("m", ("Hi",), False, 32)),
        ({"input": ["a", "b"]}, EmbeddingRequest("m", ("a", "b"), False, None)),
        ({"input": [1, 2]}, EmbeddingRequest("m", ((1, 2),), False, None)),
        ({"input": [[1], [2, 3]]}, EmbeddingRequest("m", ((1,), (2, 3)), False, None)),
    ],
)
def test_what_a_request_means(more: dict[str, Any], expected: EmbeddingRequest) -> None:
    assert embedding_request(ASK | more) == expected


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"model": ""}, "model"),
        ({"model": None}, "model"),
        ({"input": None}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": [1, "a"]}, "input"),
        ({"input": [-1]}, "input"),
        ({"input": [True]}, "input"),
        ({"input": [1.5]}, "input"),
        ({"input": {"text": "a"}}, "input"),
        ({"input": "\ud800"}, "input"),
        ({"input": ["a"] * (MAX_INPUTS + 1)}, "input"),
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": "many"}, "dimensions"),
        ({"stream": True}, "stream"),
    ],
)
def test_what_cannot_be_asked_names_the_parameter(more: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        embedding_request(ASK | more)
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize(
    ("lengths", "sizes"),
    [
        ([3], [1]),
        ([1] * (2 * BATCH_TEXTS + 1), [BATCH_TEXTS, BATCH_TEXTS, 1]),
        ([BATCH_TOKENS] * 3, [1, 1, 1]),
        ([2 * BATCH_TOKENS, 1], [1, 1]),  # one that alone is more than a batch has a batch of its own
        ([BATCH_TOKENS // 2, 5, BATCH_TOKENS // 2, 4], [2, 2]),
    ],
)
def test_texts_of_like_length_are_computed_together(lengths: list[int], sizes: list[int]) -> None:
    found = batches(lengths)
    assert [len(batch) for batch in found] == sizes
    assert sorted(place for batch in found for place in batch) == list(range(len(lengths)))
    for batch in found:
        assert len(batch) == 1 or len(batch) * max(lengths[place] for place in batch) <= BATCH_TOKENS


# --- a tiny model


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[tuple[Embedder, Path]]:
    folder = TinyBert().write(tmp_path / "tiny")
    store = Store(tmp_path / "store")
    loaded = Embedder(LocalEncoder(store, put_encoder(open_encoder(folder), store), 1))
    yield loaded, folder
    loaded.close()


async def made(loaded: Embedder, given: object, **more: Any) -> dict[str, Any]:
    asked = embedding_request({"model": loaded.name, "input": given, **more})
    found: dict[str, Any] = json.loads(await loaded.answer(asked))
    return found


def vectors(answer: dict[str, Any]) -> npt.NDArray[np.float64]:
    assert [one["index"] for one in answer["data"]] == list(range(len(answer["data"])))
    return np.array([one["embedding"] for one in answer["data"]])


async def test_every_form_of_input_and_answer(tiny: tuple[Embedder, Path]) -> None:
    loaded, folder = tiny
    rows = ([2, 4, 5, 3], [2, 4, 5, 6, 7, 8, 3])  # with the marks that the tokenizer puts around a text
    answer = await made(loaded, ["a mesh", "a mesh of peers answers"])
    assert answer["usage"] == {"prompt_tokens": 11, "total_tokens": 11}
    assert (answer["object"], answer["model"]) == ("list", "tiny")
    np.testing.assert_allclose(vectors(answer), plain_bert(folder, *rows), atol=2e-6)
    by_ids = await made(loaded, [list(row) for row in rows])
    assert vectors(by_ids).tolist() == vectors(answer).tolist()
    packed = await made(loaded, "a mesh", encoding_format="base64", dimensions=32)
    unpacked = np.frombuffer(base64.b64decode(packed["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(unpacked, vectors(answer)[0], atol=2e-6)


async def test_a_text_that_spells_a_mark_has_its_words(tmp_path: Path) -> None:
    folder = TinyBert().write(tmp_path / "tiny")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens(["[SEP]"])
    tokenizer.save(str(folder / "tokenizer.json"))
    store = Store(tmp_path / "store")
    loaded = Embedder(LocalEncoder(store, put_encoder(open_encoder(folder), store), 1))
    answer = await made(loaded, "a [SEP]")
    loaded.close()
    assert answer["usage"]["prompt_tokens"] == 6  # [CLS], a, three unknown words, [SEP]


@pytest.mark.parametrize(
    ("given", "more", "param", "code", "says"),
    [
        ("a mesh " * 6, {}, "input", "context_length_exceeded", "14 tokens in place of the 12 tokens"),
        (["a", "a mesh " * 6], {}, "input", "context_length_exceeded", "input 1: 14 tokens"),
        ("a" * 2000, {}, "input", "context_length_exceeded", "2000 characters"),
        ([4] * 13, {}, "input", "context_length_exceeded", "13 tokens"),
        ([4, 12], {}, "input", None, "from 0 to 11"),
        ("a", {"dimensions": 16}, "dimensions", None, "32 dimensions"),
    ],
)
async def test_what_is_refused(
    tiny: tuple[Embedder, Path], given: object, more: dict[str, Any], param: str, code: str | None, says: str
) -> None:
    with pytest.raises(ApiError, match=says) as caught:
        await made(tiny[0], given, **more)
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, param, code)


async def test_requests_take_turns_and_no_more_than_a_bound_wait(
    tiny: tuple[Embedder, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, _ = tiny
    monkeypatch.setattr(module, "MAX_REQUESTS", 2)
    order: list[str] = []

    async def ask(name: str, given: list[str]) -> None:
        await made(loaded, given)
        order.append(name)

    many = asyncio.create_task(ask("many", ["a"] * 256))
    few = asyncio.create_task(ask("few", ["sky"]))
    await asyncio.sleep(0)  # both have come
    with pytest.raises(ApiError) as caught:
        await made(loaded, "blue")
    assert (caught.value.status, caught.value.code) == (503, "gateway_full")
    assert caught.value.retry_after_s is not None
    await asyncio.gather(many, few)
    assert order == ["few", "many"], "a short one waits for one batch of a long one"
    gone = asyncio.create_task(ask("gone", ["a"] * 256))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    await ask("after", ["sky"])
    assert order[2:] == ["after"]


def test_weights_that_changed_on_the_disk_are_not_loaded(tiny: tuple[Embedder, Path], tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    unit = decode_graph_manifest(store.manifest_bytes(tiny[0].model_id)).units[1]
    path = store.blob_path(unit.weights[0].sha256)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptStore, match="hash"):
        Embedder(LocalEncoder(store, tiny[0].model_id, 1))


# --- the real model


async def test_the_real_model_computes_what_it_should(minilm_folder: Path, tmp_path: Path) -> None:
    store = Store(tmp_path)
    loaded = Embedder(LocalEncoder(store, put_encoder(open_encoder(minilm_folder, "minilm"), store), 1))
    try:
        found = vectors(await made(loaded, list(SENTENCES)))
        again = vectors(await made(loaded, list(TEXTS)))
        rows = loaded._tokens(SENTENCES, 0, len(SENTENCES))
    finally:
        loaded.close()
    np.testing.assert_allclose(found[[0, 3]], plain_bert(minilm_folder, rows[0].ids, rows[3].ids), atol=2e-6)
    np.testing.assert_allclose(again, real_vectors(), atol=1e-5)  # of sentence-transformers itself
    cosines = found @ found.T
    # what the documentation of sentence-transformers shows for these pairs
    assert cosines[0, 1] == pytest.approx(0.7553, abs=5e-5)
    assert cosines[2, 3] == pytest.approx(0.7369, abs=5e-5)
    assert cosines[:2, 2:].max() < 0.4
