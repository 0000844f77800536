"""The schema: what it refuses, and that the code of both languages is what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import peer.limits
from schema.consensus_messages import read_raft_messages
from schema.definitions import Number, Reader, SchemaError, Type, numbers_of, read_frames, read_limits
from schema.generate import ROOT, written
from schema.layout import camel, camel_doc
from schema.protocol_tables import filled, row
from schema.records import read_commands
from schema.requests import read_requests

LIMITS = {"MAX_INT": Number("2**53 - 1", 2**53 - 1), "MOST": Number("4", 4)}


def test_generated_files_are_what_the_schema_says() -> None:
    stale = [name for name, text in written().items() if (ROOT / name).read_text(encoding="utf-8") != text]
    assert stale == [], "run make generate"


def test_limits_have_one_value_in_both_languages() -> None:
    source = (ROOT / "web_peer/src/limits.ts").read_text(encoding="utf-8")
    known: dict[str, float] = {}
    for name, value in re.findall(r"^export const (\w+) = ([^;]+);", source, re.MULTILINE):
        known[name] = Reader({each: Number(each, held) for each, held in known.items()}).number(value).value
    assert known == {name: getattr(peer.limits, name) for name in known}
    assert known.keys() == numbers_of(read_limits()).keys()


@pytest.mark.parametrize(
    ("spelled", "read"),
    [
        ("uint", Type("uint")),
        ("place", Type("int", (Number("0", 0), Number("MOST - 1", 3)))),
        ("list(text, MOST)", Type("list", (Type("text"), Number("MOST", 4)))),
        ("maybe(list(span))", Type("maybe", (Type("list", (Type("span"),)),))),
        (
            "int(-MAX_INT, MAX_INT)",
            Type("int", (Number("-MAX_INT", 1 - 2**53), Number("MAX_INT", 2**53 - 1))),
        ),
    ],
)
def test_types(spelled: str, read: Type) -> None:
    assert Reader(LIMITS, {"place": "int(0, MOST - 1)"}).type(spelled) == read


@pytest.mark.parametrize(
    "spelled", ["", "list(", "4", "a.b", "int(0, MOST / 2)", "text + text", "int(0, x.y)"]
)
def test_what_is_no_type(spelled: str) -> None:
    with pytest.raises(SchemaError):
        Reader(LIMITS).type(spelled)


@pytest.mark.parametrize("spelled", ["MISSING", "4 +", "'4'", "MOST(4)"])
def test_what_is_no_number(spelled: str) -> None:
    with pytest.raises(SchemaError):
        Reader(LIMITS).number(spelled)


def test_a_type_has_what_its_code_needs() -> None:
    with pytest.raises(SchemaError):
        Type("int", (Number("0", 0),)).number(1)
    with pytest.raises(SchemaError):
        Type("list", (Number("0", 0),)).type()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("frames", "number = 34", "number = 33"),
        ("frames", 'kind = "TOKEN"', 'kind = "STEP"'),
        ("frames", '"list(name, MAX_ROUTE)"', '"list(name, MAX_ROUTES)"'),
        ("commands", '"word(Goal)"', '"word(Goals)"'),
        ("commands", '"pattern(proof)"', '"pattern(proofs)"'),
        ("requests", 'method = "odd"', 'method = "check"'),
        ("requests", 'from = "leader"', 'from = "leaders"'),
        ("requests", '"word(WitnessSide)"', '"word(Side)"'),
        ("commands", '"list(record(Work), MAX_ENTRIES)"', '"list(record(Works), MAX_ENTRIES)"'),
        ("commands", 'by = "headless"', 'by = "somebody"'),
        ("commands", "MAX_KEPT = {", "MAX_INT = {"),
        ("commands", "since = 4", "since = 400"),
        ("consensus", 'granted = { key = "y"', 'granted = { key = "c"'),
        ("consensus", 'type = "entries"', 'type = "entry"'),
        ("limits", 'value = "8 * 21"', 'value = "8 * LIKELY"'),
        ("limits", "MAX_ROUTE = {", "MAX_SPANS = {"),
    ],
)
def test_faults_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, old: str, new: str
) -> None:
    for name in ("limits", "frames", "commands", "requests", "consensus"):
        text = (ROOT / "schema" / f"{name}.toml").read_text(encoding="utf-8")
        if name == file:
            assert old in text
            text = text.replace(old, new, 1)
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr("schema.definitions.FOLDER", tmp_path)
    with pytest.raises((SchemaError, ValueError)):
        read_all()


def read_all() -> None:
    limits = numbers_of(read_limits())
    read_frames(limits)
    read_commands(limits)
    read_requests(limits)
    read_raft_messages()


def test_names_and_tables() -> None:
    assert camel("data_bytes") == "dataBytes"
    assert camel_doc("`data_bytes` of `BYE_ACK`") == "`dataBytes` of `BYE_ACK`"
    assert row("a", "", "b") == "| a | | b |\n"
    page = "x\n<!-- generated: one -->\nold\n<!-- end of one -->\ny\n"
    once = filled(page, {"one": "| new |\n"})
    assert "old" not in once
    assert filled(once, {"one": "| new |\n"}) == once
    with pytest.raises(SchemaError):
        filled(page, {"two": ""})
