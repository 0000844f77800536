"""Decides which computed fronts of prompts a stage keeps, and which sessions begin with one of them. Pure.

A front is known by what goes into a stage: a hash over its inputs for positions [0, count), the token ids at the first
stage, activations at later ones. OPEN names it to the first stage; a stage that has it tells the next one the hash of
what it hands on. So nobody is believed: a front is used where a session's own inputs would be the same to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from peer.errors import PeerError
from peer.session.activation_log import rows
from peer.session.effects import PrefixWork
from peer.session.evidence import marks_of
from peer.session.position_spans import common_prefix
from peer.session.prefix import HASH_BYTES, NOT_SAID, WORD_BYTES, WORDS, Prefix
from peer.session.seat import Run_, Seat
from peer.wire.generated.frames import Open
from peer.wire.tensors import Tensor

LEAST_TOKENS: Final = 64  # fewer are computed about as fast as a cache is copied
MOST_BYTES: Final = 64 * 1024 * 1024  # of all fronts that a peer keeps
LENT_SHARE: Final = 16  # and no more than this part of what it lends
MOST_KNOWN: Final = 64
ENTRY_BYTES: Final = 1024  # what a front takes besides, and
MARK_BYTES: Final = 64  # each of its marks
SETTINGS: Final = (0, 8, 11)  # how many integers of `sampling` there are without these words


def named(frame: Open, prefix: Prefix | None) -> Open:
    """An OPEN that names a front, where its first positions are one."""
    if prefix is None or not _fits(frame, prefix.count):
        return frame
    hashed = [
        int.from_bytes(prefix.digest[at : at + WORD_BYTES], "big") for at in range(0, HASH_BYTES, WORD_BYTES)
    ]
    return replace(frame, sampling=(*frame.sampling, prefix.count, *hashed))


def split(frame: Open) -> tuple[Open, Prefix | None]:
    """An OPEN as it is without a front, and the front that it names. What is no front stays among the settings."""
    rest, words = frame.sampling[:-WORDS], frame.sampling[-WORDS:]
    if len(rest) not in SETTINGS or len(words) != WORDS or len(frame.sampling) in SETTINGS:
        return frame, None
    count, *hashed = words
    if not _fits(frame, count) or any(not 0 <= word < 1 << 8 * WORD_BYTES for word in hashed):
        return frame, None
    digest = b"".join(word.to_bytes(WORD_BYTES, "big") for word in hashed)
    return replace(frame, sampling=rest), Prefix(count, digest)


def _fits(frame: Open, count: int) -> bool:
    """Whether `count` positions at the beginning were given, and something follows them."""
    return 0 < count < frame.prompt_tokens and count <= (frame.spans[0] if frame.spans else 0)


def hash_of(marks: Sequence[bytes]) -> bytes:
    """Of what goes into a stage, by the mark of each row (peer.session.evidence)."""
    return sha256(b"".join(marks)).digest()[:HASH_BYTES]


def prefix_of(inputs: Tensor) -> Prefix:
    """The front whose inputs at the first stage are these."""
    return Prefix(inputs.shape[0], hash_of(marks_of(inputs)))


def shared_front(prompt: Sequence[int], encode: Callable[[str], Sequence[int]]) -> int:
    """How many tokens of `prompt` stand before the first question; `encode`: the same prompt with another question."""
    try:
        others = encode("a"), encode("b")
    except PeerError:  # a template that takes no such prompt
        return 0
    front = min(*(common_prefix(prompt, other) for other in others), len(prompt) - 1)
    return front if front >= LEAST_TOKENS else 0


class KnownFronts:
    """Which fronts the peers of which routes have, as far as an asker knows: it need not send those."""

    def __init__(self) -> None:
        self._all: dict[tuple[tuple[str, ...], tuple[int, ...]], None] = {}

    def __contains__(self, front: tuple[tuple[str, ...], tuple[int, ...]]) -> bool:
        return front in self._all

    def add(self, front: tuple[tuple[str, ...], tuple[int, ...]]) -> None:
        """An answer over these peers had this front."""
        self._all[front] = None
        if len(self._all) > MOST_KNOWN:
            del self._all[next(iter(self._all))]

    def clear(self) -> None:
        """Nothing is known any more."""
        self._all.clear()


@dataclass(frozen=True, slots=True)
class Front:
    """What a stage kept of one: the marks of its inputs, and what it handed on."""

    count: int
    marks: tuple[bytes, ...]
    outputs: tuple[tuple[int, Tensor], ...]
    onward: bytes  # hash over what goes into the next stage; NOT_SAID at the last one
    bytes: int


class Prefixes:
    """The fronts that one peer keeps, least recently used first. Their caches lie with the runtime."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._position_bytes: Callable[[Run_], int] = lambda _: 0  # of cache, for units
        self.reused = 0  # positions that were not computed again
        self._all: dict[tuple[Run_, bytes], Front] = {}

    def resize(self, position_bytes: Callable[[Run_], int], most_bytes: int) -> None:
        """Keeps up to `most_bytes` from now on; units cache `position_bytes(run)` for one position."""
        self._position_bytes, self.most_bytes = position_bytes, most_bytes

    @property
    def log_bytes(self) -> int:
        """Of activations alone."""
        return sum(len(tensor.data) for front in self._all.values() for _, tensor in front.outputs)

    @property
    def kept_bytes(self) -> int:
        """Of caches and activations that are kept."""
        return sum(front.bytes for front in self._all.values())

    def __len__(self) -> int:
        return len(self._all)

    def begin(self, seat: Seat, prefix: Prefix | None) -> list[PrefixWork]:
        """A session takes a seat: what is known of its front is copied, and need not be computed."""
        front = None
        if prefix is not None and not seat.warms:
            seat.prefix = Prefix(prefix.count)
            front = self._all.get((seat.run, prefix.digest))
        if prefix is None or front is None or front.count != prefix.count:
            return []
        self._used((seat.run, prefix.digest))
        seat.computed = front.count
        seat.rewind(front.count, seat.epoch)
        seat.log.clear(0 if front.outputs else front.count)
        for position, tensor in front.outputs:
            seat.log.append(position, tensor)
        seat.evidence.marks = list(front.marks)
        seat.prefix = Prefix(front.count, front.onward)
        seat.front_kept = True
        self.reused += front.count
        return [PrefixWork("share", seat.run, seat.key[0], prefix.digest, front.count)]

    def again(self, seat: Seat, prefix: Prefix | None) -> None:
        """Another answer begins on a seat: maybe with another front."""
        seat.prefix, seat.front_kept = (Prefix(prefix.count) if prefix is not None else None), False

    def computed(self, seat: Seat) -> list[PrefixWork]:
        """A seat computed more: keeps its front once that is there."""
        if seat.prefix is None or seat.front_kept or seat.computed < seat.prefix.count:
            return []
        seat.front_kept = True
        count = seat.prefix.count
        marks = seat.evidence.marked(0, count)
        outputs = () if seat.is_tail else _front_of(seat, count)
        if marks is None or outputs is None:
            return []
        key = (seat.run, hash_of(marks))
        if key in self._all:
            self._used(key)
            seat.prefix = Prefix(count, self._all[key].onward)
            return []
        kept = sum(len(tensor.data) for _, tensor in outputs)
        size = kept + count * (self._position_bytes(seat.run) + MARK_BYTES) + ENTRY_BYTES
        if size > self.most_bytes:
            return []
        onward = (
            hash_of([mark for _, tensor in outputs for mark in marks_of(tensor)]) if outputs else NOT_SAID
        )
        seat.prefix = Prefix(count, onward)
        self._all[key] = Front(count, tuple(marks), outputs, onward, size)
        work = [PrefixWork("keep", seat.run, seat.key[0], key[1], count)]
        while self.kept_bytes > self.most_bytes:
            run, digest = oldest = next(iter(self._all))
            del self._all[oldest]
            work.append(PrefixWork("drop", run, b"", digest, 0))
        return work

    def forget(self, run: Run_) -> None:
        """Units `run` are unloaded, and with them what is cached for them."""
        self._all = {key: front for key, front in self._all.items() if key[0] != run}

    def _used(self, key: tuple[Run_, bytes]) -> None:
        self._all[key] = self._all.pop(key)


def _front_of(seat: Seat, count: int) -> tuple[tuple[int, Tensor], ...] | None:
    """What the seat handed on for positions [0, count); None where its log has not all of it."""
    found = seat.log.since(0)
    if found is None or seat.log.stop < count:
        return None
    return tuple((at, rows(each, 0, min(each.shape[0], count - at))) for at, each in found if at < count)
