"""Where an answer went on with other arithmetic, and what is said of that."""

from __future__ import annotations

import pytest

from peer.origin.arithmetic_changes import MOST, Crossing, Crossings, Part, crossed_text, parts_of
from peer.state.generated.commands import Member, PlanRecord, PlanStage, Profile

A, B = "cpu/avx512_vnni/rows-1/9f3ac1d2e4b07755", "cpu/avx2/rows-1/0123456789abcdef"


def halves(one: str, other: str, border: int = 3) -> tuple[Part, ...]:
    return Part(0, border, one), Part(border, 6, other)


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        ([halves(A, B)] * 3, []),
        ([halves(A, A), halves(A, A), halves(A, B)], [Crossing(2, 3, 6, A, B)]),
        ([halves(A, A), halves(B, B)], [Crossing(1, 0, 6, A, B)]),  # one run of units
        ([halves(A, A), halves(B, A), halves(A, A)], [Crossing(1, 0, 3, A, B), Crossing(2, 0, 3, B, A)]),
        ([halves(A, ""), halves(A, "")], []),
        ([halves(A, ""), halves(A, A)], [Crossing(1, 3, 6, "", A)]),
        ([halves("", ""), (Part(0, 6, ""),)], []),  # another plan, of which as little is known
        ([halves(A, B), halves(A, B, 4)], [Crossing(1, 3, 4, B, A)]),  # a border moved
        ([halves(A, B), (Part(0, 6, A),)], [Crossing(1, 3, 6, B, A)]),
        ([halves(A, A), None, halves(A, B)], [Crossing(2, 3, 6, A, B)]),  # of one nobody knows
    ],
)
def test_units_whose_class_changed_between_two_tokens(
    tokens: list[tuple[Part, ...] | None], found: list[Crossing]
) -> None:
    crossings = Crossings()
    for parts in tokens:
        crossings.token(parts)
    assert list(crossings.found) == found


def test_an_answer_of_another_peers_had_tokens_before() -> None:
    crossings = Crossings(10)
    for parts in (halves(A, A), halves(A, B)):
        crossings.token(parts)
    assert crossings.found == (Crossing(11, 3, 6, A, B),)


def test_so_many_are_told() -> None:
    crossings = Crossings()
    for at in range(40):
        crossings.token(halves(A, A if at % 2 else B))
    assert len(crossings.found) == MOST


def test_who_computes_a_route_how() -> None:
    plan = PlanRecord(1, (PlanStage(0, 3, "p"), PlanStage(3, 6, "q", ("r",))), 1, 1)
    profile = Profile(1, 0, {}, {}, {}, 1, "cpu", 1, arithmetic=A)
    members = {"p": Member("p", "p", True, "measured", profile), "r": Member("r", "r", True, "joining")}
    assert parts_of(plan, ("p", "r"), members) == halves(A, "")
    assert parts_of(plan, ("p", "q"), members) is None, "it has left"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ((), ""),
        (
            (Crossing(12, 0, 30, A, B),),
            "after 12 tokens units 0 to 29 went on with other arithmetic (cpu avx2 rows-1 0123, before cpu "
            "avx512_vnni rows-1 9f3a): wording may differ from there on",
        ),
        (
            (Crossing(1, 5, 6, "", B), Crossing(2, 5, 6, B, "")),
            "after 1 token unit 5 went on with other arithmetic (cpu avx2 rows-1 0123, before unknown), and 1 more "
            "such changes: wording may differ from there on",
        ),
    ],
)
def test_what_people_read(found: tuple[Crossing, ...], text: str) -> None:
    assert crossed_text(found) == text
