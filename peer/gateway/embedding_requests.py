"""Decides what a request for embeddings means, and what the answer looks like. Pure."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from peer.errors import ApiError
from peer.gateway.chat_requests import fields_of, whole

MAX_INPUTS: Final = 2048  # of one request, as OpenAI has it
MAX_DIMENSIONS: Final = 1 << 16

_KNOWN: Final = frozenset(["model", "input", "encoding_format", "dimensions"])


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """Texts or token ids, each of which gets a vector."""

    model: str
    inputs: tuple[str | tuple[int, ...], ...]
    base64: bool
    dimensions: int | None


def embedding_request(body: object) -> EmbeddingRequest:
    """Raises ApiError that names the parameter."""
    fields = fields_of(body, _KNOWN)
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise ApiError("expected the name of a model; GET /v1/models lists them", param="model")
    form = fields.get("encoding_format", "float")
    if form not in ("float", "base64"):
        raise ApiError("encoding_format must be float or base64", param="encoding_format")
    return EmbeddingRequest(
        model, _inputs(fields.get("input")), form == "base64", whole(fields, "dimensions", 1, MAX_DIMENSIONS)
    )


def _inputs(given: object) -> tuple[str | tuple[int, ...], ...]:
    match given:
        case str():
            return (_input(given),)
        case [int(), *_]:
            return (_input(given),)
        case [_, *_] if len(given) <= MAX_INPUTS:
            return tuple(_input(one) for one in given)
        case _:
            raise ApiError(
                f"input must be text, token ids, or a list of up to {MAX_INPUTS} of either", param="input"
            )


def _input(given: object) -> str | tuple[int, ...]:
    if isinstance(given, str):
        if not given:
            raise ApiError("input must not be empty", param="input")
        try:
            given.encode()
        except UnicodeEncodeError:
            raise ApiError(
                "input must be Unicode characters, got half a surrogate pair", param="input"
            ) from None
        return given
    if (
        not isinstance(given, list)
        or not given
        or not all(type(one) is int and 0 <= one < 2**31 for one in given)
    ):
        raise ApiError("an input must be text or a list of token ids", param="input")
    return tuple(given)


def too_long(what: str, model: str, max_tokens: int) -> ApiError:
    """Nothing is cut off: a vector of half a text is not the text's."""
    return ApiError(
        f"{what} in place of the {max_tokens} tokens that {model} reads at once: cut the text into parts",
        param="input",
        code="context_length_exceeded",
    )


def embedding_answer(model: str, vectors: npt.NDArray[np.float32], tokens: int, in_base64: bool) -> bytes:
    """`vectors`: (texts, dimensions); `tokens` of all texts. base64 is of float32, little-endian."""
    parts: list[str] = []
    for index, vector in enumerate(
        vectors
    ):  # by itself each: all at once would let no other thread run meanwhile
        shown = (
            base64.b64encode(np.ascontiguousarray(vector, "<f4").tobytes()).decode()
            if in_base64
            else vector.tolist()
        )
        parts.append(json.dumps({"object": "embedding", "index": index, "embedding": shown}))
    rest = json.dumps({"model": model, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}})
    return f'{{"object": "list", "data": [{", ".join(parts)}], {rest[1:]}'.encode()
