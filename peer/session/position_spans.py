"""Which positions of a session were given and which were sampled, and the steps that send them. Pure.

Spans count given and sampled positions by turns, given ones first. Attention adds up in another order for one token
than for several: given positions are computed together, in any chunks, sampled ones alone, and only so do bits repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

CHUNK_TOKENS: Final = (
    32  # prompt tokens a step carries: small enough that stages overlap, measured in docs/benchmarks.md
)


def steps_of(start: int, stop: int, spans: Sequence[int]) -> list[tuple[int, int]]:
    """[position, stop) of the steps that send positions `start` to `stop`: given ones in chunks, sampled ones alone."""
    steps: list[tuple[int, int]] = []
    end, given = 0, True
    for count in spans:
        first, end = max(start, end), min(end + count, stop)
        size = CHUNK_TOKENS if given else 1
        steps += [(at, min(at + size, end)) for at in range(first, end, size)]
        given = not given
    return steps


def extended(spans: tuple[int, ...], count: int, *, given: bool) -> tuple[int, ...]:
    """`spans` and `count` positions more. Spans count given and sampled positions by turns, given ones first."""
    if not count:
        return spans
    if not spans:
        return (count,) if given else (0, count)
    if (len(spans) % 2 == 1) is given:
        return (*spans[:-1], spans[-1] + count)
    return (*spans, count)


def cut_spans(spans: Sequence[int], length: int) -> tuple[int, ...]:
    """The spans of the first `length` positions."""
    kept: list[int] = []
    for count in spans:
        if length <= 0:
            break
        kept.append(min(count, length))
        length -= kept[-1]
    return tuple(kept)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens `a` and `b` share."""
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return index
    return min(len(a), len(b))
