"""Mutants: every patch applies exactly once, in both languages, and one that does not fails."""

from __future__ import annotations

import pytest

from tests.consensus.mutants import ROOT, Edit, apply, core_of, mutants, parse

SOURCE = "one\ntwo\nthree\ntwo\n"


def test_mutants_are_named_by_their_numbers() -> None:
    numbers = [int(name.partition("-")[0]) for name in mutants()]
    assert len(set(numbers)) == len(numbers) >= 40


@pytest.mark.parametrize("name", mutants())
def test_a_mutant_applies(name: str) -> None:
    core_of(name)("a")
    folders = {edit.path.partition("consensus/")[0] for edit in mutants()[name].edits}
    assert folders == {"peer/", "web_peer/src/"}, "a defect is one of both languages"
    for edit in mutants()[name].edits:
        assert apply(edit, (ROOT / edit.path).read_text("utf-8")) != ""
        assert edit.old != edit.new


def test_a_patch_names_lines() -> None:
    found = parse(
        "7-x", "What it does.\n\n--- a/x.py\n@@\n one\n-two\n+2\n@@\n-three\n--- b.py\n@@\n+0\n one\n"
    )
    assert found.defect == "What it does."
    assert found.edits == (
        Edit("a/x.py", "one\ntwo\n", "one\n2\n"),
        Edit("a/x.py", "three\n", ""),
        Edit("b.py", "one\n", "0\none\n"),
    )


@pytest.mark.parametrize("line", ["two", "@@ -1 +1 @@", "", "+++ a"])
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(ValueError, match="expected a line of a patch"):
        parse("7-x", f"What it does.\n\n--- a/x.py\n{line}\n")


@pytest.mark.parametrize(
    ("old", "count"),
    [("two\n", 2), ("four\n", 0), ("wo\n", 0), ("three\none\n", 0), ("", 5)],
)
def test_what_does_not_stand_there_once_is_refused(old: str, count: int) -> None:
    with pytest.raises(ValueError, match=f"expected these lines once, found them {count} times"):
        apply(Edit("x.py", old, "new\n"), SOURCE)


def test_whole_lines_are_replaced() -> None:
    assert apply(Edit("x.py", "one\ntwo\n", "1\n"), SOURCE) == "1\nthree\ntwo\n"
    assert apply(Edit("x.py", "three\n", ""), SOURCE) == "one\ntwo\ntwo\n"


def test_a_mutant_leaves_the_core_as_it_is() -> None:
    mutated, plain = core_of("1-commits-older-term")("a"), core_of("")("a")
    assert type(mutated) is not type(plain)
    assert type(plain).__module__ == "peer.consensus.core"
