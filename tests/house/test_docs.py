"""The form of the pages: first what a page is for, lines of 120, paragraphs of eight lines, links that lead on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WIDTH = 120
MOST_LINES = 8
LEAST_OPENING = 60  # characters: less is a heading in other words
OPEN = r"(?:planner|signaling|peer|web_peer|tests|docs|examples|deploy|schema)"
FILE_PATH = re.compile(rf"(?<![\w./-])({OPEN}/[\w./-]*\w)(?![\w*{{<-])")
GENERATED = ("web_peer/dist", "web_peer/node_modules")  # made by commands that the pages tell of


@dataclass(frozen=True)
class Block:
    """Lines that belong together, from `line` on (counted from 1)."""

    kind: str  # "heading", "table", "code", "picture", "item" or "paragraph"
    line: int
    lines: tuple[str, ...]


def kind_of(line: str) -> str:
    stripped = line.lstrip()
    if re.match(r"#+ ", line):
        return "heading"
    if stripped.startswith("|"):
        return "table"
    if stripped.startswith(("![", "<", "*(")):
        return "picture"
    if re.match(r"([-*]|\d+\.) ", stripped):
        return "item"
    return "paragraph"


def blocks(text: str) -> Iterator[Block]:
    """The parts of a page in order; the lines that follow an item or a paragraph belong to it."""
    kind, start, held, fenced = "", 0, [], False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            if held and not fenced:
                yield Block(kind, start, tuple(held))
                held = []
            if not fenced:
                kind, start = "code", number
            fenced = not fenced
            held.append(line)
            if not fenced:
                yield Block("code", start, tuple(held))
                held = []
            continue
        if fenced:
            held.append(line)
            continue
        found = kind_of(line)
        joins = held and line.strip() and (found == kind == "table" or found == "paragraph" != "heading")
        if held and not (joins and kind in {"paragraph", "item", "table", "picture"}):
            yield Block(kind, start, tuple(held))
            held = []
        if line.strip():
            if not held:
                kind, start = found, number
            held.append(line)
    assert not fenced, "a block of code that has no end"


def opening(text: str) -> str:
    """The first words of a page below its title, in one line; "" where something else comes first."""
    found = [block for block in blocks(text) if block.kind != "picture"]
    if len(found) < 2 or found[0].kind != "heading" or found[1].kind != "paragraph":
        return ""
    return " ".join(found[1].lines)


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    heads = [block.lines[0].lstrip("# ") for block in blocks(text) if block.kind == "heading"]
    plain = [re.sub(r"[`*]|\]\([^)]*\)|\[", "", head).lower() for head in heads]
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", head)) for head in plain}


def dead_links(page: Path) -> Iterator[str]:
    """Links to files that are not there, or to headings that a page has not."""
    for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", page.read_text(encoding="utf-8")):
        link = next(part for part in target if part)
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        file = page.parent / name if name else page
        known = (
            anchors(file.read_text(encoding="utf-8")) if file.suffix == ".md" and file.exists() else {anchor}
        )
        if not file.exists() or (anchor and anchor not in known):
            yield link


def dead_paths(text: str) -> set[str]:
    """Paths in the text and in its examples that name no file or folder of the project."""
    named = {match.group(1).rstrip(".") for match in FILE_PATH.finditer(text)}
    bases = (ROOT, ROOT / "web_peer")  # as `cd web_peer && ...` leads there
    return {
        path
        for path in named
        if not path.startswith(GENERATED) and not any((base / path).exists() for base in bases)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_end_at_120(page: Path) -> None:
    free = {"code", "table", "picture"}
    long = [
        f"line {block.line + at}: {len(line)} characters"
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.kind not in free
        for at, line in enumerate(block.lines)
        if len(line) > WIDTH and " " in line.strip()[:WIDTH]
    ]
    assert long == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_paragraph_has_at_most_eight_lines(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    prose = [block for block in blocks(text) if block.kind in {"paragraph", "item"}]
    assert [f"line {b.line}: {len(b.lines)} lines" for b in prose if len(b.lines) > MOST_LINES] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_begins_with_what_it_is_for(page: Path) -> None:
    assert len(opening(page.read_text(encoding="utf-8"))) >= LEAST_OPENING


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert list(dead_links(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_name_files_that_are_there(page: Path) -> None:
    assert dead_paths(page.read_text(encoding="utf-8")) == set()


def test_a_fault_of_each_kind_is_seen(tmp_path: Path) -> None:
    long = "word " * 25 + "\n"
    page = tmp_path / "page.md"
    page.write_text(
        f"# Title\n\n- an item\n{long}\n" + "line\n" * 9 + "\n[a](none.md) [b](#none) [c](#title)\n"
    )
    found = list(blocks(page.read_text()))
    assert [(block.kind, len(block.lines)) for block in found] == [
        ("heading", 1),
        ("item", 2),
        ("paragraph", 9),
        ("paragraph", 1),
    ]
    assert len(found[1].lines[1]) > WIDTH
    assert opening(page.read_text()) == ""
    assert list(dead_links(page)) == ["none.md", "#none"]
    assert dead_paths("see `peer/nowhere.py` and peer/session/origin.py, or docs/*.md") == {"peer/nowhere.py"}
