"""Decides what a transaction log can say, and how it stands in the file: one line of JSON for each record.

Pure. Integers and strings only, no tokens, prompts or activations; the same in web_peer/src/storage/journal_records.ts.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from peer.errors import WrongRecord

MAX_SESSIONS: Final = 1024  # places of sessions in one log
MAX_RUNS: Final = 1024  # runs of units in one log
MAX_UNIT: Final = 1 << 20
MAX_STAGE: Final = 1 << 16
MAX_COUNT: Final = 2**53 - 1  # whole numbers that JavaScript spells alike
MAX_RECORD_CHARS: Final = 1 << 20
_SESSION: Final = re.compile(r"[0-9a-f]{32}")
_PEER: Final = re.compile(r"[0-9A-Za-z_.:-]{1,128}")


class Kind(StrEnum):
    """What an operation does."""

    LOAD = "load"
    UNLOAD = "unload"
    MIGRATE = "migrate"
    OPEN = "open"
    TAKE_OVER = "take_over"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Run:
    """Units [first, stop)."""

    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class Place:
    """A session (hex) at a stage of its route."""

    session: str
    stage: int


@dataclass(frozen=True, slots=True)
class Load:
    """Units become held here."""

    run: Run


@dataclass(frozen=True, slots=True)
class Unload:
    """Units are held here no longer."""

    run: Run


@dataclass(frozen=True, slots=True)
class Migrate:
    """Units go to `peer`: they are held here until its answers no longer need them."""

    run: Run
    peer: str


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session gets its place at a stage here."""

    place: Place


@dataclass(frozen=True, slots=True)
class TakeOver:
    """A session's place moves here from a peer that was lost."""

    place: Place


@dataclass(frozen=True, slots=True)
class CloseSession:
    """A session leaves its place."""

    place: Place


Thing = Run | Place
Operation = Load | Unload | Migrate | OpenSession | TakeOver | CloseSession


def kind_of(operation: Operation) -> Kind:
    """The kind of an operation."""
    match operation:
        case Load():
            return Kind.LOAD
        case Unload():
            return Kind.UNLOAD
        case Migrate():
            return Kind.MIGRATE
        case OpenSession():
            return Kind.OPEN
        case TakeOver():
            return Kind.TAKE_OVER
        case CloseSession():
            return Kind.CLOSE
        case _:
            assert_never(operation)


def thing_of(operation: Operation) -> Thing:
    """What an operation changes."""
    match operation:
        case Load(run) | Unload(run) | Migrate(run):
            return run
        case OpenSession(place) | TakeOver(place) | CloseSession(place):
            return place
        case _:
            assert_never(operation)


def describe(operation: Operation) -> str:
    """An operation in words."""
    match operation:
        case Load(run) | Unload(run):
            return f"{kind_of(operation)} units {run.first}-{run.stop - 1}"
        case Migrate(run, peer):
            return f"migrate units {run.first}-{run.stop - 1} to {peer[:8]}"
        case OpenSession(place) | TakeOver(place) | CloseSession(place):
            return (
                f"{kind_of(operation).replace('_', ' ')} session {place.session[:8]} at stage {place.stage}"
            )
        case _:
            assert_never(operation)


@dataclass(frozen=True, slots=True)
class Begun:
    """An operation begins."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class Committed:
    """An operation is done."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class RolledBack:
    """An operation is undone."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All that the records before it say."""

    held: tuple[Run, ...]
    kept: tuple[Run, ...]
    places: tuple[Place, ...]  # the oldest first
    begun: tuple[Operation, ...]
    tokens: int


Record = Begun | Committed | RolledBack | Checkpoint


# --- in the file ------------------------------------------------------------------------------------------


def encode_record(record: Record) -> str:
    """One line of JSON: an array of integers, strings and arrays of them."""
    made: list[object]
    match record:
        case Begun(operation):
            made = ["begun", *_array(operation)]
        case Committed(operation):
            made = ["committed", *_array(operation)]
        case RolledBack(operation):
            made = ["rolled_back", *_array(operation)]
        case Checkpoint(held, kept, places, begun, tokens):
            made = [
                "checkpoint",
                [[run.first, run.stop] for run in held],
                [[run.first, run.stop] for run in kept],
                [[place.session, place.stage] for place in places],
                [_array(operation) for operation in begun],
                tokens,
            ]
        case _:
            assert_never(record)
    return json.dumps(made, separators=(",", ":"))


def decode_record(text: str) -> Record:
    """The record in `text`. Raises WrongRecord."""
    if len(text) > MAX_RECORD_CHARS:
        raise WrongRecord(f"expected at most {MAX_RECORD_CHARS} characters, got {len(text)}")
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        raise WrongRecord("expected a JSON array") from None
    match raw:
        case ["begun", *rest]:
            return Begun(_operation(rest))
        case ["committed", *rest]:
            return Committed(_operation(rest))
        case ["rolled_back", *rest]:
            return RolledBack(_operation(rest))
        case ["checkpoint", list(held), list(kept), list(places), list(begun), tokens]:
            if len(held) + len(kept) > MAX_RUNS or len(places) > MAX_SESSIONS:
                raise WrongRecord("expected a checkpoint within the bounds of runs and sessions")
            return Checkpoint(
                tuple(_run(item) for item in held),
                tuple(_run(item) for item in kept),
                tuple(_place(item) for item in places),
                tuple(_operation(item) for item in begun),
                _whole(tokens, MAX_COUNT),
            )
        case _:
            raise WrongRecord("expected begun, committed, rolled_back or checkpoint with its fields")


def _array(operation: Operation) -> list[int | str]:
    match operation:
        case Load(run) | Unload(run):
            return [kind_of(operation).value, run.first, run.stop]
        case Migrate(run, peer):
            return [Kind.MIGRATE.value, run.first, run.stop, peer]
        case OpenSession(place) | TakeOver(place) | CloseSession(place):
            return [kind_of(operation).value, place.session, place.stage]
        case _:
            assert_never(operation)


def _operation(raw: object) -> Operation:
    match raw:
        case [Kind.LOAD, *rest]:
            return Load(_run(rest))
        case [Kind.UNLOAD, *rest]:
            return Unload(_run(rest))
        case [Kind.MIGRATE, first, stop, str(peer)] if _PEER.fullmatch(peer):
            return Migrate(_run([first, stop]), peer)
        case [Kind.OPEN, *rest]:
            return OpenSession(_place(rest))
        case [Kind.TAKE_OVER, *rest]:
            return TakeOver(_place(rest))
        case [Kind.CLOSE, *rest]:
            return CloseSession(_place(rest))
        case _:
            raise WrongRecord("expected an operation: its kind, and a run of units or the place of a session")


def _run(raw: object) -> Run:
    match raw:
        case [first, stop]:
            run = Run(_whole(first, MAX_UNIT), _whole(stop, MAX_UNIT))
            if run.first < run.stop:
                return run
    raise WrongRecord("expected a run of units: first and stop")


def _place(raw: object) -> Place:
    match raw:
        case [str(session), stage] if _SESSION.fullmatch(session):
            return Place(session, _whole(stage, MAX_STAGE))
    raise WrongRecord("expected the place of a session: 32 hex digits and a stage")


def _whole(value: object, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise WrongRecord(f"expected a whole number up to {most}, got {value!r:.40}")
    return value
