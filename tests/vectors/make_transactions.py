"""Writes transactions.json: what the transaction log makes of each step and of restarts, for the TypeScript suite."""

from __future__ import annotations

import json
import random
from typing import Any

from tracing import beside, written

from peer.errors import TransactionError, WrongRecord
from peer.storage.journal_core import (
    CHECKPOINT_TOKENS,
    Compact,
    Event,
    Sampled,
    Transactions,
    Undo,
    Write,
    recover,
)
from peer.storage.journal_records import (
    Begun,
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

PATH = beside(__file__, "transactions.json")
SEED = 20261128
TRACES = 12
OPS = 60


def shown(item: Write | Compact | Undo) -> list[Any]:
    match item:
        case Write(record, durable):
            return ["write", encode_record(record), durable]
        case Compact(checkpoint):
            return ["compact", encode_record(checkpoint)]
        case Undo(operation):
            return ["undo", encode_record(Begun(operation))]


def run(rng: random.Random) -> Run:
    first = rng.randint(0, 3)
    return Run(first, first + rng.randint(1, 2))


def place(rng: random.Random) -> Place:
    return Place(f"{rng.randint(0, 4):032x}", rng.randint(0, 1))


def some_operation(rng: random.Random) -> Operation:
    operations: tuple[Operation, ...] = (
        *(Load(run(rng)), Load(run(rng)), Unload(run(rng)), Migrate(run(rng), "p1")),
        *(OpenSession(place(rng)), TakeOver(place(rng)), CloseSession(place(rng))),
    )
    return rng.choice(operations)


def some_event(rng: random.Random, log: Transactions) -> Event:
    roll = rng.random()
    if roll < 0.45 and log.begun:
        operation = rng.choice(log.begun)
        return Committed(operation) if rng.random() < 0.7 else RolledBack(operation)
    if roll < 0.5:
        return Sampled(rng.choice((0, 7, CHECKPOINT_TOKENS // 2)))
    if roll < 0.55:
        return rng.choice((Committed, RolledBack))(some_operation(rng))
    return Begun(some_operation(rng))


def told(event: Event) -> str:
    return json.dumps(["sampled", event.count]) if isinstance(event, Sampled) else encode_record(event)


def trace(number: int, length: int, opening: bool) -> dict[str, Any]:
    """A log and the records of it; now and then its process ends. `opening`: many sessions, for checkpoints."""
    rng = random.Random(SEED + number)
    log, records, ops = Transactions(), list[Record](), list[dict[str, Any]]()
    for at in range(length):
        if rng.random() < 0.04 and not opening:
            log, recovered, effects = recover(records)
            records = [effect.checkpoint for effect in effects if isinstance(effect, Compact)]
            runs = [[each.first, each.stop] for each in recovered.held]
            places = [[each.session, each.stage] for each in recovered.places]
            undone = [encode_record(Begun(operation)) for operation in recovered.undone]
            ops.append(
                {"recovered": [runs, places, undone, recovered.tokens], "gives": [*map(shown, effects)]}
            )
            continue
        event = Begun(OpenSession(Place(f"{at:032x}", 0))) if opening else some_event(rng, log)
        try:
            effects_of_step = log.step(event)
        except TransactionError as error:
            ops.append({"event": told(event), "error": type(error).__name__})
            continue
        for effect in effects_of_step:
            if isinstance(effect, Compact):
                records = [effect.checkpoint]
            else:
                records.append(effect.record)
        ops.append({"event": told(event), "gives": [*map(shown, effects_of_step)]})
    return {"name": f"random schedule of seed {SEED + number}", "ops": ops}


TEXTS = (
    '["begun","load",0,31]',
    '["committed","migrate",0,31,"p1"]',
    '["rolled_back","take_over","000102030405060708090a0b0c0d0e0f",2]',
    '["checkpoint",[[0,31]],[[31,62]],[["000102030405060708090a0b0c0d0e0f",0]],[["unload",0,31]],9007199254740991]',
    "",
    "{}",
    "[]",
    "null",
    '["begun"]',
    '["begun","load",0]',
    '["begun","load",0,31,62]',
    '["begun","load",31,31]',
    '["begun","load",-1,3]',
    '["begun","load",0,3.5]',
    '["begun","load",false,true]',
    '["begun","load",0,1048577]',
    '["begun","eat",0,31]',
    '["begun","migrate",0,31]',
    '["begun","migrate",0,31,"a b"]',
    '["begun","open","00",0]',
    '["begun","open","000102030405060708090A0B0C0D0E0F",0]',
    '["begun","open","000102030405060708090a0b0c0d0e0f",65537]',
    '["sampled",1]',
    '["checkpoint",[],[],[],[]]',
    '["checkpoint",[],[],[],[],-1]',
    '["checkpoint",[1],[],[],[],0]',
)

CONTRADICTIONS = (
    ['["committed","load",0,31]'],
    ['["begun","load",0,31]', '["begun","load",0,31]'],
    ['["checkpoint",[[0,31]],[[0,31]],[],[],0]'],
    ['["checkpoint",[],[],[],[["unload",0,31]],0]'],
    ['["checkpoint",[[0,31]],[],[],[],0]', '["begun","load",0,31]'],
)


def reading() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for text in TEXTS:
        try:
            rows.append({"text": text, "again": encode_record(decode_record(text))})
        except WrongRecord:
            rows.append({"text": text, "again": None})
    return rows


def text() -> str:
    about = (
        "Traces of the transaction log. event: a record, or sampled tokens; error: its name. recovered: the process "
        "ended; runs held, places of sessions, what is undone, tokens. texts: null for a line that is refused. "
        "contradictions: lines that are refused together."
    )
    traces = [trace(number, OPS, opening=False) for number in range(TRACES)]
    traces.append(trace(TRACES, 260, opening=True))
    refused = [{"lines": lines} for lines in CONTRADICTIONS]
    return written(about, {"texts": reading(), "contradictions": refused, "traces": traces})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
