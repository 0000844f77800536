"""Decides how one run of a model of units that form a graph is shown in lines: peers over time, and tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from planner.cost.graph_schedule import Schedule, StageSpan, Transfer
from planner.cost.wording import NAMED, mib, ms
from planner.reports.plan_text import table

CHART_CHARS: Final = 58  # of a lane; with a name of NAME_CHARS it fits 80 columns
NAME_CHARS: Final = 20
CRITICAL, BESIDE, IDLE, SENDING = "#", "=", ".", ">"
HEADINGS: Final = ("stage", "peer", "units", "memory", "begins", "ends", "", "standbys")
UNKNOWN: Final = "model"  # the component of a unit where none is known
MOST_WAYS: Final = 12  # links that are listed
LEGEND: Final = {
    CRITICAL: "computes on the critical path",
    BESIDE: "computes beside it",
    SENDING: "waits for a transfer on it",
    IDLE: "idle",
}


def run_lines(found: Schedule) -> tuple[str, ...]:
    """Who runs what, in time; which values cross; what the critical path is."""
    return (
        *chart(found),
        "",
        *table([HEADINGS, *map(_row, enumerate(found.stages, 1))]),
        *_ways(found),
        path(found),
    )


def chart(found: Schedule) -> tuple[str, ...]:
    """A lane of characters for each peer, with the number of each stage at its beginning where there is room."""
    wide = min(NAME_CHARS, max(len(peer) for peer in found.peers))
    lanes = {peer: _lane(found, peer) for peer in found.peers}
    used = (
        f"{mark} {words}" for mark, words in LEGEND.items() if any(mark in lane for lane in lanes.values())
    )
    return (
        f"{'':{wide}}  0 ms{ms(found.latency_s):>{CHART_CHARS - 4}}",
        *(f"{_short(peer, wide):{wide}}  {lane}" for peer, lane in lanes.items()),
        ", ".join(used),
    )


def _lane(found: Schedule, peer: str) -> str:
    lane = [IDLE] * CHART_CHARS
    for each in found.transfers:
        if each.critical and each.dst == peer:
            _fill(lane, *_columns(found, each), SENDING)
    mine = [(number, stage) for number, stage in enumerate(found.stages, 1) if stage.peer == peer]
    for _, stage in sorted(mine, key=lambda item: item[1].critical):
        _fill(lane, *_columns(found, stage), CRITICAL if stage.critical else BESIDE)
    for number, stage in mine:
        start, stop = _columns(found, stage)
        if stop - start > len(str(number)):
            lane[start : start + len(str(number))] = str(number)
    return "".join(lane)


def path(found: Schedule) -> str:
    """The critical path as a sentence."""
    steps = [_step(found, step) for step in found.critical]
    if len(steps) > 2 * NAMED:
        steps = [*steps[:NAMED], f"{len(steps) - 2 * NAMED} more", *steps[-NAMED:]]
    return f"critical path, {ms(found.latency_s)}: {', then '.join(steps) or 'nothing takes time'}"


def _step(found: Schedule, step: StageSpan | Transfer) -> str:
    took = ms(step.ends_s - step.begins_s)
    match step:
        case StageSpan():
            return f"stage {found.stages.index(step) + 1} on {step.peer} ({took})"
        case Transfer():
            return f"{mib(step.bytes)} from {step.src} to {step.dst} ({took})"


def _row(numbered: tuple[int, StageSpan]) -> tuple[str, ...]:
    number, stage = numbered
    return (
        str(number),
        stage.peer,
        units(stage),
        mib(stage.bytes),
        ms(stage.begins_s),
        ms(stage.ends_s),
        "critical" if stage.critical else "",
        ", ".join(stage.standbys) or "-",
    )


def units(stage: StageSpan) -> str:
    """ "0-4 (encoder)"."""
    last = stage.stop - 1
    component = f" ({stage.component})" if stage.component not in ("", UNKNOWN) else ""
    return (f"{last}" if stage.first == last else f"{stage.first}-{last}") + component


def _ways(found: Schedule) -> list[str]:
    """A line for each link that carries values, those of the critical path first."""
    by: dict[tuple[str, str], list[Transfer]] = {}
    for each in found.transfers:
        by.setdefault((each.src, each.dst), []).append(each)
    ordered = sorted(by.items(), key=lambda item: not any(each.critical for each in item[1]))
    lines = [_way(src, dst, sent) for (src, dst), sent in ordered[:MOST_WAYS]]
    if len(ordered) > MOST_WAYS:
        lines.append(f"and {len(ordered) - MOST_WAYS} more links")
    lines += [
        f"{src} -> {dst}: no link was measured, what crosses counts as nothing" for src, dst in found.unlinked
    ]
    return lines


def _way(src: str, dst: str, sent: Iterable[Transfer]) -> str:
    sent = list(sent)
    size = mib(sum(each.bytes for each in sent))
    what = size if len(sent) == 1 else f"{len(sent)} values, {size}"
    begins, ends = min(each.begins_s for each in sent), max(each.ends_s for each in sent)
    critical = sum(each.ends_s - each.begins_s for each in sent if each.critical)
    said = f"; {ms(critical)} of it on the critical path" if any(each.critical for each in sent) else ""
    return f"{src} -> {dst}: {what}, from {ms(begins)} to {ms(ends)}{said}"


def _columns(found: Schedule, step: StageSpan | Transfer) -> tuple[int, int]:
    """The characters from the beginning to the end, at least one."""
    scale = CHART_CHARS / found.latency_s if found.latency_s else 0.0
    start = min(round(step.begins_s * scale), CHART_CHARS - 1)
    return start, max(start + 1, min(round(step.ends_s * scale), CHART_CHARS))


def _fill(lane: list[str], start: int, stop: int, mark: str) -> None:
    lane[start:stop] = mark * (stop - start)


def _short(name: str, wide: int) -> str:
    return name if len(name) <= wide else f"{name[: wide - 1]}…"
