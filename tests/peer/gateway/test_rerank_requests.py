"""Ranking: what a request means, what its answer looks like, and that documents are scored in their pairs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from peer.errors import ApiError
from peer.gateway.embedder import Embedder, LocalEncoder
from peer.gateway.rerank_requests import MAX_DOCUMENTS, RerankRequest, rerank_answer, rerank_request
from planner.importers.encoders.folder import open_encoder
from planner.model.store import Store
from tests.planner.importers.encoders.checkpoints import QUERY, TEXTS, load
from tests.planner.stored_encoder import put_encoder

ASK: dict[str, Any] = {"model": "m", "query": "why", "documents": ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("more", "most", "with_texts"),
    [
        ({}, 3, False),
        ({"top_n": 2}, 2, False),
        ({"top_n": 9, "return_documents": True}, 3, True),
        ({"documents": [{"text": "a"}, "b", {"text": "c"}], "user": "me"}, 3, False),
    ],
)
def test_what_a_request_means(more: dict[str, Any], most: int, with_texts: bool) -> None:
    assert rerank_request(ASK | more) == RerankRequest("m", "why", ("a", "b", "c"), most, with_texts)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"model": ""}, "model"),
        ({"query": None}, "query"),
        ({"query": ""}, "query"),
        ({"query": ["why"]}, "query"),
        ({"query": "\ud800"}, "query"),
        ({"documents": None}, "documents"),
        ({"documents": []}, "documents"),
        ({"documents": "a"}, "documents"),
        ({"documents": ["a", ""]}, "documents"),
        ({"documents": ["a", 3]}, "documents"),
        ({"documents": [{"text": "a", "title": "b"}]}, "documents"),
        ({"documents": ["a"] * (MAX_DOCUMENTS + 1)}, "documents"),
        ({"top_n": 0}, "top_n"),
        ({"top_n": True}, "top_n"),
        ({"return_documents": "yes"}, "return_documents"),
        ({"rank_fields": ["a"]}, "rank_fields"),
    ],
)
def test_what_cannot_be_asked_names_the_parameter(more: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        rerank_request(ASK | more)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_results_are_sorted_and_equal_ones_stay_in_order() -> None:
    scores = np.array([0.25, 0.5, 0.25, 0.75], np.float32)
    asked = RerankRequest("m", "why", ("a", "b", "c", "d"), 3, True)
    answer = json.loads(rerank_answer("m", asked, scores, 40))
    assert answer["results"] == [
        {"index": 3, "relevance_score": 0.75, "document": {"text": "d"}},
        {"index": 1, "relevance_score": 0.5, "document": {"text": "b"}},
        {"index": 0, "relevance_score": 0.25, "document": {"text": "a"}},
    ]
    assert (answer["model"], answer["usage"]) == ("m", {"prompt_tokens": 40, "total_tokens": 40})


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Embedder]:
    folder = load("bert-scores").write(tmp_path / "tiny")
    store = Store(tmp_path / "store")
    made = Embedder(LocalEncoder(store, put_encoder(open_encoder(folder, "tiny"), store), 1))
    yield made
    made.close()


async def test_documents_are_ranked_as_the_reference_scores_them(loaded: Embedder) -> None:
    asked = RerankRequest("tiny", QUERY, TEXTS, len(TEXTS), False)
    results = json.loads(await loaded.rank(asked))["results"]
    expected = load("bert-scores").made[:, 0]
    assert [each["index"] for each in results] == np.argsort(-expected).tolist()
    for each in results:
        assert each["relevance_score"] == pytest.approx(float(expected[each["index"]]), abs=1e-4)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("is it blue? " * 20, r"documents\[1\] has \d+ tokens with the query in place of the 64 tokens"),
        ("a" * 9000, r"documents\[1\] has 9020 characters with the query"),
    ],
)
async def test_what_is_too_long_is_refused(loaded: Embedder, document: str, says: str) -> None:
    with pytest.raises(ApiError, match=says) as caught:
        await loaded.rank(RerankRequest("tiny", QUERY, ("sky", document), 2, False))
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
