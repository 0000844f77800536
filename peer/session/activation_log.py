"""What a stage handed on for one session, kept so that it can be handed on again. Pure.

Positions are contiguous, [start, stop). Over the bound the oldest go: whoever needs those has them computed anew.
"""

from __future__ import annotations

from collections import deque

from peer.wire.tensors import Tensor


class ActivationLog:
    """Outputs of one stage for one session: tensors of shape (count, hidden) at rising positions."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._entries: deque[tuple[int, Tensor]] = deque()
        self.start = 0
        self.stop = 0
        self.bytes = 0

    def append(self, position: int, tensor: Tensor) -> None:
        """Takes the output for positions from `position` on; those that were there before give way."""
        if position < self.stop:
            self.cut(position)
        if position != self.stop:
            self.clear(position)
        self._entries.append((position, tensor))
        self.stop = position + tensor.shape[0]
        self.bytes += len(tensor.data)
        while self.bytes > self._limit and self._entries:
            self.drop_oldest()

    def since(self, position: int) -> list[tuple[int, Tensor]] | None:
        """(position, tensor) of everything from `position` on; None when the log does not reach back so far."""
        if position < self.start:
            return None
        found = []
        for at, tensor in self._entries:
            stop = at + tensor.shape[0]
            if stop > position:
                first = max(at, position)
                found.append((first, rows(tensor, first - at, stop - at)))
        return found

    def cut(self, length: int) -> None:
        """Forgets positions from `length` on."""
        while self._entries and self._entries[-1][0] >= length:
            self.bytes -= len(self._entries.pop()[1].data)
        if self._entries and self._entries[-1][0] + self._entries[-1][1].shape[0] > length:
            at, tensor = self._entries.pop()
            kept = rows(tensor, 0, length - at)
            self._entries.append((at, kept))
            self.bytes -= len(tensor.data) - len(kept.data)
        self.stop = min(self.stop, length)
        self.start = min(self.start, self.stop)

    def clear(self, position: int) -> None:
        """Forgets everything; the next output is that of `position`."""
        self._entries.clear()
        self.bytes = 0
        self.start = self.stop = position

    def drop_oldest(self) -> None:
        """Gives up the oldest entry, if there is one."""
        if self._entries:
            at, tensor = self._entries.popleft()
            self.bytes -= len(tensor.data)
            self.start = at + tensor.shape[0]


def rows(tensor: Tensor, first: int, stop: int) -> Tensor:
    """Rows [first, stop) of a tensor, itself when that is all of it."""
    count = tensor.shape[0]
    if first == 0 and stop == count:
        return tensor
    row_bytes = len(tensor.data) // count
    return Tensor(
        tensor.dtype, (stop - first, *tensor.shape[1:]), tensor.data[first * row_bytes : stop * row_bytes]
    )
