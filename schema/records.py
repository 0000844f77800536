"""Records of canonical JSON as the schema has them: commands of the log, requests, and the values in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from schema.definitions import Limit, Number, Reader, SchemaError, Type, load

PROPOSERS: Final = ("leader", "owner", "headless", "rules")  # else the field that names the member


@dataclass(frozen=True, slots=True)
class Pattern:
    """Text of a form: a regular expression that means the same in both languages, and what to say it is. `longest`:
    how many characters it may have, all of ASCII; 0: any number, or nobody counts them.
    """

    matches: str
    expected: str
    longest: int


@dataclass(frozen=True, slots=True)
class ByHand:
    """A value whose type and codec are written by hand: in this module, under these names in Python."""

    module: str
    type: str
    codec: str


@dataclass(frozen=True, slots=True)
class RecordField:
    """One field. `default` and `absent` are None where there is none; both are spelled as in JSON, or are a name.
    `omit`: it is not written where it means `absent`.
    """

    name: str
    type: Type
    default: str | None
    absent: str | None
    optional: bool
    omit: bool
    doc: str
    note: str


@dataclass(frozen=True, slots=True)
class Record:
    """An object with these fields."""

    name: str
    doc: str
    fields: tuple[RecordField, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """A record that the log takes. `within` is the group that its own one belongs to, or ""."""

    record: Record
    group: str
    within: str
    by: str
    since: int
    bare: bool
    note: str


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What fields are made of."""

    limits: tuple[Limit, ...]
    words: Mapping[str, tuple[str, ...]]
    patterns: Mapping[str, Pattern]
    by_hand: Mapping[str, ByHand]
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Commands(Vocabulary):
    """All commands, and what their fields are made of."""

    commands: tuple[Command, ...]

    def groups(self) -> dict[str, list[Command]]:
        """Returns the commands by group; those of a group within another one are in both."""
        found: dict[str, list[Command]] = {}
        for command in self.commands:
            for group in (command.group, command.within):
                if group:
                    found.setdefault(group, []).append(command)
        return found


def read_commands(limits: Mapping[str, Number]) -> Commands:
    """Returns the commands. Raises SchemaError, as for a type that refers to what is not there."""
    source = load("commands")
    words, reader = read_vocabulary("commands", source, limits)
    commands = tuple(
        Command(
            read_record(reader, name, given),
            given["group"],
            given.get("within", ""),
            given["by"],
            given.get("since", 0),
            given.get("bare", False),
            given.get("note", ""),
        )
        for name, given in source["commands"].items()
    )
    found = Commands(
        words.limits, words.words, words.patterns, words.by_hand, words.records, commands=commands
    )
    check_types(found, (command.record for command in commands))
    for command in commands:
        if command.by not in PROPOSERS and command.by not in {each.name for each in command.record.fields}:
            raise SchemaError(f"{command.record.name}: {command.by} is no proposer and none of its fields")
        if command.since > limits["HIGHEST_VERSION"].value:
            raise SchemaError(f"{command.record.name}: version {command.since} is above HIGHEST_VERSION")
    return found


def read_vocabulary(
    name: str, source: Mapping[str, Any], limits: Mapping[str, Number]
) -> tuple[Vocabulary, Reader]:
    """Returns what the fields of the file `name`.toml are made of, and what reads their types. Raises SchemaError."""
    own = {limit: Reader(limits).number(given["value"]) for limit, given in source["limits"].items()}
    if taken := sorted(own.keys() & limits.keys()):
        raise SchemaError(f"{name}: {', '.join(taken)} are limits of limits.toml as well")
    reader = Reader({**limits, **own})
    found = Vocabulary(
        tuple(Limit(limit, own[limit], given.get("doc", "")) for limit, given in source["limits"].items()),
        {word: tuple(words) for word, words in source["words"].items()},
        {
            pattern: Pattern(given["matches"], given["expected"], given.get("longest", 0))
            for pattern, given in source["patterns"].items()
        },
        {value: ByHand(**given) for value, given in source.get("hand", {}).items()},
        tuple(read_record(reader, record, given) for record, given in source["records"].items()),
    )
    check_types(found, found.records)
    return found, reader


def read_record(reader: Reader, name: str, given: Mapping[str, Any]) -> Record:
    """Returns a record of the file. Raises SchemaError for a type that cannot be read."""
    fields = []
    for field, spelled in given.get("fields", {}).items():
        more: dict[str, Any] = {"type": spelled} if isinstance(spelled, str) else spelled
        absent = more.get("absent")
        if more.get("omit") and absent is None:
            raise SchemaError(f"{name}.{field}: expected `absent` of a field that is left out")
        fields.append(
            RecordField(
                field,
                reader.type(more["type"]),
                more.get("default", absent),
                absent,
                more.get("optional", False),
                more.get("omit", False),
                more.get("doc", ""),
                more.get("note", ""),
            )
        )
    return Record(name, given["doc"], tuple(fields))


def check_types(found: Vocabulary, records: Iterable[Record]) -> None:
    """Raises SchemaError where a field refers to what is not there."""
    for record in records:
        for field in record.fields:
            _check(found, record, field.type)


def _check(found: Vocabulary, record: Record, type_: Type) -> None:
    known: Mapping[str, Any] = {
        "word": found.words,
        "pattern": found.patterns,
        "hand": found.by_hand,
        "record": {each.name: each for each in found.records},
    }.get(type_.name, {})
    if known and type_.type().name not in known:
        raise SchemaError(f"{record.name}: there is no {type_.name} {type_.type().name}")
    if type_.name in ("maybe", "list", "exactly", "table"):
        _check(found, record, type_.type())
