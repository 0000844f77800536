"""The analysis of a model as a page: how heavy each unit is, what crosses its border, where it can be cut.

From an analysis to parts of planner.reports.page_kit.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from planner.cost.team_cost import TeamCost
from planner.cost.wording import mib
from planner.reports.analysis_text import (
    TEAMS,
    count,
    headings,
    notes,
    summary,
    team_note,
    team_rows,
    unit_rows,
)
from planner.reports.page_kit import bar, figures, key, listed, page, rows, section, stacked, table
from planner.slices.analysis import WAYS, Analysis, UnitFacts

MOST_ROWS: Final = 400  # units that are drawn one by one


def analysis_page(found: Analysis, teams: Sequence[TeamCost]) -> str:
    """A whole page."""
    share = 100 * found.path_flops / max(1, found.flops)
    numbers = figures(
        (str(len(found.units)), "units"),
        (mib(found.bytes), "of weights, once loaded"),
        (count(found.flops), f"operations a {found.per}"),
        (f"{share:.0f}%", "of them on the longest path"),
    )
    body = [f"<h1>What {escape(found.name)} is made of</h1>", numbers, _table(found)]
    if teams:
        body.append(section("Teams", team_note(), table(TEAMS, team_rows(teams), frozenset({2}))))
    body.append(_units(found))
    return page(f"What {found.name} is made of", "".join(body))


def _units(found: Analysis) -> str:
    most = max((unit.bytes for unit in found.units), default=0) or 1
    shown = [(f"{unit.number} {unit.name}", _bar(unit, most), _said(found, unit)) for unit in found.units]
    more = [f"and {len(shown) - MOST_ROWS} more units"] if len(shown) > MOST_ROWS else []
    return section(
        "Units",
        "In order. A bar is the weights of a unit; behind it what it computes and what crosses its border.",
        key(
            ("a", "weights on the longest path"), ("a2", "weights beside it"), ("b", f"a slice of {WAYS[0]}")
        ),
        rows(shown[:MOST_ROWS]),
        listed(more) if more else "",
    )


def _looks(found: Analysis) -> list[tuple[str, str]]:
    beside = [("a2", "weights beside it")] if any(not unit.longest for unit in found.units) else []
    cut = (
        [("b", f"of them, the largest of {WAYS[0]} slices")]
        if any(unit.slicing for unit in found.units)
        else []
    )
    return beside + cut


def _bar(unit: UnitFacts, most: int) -> str:
    look = "a" if unit.longest else "a2"
    if unit.slicing is None:
        return bar(stacked((look, f"{mib(unit.bytes)} whole", unit.bytes)), most)
    part = min(unit.slicing.largest[0], unit.bytes)
    parts = stacked(
        ("b", f"{mib(part)} in {WAYS[0]} slices", part), (look, mib(unit.bytes), unit.bytes - part)
    )
    return bar(parts, most)


def _said(found: Analysis, unit: UnitFacts) -> str:
    return f"{count(unit.flops)} a {found.per}, sends {mib(unit.sends)}"


def _table(found: Analysis) -> str:
    return section(
        "Where it can be cut",
        summary(found),
        table(headings(found.per), unit_rows(found)),
        listed(notes(found)),
    )
