"""Decides how an asker bends one answer beyond its sampling settings, and how that travels with OPEN. Pure.

Some logits are raised or lowered (`bias`), tokens are ruled out (`allowed`), and probabilities come back with each
token. All of it rides on fields that OPEN has: settings behind the eight of Sampling, and words behind `history`
(docs/protocol.md, Steering).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from peer.errors import BadSampling
from peer.session.sampling import MILLION, Sampling

SETTINGS: Final = 8  # integers of Sampling
MAX_ALTERNATIVES: Final = 20
MAX_BIASES: Final = 300
MAX_BIAS: Final = 100 * MILLION
WORD_BITS: Final = 31  # of a mask in one word: words are token ids' equals, int32 and not negative
PAIR: Final = np.dtype([("token", "<i4"), ("logprob", "<f4")])

Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Steering:
    """`alternatives`: None for no probabilities, else how many tokens beside the one that was drawn.

    `bias` are (token, millionths). `allowed` is a mask in words of 31 bits, lowest token first; empty: every token.
    """

    alternatives: int | None = None
    bias: tuple[tuple[int, int], ...] = ()
    allowed: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.alternatives is not None and not 0 <= self.alternatives <= MAX_ALTERNATIVES:
            raise BadSampling(
                f"probabilities of up to {MAX_ALTERNATIVES} tokens are told, not {self.alternatives}"
            )
        if len(self.bias) > MAX_BIASES or any(token < 0 or abs(by) > MAX_BIAS for token, by in self.bias):
            raise BadSampling(f"a bias is for up to {MAX_BIASES} tokens, each by -100 to 100")


STRAIGHT: Final = Steering()


def to_wire(
    sampling: Sampling, steering: Steering, history: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """OPEN's `sampling` and `history`."""
    settings = tuple(sampling.to_wire())
    if steering == STRAIGHT:
        return settings, tuple(history)
    told = 0 if steering.alternatives is None else steering.alternatives + 1
    biases = tuple(word for token, by in steering.bias for word in (token, by + MAX_BIAS))
    counts = (told, len(steering.bias), len(steering.allowed))
    return (*settings, *counts), (*history, *biases, *steering.allowed)


def from_wire(
    settings: Sequence[int], payload: tuple[int, ...]
) -> tuple[Sampling, Steering, tuple[int, ...]]:
    """Sampling, steering and history of an OPEN. Raises BadSampling for what to_wire cannot have made."""
    sampling = Sampling.from_wire(settings[:SETTINGS])
    if len(settings) == SETTINGS:
        return sampling, STRAIGHT, payload
    if len(settings) != SETTINGS + 3:
        raise BadSampling(f"sampling settings are {SETTINGS} or {SETTINGS + 3} integers, got {len(settings)}")
    told, biases, words = settings[SETTINGS:]
    if not (0 <= told <= MAX_ALTERNATIVES + 1 and biases >= 0 and words >= 0):
        raise BadSampling("counts of steering are from 0 on")
    history = len(payload) - 2 * biases - words
    if history < 0:
        raise BadSampling(f"expected {2 * biases + words} words of steering, got {len(payload)}")
    pairs = payload[history : history + 2 * biases]
    bias = tuple((token, by - MAX_BIAS) for token, by in zip(pairs[::2], pairs[1::2], strict=True))
    steering = Steering(told - 1 if told else None, bias, payload[history + 2 * biases :])
    return sampling, steering, payload[:history]


def mask_words(bits: bytes, vocab: int) -> tuple[int, ...]:
    """The mask of `vocab` tokens, of which bit i mod 8 (lowest first) of byte i div 8 says whether i is allowed."""
    flags = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")[:vocab]
    padded = np.zeros(-(-vocab // WORD_BITS) * WORD_BITS, np.uint32)
    padded[: len(flags)] = flags
    weights = (1 << np.arange(WORD_BITS)).astype(np.uint32)
    return tuple((padded.reshape(-1, WORD_BITS) * weights).sum(axis=1).tolist())


def steered(logits: Logits, steering: Steering) -> Logits:
    """A copy with the bias added, once rounded to float32, and -Inf for each token that is not allowed."""
    if not steering.bias and not steering.allowed:
        return logits
    bent = logits.copy()
    for token, by in steering.bias:
        if token < len(bent):
            bent[token] = np.float32(np.float64(bent[token]) + by / MILLION)
    if steering.allowed:
        words = np.asarray(steering.allowed, np.uint32)
        flags = ((words[:, None] >> np.arange(WORD_BITS, dtype=np.uint32)) & 1).astype(bool).ravel()
        allowed = np.zeros(len(bent), bool)  # what lies beyond the mask is not allowed
        allowed[: len(flags)] = flags[: len(bent)]
        bent[~allowed] = -np.inf
    return bent


def likely(logits: Logits, token: int, alternatives: int) -> bytes:
    """Pairs of a token and the logarithm of its probability, before any setting: `token` first, then the likeliest."""
    wide = logits.astype(np.float64)
    best = float(wide.max())
    logprobs = wide - (best + float(np.log(np.exp(wide - best).sum())))
    count = min(alternatives, len(wide))
    top = np.argpartition(-wide, count - 1)[:count] if count else np.empty(0, np.intp)
    order = [token, *sorted(top.tolist(), key=lambda one: (-wide[one], one))]
    pairs = np.zeros(len(order), PAIR)
    pairs["token"], pairs["logprob"] = order, np.maximum(logprobs[order], np.finfo(np.float32).min)
    return pairs.tobytes()


def likely_pairs(body: bytes) -> list[tuple[int, float]]:
    """What `likely` told. Raises BadSampling."""
    if len(body) % PAIR.itemsize:
        raise BadSampling(f"probabilities are pairs of {PAIR.itemsize} bytes, got {len(body)} bytes")
    return [(int(token), float(logprob)) for token, logprob in np.frombuffer(body, PAIR).tolist()]


@dataclass(slots=True)
class Pick:
    """Draws one token of a steered answer on the worker; `body` is then what goes with it."""

    steering: Steering
    draw: Callable[[Logits], int]
    body: bytes = field(default=b"")

    def __call__(self, logits: Logits) -> int:
        """Returns the token drawn from steered logits (vocabulary,); notes the likely ones where that is asked."""
        token = self.draw(steered(logits, self.steering))
        if self.steering.alternatives is not None:
            self.body = likely(logits, token, self.steering.alternatives)
        return token
