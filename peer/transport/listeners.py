"""Those who are told of something, in the order in which they came."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

F = TypeVar("F")


class Listeners(Generic[F]):
    """Iterating gives those of that moment: who is told may come and go meanwhile."""

    def __init__(self) -> None:
        self._all: list[F] = []

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[F]:
        return iter(tuple(self._all))

    def add(self, listener: F) -> Callable[[], None]:
        """Tells `listener` from now on; returns what ends that, which may be called once."""
        self._all.append(listener)
        return lambda: self._all.remove(listener)
