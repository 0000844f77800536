"""The transaction log: what may follow what, and what a restart makes of every prefix of it."""

from __future__ import annotations

import random

import pytest

from peer.errors import AlreadyBegun, NotAllowed, NotBegun, TransactionError, WrongRecord
from peer.storage.journal_core import (
    CHECKPOINT_OPERATIONS,
    CHECKPOINT_TOKENS,
    Compact,
    Effect,
    Event,
    Sampled,
    Transactions,
    Undo,
    Write,
    recover,
)
from peer.storage.journal_records import (
    MAX_RUNS,
    MAX_SESSIONS,
    Begun,
    Checkpoint,
    CloseSession,
    Committed,
    Load,
    Migrate,
    OpenSession,
    Operation,
    Place,
    Record,
    RolledBack,
    Run,
    TakeOver,
    Unload,
    decode_record,
    encode_record,
)

A, B = Run(0, 31), Run(31, 62)
SEED = 20261128


def place(number: int, stage: int = 0) -> Place:
    return Place(f"{number:032x}", stage)


def done(*operations: Operation) -> list[Event]:
    return [event for operation in operations for event in (Begun(operation), Committed(operation))]


def after(events: list[Event]) -> tuple[Transactions, list[Record]]:
    log, records = Transactions(), list[Record]()
    for event in events:
        keep(records, log.step(event))
    return log, records


def keep(records: list[Record], effects: list[Effect]) -> None:
    for effect in effects:
        if isinstance(effect, Compact):
            records[:] = [effect.checkpoint]
        else:
            records.append(effect.record)


@pytest.mark.parametrize(
    ("events", "held", "undone", "places"),
    [
        ([], (), (), ()),
        (done(Load(A), Load(B)), (A, B), (), ()),
        (done(Load(A), Unload(A)), (), (), ()),
        ([Begun(Load(A))], (), (Load(A),), ()),
        ([*done(Load(A)), Begun(Load(B)), RolledBack(Load(B))], (A,), (), ()),
        ([*done(Load(A)), Begun(Unload(A))], (A,), (Unload(A),), ()),
        ([*done(Load(A)), Begun(Migrate(A, "p1"))], (A,), (Migrate(A, "p1"),), ()),
        (done(Load(A), Migrate(A, "p1")), (), (), ()),
        ([*done(OpenSession(place(1)), TakeOver(place(2)))], (), (), (place(1), place(2))),
        (
            [*done(OpenSession(place(1))), Begun(TakeOver(place(1)))],
            (),
            (TakeOver(place(1)),),
            (place(1),),
        ),
        ([Begun(TakeOver(place(1)))], (), (TakeOver(place(1)),), ()),
        (done(OpenSession(place(1)), CloseSession(place(1))), (), (), ()),
        (done(OpenSession(place(1)), OpenSession(place(1, 2))), (), (), (place(1), place(1, 2))),
    ],
)
def test_what_a_restart_finds(
    events: list[Event], held: tuple[Run, ...], undone: tuple[Operation, ...], places: tuple[Place, ...]
) -> None:
    _, records = after(events)
    log, recovered, effects = recover(records)
    assert (recovered.held, recovered.undone, recovered.places) == (held, undone, places)
    assert effects == [
        *map(Undo, undone),
        Compact(Checkpoint(held=(), kept=held, places=(), begun=(), tokens=0)),
    ]
    assert (log.held, log.kept, log.begun, log.places) == ((), held, (), ())


def test_what_was_held_is_kept_over_several_restarts_until_given_up_or_given_back() -> None:
    log, _, _ = recover(after(done(Load(A), Load(B)))[1])
    log, recovered, _ = recover([log.compacted().checkpoint])
    assert recovered.held == (A, B)
    for event in done(Load(A), Unload(B)):
        log.step(event)
    assert (log.held, log.kept) == ((A,), ())


def test_a_load_that_ended_the_process_is_not_tried_again() -> None:
    log, _, _ = recover(after(done(Load(A)))[1])
    records: list[Record] = [log.compacted().checkpoint]
    keep(records, log.step(Begun(Load(A))))
    assert recover(records)[1].held == ()


@pytest.mark.parametrize(
    ("before", "event", "error"),
    [
        ([Begun(Load(A))], Begun(Load(A)), AlreadyBegun),
        ([*done(Load(A)), Begun(Unload(A))], Begun(Migrate(A, "p1")), AlreadyBegun),
        ([], Committed(Load(A)), NotBegun),
        ([], RolledBack(Load(A)), NotBegun),
        ([Begun(Load(A))], Committed(Load(B)), NotBegun),
        ([*done(Load(A)), Begun(Migrate(A, "p1"))], Committed(Migrate(A, "p2")), NotBegun),
        (done(Load(A)), Committed(Load(A)), NotBegun),
        (done(Load(A)), Begun(Load(A)), NotAllowed),
        ([], Begun(Unload(A)), NotAllowed),
        ([], Begun(Migrate(A, "p1")), NotAllowed),
        ([], Begun(CloseSession(place(1))), NotAllowed),
        (done(OpenSession(place(1))), Begun(OpenSession(place(1))), NotAllowed),
        ([], Sampled(-1), NotAllowed),
    ],
)
def test_what_does_not_follow_is_named_and_changes_nothing(
    before: list[Event], event: Event, error: type[TransactionError]
) -> None:
    log, _ = after(before)
    state = log.compacted()
    with pytest.raises(error):
        log.step(event)
    assert log.compacted() == state


def test_only_what_a_restart_needs_waits_for_the_disk() -> None:
    log = Transactions()
    assert log.step(Begun(Load(A))) == [Write(Begun(Load(A)), durable=True)]
    assert log.step(Committed(Load(A))) == [Write(Committed(Load(A)), durable=False)]
    opening = Begun(OpenSession(place(1)))
    assert log.step(opening) == [Write(opening, durable=False)]


def test_checkpoints_come_after_operations_or_tokens() -> None:
    log = Transactions()
    for number in range(CHECKPOINT_OPERATIONS - 1):
        assert all(
            isinstance(e, Write) for event in done(OpenSession(place(number))) for e in log.step(event)
        )
    (compact,) = log.step(Begun(OpenSession(place(999))))
    assert isinstance(compact, Compact)
    assert compact.checkpoint.begun == (OpenSession(place(999)),)
    assert log.step(Sampled(CHECKPOINT_TOKENS - 1)) == []
    (compact,) = log.step(Sampled(1))
    assert isinstance(compact, Compact)
    assert compact.checkpoint.tokens == CHECKPOINT_TOKENS


def test_the_log_stays_bounded() -> None:
    log, records = Transactions(), list[Record]()
    longest = chars = 0
    for number in range(5 * MAX_SESSIONS):
        for event in done(OpenSession(place(number))):
            keep(records, log.step(event))
        longest = max(longest, len(records))
        chars = max(chars, len(encode_record(records[0])))
    assert log.places == tuple(place(number) for number in range(4 * MAX_SESSIONS, 5 * MAX_SESSIONS))
    assert longest <= 2 * CHECKPOINT_OPERATIONS
    assert chars < 50_000
    assert recover(records)[1].places == log.places
    with pytest.raises(NotAllowed, match="at most 1024 runs"):
        after(done(*(Load(Run(at, at + 1)) for at in range(MAX_RUNS + 1))))


@pytest.mark.parametrize("seed", range(SEED, SEED + 12))
def test_every_prefix_of_a_random_log_can_be_recovered(seed: int) -> None:
    rng = random.Random(seed)
    log, records = Transactions(), list[Record]()
    for _ in range(400):
        event = some_event(rng, log)
        try:
            effects = log.step(event)
        except TransactionError:
            continue
        keep(records, effects)
        read = [decode_record(encode_record(record)) for record in records]
        assert read == records
        again, recovered, _ = recover(read)
        undone_loads = {operation.run for operation in log.begun if isinstance(operation, Load)}
        assert set(recovered.held) == {*log.held, *log.kept} - undone_loads
        assert recovered.places == log.places
        assert recovered.undone == log.begun
        assert not again.begun
        if rng.random() < 0.02:
            log, records = again, [again.compacted().checkpoint]


def some_event(rng: random.Random, log: Transactions) -> Event:
    if log.begun and rng.random() < 0.5:
        operation = rng.choice(log.begun)
        return Committed(operation) if rng.random() < 0.7 else RolledBack(operation)
    if rng.random() < 0.05:
        return Sampled(rng.choice((1, 100, CHECKPOINT_TOKENS)))
    run, spot = Run(rng.randint(0, 3), rng.randint(4, 6)), place(rng.randint(0, 5), rng.randint(0, 1))
    operations: tuple[Operation, ...] = (
        *(Load(run), Unload(run), Migrate(run, "p1")),
        *(OpenSession(spot), TakeOver(spot), CloseSession(spot)),
    )
    return Begun(rng.choice(operations))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "[" * 100_000,
        '["begun"]',
        '["begun","load",0]',
        '["begun","load",31,31]',
        '["begun","load",-1,3]',
        '["begun","load",0,3.0]',
        '["begun","load",false,true]',
        '["begun","load",0,9999999999]',
        '["begun","eat",0,31]',
        '["begun","migrate",0,31,"a b"]',
        '["begun","open","00",0]',
        '["begun","open","' + "0" * 32 + '",99999999]',
        '["sampled",1]',
        '["checkpoint",[],[],[],[]]',
        '["checkpoint",[],[],[],[],-1]',
        '["checkpoint",[1],[],[],[],0]',
        '["checkpoint",' + str([[at, at + 1] for at in range(MAX_RUNS + 1)]) + ",[],[],[],0]",
        '["' + "x" * (1 << 20) + '"]',
    ],
    ids=lambda text: text[:40],
)
def test_a_line_that_no_peer_wrote_is_refused(text: str) -> None:
    with pytest.raises(WrongRecord):
        decode_record(text)


@pytest.mark.parametrize(
    "records",
    [
        [Committed(Load(A))],
        [Begun(Load(A)), Begun(Load(A))],
        [Checkpoint((A,), (A,), (), (), 0)],
        [Checkpoint((), (), (), (Unload(A),), 0)],
        [Checkpoint((A,), (), (), (), 0), Begun(Load(A))],
    ],
)
def test_records_that_contradict_each_other_are_refused(records: list[Record]) -> None:
    with pytest.raises(WrongRecord, match="contradict each other"):
        recover(records)
