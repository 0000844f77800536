"""Decides what each picture of a plan shows: the chain of stages, schedules, memory, and plans side by side.

Pure: from a request and its plan to drawings of planner.reports.svg.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from planner.cost import evaluator
from planner.cost.schedules import Bar
from planner.cost.wording import mib, ms, units_text
from planner.reports.svg import Drawing, figure, fit, number, span, ticks
from planner.types import PlanRequest, Stage

GIB: Final = 2**30
MOST_ACROSS: Final = 4  # stages side by side; more of them, or a narrow screen, stand below each other


@dataclass(frozen=True, slots=True)
class Choice:
    """A plan to compare with others: what it is, and its figures."""

    words: str
    stages: tuple[Stage, ...]
    decode_s: float
    tokens_per_s: float
    chosen: bool = False
    on_front: bool = False


@dataclass(frozen=True, slots=True)
class Leaving:
    """What would change if `peer` left. `decode_s` None: nothing could be served."""

    peer: str
    decode_s: float | None
    moved_bytes: int
    words: str


def size(count: float) -> str:
    """Bytes for a picture."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else mib(math.ceil(count))


# --- the chain --------------------------------------------------------------------------------------------


def chain(request: PlanRequest, stages: Sequence[Stage], width: float) -> Drawing:
    """Stages as boxes, hops as arrows, the way back below or beside."""
    found = evaluator.evaluate(request, stages)
    shown = Drawing(width, "The stages of the plan and the hops between them")
    if shown.narrow or len(stages) > MOST_ACROSS:
        _chain_down(shown, request, stages, found)
    else:
        _chain_across(shown, request, stages, found)
    return shown


def _hop_words(request: PlanRequest, stage: Stage, seconds: float) -> tuple[str, str]:
    return ms(seconds), f"{_bytes(request.units[stage.stop - 1].out_bytes_per_token)} a token"


def _bytes(count: int) -> str:
    return f"{count} B" if count < 1024 else f"{count / 1024:.1f} KiB" if count < 2**20 else mib(count)


def _chain_across(
    shown: Drawing, request: PlanRequest, stages: Sequence[Stage], found: evaluator.Evaluation
) -> None:
    gap = 118.0
    wide = min(300.0, (shown.width - 2 - gap * (len(stages) - 1)) / len(stages))
    left = (shown.width - wide * len(stages) - gap * (len(stages) - 1)) / 2
    top, tall = 2.0, 122.0
    for at, stage in enumerate(stages):
        x = left + at * (wide + gap)
        _box(shown, request, stage, at, found, (x, top, wide, tall))
        if at + 1 < len(stages):
            delay, what = _hop_words(request, stage, found.hop_s[at])
            middle = top + tall / 2
            shown.line(x + wide + 5, middle, x + wide + gap - 6, middle, "rule", arrow=True)
            shown.text(x + wide + gap / 2, middle - 8, delay, "t s", "middle")
            shown.text(x + wide + gap / 2, middle + 18, what, "d", "middle")
    if len(stages) > 1:
        first, last, low = (
            left + wide / 2,
            left + (len(stages) - 1) * (wide + gap) + wide / 2,
            top + tall + 30,
        )
        d = (
            f"M{number(last)} {number(top + tall + 3)}V{number(low - 8)}q0 8 -8 8H{number(first + 8)}"
            f"q-8 0 -8 -8V{number(top + tall + 5)}"
        )
        shown.path(d, "dash", low + 2, arrow=True)
        delay, what = _hop_words(request, stages[-1], found.hop_s[-1])
        shown.text((first + last) / 2, low + 18, f"the token goes back: {delay}, {what}", "d", "middle")


def _chain_down(
    shown: Drawing, request: PlanRequest, stages: Sequence[Stage], found: evaluator.Evaluation
) -> None:
    tall, gap, back = 104.0, 46.0, 26.0 if len(stages) > 1 else 0.0
    wide = min(shown.width - 2 - back, 520.0)
    left = (shown.width - wide - back) / 2 + 1
    for at, stage in enumerate(stages):
        y = 2 + at * (tall + gap)
        _box(shown, request, stage, at, found, (left, y, wide, tall))
        if at + 1 < len(stages):
            delay, what = _hop_words(request, stage, found.hop_s[at])
            shown.line(left + 28, y + tall + 3, left + 28, y + tall + gap - 4, "rule", arrow=True)
            shown.text(left + 42, y + tall + gap / 2 + 4, delay, "t s")
            shown.text(left + 42 + 66, y + tall + gap / 2 + 4, what, "d")
    if len(stages) > 1:
        x, top, low = left + wide, 2 + tall / 2, 2 + (len(stages) - 1) * (tall + gap) + tall / 2
        d = (
            f"M{number(x + 3)} {number(low)}h{number(back - 14)}q8 0 8 -8V{number(top + 8)}"
            f"q0 -8 -8 -8H{number(x + 5)}"
        )
        shown.path(d, "dash", low, arrow=True)
        delay, what = _hop_words(request, stages[-1], found.hop_s[-1])
        end = 2 + len(stages) * tall + (len(stages) - 1) * gap
        shown.text(left, end + 22, f"the token goes back: {delay}, {what}", "d")


def _box(
    shown: Drawing,
    request: PlanRequest,
    stage: Stage,
    at: int,
    found: evaluator.Evaluation,
    place: tuple[float, float, float, float],
) -> None:
    x, y, wide, tall = place
    shown.rect(x, y, wide, tall, "box", radius=8)
    shown.dot(x + 22, y + 23, 11, "fa")
    shown.text(x + 22, y + 27, str(at + 1), "on", "middle")
    shown.text(x + 40, y + 28, fit(stage.peer, wide - 52, 14), "t s")
    shown.text(x + 12, y + 52, fit(units_text(request, stage.first, stage.stop), wide - 24), "d")
    share = found.stage_s[at] / found.decode_s if found.decode_s else 0.0
    shown.rect(x + 12, y + 63, wide - 24, 8, "fs", radius=4)
    shown.rect(
        x + 12, y + 63, max(4.0, (wide - 24) * share), 8, "fa", f"{share:.0%} of a token's time", radius=4
    )
    text = f"computes {ms(found.stage_s[at])}"
    room = wide - 24 - 7 * len(text)
    shown.text(x + 12, y + 90, text, "t")
    if room > 60:
        shown.text(
            x + wide - 12, y + 90, f"{share:.0%}" if room < 120 else f"{share:.0%} of the time", "d", "end"
        )
    standby = f"stands by: {', '.join(stage.standbys)}" if stage.standbys else "nobody stands by"
    if tall > 110:
        shown.text(x + 12, y + 110, fit(standby, wide - 24), "d")
    elif stage.standbys:
        shown.text(x + wide - 12, y + 28, fit(standby, wide / 2), "d", "end")


# --- schedules --------------------------------------------------------------------------------------------


def schedule(stages: Sequence[Stage], bars: Sequence[Bar], width: float, label: str) -> Drawing:
    """Time from left to right, a row for each stage; thin lines are hops."""
    shown = Drawing(width, label)
    left = 74.0 if shown.narrow else 130.0
    row, top = (34.0 if shown.narrow else 38.0), 4.0
    end = max(bar.stop_s for bar in bars)
    scale = (width - left - 8) / end if end else 0.0
    bottom = top + row * len(stages)
    for value in ticks(end * 1000, 4 if shown.narrow else 8):
        x = left + value / 1000 * scale
        shown.line(x, top, x, bottom + 4, "grid")
        shown.text(x, bottom + 18, figure(value), "d", "middle")
    shown.text(width - 4, bottom + 34, "milliseconds", "d", "end")
    for at, stage in enumerate(stages):
        y = top + at * row
        shown.text(0, y + row / 2 + 4, fit(f"{at + 1} {stage.peer}", left - 8), "t")
        shown.line(left, y + row, width, y + row, "grid")
    last_s = {(bar.group, bar.stage): bar.start_s for bar in bars}  # of each batch at each stage
    for bar in bars:
        follower = (bar.stage + 1) % len(stages)
        if len(stages) > 1 and last_s.get((bar.group, follower), 0.0) >= bar.there_s > bar.stop_s:
            x1, y1 = left + bar.stop_s * scale, top + bar.stage * row + row / 2
            x2, y2 = left + bar.there_s * scale, top + follower * row + row / 2
            shown.line(x1, y1, x2, y2, "thin")
    for bar in bars:
        x, wide = left + bar.start_s * scale, max(1.5, (bar.stop_s - bar.start_s) * scale)
        look, ink = _LOOKS[bar.group % len(_LOOKS)]
        y = top + bar.stage * row + 6
        title = f"{bar.what}: {ms(bar.start_s)} to {ms(bar.stop_s)}"
        shown.rect(x, y, wide, row - 12, look, title, radius=2)
        if wide >= 9 + 6 * (len(bar.what) - 1):
            shown.text(x + wide / 2, y + row / 2 - 2, bar.what, ink, "middle")
    return shown


_LOOKS: Final = (("fa", "on"), ("fa2", "t s"), ("fb2", "t s"), ("fo", "t s"))


# --- memory -----------------------------------------------------------------------------------------------


def memory(request: PlanRequest, stages: Sequence[Stage], width: float) -> Drawing:
    """A bar for each peer: what it lends, and what takes it."""
    shown = Drawing(width, "Memory that each peer lends, and what the plan puts there")
    most = max([peer.memory_bytes for peer in request.peers] + [1])
    left = 0.0 if shown.narrow else 150.0
    right = 0.0 if shown.narrow else 190.0
    scale = (width - left - right) / most
    tall = 46.0 if shown.narrow else 30.0
    runs = evaluator.runs_by_peer(stages)
    serving: dict[str, set[tuple[int, int]]] = {}
    for stage in stages:
        serving.setdefault(stage.peer, set()).add((stage.first, stage.stop))
    order = [*dict.fromkeys(stage.peer for stage in stages), *sorted(evaluator.profiles(request))]
    y = 2.0
    for name in dict.fromkeys(order):
        peer = evaluator.profiles(request)[name]
        mine = serving.get(name, set())
        own = [evaluator.stage_bytes(request, peer, *run) for run in mine]
        spare = [evaluator.stage_bytes(request, peer, *run) for run in runs.get(name, set()) - mine]
        parts = (
            ("fa", "weights", sum(w for w, _, _ in own)),
            ("hb", "KV of all promised sessions", sum(kv for _, kv, _ in own)),
            ("hc", "standby: weights and KV", sum(w + kv for w, kv, _ in spare)),
            ("fi", "the program itself", peer.overhead_bytes if runs.get(name) else 0),
        )
        used = sum(count for _, _, count in parts)
        share = used / max(1, peer.memory_bytes)
        told = (
            f"{size(used)} of {size(peer.memory_bytes)} ({share:.0%})"
            if used
            else f"lends {size(peer.memory_bytes)}, idle"
        )
        bar_y = y + (20 if shown.narrow else 4)
        if shown.narrow:
            shown.text(0, y + 13, fit(name, width * 0.42, 13), "t")
            shown.text(width, y + 13, told, "d", "end")
        else:
            shown.text(0, bar_y + 14, fit(name, left - 12, 13), "t")
            shown.text(width - right + 12, bar_y + 14, told, "d")
        shown.rect(left, bar_y, peer.memory_bytes * scale, 19, "no", "free")
        x = left
        for look, what, count in parts:
            if count:
                shown.rect(x, bar_y, max(1.0, count * scale), 19, look, f"{what}: {size(count)}")
                x += count * scale
        y += tall
    return shown


# --- plans side by side -----------------------------------------------------------------------------------


def front(choices: Sequence[Choice], width: float) -> Drawing:
    """Every plan as a point: to the left is faster for one, upwards more for all."""
    shown = Drawing(width, "Plans by milliseconds a token and by tokens a second of all sessions")
    left, top, bottom_room = 46.0, 26.0, 40.0
    tall = 300.0 if not shown.narrow else 250.0
    xs = [choice.decode_s * 1000 for choice in choices]
    ys = [choice.tokens_per_s for choice in choices]
    (least_x, most_x), (least_y, most_y) = span(xs), span(ys)
    bottom = top + tall

    def across(value: float) -> float:
        return left + (value - least_x) / (most_x - least_x) * (width - left - 16)

    def up(value: float) -> float:
        return bottom - (value - least_y) / (most_y - least_y) * tall

    def place(choice: Choice) -> tuple[float, float]:
        return across(choice.decode_s * 1000), up(choice.tokens_per_s)

    for value in ticks(most_x, 4 if shown.narrow else 8, least_x):
        x = across(value)
        shown.line(x, top, x, bottom, "grid")
        shown.text(x, bottom + 17, figure(value), "d", "middle")
    for value in ticks(most_y, 5, least_y):
        y = up(value)
        shown.line(left, y, width - 16, y, "grid")
        shown.text(left - 7, y + 4, figure(value), "d", "end")
    shown.text(0, 12, f"tokens a second, all sessions{_from(least_y)}", "d")
    shown.text(width - 16, bottom + bottom_room - 5, f"ms a token, one session{_from(least_x)}", "d", "end")
    best = sorted(place(choice) for choice in choices if choice.on_front)
    if len(best) > 1:
        d = "".join(f"{'L' if at else 'M'}{number(x)} {number(y)}" for at, (x, y) in enumerate(best))
        shown.path(d, "front")
    taken: list[tuple[float, float]] = []
    for count, choice in enumerate(choices, start=1):
        x, y = place(choice)
        shown.dot(x, y, 7, "fa" if choice.on_front else "hollow", choice.words)
        if choice.chosen:
            shown.dot(x, y, 11, "ring")
        _label(shown, x, y, str(count), taken, choice.chosen)
    shown.grow(bottom + bottom_room)
    return shown


def _from(least: float) -> str:
    return " (not from 0 on)" if least else ""


def _label(
    shown: Drawing, x: float, y: float, text: str, taken: list[tuple[float, float]], strong: bool
) -> None:
    """A number beside its point, where no other stands."""
    far = 6 if strong else 0  # it has a ring
    for dx, dy in ((15, -8), (15, 16), (-15, -8), (-15, 16), (0, -16), (0, 26), (30, -8), (30, 16)):
        here = (x + dx + (far if dx > 0 else -far), y + dy)
        if all(abs(here[0] - a) > 12 or abs(here[1] - b) > 12 for a, b in taken):
            break
    taken.append(here)
    shown.text(*here, text, "t s" if strong else "t", "middle")


def leaving(rows: Sequence[Leaving], now_s: float, width: float) -> Drawing:
    """For each peer the time of a token without it, beside the present one."""
    shown = Drawing(width, "Milliseconds a token if one of the peers left")
    left = 0.0 if shown.narrow else 150.0
    right = 8.0 if shown.narrow else 330.0
    most = max([now_s, *(row.decode_s for row in rows if row.decode_s is not None)])
    scale = (width - left - right - 70) / most if most else 0.0
    y = 20.0
    rule = left + now_s * scale
    shown.text(max(rule, 30.0), 11, f"now {ms(now_s)}", "d", "middle")
    for row in rows:
        bar_y = y + (20 if shown.narrow else 4)
        if shown.narrow:
            shown.text(0, y + 13, fit(row.peer, width - 4, 13), "t s")
        else:
            shown.text(0, bar_y + 14, fit(row.peer, left - 12, 13), "t")
        if row.decode_s is None:
            shown.rect(left, bar_y, (most * scale), 19, "hc")
            shown.text(left + most * scale + 6, bar_y + 14, "no plan", "bad s")
        else:
            shown.rect(left, bar_y, row.decode_s * scale, 19, "fa" if row.decode_s <= now_s * 1.02 else "fb")
            shown.text(left + row.decode_s * scale + 6, bar_y + 14, ms(row.decode_s), "t")
        shown.line(rule, bar_y - 4, rule, bar_y + (23 if shown.narrow else 30), "dash")
        if shown.narrow:
            for line in wrapped(row.words, width, 3):
                shown.text(0, bar_y + 35, line, "d")
                bar_y += 16
            y = bar_y + 30
        else:
            lines = wrapped(row.words, right - 16, 3)
            for at, line in enumerate(lines):
                shown.text(width - right + 16, bar_y + 14 + 15 * at - (7 if len(lines) > 1 else 0), line, "d")
            y += 38 + 15 * (len(lines) > 2)
    return shown


def wrapped(text: str, width: float, lines: int, size: float = 12) -> list[str]:
    """`text` in at most so many lines."""
    most, found = max(8, int(width / (0.53 * size))), [""]
    for word in text.split():
        if len(found[-1]) + 1 + len(word) > most and found[-1]:
            if len(found) == lines:
                found[-1] = found[-1][: most - 1].rstrip() + "…"
                return found
            found.append(word)
        else:
            found[-1] = f"{found[-1]} {word}".strip()
    return found
