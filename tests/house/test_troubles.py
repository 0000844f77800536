"""docs/troubles.md: what it says is printed is what the code prints."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubles.md").read_text("utf-8")
PRINTED = re.findall(r"^\| `([^`]+)`", PAGE, re.MULTILINE)
GAP = "\0"  # in place of what differs from case to case


@cache
def printed() -> str:
    """Every text of the code, with a gap for each value that is put in."""
    texts = []
    for folder in ("peer", "planner", "signaling"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            texts += [_whole(node) for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    for path in sorted((ROOT / "web_peer" / "ui").rglob("*.tsx")):
        texts.append(re.sub(r"\$\{[^}]*\}", GAP, path.read_text("utf-8")))
    return "\n".join(filter(None, texts))


def _whole(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_whole(part) or GAP for part in parts)
        case _:
            return ""


@pytest.mark.parametrize("line", PRINTED)
def test_what_the_page_quotes_is_printed(line: str) -> None:
    for piece in re.split(r"…|--state (?=is )|--[a-z]+ (?=is )", line):
        if piece := piece.strip():
            assert piece in printed() or piece.replace("shoal ", "") in printed(), piece


def test_the_page_has_the_troubles_of_the_first_ten_minutes() -> None:
    assert len(PRINTED) >= 25
