"""The table of families: what docs and `shoal models --families` say of it, and which family is nearest."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from peer.cli.models import models
from planner.errors import UnknownArchitecture
from planner.importers.encoders.table import encoder_rows
from planner.importers.families.family import Source
from planner.importers.families.table import FAMILIES, Kind, family_of, rows
from planner.importers.seq2seq.table import seq2seq_rows
from planner.importers.vision.folder import KNOWN
from planner.importers.vision.table import SEEING, vision_rows

DOCS = Path(__file__).parents[4] / "docs" / "models.md"


def table_of(head: str) -> list[tuple[str, ...]]:
    """The rows under that head in the docs."""
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    start = lines.index(head) + 2
    return [
        tuple(cell.strip().replace("`", "") for cell in line.strip("|").split("|"))
        for line in lines[start : lines.index("", start)]
    ]


def test_docs_have_the_tables() -> None:
    assert table_of("| family | in GGUF as | in config.json as | what sets it apart |") == [
        *rows(),
        *seq2seq_rows(),
    ]
    encoders = table_of("| encoder | in GGUF as | in config.json as | what sets it apart from BERT |")
    assert encoders == [(title, gguf or "-", called, apart) for title, gguf, called, apart in encoder_rows()]
    seeing = table_of("| family | `model_type` | components | what it gives |")
    assert seeing == [(title, ", ".join(called), parts, gives) for title, called, parts, gives in SEEING]
    assert sorted(name for _, called, *_ in SEEING for name in called) == sorted(KNOWN)


def test_the_command_prints_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def printed(as_json: bool) -> str:
        assert models(argparse.Namespace(store=tmp_path, families=True, json=as_json)) == 0
        return capsys.readouterr().out

    every = [*rows(), *seq2seq_rows(), *encoder_rows(), *vision_rows()]
    lines = printed(False).splitlines()
    assert len(lines) == len(every) + 1
    for line, row in zip(lines[1:], every, strict=True):
        assert all(cell in line for cell in row)
    assert [tuple(each.values()) for each in json.loads(printed(True))] == every


@pytest.mark.parametrize("kind", ["gguf", "folder"])
def test_no_name_is_of_two_families(kind: Kind) -> None:
    every: list[Source] = [family.gguf if kind == "gguf" else family.folder for family in FAMILIES]
    sources = [source for at, source in enumerate(every) if source not in every[:at]]
    names = [name for source in sources for name in source.families]
    assert len(names) == len(set(names))
    assert all(family_of(name, kind, "here") in FAMILIES for name in names)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("qwen3next", "gguf", "here: architecture 'qwen3next' is not supported; the nearest that is: qwen3"),
        ("Mistral3", "folder", "here: model_type 'Mistral3' is not supported; the nearest that is: mistral;"),
        ("x" * 999, "folder", "'" + "x" * 80 + "' is not supported; the nearest"),
        (None, "folder", "here: model_type 'None' is not supported; `shoal models"),
        (["llama"], "folder", "here: model_type .* is not supported; `shoal models"),
    ],
)
def test_another_family_is_told_the_nearest(name: object, kind: Kind, words: str) -> None:
    with pytest.raises(UnknownArchitecture, match=words) as caught:
        family_of(name, kind, "here")
    assert "\n" not in str(caught.value)
