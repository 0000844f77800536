"""Decides what a request to rank documents means, and what the answer looks like. Pure.

The shape is the one that Cohere, Jina, vLLM and llama.cpp's server have in common.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import numpy as np

from peer.errors import ApiError
from peer.gateway.chat_requests import fields_of, whole
from peer.session.evidence import Floats

MAX_DOCUMENTS: Final = 1000  # of one request, as Cohere has it

_KNOWN: Final = frozenset(["model", "query", "documents", "top_n", "return_documents"])


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """A query, and the documents that are ranked by how well they answer it. `most`: how many of them are told."""

    model: str
    query: str
    documents: tuple[str, ...]
    most: int
    with_texts: bool


def rerank_request(body: object) -> RerankRequest:
    """Raises ApiError that names the parameter."""
    fields = fields_of(body, _KNOWN)
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise ApiError("expected the name of a model; GET /v1/models lists them", param="model")
    given = fields.get("documents")
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_DOCUMENTS:
        raise ApiError(f"documents must be a list of 1 to {MAX_DOCUMENTS} texts", param="documents")
    documents = tuple(_text(_of_document(each), "documents", place) for place, each in enumerate(given))
    with_texts = fields.get("return_documents", False)
    if not isinstance(with_texts, bool):
        raise ApiError("return_documents must be true or false", param="return_documents")
    most = whole(fields, "top_n", 1, 1 << 31)
    return RerankRequest(
        model,
        _text(fields.get("query"), "query"),
        documents,
        len(documents) if most is None else min(most, len(documents)),
        with_texts,
    )


def _of_document(given: object) -> object:
    """A document is text, or an object that has nothing but its text."""
    return given["text"] if isinstance(given, dict) and given.keys() == {"text"} else given


def _text(given: object, param: str, place: int | None = None) -> str:
    where = f"{param}[{place}]" if place is not None else param
    if not isinstance(given, str) or not given:
        raise ApiError(f"{where} must be text that is not empty", param=param)
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ApiError(
            f"{where} must be Unicode characters, got half a surrogate pair", param=param
        ) from None
    return given


def pair_too_long(place: int, what: str, model: str, max_tokens: int) -> ApiError:
    """Nothing is cut off: a rank of half a document is not the document's."""
    return ApiError(
        f"documents[{place}] has {what} with the query in place of the {max_tokens} tokens that {model} reads at "
        "once: cut it into parts",
        param="documents",
        code="context_length_exceeded",
    )


def ranked(scores: Floats) -> list[int]:
    """Places of the scores, the highest first; of equal ones the first."""
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return order


def rerank_answer(model: str, asked: RerankRequest, scores: Floats, tokens: int) -> bytes:
    """`scores`: (documents,); `tokens`: of all pairs."""
    results = [
        {
            "index": place,
            "relevance_score": float(scores[place]),
            **({"document": {"text": asked.documents[place]}} if asked.with_texts else {}),
        }
        for place in ranked(scores)[: asked.most]
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json.dumps({"object": "list", "model": model, "results": results, "usage": usage}).encode()
