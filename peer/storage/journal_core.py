"""Decides what follows from each step of a peer's operations, and from the records of them after a restart.

Pure. An operation changes one thing: a run of units that is held here, or a session's place at a stage. Its steps
become records to write; records read after a restart become what was held, and what was half done and is undone. The
same in web_peer/src/storage/journal_core.ts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from peer.errors import AlreadyBegun, NotAllowed, NotBegun, WrongRecord
from peer.storage.journal_records import (
    MAX_COUNT,
    MAX_RUNS,
    MAX_SESSIONS,
    Begun,
    Checkpoint,
    Committed,
    Kind,
    Operation,
    Place,
    Record,
    RolledBack,
    Run,
    Thing,
    describe,
    kind_of,
    thing_of,
)

CHECKPOINT_OPERATIONS: Final = (
    256  # begun since the last checkpoint: bounds the records to read after a restart
)
CHECKPOINT_TOKENS: Final = 4096  # since the last checkpoint: bounds the tokens that a crash leaves uncounted


class Standing(StrEnum):
    """How a run or a session's place stands between operations."""

    ABSENT = "absent"
    PRESENT = "present"
    KEPT = "kept"  # a run that was held before a restart: given back, or given up


# What an operation makes of a thing that stands so: (committed, rolled back). What is not here may not begin.
_TABLE: Final[Mapping[tuple[Kind, Standing], tuple[Standing, Standing]]] = {
    (Kind.LOAD, Standing.ABSENT): (Standing.PRESENT, Standing.ABSENT),
    (Kind.LOAD, Standing.KEPT): (
        Standing.PRESENT,
        Standing.ABSENT,
    ),  # else what ends the process is tried for ever
    (Kind.UNLOAD, Standing.PRESENT): (Standing.ABSENT, Standing.PRESENT),
    (Kind.UNLOAD, Standing.KEPT): (Standing.ABSENT, Standing.KEPT),
    (Kind.MIGRATE, Standing.PRESENT): (Standing.ABSENT, Standing.PRESENT),
    (Kind.OPEN, Standing.ABSENT): (Standing.PRESENT, Standing.ABSENT),
    (Kind.TAKE_OVER, Standing.ABSENT): (Standing.PRESENT, Standing.ABSENT),
    (Kind.TAKE_OVER, Standing.PRESENT): (
        Standing.PRESENT,
        Standing.PRESENT,
    ),  # by a standby that computed behind
    (Kind.CLOSE, Standing.PRESENT): (Standing.ABSENT, Standing.PRESENT),
}
_DURABLE: Final = frozenset(
    {Kind.LOAD, Kind.UNLOAD, Kind.MIGRATE, Kind.TAKE_OVER}
)  # their begin survives power loss


@dataclass(frozen=True, slots=True)
class Sampled:
    """Tokens that this peer helped to make; no record, but it brings the next checkpoint nearer."""

    count: int


Event = Begun | Committed | RolledBack | Sampled


@dataclass(frozen=True, slots=True)
class Write:
    """Append `record`; with `durable` it must lie on the disk before the operation goes on."""

    record: Record
    durable: bool


@dataclass(frozen=True, slots=True)
class Compact:
    """Put `checkpoint` in the place of every record so far, at once."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Undo:
    """`operation` was half done when the process ended: whatever is left of it is taken back."""

    operation: Operation


Effect = Write | Compact
Recovery = Undo | Compact


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a peer was doing when it ended."""

    held: tuple[Run, ...]  # in the order they were loaded
    places: tuple[Place, ...]  # sessions whose caches ended with the process
    undone: tuple[Operation, ...]
    tokens: int


NOTHING: Final = Recovered((), (), (), 0)


class Transactions:
    """The operations of one peer. `step` takes what happened and gives what to write."""

    def __init__(self) -> None:
        self._standing: dict[Thing, Standing] = {}  # in the order things came; absent ones are not in it
        self._begun: dict[Thing, Operation] = {}
        self._tokens = 0
        self._operations_since = 0
        self._tokens_since = 0

    @property
    def held(self) -> tuple[Run, ...]:
        """Runs that are loaded."""
        return self._runs(Standing.PRESENT)

    @property
    def kept(self) -> tuple[Run, ...]:
        """Runs that were held before the restart, and neither loaded again nor given up."""
        return self._runs(Standing.KEPT)

    @property
    def places(self) -> tuple[Place, ...]:
        """Sessions that are open here, the oldest first."""
        return tuple(thing for thing in self._standing if isinstance(thing, Place))

    @property
    def begun(self) -> tuple[Operation, ...]:
        """Operations that are under way."""
        return tuple(self._begun.values())

    @property
    def tokens(self) -> int:
        """Tokens that this peer helped to make, over all restarts."""
        return self._tokens

    def standing(self, thing: Thing) -> Standing:
        """How `thing` stands, whatever is under way with it."""
        return self._standing.get(thing, Standing.ABSENT)

    def step(self, event: Event) -> list[Effect]:
        """Raises AlreadyBegun, NotBegun, NotAllowed, and changes nothing then."""
        effects: list[Effect] = []
        match event:
            case Sampled(count):
                if not 0 <= count <= MAX_COUNT:
                    raise NotAllowed(f"expected a number of tokens, got {count}")
                self._tokens = min(MAX_COUNT, self._tokens + count)
                self._tokens_since += count
            case Begun(operation):
                self._apply(event)
                self._operations_since += 1
                effects.append(Write(event, kind_of(operation) in _DURABLE))
            case Committed() | RolledBack():
                self._apply(event)
                effects.append(Write(event, durable=False))
            case _:
                assert_never(event)
        if self._operations_since >= CHECKPOINT_OPERATIONS or self._tokens_since >= CHECKPOINT_TOKENS:
            effects = [self.compacted()]  # it says what the record said
        return effects

    def compacted(self) -> Compact:
        """Everything so far, in one checkpoint."""
        self._operations_since = 0
        self._tokens_since = 0
        return Compact(Checkpoint(self.held, self.kept, self.places, self.begun, self._tokens))

    def _runs(self, standing: Standing) -> tuple[Run, ...]:
        found = self._standing.items()
        return tuple(thing for thing, held in found if isinstance(thing, Run) and held is standing)

    def _apply(self, event: Begun | Committed | RolledBack) -> None:
        operation = event.operation
        thing = thing_of(operation)
        standing = self.standing(thing)
        underway = self._begun.get(thing)
        match event:
            case Begun():
                if underway is not None:
                    raise AlreadyBegun(
                        f"expected to {describe(underway)} to its end, got: {describe(operation)}"
                    )
                if (kind_of(operation), standing) not in _TABLE:
                    raise NotAllowed(f"cannot {describe(operation)}: it is {standing}")
                self._make_room(thing)
                self._begun[thing] = operation
            case Committed() | RolledBack():
                if underway != operation:
                    raise NotBegun(
                        f"expected an operation that was begun, got the end of: {describe(operation)}"
                    )
                del self._begun[thing]
                committed, rolled_back = _TABLE[kind_of(operation), standing]
                self._stands(thing, committed if isinstance(event, Committed) else rolled_back)
            case _:
                assert_never(event)

    def _stands(self, thing: Thing, standing: Standing) -> None:
        if standing is Standing.ABSENT:
            self._standing.pop(thing, None)
        else:
            self._standing[thing] = standing

    def _make_room(self, thing: Thing) -> None:
        """Bounds what a checkpoint can hold. Raises NotAllowed."""
        kind, most = (Run, MAX_RUNS) if isinstance(thing, Run) else (Place, MAX_SESSIONS)
        known = [each for each in self._standing if isinstance(each, kind)]
        underway = [each for each in self._begun if isinstance(each, kind) and each not in self._standing]
        if thing in self._standing or len(known) + len(underway) < most:
            return
        idle = next((each for each in known if each not in self._begun), None)
        if isinstance(thing, Run) or idle is None:
            raise NotAllowed(f"expected at most {most} {kind.__name__.lower()}s at a time")
        del self._standing[idle]


def recover(
    records: Iterable[Record], *, gaps: bool = False
) -> tuple[Transactions, Recovered, list[Recovery]]:
    """The log of a process that begins where the records end. Half-done operations are undone; caches of sessions
    ended with the process; runs that were held are kept until they are loaded again or given up.

    Raises WrongRecord for records that no peer can have written in this order; with `gaps`, where some are missing,
    those that do not follow are passed over.
    """
    log = Transactions()
    for record in records:
        try:
            match record:
                case Checkpoint():
                    log = _restored(record)
                case Begun() | Committed() | RolledBack():
                    log._apply(record)
                case _:
                    assert_never(record)
        except (AlreadyBegun, NotBegun, NotAllowed) as error:
            if gaps:
                continue
            raise WrongRecord(f"the records contradict each other: {error}") from error
    undone = log.begun
    for operation in undone:
        log._apply(RolledBack(operation))
    places = log.places
    held = tuple(thing for thing in log._standing if isinstance(thing, Run))
    log._standing = dict.fromkeys(held, Standing.KEPT)
    return log, Recovered(held, places, undone, log.tokens), [*map(Undo, undone), log.compacted()]


def _restored(checkpoint: Checkpoint) -> Transactions:
    """Raises NotAllowed for what is there twice, and AlreadyBegun."""
    log = Transactions()
    log._tokens = checkpoint.tokens
    for standing, things in (
        (Standing.PRESENT, checkpoint.held),
        (Standing.KEPT, checkpoint.kept),
        (Standing.PRESENT, checkpoint.places),
    ):
        for thing in things:
            if thing in log._standing:
                raise NotAllowed(f"{thing} stands twice in a checkpoint")
            log._standing[thing] = standing
    for operation in checkpoint.begun:
        log._apply(Begun(operation))
    return log
