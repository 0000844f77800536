"""What a seat can show of the inputs that came to it, and whether a result is what its units make of them. Pure.

A check computes one position of a session again, elsewhere, with the same order of additions (given positions together,
sampled ones alone), and compares: to the bit within a class of arithmetic, with a tolerance between classes. Of every
input a seat keeps a mark, of the newest the input itself: so the peer before it cannot tell others another input than
it sent, nor the peer after it another result than it got.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from peer.session.activation_log import ActivationLog, rows
from peer.wire.tensors import Dtype, Tensor
from planner.model.arithmetic_class import other_bits, same_bits

Floats = npt.NDArray[np.float32]
KEPT_BYTES: Final = 1024 * 1024  # of the newest inputs of a seat: what is checked was asked for a moment ago
MARK_BYTES: Final = 8
SAME_CLASS: Final = (
    0.0  # relative distance of two results of one class of arithmetic, added up in the same order
)
SAME: Final = 0.001  # of two that were made with the same rounding (docs/numerics.md)
ALIKE: Final = (
    0.25  # where one side rounds activations to 8 bits and the other does not, or may round to the other side
)


@dataclass(slots=True)
class Evidence:
    """Of the inputs of one seat, from position 0 on without a hole."""

    marks: list[bytes] = field(default_factory=list)
    newest: ActivationLog = field(default_factory=lambda: ActivationLog(KEPT_BYTES))

    def note(self, position: int, tensor: Tensor) -> None:
        """These inputs are about to be computed; those that were there before at such positions give way."""
        del self.marks[position:]
        if len(self.marks) == position:
            self.marks += marks_of(tensor)
        if tensor.dtype is Dtype.FLOAT32:
            self.newest.append(position, tensor)

    def marked(self, first: int, stop: int) -> list[bytes] | None:
        """The marks of positions [first, stop); None when they are not all there."""
        return self.marks[first:stop] if stop <= len(self.marks) else None


def marks_of(tensor: Tensor) -> list[bytes]:
    """The mark of each row."""
    count = tensor.shape[0]
    width = len(tensor.data) // count
    data = memoryview(tensor.data)
    return [sha256(data[at * width : (at + 1) * width]).digest()[:MARK_BYTES] for at in range(count)]


def span_of(log: ActivationLog, first: int, stop: int) -> Floats | None:
    """Rows [first, stop) of what `log` keeps, float32 (rows, hidden); None when they are not all there."""
    found = log.since(first) if first >= log.start and stop <= log.stop else None
    if not found:
        return None
    parts = [rows(tensor, 0, min(tensor.shape[0], stop - at)).array() for at, tensor in found if at < stop]
    whole: Floats = np.concatenate(parts)
    return whole if len(whole) == stop - first else None


def distance(seen: Floats, computed: Floats) -> float:
    """How far a row is from what it should be, relative to its length. Infinite where they have nothing in common."""
    if seen.shape != computed.shape or not np.isfinite(seen).all():
        return float("inf")
    wide = computed.astype(np.float64)
    length = float(np.linalg.norm(wide))
    gap = float(np.linalg.norm(seen.astype(np.float64) - wide))
    return gap / length if length > 0 else (0.0 if gap == 0 else float("inf"))


Rounding = Literal["rounded", "plain", "unknown"]
TABS: Final = ("wasm", "webgpu")
PLAIN_FORM: Final = "plain"  # in the form of a class: a process whose products do not round
TEAM: Final = "/team"  # behind the class of a lead: sums of several machines, added in an order of their own


@dataclass(frozen=True, slots=True)
class Computes:
    """What is known of how a peer computes: its provider, and its class of arithmetic
    (planner.model.arithmetic_class).
    """

    provider: str
    arithmetic: str = ""


def rounding(weights: str, peer: Computes) -> Rounding:
    """How a peer multiplies packed weights: with activations rounded to 8 bits, or as they are."""
    if peer.provider in TABS:
        return "plain"
    if peer.provider != "cpu":
        return "unknown"  # kernels of other devices were not measured
    if weights in ("8bit", "4bit") and peer.arithmetic.endswith(TEAM):
        return "unknown"  # each member as its own machine needs
    form = [*peer.arithmetic.split("/"), "", ""][2]
    rounds = weights in ("8bit", "4bit") and PLAIN_FORM not in form.split("-")
    return "rounded" if rounds else "plain"


def limit(mine: Rounding, theirs: Rounding, classes: tuple[str, str] = ("", "")) -> float:
    """The largest distance of two honest results. `classes`: of the arithmetic of both, where both added up in the same
    order; in another order no bits are repeated.

    Within a class bits are equal. Another class adds up in another order: without rounding that moves a result by some
    millionths, with it an activation may fall to the other side, and a result of a stage moves by 1 to 2 %. Of unknown
    classes it is taken that both machines are of one kind. Devices other than a CPU may add up otherwise from one call
    to the next: a class says only that their kernels are the same.
    """
    if same_bits(*classes):
        return SAME if "unknown" in (mine, theirs) else SAME_CLASS
    if mine != theirs or mine == "unknown":
        return ALIKE
    return ALIKE if mine == "rounded" and other_bits(*classes) else SAME


def first_other(said: Sequence[bytes], seen: Sequence[bytes]) -> int | None:
    """The first place where two lists of marks differ; None where they do not."""
    if len(said) != len(seen):
        return min(len(said), len(seen))
    return next(
        (place for place, pair in enumerate(zip(said, seen, strict=True)) if pair[0] != pair[1]), None
    )


def steps_of_spans(spans: Sequence[int], first: int, stop: int, together: int) -> list[tuple[int, int, bool]]:
    """Positions [first, stop) as they were computed: (first, stop, given), given ones at most `together` at once."""
    found: list[tuple[int, int, bool]] = []
    at, given = 0, True
    bounds: list[tuple[int, bool]] = []
    for count in spans:
        at += count
        bounds.append((at, given))
        given = not given
    bounds.append((max(stop, at), False))
    position = first
    for end, of_prompt in bounds:
        while position < min(end, stop):
            reach = min(end, stop, position + together) if of_prompt else position + 1
            found.append((position, reach, of_prompt))
            position = reach
    return found


def alone_from(position: int, steps: Sequence[tuple[int, int, bool]]) -> list[tuple[int, int, bool]]:
    """The steps cut so that each position from `position` on has one of its own."""
    found: list[tuple[int, int, bool]] = []
    for first, stop, given in steps:
        if first < min(position, stop):
            found.append((first, min(position, stop), given))
        found += [(at, at + 1, given) for at in range(max(first, position), stop)]
    return found
