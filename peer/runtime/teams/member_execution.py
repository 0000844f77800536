"""How one member computes its slices of a stage: unit by unit, with the parts of the others added after each.

Every member adds all parts of a sum in the order of the team and goes on with the same values, so a sum costs one way
between the members, and equal teams make equal bits, whoever is faster. Not thread-safe: one thread owns it.

Memory: the slices' weights as an Execution's, KV of the member's own heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from peer.errors import CannotServe
from peer.runtime.arithmetic import prove
from peer.runtime.execution import Execution, Row, session_options
from peer.runtime.forms import ENDS, Form
from peer.runtime.huge_pages import give_back_memory, use_huge_pages
from peer.runtime.kv_slots import Move, Shape
from peer.runtime.teams.mailbox import Mailbox
from peer.runtime.teams.stage_slices import StageSlices, UnitSlice, stage_slices
from peer.runtime.teams.team import Team
from peer.session.evidence import Floats
from peer.wire.generated.frames import TeamPart
from peer.wire.tensors import tensor_of
from planner.model.lowering import make_shard, rotary_inputs, rotary_tables
from planner.model.manifest import Manifest
from planner.model.onnxruntime_import import ort
from planner.model.scratch_folders import scratch_folder
from planner.model.store import Store

MOST_SPARE: Final = 2 * ENDS[-1] - 1  # positions behind the context that a call may write to, in any form
SCRATCH: Final = "slices"  # of a store: weights of slices while they load

Send = Callable[[int, TeamPart], None]  # to the member at that place; from any thread


class Channel:
    """Parts of one opened team, to and from the other members. `send` raises TeamBroken."""

    def __init__(self, session: bytes, place: int, members: int, send: Send, mailbox: Mailbox) -> None:
        self.session = session
        self.place = place
        self.mailbox = mailbox
        self._others = tuple(member for member in range(members) if member != place)
        self._send = send

    def tell(self, call: int, unit: int, part: Floats, to: Sequence[int] | None = None) -> None:
        """Sends a part, float32 (rows, width), to these members; None: to all others."""
        frame = TeamPart(self.session, call, unit, self.place, len(part), tensor_of(part))
        for member in self._others if to is None else to:
            self._send(member, frame)


class MemberExecution:
    """The slices of one member, loaded. `form`: what they were proven to need. Raises CannotServe."""

    def __init__(self, slices: StageSlices, manifest: Manifest, *, threads: int, context: int) -> None:
        self.place = slices.place
        self.weight_bytes = slices.weight_bytes
        self._hidden = manifest.hidden
        self._units = slices.units
        self.form = prove(slices.blobs, _as_model(slices, manifest), "cpu", threads).form
        tables: dict[str, Floats] = {}
        for table, frequencies in enumerate(manifest.rotary):
            tables.update(
                zip(rotary_inputs(table), rotary_tables(frequencies, context + MOST_SPARE), strict=True)
            )
        self._own: list[Execution | None] = []
        self._joins: list[tuple[Any, list[str]] | None] = []  # and the names of what each takes
        try:
            for unit in slices.units:
                self._own.append(
                    _loaded(unit, manifest, slices, threads, context, self.form, tables)
                    if unit.own is not None
                    else None
                )
                self._joins.append(_session(unit.join, threads) if unit.join is not None else None)
        except BaseException:
            self.close()
            raise
        give_back_memory()
        use_huge_pages()

    @property
    def kv_bytes(self) -> int:
        """How many bytes the KV arrays of this member take."""
        return sum(each.kv_bytes for each in self._own if each is not None)

    def grow(self, shape: Shape, lengths: Sequence[int]) -> None:
        """Makes the KV arrays have that shape; rows keep `lengths` positions."""
        for each in self._bodies():
            each.grow(shape, lengths)
        give_back_memory()

    def use(self, rows: int) -> None:
        """So many rows are written to."""
        for each in self._bodies():
            each.use(rows)

    def move(self, move: Move) -> None:
        """Copies rows of the KV arrays as `move` says."""
        for each in self._bodies():
            each.move(move)

    def let_go(self, rows: int) -> None:
        """Rows from `rows` on have no session; what they occupy goes back to the system."""
        for each in self._bodies():
            each.let_go(rows)

    def holds(self, row: int, length: int) -> bool:
        """Whether `row` has what comes after its first `length` positions looks at."""
        return all(each.holds(row, length) for each in self._bodies())

    def decode(self, channel: Channel, call: int, hidden: Floats, span: range, lengths: list[int]) -> Floats:
        """As Execution.decode, together with the others. Raises TeamBroken."""
        self.use(span.stop)
        return self._through(channel, call, hidden, lambda own, rows: own.decode(rows, span, lengths))

    def prompt(self, channel: Channel, call: int, hidden: Floats, row: Row, ends: int) -> Floats:
        """As Execution.prompt, in calls that end at a multiple of `ends`. Raises TeamBroken."""
        self.use(row.row + 1)
        return self._through(channel, call, hidden, lambda own, rows: own.prompt(rows, row, ends))

    def head_call(self, channel: Channel, call: int, hidden: Floats) -> Floats | None:
        """As Execution.head_call; None at helpers, whose logits go to the lead. Raises TeamBroken."""
        at = len(self._units) - 1
        unit, own = self._units[at], self._own[at]
        part = own.head_call(hidden) if own is not None else None
        if self.place:
            if part is not None:
                channel.tell(call, unit.place, part, (0,))
            return None
        return np.concatenate(self._parts(channel, call, unit, part, len(hidden)), axis=1)

    def close(self) -> None:
        """Lets go of sessions, arrays and weights."""
        for each in self._own:
            if each is not None:
                each.close()
        self._own.clear()
        self._joins.clear()

    def _bodies(self) -> list[Execution]:
        return [
            own
            for unit, own in zip(self._units, self._own, strict=True)
            if own is not None and unit.kind != "head"
        ]

    def _through(
        self, channel: Channel, call: int, hidden: Floats, compute: Callable[[Execution, Floats], Floats]
    ) -> Floats:
        for unit, own, join in zip(self._units, self._own, self._joins, strict=True):
            if unit.kind == "head":
                continue
            part = compute(own, hidden) if own is not None else None
            parts = self._summands(channel, call, unit, part, len(hidden))
            total = np.array(parts[0], np.float32)
            for each in parts[1:]:
                total += each
            if join is None:
                hidden = total
            else:
                given = {"in.0": hidden[None], "in.1": total[None]}
                session, names = join
                hidden = session.run(["out.0"], {name: given[name] for name in names})[0][0]
        return hidden

    def _summands(
        self, channel: Channel, call: int, unit: UnitSlice, part: Floats | None, rows: int
    ) -> list[Floats]:
        if part is not None:
            channel.tell(call, unit.place, part)
        return self._parts(channel, call, unit, part, rows)

    def _parts(
        self, channel: Channel, call: int, unit: UnitSlice, part: Floats | None, rows: int
    ) -> list[Floats]:
        """What all members made of a unit, in the order of the team."""
        found: list[Floats] = []
        for member in unit.makers:
            if member == self.place:
                assert part is not None
                found.append(part)
            else:
                shape = (rows, unit.widths[member])
                found.append(channel.mailbox.take(member, call, unit.place, shape))
        return found


def load_member(
    manifest: Manifest, store: Store, team: Team, place: int, *, threads: int, context: int
) -> MemberExecution:
    """Cuts the slices of the member at `place` out of the blobs in `store`, and loads them. Raises CannotServe."""
    try:
        with scratch_folder(store.root / "tmp", SCRATCH) as folder:
            slices = stage_slices(manifest, store, team, place, Store(folder))
            return MemberExecution(slices, manifest, threads=threads, context=context)
    except (OSError, RuntimeError, MemoryError, ValueError) as error:
        raise CannotServe(f"a share of units {team.first}-{team.stop - 1} does not load: {error}") from error


def _as_model(slices: StageSlices, manifest: Manifest) -> Manifest:
    """A model of nothing but the slices of the member."""
    vocab = next((unit.widths[slices.place] for unit in slices.units if unit.kind == "head"), 0)
    return replace(manifest, units=slices.own, vocab=vocab or manifest.vocab)


def _loaded(
    unit: UnitSlice,
    manifest: Manifest,
    slices: StageSlices,
    threads: int,
    context: int,
    form: Form,
    tables: dict[str, Floats],
) -> Execution:
    assert unit.own is not None
    vocab = unit.widths[slices.place] if unit.kind == "head" else manifest.vocab
    alone = replace(manifest, units=(unit.own,), vocab=vocab)
    shard = make_shard(alone, slices.blobs, 0, 1, "cpu", exact=form.plain)
    return Execution(shard, threads=threads, context=context, form=form, brief=True, tables=tables)


def _session(model: bytes, threads: int) -> tuple[Any, list[str]]:
    session = ort.InferenceSession(model, session_options(None, threads), ["CPUExecutionProvider"])
    return session, [each.name for each in session.get_inputs()]
