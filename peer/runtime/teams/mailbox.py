"""Where the parts of other members wait for this member's worker.

Edge. Parts are put in by the event loop's thread and taken by one worker, which waits for them a bounded time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

import numpy as np

from peer.errors import BadCommand, TeamBroken
from peer.session.evidence import Floats
from peer.wire.generated.frames import TeamPart
from peer.wire.tensors import Dtype

MOST_BYTES: Final = 64 << 20  # of parts of one member that wait; an honest one is at most a unit ahead
MOST_PARTS: Final = 4096  # of one member
PATIENCE_S: Final = 30.0  # for a part of a member that is connected; a lost connection ends the wait at once
LATE_S: Final = 0.25  # after which somebody is told who is waited for, and again after as long


class Mailbox:
    """Of one team at one member. `late(member)` is called on the worker while it waits for a part of that member."""

    def __init__(
        self,
        late: Callable[[int], None] = lambda _: None,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._late = late
        self._patience_s = patience_s
        self._clock = clock
        self._parts: dict[tuple[int, int, int], Floats] = {}
        self._waiting: dict[int, tuple[int, int]] = {}  # by member: parts, bytes
        self._came = threading.Condition()
        self._broken = ""

    @property
    def broken(self) -> str:
        """Why the team is over; "": it is not."""
        return self._broken

    def put(self, part: TeamPart) -> None:
        """Takes a part. Raises BadCommand for one that no honest member sends."""
        key = (part.member, part.call, part.unit)
        if part.tensor.dtype is not Dtype.FLOAT32 or len(part.tensor.shape) != 2:
            raise BadCommand(
                f"TEAM_PART: float32 (rows, width) expected, got shape {list(part.tensor.shape)}"
            )
        with self._came:
            count, size = self._waiting.get(part.member, (0, 0))
            if key in self._parts or count >= MOST_PARTS or size + len(part.tensor.data) > MOST_BYTES:
                raise BadCommand(
                    f"TEAM_PART: one part of call {part.call} and unit {part.unit} expected, and no more than "
                    f"{MOST_BYTES} bytes to wait"
                )
            self._parts[key] = part.tensor.array()
            self._waiting[part.member] = (count + 1, size + len(part.tensor.data))
            self._came.notify_all()

    def take(self, member: int, call: int, unit: int, shape: tuple[int, int]) -> Floats:
        """A part, float32 of that shape. Raises TeamBroken when the team ends first, when it does not come in time, and
        for one of another shape.
        """
        key, until = (member, call, unit), self._clock() + self._patience_s
        with self._came:
            while key not in self._parts:
                left = until - self._clock()
                if self._broken or left <= 0:
                    raise TeamBroken(self._broken or f"member {member} of the team is silent")
                if not self._came.wait_for(
                    lambda: key in self._parts or bool(self._broken), min(left, LATE_S)
                ):
                    self._late(member)
            found = self._parts.pop(key)
            count, size = self._waiting[member]
            self._waiting[member] = (count - 1, size - found.nbytes)
        if found.shape != shape:
            raise TeamBroken(f"a part of shape {shape} expected from member {member}, got {found.shape}")
        return np.asarray(found, np.float32)

    def end(self, why: str) -> None:
        """The team is over: who waits, waits no longer."""
        with self._came:
            self._broken = self._broken or why
            self._parts.clear()
            self._waiting.clear()
            self._came.notify_all()
