"""Writes display_names.json: what people read for peers whose names are alike, odd or missing."""

from __future__ import annotations

from typing import Any

from tracing import beside, written

from peer.state.display_names import named, names, plain, told_apart
from peer.state.generated.commands import Member

PATH = beside(__file__, "display_names.json")
SPELLED = (
    "ada@laptop",
    "ADA@laptop",
    " ada@laptop ",
    "ada  @laptop",
    "ada @laptop",
    "ａｄａ@laptop",
    "Größe",
    "größe",
    "x (bbbb)",
    "x (bbb)",
    "",
    "   ",
    "a\x1b[31m\u202eb",
    "😀",
)


def peer(number: int) -> str:
    """Some ids begin alike: one may be made until it does."""
    letter = "abcdefghijklmnopqrstuvwxyz"[number % 26]
    return ("b" * 4 + letter * 28) if number % 3 else letter * 32


def lists() -> list[list[tuple[str, bool]]]:
    single = [[(name, True)] for name in SPELLED]
    twice = [[(name, True), (name, computes)] for name in SPELLED[:2] for computes in (True, False)]
    return [*single, *twice, [(name, number % 2 == 0) for number, name in enumerate(SPELLED)], []]


def case(members: list[tuple[str, bool]]) -> dict[str, Any]:
    known = {
        peer(number): Member(peer(number), name, computes, "measured")
        for number, (name, computes) in enumerate(members)
    }
    called = {each.peer: each.name for each in known.values()}
    text = f"on {peer(0)}, {peer(1)}\x07 and {'z' * 32}, not {'a' * 31}"
    return {
        "members": [
            {"peer": each.peer, "name": each.name, "compute": each.compute} for each in known.values()
        ],
        "names": names(known),
        "apart": told_apart(called),
        "text": text,
        "named": named(text, known),
    }


def text() -> str:
    return written(
        "names: what members are called, by peer id. apart: the same where all names count alike. named: a text with "
        "names for ids. plain: what is shown of a text.",
        {"cases": [case(each) for each in lists()], "plain": [[each, plain(each)] for each in SPELLED]},
    )


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
