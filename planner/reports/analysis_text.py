"""Decides how the analysis of a model is shown in lines: units, borders, slices, and what teams would take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from planner.cost.objectives import CHUNK_TOKENS
from planner.cost.team_cost import TeamCost
from planner.cost.wording import mib, ms
from planner.reports.plan_text import table
from planner.slices.analysis import WAYS, Analysis, UnitFacts

TEAMS: Final = ("team of", "units", "peers", "decode", "alone", "prompt chunk", "alone", "pays")
ALIKE: Final = 3  # units of one kind in turn that are told as one row


def headings(per: str) -> tuple[str, ...]:
    """Of the rows of `unit_rows`."""
    if per == "run":
        return ("unit", "name", "component", "memory", "flops/run", "sends/run", "path")
    halves = tuple(f"in {ways}" for ways in WAYS)
    return ("unit", "name", "memory", "flops/token", "sends/token", "can be cut by", *halves)


def analysis_lines(found: Analysis, teams: Sequence[TeamCost]) -> tuple[str, ...]:
    """The model in lines for people."""
    return (
        summary(found),
        "",
        *table([headings(found.per), *unit_rows(found)]),
        *notes(found),
        *(("", *table([TEAMS, *team_rows(teams)]), team_note()) if teams else ()),
    )


def summary(found: Analysis) -> str:
    """The model in a sentence."""
    share = 100 * found.path_flops / max(1, found.flops)
    return (
        f"{found.name}: {len(found.units)} units, {mib(found.bytes)} of weights once loaded, "
        f"{count(found.flops)} operations a {found.per}, {share:.0f}% of them on the longest path"
    )


def unit_rows(found: Analysis) -> list[tuple[str, ...]]:
    """A row for each unit, or for several that are alike and alternate, as blocks of a decoder do."""
    rows: list[tuple[str, ...]] = []
    for units in _alike(found.units):
        first, last = units[0], units[-1]
        many = len(units) > 1
        number = f"{first.number}-{last.number}" if many else str(first.number)
        name = f"{first.name} … {last.name}" if many else first.name
        cut = first.slicing
        memory = f"{len(units)} x {mib(first.bytes)}" if many else mib(first.bytes)
        heavy = (memory, count(first.flops), mib(first.sends))
        if found.per == "run":
            rows.append((number, name, first.component, *heavy, "longest" if first.longest else ""))
            continue
        kinds = ", ".join(f"{kind} ({most})" for kind, most in cut.kinds) if cut else "-"
        rows.append((number, name, *heavy, kinds, *(map(mib, cut.largest) if cut else ("-",) * len(WAYS))))
    return rows


def _alike(units: Sequence[UnitFacts]) -> Iterable[list[UnitFacts]]:
    """Units in order; those of one kind that differ in nothing but their number stand together."""
    ends = {units[0].number, units[-1].number} if units else set()
    inner = [unit for unit in units if unit.number not in ends]
    same: dict[tuple[object, ...], list[UnitFacts]] = {}
    for unit in inner:
        if unit.kind is None:
            same[(unit.number,)] = [unit]
        else:
            key = (unit.kind, unit.bytes, unit.flops, unit.kv_bytes, unit.sends, unit.slicing)
            same.setdefault(key, []).append(unit)
    groups = [group for group in same.values() if len(group) >= ALIKE]
    groups += [[unit] for group in same.values() if len(group) < ALIKE for unit in group]
    groups += [[unit] for unit in units if unit.number in ends]
    return sorted(groups, key=lambda group: group[0].number)


def notes(found: Analysis) -> list[str]:
    """What the table does not say."""
    said = (
        [
            f"In brackets: into how many pieces at most. In {', '.join(map(str, WAYS))}: the largest slice, as stored."
        ]
        if any(unit.slicing for unit in found.units)
        else []
    )
    for why, units in groupby((unit for unit in found.units if unit.whole), key=lambda unit: unit.whole):
        names = [unit.name for unit in units]
        said.append(f"{names[0] if len(names) == 1 else f'{len(names)} units'}: whole, since {why}.")
    kv = sum(unit.kv_bytes for unit in found.units)
    if kv:
        said.append(f"A token of a conversation caches {mib(kv)}.")
    return said


def team_rows(teams: Sequence[TeamCost]) -> list[tuple[str, ...]]:
    """A row for each team."""
    words = {(True, True): "both", (True, False): "decode", (False, True): "prompts", (False, False): "no"}
    return [
        (
            str(len(team.peers)),
            team.kind,
            ", ".join(team.peers),
            ms(team.decode_s),
            ms(team.alone_s),
            ms(team.chunk_s),
            ms(team.alone_chunk_s),
            words[team.pays],
        )
        for team in teams
    ]


def team_note() -> str:
    """How times of teams are reckoned."""
    return (
        f"One unit, by the measured times of the peers: shares by speed, input and sums over the links, as plans count "
        f"teams; a chunk is {CHUNK_TOKENS} tokens."
    )


def count(amount: int) -> str:
    """A large number for people: "271 M"."""
    for size, name in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if amount >= size:
            return f"{amount / size:.3g} {name}"
    return str(amount)
