"""A helper of a team at work: it does what the lead says, call by call, and sends its parts to the other members.

Edge: one worker thread. What the lead sends is checked before anything is allocated; what breaks the rules ends the
team.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, assert_never

import numpy as np

from peer.errors import BadCommand, TeamBroken
from peer.runtime.execution import Row
from peer.runtime.forms import Form
from peer.runtime.kv_slots import KvSlots, Move, Shape
from peer.runtime.teams.member_execution import Channel, MemberExecution
from peer.wire.generated.frames import TeamKeep, TeamRows, TeamStep, TeamWork
from peer.wire.tensors import Dtype

MOST_WAITING: Final = 4096  # frames of the lead: rows are let go one by one while a step runs

log = logging.getLogger(__name__)


class HelperWorker:
    """Runs `execution` for one opened team, in `form`, for `slots` sessions of up to `context` positions. `ended(why)`
    is called on the worker when it cannot go on.
    """

    def __init__(
        self,
        execution: MemberExecution,
        channel: Channel,
        form: Form,
        hidden: int,
        slots: int,
        context: int,
        ended: Callable[[str], None],
    ) -> None:
        self._execution = execution
        self._channel = channel
        self._form = form
        self._hidden = hidden
        self._most = Shape(KvSlots(slots, context, form).rows, context + form.spare_tokens)
        self._shape = Shape(0, 0)
        self._ended = ended
        self._call = 0
        self._inbox: deque[TeamStep | TeamRows] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._worker = threading.Thread(target=self._work, name="shoal-team", daemon=True)
        self._worker.start()

    def take(self, frame: TeamStep | TeamRows) -> None:
        """Queues what the lead says. Raises BadCommand when it says too much at once."""
        with self._wake:
            if len(self._inbox) >= MOST_WAITING:
                raise BadCommand(f"at most {MOST_WAITING} calls of a team to wait expected")
            self._inbox.append(frame)
            self._wake.notify()

    def close(self, why: str) -> None:
        """Ends the worker after the unit that it computes. The execution's arrays are empty afterwards."""
        self._channel.mailbox.end(why)
        with self._wake:
            self._closing = True
            self._wake.notify()
        if threading.current_thread() is not self._worker:
            self._worker.join()

    # Everything below runs on the worker.

    def _work(self) -> None:
        try:
            while (frame := self._next()) is not None:
                self._do(frame)
        except Exception as error:
            if not self._closing:
                known = isinstance(error, TeamBroken | BadCommand)
                if not known:
                    log.exception("a helper failed")
                self._ended(str(error) if known else f"a helper failed: {type(error).__name__}")
        finally:
            self._execution.grow(Shape(0, 0), ())

    def _next(self) -> TeamStep | TeamRows | None:
        with self._wake:
            while not self._inbox and not self._closing:
                self._wake.wait()
            return None if self._closing else self._inbox.popleft()

    def _do(self, frame: TeamStep | TeamRows) -> None:
        self._call += 1
        if frame.call != self._call:
            raise BadCommand(f"call {self._call} of the team expected, got {frame.call}")
        if isinstance(frame, TeamStep):
            self._step(frame)
        else:
            self._rows(frame)

    def _step(self, step: TeamStep) -> None:
        if step.tensor.dtype is not Dtype.FLOAT32 or step.tensor.shape != (step.count, self._hidden):
            raise BadCommand(
                f"TEAM_STEP: float32 of shape ({step.count}, {self._hidden}) expected, "
                f"got {list(step.tensor.shape)}"
            )
        hidden = np.asarray(step.tensor.array(), np.float32)
        channel, lengths = self._channel, list(step.lengths)
        match TeamWork(step.work):
            case TeamWork.PROMPT:
                self._check(step.row, 1, lengths, step.count)
                self._execution.prompt(channel, step.call, hidden, Row(step.row, lengths[0]), self._form.ends)
            case TeamWork.DECODE:
                self._check(step.row, step.count, lengths, 1)
                span = range(step.row, step.row + step.count)
                self._execution.decode(channel, step.call, hidden, span, lengths)
            case TeamWork.HEAD:
                self._execution.head_call(channel, step.call, hidden)
            case _ as never:
                assert_never(never)

    def _check(self, row: int, rows: int, lengths: list[int], tokens: int) -> None:
        fits = len(lengths) == rows and row + rows <= self._shape.rows
        if not fits or max(lengths) + tokens > self._shape.capacity:
            raise BadCommand(
                f"TEAM_STEP: rows and positions inside {self._shape.rows} and {self._shape.capacity} expected"
            )

    def _rows(self, frame: TeamRows) -> None:
        match TeamKeep(frame.what), frame.numbers:
            case TeamKeep.GROW, (rows, positions, *lengths):
                fits = self._shape.rows <= rows <= self._most.rows and positions <= self._most.capacity
                if not fits or positions < self._shape.capacity or len(lengths) > self._shape.rows:
                    raise BadCommand(
                        f"TEAM_ROWS: at most {self._most.rows} rows of {self._most.capacity} positions expected, "
                        f"got {rows} of {positions}"
                    )
                if max(lengths, default=0) > self._shape.capacity:
                    raise BadCommand(f"TEAM_ROWS: at most {self._shape.capacity} kept positions expected")
                self._shape = Shape(rows, positions)
                self._execution.grow(self._shape, lengths)
            case TeamKeep.MOVE, (source, target, length):
                if max(source, target) >= self._shape.rows or length > self._shape.capacity:
                    raise BadCommand(f"TEAM_ROWS: rows inside {self._shape.rows} expected")
                self._execution.move(Move(source, target, length))
            case TeamKeep.LET_GO, (rows,):
                self._execution.let_go(rows)
            case _:
                raise BadCommand(f"TEAM_ROWS: numbers that fit {frame.what} expected")
