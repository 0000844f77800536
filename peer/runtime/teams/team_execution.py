"""A stage that a team computes, as its lead's runtime calls it: each call is told to the helpers, and done together.

The same calls as those of peer.runtime.execution.Execution, of which the runtime knows no other. What sessions keep at
the helpers is not copied: a cache that moves to another peer, and fronts of prompts that are kept, are computed anew.

Not thread-safe: one thread owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from peer.errors import TeamBroken
from peer.runtime.execution import Execution, Row
from peer.runtime.forms import Form, filled_tokens
from peer.runtime.kv_slots import KvSlots, Move, Shape
from peer.runtime.teams.member_execution import Channel, MemberExecution
from peer.session.evidence import Floats
from peer.wire.generated.frames import TeamKeep, TeamRows, TeamStep, TeamWork
from peer.wire.tensors import tensor_of

Tell = Callable[[TeamStep | TeamRows], None]  # to all helpers; from any thread


class TeamExecution:
    """`own`: the lead's slices; `embedding`: what the lead alone has of the stage, None where it does not begin the
    model. `tell` raises TeamBroken; `broken(why)` is called when a call that helpers were told of failed.
    """

    def __init__(
        self,
        own: MemberExecution,
        embedding: Execution | None,
        channel: Channel,
        form: Form,
        tell: Tell,
        broken: Callable[[str], None],
        *,
        has_head: bool,
    ) -> None:
        self.form = form
        self.has_embed = embedding is not None
        self.has_head = has_head
        self._own = own
        self._embedding = embedding
        self._channel = channel
        self._tell = tell
        self._broken = broken
        self._call = 0
        self._shape = Shape(0, 0)

    @property
    def kv_bytes(self) -> int:
        """How many bytes the KV arrays take here; helpers have their own."""
        return self._own.kv_bytes

    def ensure(self, slots: KvSlots, rows: int, positions: int) -> None:
        """Grow the KV arrays of all members so that `rows` rows of `positions` fit; what is cached is kept."""
        wanted = slots.grown(self._shape, rows, positions)
        if wanted != self._shape:
            lengths = [slots.length_of_row(row) for row in range(len(slots))][: self._shape.rows]
            self._keep(TeamKeep.GROW, wanted.rows, wanted.capacity, *lengths)
            self._own.grow(wanted, lengths)
            self._shape = wanted
        self._own.use(rows)

    def move(self, move: Move) -> None:
        """Copies rows of the KV arrays of all members as `move` says."""
        self._keep(TeamKeep.MOVE, move.source, move.target, move.length)
        self._own.move(move)

    def let_go(self, rows: int) -> None:
        """Rows from `rows` on have no session; what they occupy goes back to the system."""
        self._keep(TeamKeep.LET_GO, rows)
        self._own.let_go(rows)

    def holds(self, row: int, length: int) -> bool:
        """As of an Execution: the same at all members."""
        return self._own.holds(row, length)

    def digest(self, row: int, first: int, stop: int) -> dict[str, str]:
        """Nothing: no peer that computes alone has the same arrays."""
        return {}

    def copied(self, row: int, stop: int, names: Collection[str] | None) -> dict[str, Floats] | None:
        """None: the arrays lie at several peers."""
        return None

    def put(self, row: int, count: int, arrays: Mapping[str, Floats]) -> None:
        """Raises ValueError: the arrays lie at several peers."""
        raise ValueError("no cache can be put into a team")

    def embed(self, tokens: npt.NDArray[np.int64]) -> Floats:
        """tokens (T,) -> (T, hidden), by the lead alone."""
        if self._embedding is None:
            raise ValueError("this stage has no embedding")
        return self._embedding.embed(tokens)

    def decode(self, hidden: Floats, span: range, lengths: list[int]) -> Floats:
        """One token for each row of `span`: hidden (rows, hidden) -> (rows, hidden). Raises TeamBroken."""
        self._step(TeamWork.DECODE, hidden, span.start, lengths)
        with self._together():
            return self._own.decode(self._channel, self._call, hidden, span, lengths)

    def prompt(self, hidden: Floats, row: Row) -> Floats:
        """Tokens of one row: (T, hidden) -> (T, hidden). Raises TeamBroken."""
        ends = self.form.ends or 1
        if row.length + filled_tokens(row.length, len(hidden), ends) > self._shape.capacity:
            raise ValueError(f"{len(hidden)} tokens behind {row.length} do not fit {self._shape}")
        self._step(TeamWork.PROMPT, hidden, row.row, [row.length])
        with self._together():
            return self._own.prompt(self._channel, self._call, hidden, row, ends)

    def head(self, hidden: Floats) -> Floats:
        """(rows, hidden) -> logits (rows, vocab), in calls as the form wants them. Raises TeamBroken."""
        shape, found, start = self.form.head, list[Floats](), 0
        for count in shape.parts(len(hidden)):
            rows = hidden[start : start + count]
            lacking = shape.filled(count) - count
            if lacking:
                rows = np.concatenate([rows, np.repeat(rows[-1:], lacking, axis=0)])
            self._step(TeamWork.HEAD, rows, 0, ())
            with self._together():
                made = self._own.head_call(self._channel, self._call, rows)
            assert made is not None
            found.append(made[:count])
            start += count
        return found[0] if len(found) == 1 else np.concatenate(found)

    def close(self) -> None:
        """Empties the arrays of the lead, whose slices stay loaded. Helpers end when they are told that it is over."""
        self._own.grow(Shape(0, 0), ())
        if self._embedding is not None:
            self._embedding.close()

    def _step(self, work: TeamWork, hidden: Floats, row: int, lengths: Collection[int]) -> None:
        self._check()
        self._call += 1
        count, tensor = len(hidden), tensor_of(np.asarray(hidden, np.float32))
        self._tell(TeamStep(self._channel.session, self._call, int(work), row, count, tuple(lengths), tensor))

    def _keep(self, what: TeamKeep, *numbers: int) -> None:
        if self._channel.mailbox.broken:
            return  # there are no helpers any more, and whoever computes hears of it
        self._call += 1
        self._tell(TeamRows(self._channel.session, self._call, int(what), numbers))

    @contextmanager
    def _together(self) -> Iterator[None]:
        """A call that helpers were told of; one that fails here ends the team, whose members are no longer at the same
        place.
        """
        try:
            yield
        except Exception as error:
            why = str(error) if isinstance(error, TeamBroken) else f"the lead failed: {type(error).__name__}"
            self._channel.mailbox.end(why)
            self._broken(self._channel.mailbox.broken)
            raise

    def _check(self) -> None:
        if self._channel.mailbox.broken:
            raise TeamBroken(self._channel.mailbox.broken)
