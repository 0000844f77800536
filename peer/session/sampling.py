"""Decides the next token from logits: penalties, temperature, filters, and a draw that any machine repeats.

Every step is spelled out in operations that give the same bits everywhere (docs/protocol.md, Sampling):
float64 additions, products and quotients in a stated order, an exponential made of those, and MurmurHash3
for chance. Steps come in the order of Hugging Face transformers: penalties, temperature, top-k, top-p, min-p.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from peer.errors import BadSampling as BadSampling
from peer.errors import NotFiniteLogits as NotFiniteLogits
from planner.model.sampling_defaults import LIKELIEST, SamplingDefaults

MILLION: Final = 1_000_000  # settings travel as integers, in millionths
MAX_SEED: Final = 2**53 - 1  # the largest integer that JavaScript holds exactly
MAX_POSITION: Final = 2**32 - 1  # one 32-bit word of the hash
MAX_TOP_K: Final = 2**31 - 1
LOWEST_EXPONENT: Final = -40.0  # e**-40 = 4e-18: a token this far below the best is never drawn
FIRST_PREFIX: Final = (
    1024  # tokens sorted first for top-p; all are sorted only when these do not hold the mass
)

_LOG2_E: Final = 1.4426950408889634
_LN2_HIGH: Final = (
    0.693147180369123816490  # fdlibm's split of ln 2: its low 32 bits are zero, so k * high is exact
)
_LN2_LOW: Final = 1.90821492927058770002e-10
_TAYLOR: Final = tuple(
    1.0 / math.factorial(n) for n in range(13, -1, -1)
)  # |r| <= 0.347: error below one ulp
_U32: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a session draws its tokens. Numbers are kept to a millionth, so that all peers hold the same."""

    temperature: float = 0.0  # 0: greedy, the filters below and the seed play no part
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0  # CTRL paper, section 4.1; over prompt and generated tokens
    frequency_penalty: float = 0.0  # per occurrence, over generated tokens, as in the OpenAI API
    presence_penalty: float = 0.0  # once, over generated tokens
    seed: int = 0

    def __post_init__(self) -> None:
        _whole("top_k", self.top_k, MAX_TOP_K)
        _whole("seed", self.seed, MAX_SEED)
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise BadSampling(f"{name} must be a number from {low:g} to {high:g}, got {value!r}")
            object.__setattr__(self, name, round(value * MILLION) / MILLION)
            if name == "top_p" and value > 0:  # the likeliest token alone, however small it is
                object.__setattr__(self, name, max(round(value * MILLION), 1) / MILLION)
        if self.top_p == 0.0:
            raise BadSampling(
                "top_p must be above 0; use top_p=1 to switch it off, or temperature=0 for greedy"
            )

    def to_wire(self) -> list[int]:
        """Eight integers in the order of the fields; all but top_k and seed in millionths."""
        return [
            round(self.temperature * MILLION),
            self.top_k,
            round(self.top_p * MILLION),
            round(self.min_p * MILLION),
            round(self.repetition_penalty * MILLION),
            round(self.frequency_penalty * MILLION),
            round(self.presence_penalty * MILLION),
            self.seed,
        ]

    @staticmethod
    def from_wire(values: Sequence[int]) -> Sampling:
        """The inverse of to_wire. BadSampling for anything that to_wire cannot have made."""
        if len(values) != 8:
            raise BadSampling(f"sampling settings are 8 integers, got {len(values)}")
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_SEED:
                raise BadSampling(f"sampling settings are integers up to 2^53-1, got {value!r}")
        temperature, top_k, top_p, min_p, repetition, frequency, presence, seed = values
        return Sampling(
            temperature=temperature / MILLION,
            top_k=top_k,
            top_p=top_p / MILLION,
            min_p=min_p / MILLION,
            repetition_penalty=repetition / MILLION,
            frequency_penalty=frequency / MILLION,
            presence_penalty=presence / MILLION,
            seed=seed,
        )


_RANGES: Final = (
    ("temperature", 0.0, 100.0),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("repetition_penalty", 0.01, 100.0),
    ("frequency_penalty", -2.0, 2.0),
    ("presence_penalty", -2.0, 2.0),
)


@dataclass(frozen=True, slots=True)
class AskedSampling:
    """What an asker says of sampling. None: left out."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None


def sampling_for(defaults: SamplingDefaults, asked: AskedSampling, seed: int = 0) -> Sampling:
    """Each setting as asked for, what is left out from `defaults`. Raises BadSampling.

    An asker who says temperature 0 wants the likeliest token: nothing of `defaults` counts then, no penalty either.
    """
    rest = LIKELIEST if asked.temperature == 0 else defaults
    return Sampling(
        temperature=rest.temperature if asked.temperature is None else asked.temperature,
        top_k=rest.top_k if asked.top_k is None else asked.top_k,
        top_p=rest.top_p if asked.top_p is None else asked.top_p,
        min_p=rest.min_p if asked.min_p is None else asked.min_p,
        repetition_penalty=rest.repetition_penalty
        if asked.repetition_penalty is None
        else asked.repetition_penalty,
        frequency_penalty=0.0 if asked.frequency_penalty is None else asked.frequency_penalty,
        presence_penalty=0.0 if asked.presence_penalty is None else asked.presence_penalty,
        seed=seed,
    )


def sample(
    logits: NDArray[np.float32],
    sampling: Sampling,
    position: int,
    history: Sequence[int] | NDArray[np.integer] = (),
    generated: Sequence[int] | NDArray[np.integer] = (),
) -> int:
    """The token at `position`, from `logits` (vocab,), `history` (prompt and generated) and `generated`.

    Pure: the same arguments give the same token on every machine; chance depends on (seed, position) only.
    Equal logits are ordered by the lower id. NotFiniteLogits for NaN or +Inf; -Inf means "never".
    """
    if logits.ndim != 1 or logits.size == 0:
        raise NotFiniteLogits(f"logits must be one row of at least one number, got shape {logits.shape}")
    best = _best(logits)
    if _has_penalties(sampling, history, generated):
        logits = penalize(logits, sampling, history, generated)
        best = _best(logits)
    if sampling.temperature == 0.0:
        return best
    ids, weights = candidates(logits, best, sampling)
    running = np.add.accumulate(weights)  # strictly left to right, in id order
    drawn = uniform(sampling.seed, position) * float(running[-1])
    place = int(np.searchsorted(running, drawn, side="right"))  # first i with running[i] > drawn
    if place >= len(ids):  # drawn can round up to the total itself: then the last token of weight above 0
        place = int(np.searchsorted(running, running[-1], side="left"))
    return int(ids[place])


def penalize(
    logits: NDArray[np.float32],
    sampling: Sampling,
    history: Sequence[int] | NDArray[np.integer],
    generated: Sequence[int] | NDArray[np.integer],
) -> NDArray[np.float32]:
    """A copy of `logits` with the penalties applied: in float64 token by token, rounded once to float32."""
    wide = logits.astype(np.float64)
    if sampling.repetition_penalty != 1.0 and len(history):
        seen = np.unique(_token_ids(history, logits.size))
        scores = wide[seen]
        wide[seen] = np.where(
            scores < 0, scores * sampling.repetition_penalty, scores / sampling.repetition_penalty
        )
    if (sampling.frequency_penalty or sampling.presence_penalty) and len(generated):
        made, counts = np.unique(_token_ids(generated, logits.size), return_counts=True)
        wide[made] = wide[made] - counts * sampling.frequency_penalty - sampling.presence_penalty
    with np.errstate(over="ignore"):
        return wide.astype(np.float32)


def candidates(
    logits: NDArray[np.float32], best: int, sampling: Sampling
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The ids that may be drawn, ascending, and their weights (not normalized; the best token weighs 1)."""
    top = float(logits[best])
    count = sampling.top_k or logits.size
    ids = _highest(logits, count) if count < logits.size else np.arange(logits.size)
    exponents = (logits[ids].astype(np.float64) - top) / sampling.temperature
    near = exponents >= LOWEST_EXPONENT
    ids, exponents = ids[near], exponents[near]
    weights = exponential(exponents)
    if sampling.top_p < 1.0:
        kept = _mass_prefix(logits[ids], weights, sampling.top_p)
        ids, weights = ids[kept], weights[kept]
    if sampling.min_p > 0.0:
        likely = weights >= sampling.min_p  # the best token weighs 1, so this is min_p times its probability
        ids, weights = ids[likely], weights[likely]
    return ids, weights


def exponential(exponents: NDArray[np.float64]) -> NDArray[np.float64]:
    """e**x for LOWEST_EXPONENT <= x <= 0 from products and sums alone: libraries differ in the last bit."""
    turns = np.floor(exponents * _LOG2_E + 0.5)
    rest = (exponents - turns * _LN2_HIGH) - turns * _LN2_LOW
    value = np.full_like(rest, _TAYLOR[0])
    for coefficient in _TAYLOR[1:]:
        value *= rest
        value += coefficient
    scaled: NDArray[np.float64] = np.ldexp(value, turns.astype(np.int32))  # exact: a power of two
    return scaled


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits that depends on (seed, position) only."""
    if not 0 <= position <= MAX_POSITION:
        raise BadSampling(f"position must be from 0 to {MAX_POSITION}, got {position}")
    words = (seed & _U32, seed >> 32, position)
    high, low = murmur3(words, 1), murmur3(words, 2)
    return ((high >> 5) * 67108864 + (low >> 6)) / 9007199254740992


def murmur3(words: Sequence[int], seed: int) -> int:
    """MurmurHash3_x86_32 of the little-endian 32-bit `words`."""
    state = seed
    for word in words:
        word = (word * 0xCC9E2D51) & _U32
        word = ((word << 15) | (word >> 17)) & _U32
        state ^= (word * 0x1B873593) & _U32
        state = ((state << 13) | (state >> 19)) & _U32
        state = (state * 5 + 0xE6546B64) & _U32
    state ^= 4 * len(words)
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & _U32
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & _U32
    return state ^ (state >> 16)


def _best(logits: NDArray[np.float32]) -> int:
    """The lowest id with the highest logit. argmax stops at a NaN, so one look checks the whole row."""
    best = int(np.argmax(logits))
    value = float(logits[best])
    if not math.isfinite(value):
        what = "nothing but -Inf" if value == -math.inf else f"{value} at token {best}"
        raise NotFiniteLogits(
            f"logits must be finite, got {what}; the head or the stage before it computed nonsense"
        )
    return best


def _has_penalties(
    sampling: Sampling,
    history: Sequence[int] | NDArray[np.integer],
    generated: Sequence[int] | NDArray[np.integer],
) -> bool:
    if sampling.repetition_penalty != 1.0 and len(history):
        return True
    return bool(sampling.frequency_penalty or sampling.presence_penalty) and len(generated) > 0


def _highest(logits: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """Ids of the `count` highest logits, ascending; of equal logits at the border the lower ids."""
    border = np.partition(logits, logits.size - count)[logits.size - count]
    above = np.flatnonzero(logits > border)
    level = np.flatnonzero(logits == border)[: count - len(above)]
    return np.sort(np.concatenate((above, level)))


def _mass_prefix(logits: NDArray[np.float32], weights: NDArray[np.float64], top_p: float) -> NDArray[np.intp]:
    """Places, ascending, of the shortest run by (logit down, id up) whose weights reach top_p of all."""
    goal = top_p * float(np.add.accumulate(weights)[-1])
    size = FIRST_PREFIX
    while True:
        places = _highest(logits, size) if size < logits.size else np.arange(logits.size)
        places = places[np.argsort(-logits[places], kind="stable")]
        running = np.add.accumulate(weights[places])
        if running[-1] >= goal or len(places) == logits.size:
            length = int(np.searchsorted(running, goal, side="left")) + 1
            return np.sort(places[:length])
        size *= 16


def _token_ids(tokens: Sequence[int] | NDArray[np.integer], vocab: int) -> NDArray[np.int64]:
    ids = np.asarray(tokens, dtype=np.int64)
    if int(ids.min()) < 0 or int(ids.max()) >= vocab:
        raise BadSampling(
            f"token ids must be from 0 to {vocab - 1}, got {int(ids.min())} to {int(ids.max())}"
        )
    return ids


def _whole(name: str, value: int, limit: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
        raise BadSampling(f"{name} must be a whole number from 0 to {limit}, got {value!r}")


def needs_history(sampling: Sampling) -> bool:
    """Whether the tail must know the tokens so far: only then do they travel with OPEN."""
    return (
        sampling.repetition_penalty != 1.0
        or sampling.frequency_penalty != 0.0
        or sampling.presence_penalty != 0.0
    )


GREEDY: Final = Sampling()  # at the end: making one is checked by what stands above
