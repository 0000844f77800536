"""Records of canonical JSON as the schema has them: the commands of the log and the values that stand in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from schema.definitions import Limit, Number, Reader, SchemaError, Type, load

PROPOSERS: Final = ("leader", "owner", "headless", "rules")  # else the field that names the member


@dataclass(frozen=True, slots=True)
class Pattern:
    """Text of a form: a regular expression that means the same in both languages, and what to say it is."""

    matches: str
    expected: str


@dataclass(frozen=True, slots=True)
class ByHand:
    """A value whose type and codec are written by hand: in this module, under these names in Python."""

    module: str
    type: str
    codec: str


@dataclass(frozen=True, slots=True)
class RecordField:
    """One field. `default` and `absent` are None where there is none; both are spelled as in JSON, or are a name."""

    name: str
    type: Type
    default: str | None
    absent: str | None
    optional: bool
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
class Commands:
    """All commands, and what their fields are made of."""

    limits: tuple[Limit, ...]
    words: Mapping[str, tuple[str, ...]]
    patterns: Mapping[str, Pattern]
    by_hand: Mapping[str, ByHand]
    records: tuple[Record, ...]
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
    own = {name: Reader(limits).number(given["value"]) for name, given in source["limits"].items()}
    if taken := sorted(own.keys() & limits.keys()):
        raise SchemaError(f"commands: {', '.join(taken)} are limits of limits.toml as well")
    reader = Reader({**limits, **own})
    found = Commands(
        tuple(Limit(name, own[name], given.get("doc", "")) for name, given in source["limits"].items()),
        {name: tuple(words) for name, words in source["words"].items()},
        {name: Pattern(given["matches"], given["expected"]) for name, given in source["patterns"].items()},
        {name: ByHand(**given) for name, given in source["hand"].items()},
        tuple(_record(reader, name, given) for name, given in source["records"].items()),
        tuple(
            Command(
                _record(reader, name, given),
                given["group"],
                given.get("within", ""),
                given["by"],
                given.get("since", 0),
                given.get("bare", False),
                given.get("note", ""),
            )
            for name, given in source["commands"].items()
        ),
    )
    for record in (*found.records, *(command.record for command in found.commands)):
        for field in record.fields:
            _check(found, record, field.type)
    for command in found.commands:
        if command.by not in PROPOSERS and command.by not in {each.name for each in command.record.fields}:
            raise SchemaError(f"{command.record.name}: {command.by} is no proposer and none of its fields")
        if command.since > limits["HIGHEST_VERSION"].value:
            raise SchemaError(f"{command.record.name}: version {command.since} is above HIGHEST_VERSION")
    return found


def _record(reader: Reader, name: str, given: Mapping[str, Any]) -> Record:
    fields = []
    for field, spelled in given["fields"].items():
        more: dict[str, Any] = {"type": spelled} if isinstance(spelled, str) else spelled
        absent = more.get("absent")
        fields.append(
            RecordField(
                field,
                reader.type(more["type"]),
                more.get("default", absent),
                absent,
                more.get("optional", False),
                more.get("doc", ""),
                more.get("note", ""),
            )
        )
    return Record(name, given["doc"], tuple(fields))


def _check(found: Commands, record: Record, type_: Type) -> None:
    known: Mapping[str, Any] = {
        "word": found.words,
        "pattern": found.patterns,
        "hand": found.by_hand,
        "record": {each.name: each for each in found.records},
    }.get(type_.name, {})
    if known and type_.type().name not in known:
        raise SchemaError(f"{record.name}: there is no {type_.name} {type_.type().name}")
    if type_.name in ("maybe", "list", "table"):
        _check(found, record, type_.type())
