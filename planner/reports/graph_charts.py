"""Pictures of one run of a model of units that form a graph: lanes of peers over time, and the memory of its stages.

Pure: from a schedule to parts of planner.reports.page_kit.
"""

from __future__ import annotations

from typing import Final

from planner.cost.graph_schedule import Schedule
from planner.cost.wording import mib, ms
from planner.reports.graph_text import path, units
from planner.reports.page_kit import Plot, figure, figures, key, listed, marks, section, table

ROW_PX: Final = 44  # of a lane
MOST_DRAWN: Final = 400  # transfers, beyond which only those of the critical path are drawn
CRITICAL_LINE: Final = "stroke:var(--b);stroke-width:2.5"
HEADINGS: Final = ("Stage", "Units", "Memory", "Begins", "Ends", "Critical", "Stands by")


def model_section(name: str, found: Schedule | None, why: tuple[str, ...], when: str) -> str:
    """Everything about one model. `when`: whether it runs so or would; without `found`, `why` says why not."""
    if found is None:
        return section(name, when, listed(why))
    numbers = (
        (ms(found.latency_s), "a run alone"),
        (f"{figure(found.rate_per_s)} /s", "runs of a stream"),
    )
    return section(
        name,
        f"{when} Who runs which stage in one run, in time; lines are values on their way.",
        figures(*numbers),
        lanes(found, f"Which peer computes which stage of {name}, in time"),
        key(("b", "on the critical path"), ("a", "beside it")),
        listed((f"The {path(found)}.", *unlinked(found), *why)),
        stages(found),
    )


def lanes(found: Schedule, label: str) -> str:
    """Time from left to right, a lane for each peer, stages by their numbers; lines are transfers."""
    peers, end = found.peers, 1000 * found.latency_s
    place = {peer: len(peers) - at - 0.5 for at, peer in enumerate(peers)}
    shown = Plot(label, (0, end), (0, len(peers)), ROW_PX * len(peers), named=True)
    shown.grid(marks(end, 4), [(place[peer], peer) for peer in peers], "milliseconds")
    many = len(found.transfers) > MOST_DRAWN
    for each in sorted(found.transfers, key=lambda each: each.critical):
        if each.src in place and each.dst in place and (each.critical or not many):
            ends = ((1000 * each.begins_s, place[each.src]), (1000 * each.ends_s, place[each.dst]))
            shown.line(ends, CRITICAL_LINE if each.critical else "")
    for number, stage in enumerate(found.stages, start=1):
        title = f"stage {number}: units {units(stage)}, {ms(stage.begins_s)} to {ms(stage.ends_s)}"
        look = "b" if stage.critical else "a"
        shown.work(1000 * stage.begins_s, 1000 * stage.ends_s, place[stage.peer], look, title, str(number))
    return shown.html()


def stages(found: Schedule) -> str:
    """The stages in a table."""
    rows = [
        (
            f"{number} {stage.peer}",
            units(stage).replace("-", "–", 1) if stage.stop - stage.first > 1 else units(stage),
            mib(stage.bytes),
            ms(stage.begins_s),
            ms(stage.ends_s),
            "yes" if stage.critical else "",
            ", ".join(stage.standbys) or "nobody",
        )
        for number, stage in enumerate(found.stages, start=1)
    ]
    return table(HEADINGS, rows, frozenset({len(HEADINGS) - 1}))


def unlinked(found: Schedule) -> tuple[str, ...]:
    """Which links the times do not count."""
    return tuple(
        f"No link from {src} to {dst} was measured: it counts as nothing." for src, dst in found.unlinked
    )
