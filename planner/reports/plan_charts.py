"""Pictures of a plan: the chain of stages, schedules, memory, plans side by side, and who may leave.

Pure: from a request and its plan to parts of planner.reports.page_kit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Final

from planner.cost import evaluator
from planner.cost.schedules import Bar
from planner.cost.wording import mib, ms, units_text
from planner.reports.page_kit import Plot, bar, marks, rows, span, stacked
from planner.types import PlanRequest, Stage

GIB: Final = 2**30
MOST_ACROSS: Final = 3  # stages side by side; more of them, or a narrow screen, stand below each other
ROW_PX: Final = 38  # of a schedule
LOOKS: Final = ("a", "a2", "b2", "free")  # of bars that follow one another


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


def chain(request: PlanRequest, stages: Sequence[Stage]) -> str:
    """Stages as boxes, with the hop that follows each; the way back below."""
    found = evaluator.evaluate(request, stages)
    hops = [
        f"{ms(seconds)}, {_bytes(request.units[stage.stop - 1].out_bytes_per_token)} a token"
        for stage, seconds in zip(stages, found.hop_s, strict=False)
    ]
    items = ""
    for at, stage in enumerate(stages):
        share = found.stage_s[at] / found.decode_s if found.decode_s else 0.0
        peers = " + ".join(stage.team)
        together = f"a team, in shares {':'.join(map(str, stage.shares))}"
        standby = f"stands by: {', '.join(stage.standbys)}" if stage.standbys else "nobody stands by"
        words = (
            f"{units_text(request, stage.first, stage.stop)}",
            f"computes {ms(found.stage_s[at])}, {share:.0%} of the time",
            f"{together}; {standby}" if stage.helpers else standby,
        )
        units, computes, who = (f"<p>{escape(line)}</p>" for line in words)
        drawn = bar(stacked(("a", f"{share:.0%} of a token's time", share)), 1.0, look="low")
        hop = f'<p class="hop">{hops[at].replace(", ", "<br>")}</p>' if at + 1 < len(stages) else ""
        items += (
            f'<li><div class="stage"><p><span class="no1 a">{at + 1}</span> <b>{escape(peers)}</b></p>'
            f"{units}{drawn}{computes}{who}</div>{hop}</li>"
        )
    back = f"<small>The token goes back: {hops[-1]}.</small>" if len(stages) > 1 else ""
    return f'<ol class="chain{" down" if len(stages) > MOST_ACROSS else ""}">{items}</ol>{back}'


def _bytes(count: int) -> str:
    return f"{count} B" if count < 1024 else f"{count / 1024:.1f} KiB" if count < 2**20 else mib(count)


def schedule(stages: Sequence[Stage], bars: Sequence[Bar], label: str) -> str:
    """Time from left to right, a row for each stage; thin lines are hops."""
    end, count = 1000 * max(each.stop_s for each in bars), len(stages)
    shown = Plot(label, (0, end), (0, count), ROW_PX * count, named=True)
    names = [(count - at - 0.5, f"{at + 1} {stage.peer}") for at, stage in enumerate(stages)]
    shown.grid(marks(end, 6), names, "milliseconds")
    last_s = {(each.group, each.stage): each.start_s for each in bars}  # of each batch at each stage
    for each in bars:
        follower = (each.stage + 1) % count
        if count > 1 and last_s.get((each.group, follower), 0.0) >= each.there_s > each.stop_s:
            ends = ((each.stop_s, each.stage), (each.there_s, follower))
            shown.line((1000 * seconds, names[stage][0]) for seconds, stage in ends)
    for each in bars:
        title = f"{each.what}: {ms(each.start_s)} to {ms(each.stop_s)}"
        look, place = LOOKS[each.group % len(LOOKS)], names[each.stage][0]
        shown.work(1000 * each.start_s, 1000 * each.stop_s, place, look, title, each.what)
    return shown.html()


def memory(request: PlanRequest, stages: Sequence[Stage]) -> str:
    """A bar for each peer: what it lends, and what takes it."""
    peers = evaluator.profiles(request)
    most = max([peer.memory_bytes for peer in request.peers] + [1])
    runs = evaluator.runs_by_peer(stages)
    serving = evaluator.runs_by_peer([replace(stage, standbys=()) for stage in stages])
    entries = []
    for name in dict.fromkeys([*(name for stage in stages for name in stage.team), *sorted(peers)]):
        peer, mine = peers[name], serving.get(name, set())
        own = [evaluator.stage_bytes(request, peer, *run) for run in mine]
        spare = [evaluator.stage_bytes(request, peer, *run) for run in runs.get(name, set()) - mine]
        counts = (
            ("a", "weights", sum(w for w, _, _ in own)),
            ("striped", "KV of all promised sessions", sum(kv for _, kv, _ in own)),
            ("dotted", "standby: weights and KV", sum(w + kv for w, kv, _ in spare)),
            ("ink", "the program itself", peer.overhead_bytes if runs.get(name) else 0),
        )
        used, lent = sum(count for _, _, count in counts), peer.memory_bytes
        parts = stacked(
            *((look, f"{what}: {size(count)}", count) for look, what, count in counts),
            ("no", "free", max(0, lent - used)),
        )
        share = f"{size(used)} of {size(lent)} ({used / max(1, lent):.0%})"
        entries.append((name, bar(parts, most), share if used else f"lends {size(lent)}, idle"))
    return rows(entries)


def front(choices: Sequence[Choice]) -> str:
    """Every plan as a point: to the left is faster for one, upwards more for all."""
    xs, ys = span([1000 * each.decode_s for each in choices]), span([each.tokens_per_s for each in choices])
    shown = Plot("Plans by milliseconds a token and by tokens a second of all sessions", xs, ys)
    words = ("ms a token, one session", "tokens a second, all sessions")
    shown.grid(
        marks(xs[1], 6, xs[0]),
        marks(ys[1], 5, ys[0]),
        *(
            f"{each}{' (not from 0 on)' if ends[0] else ''}"
            for each, ends in zip(words, (xs, ys), strict=True)
        ),
    )
    best = sorted((1000 * each.decode_s, each.tokens_per_s) for each in choices if each.on_front)
    if len(best) > 1:
        shown.line(best, "stroke:var(--a);stroke-width:2;stroke-dasharray:6 4")
    for count, each in enumerate(choices, start=1):
        look = f"large {'a' if each.on_front else 'free'}{' chosen' if each.chosen else ''}"
        shown.dot(1000 * each.decode_s, each.tokens_per_s, look, each.words, str(count))
    return shown.html()


def leaving(losses: Sequence[Leaving], now_s: float) -> str:
    """For each peer the time of a token without it, beside the present one."""
    most = max([now_s, *(each.decode_s for each in losses if each.decode_s is not None)]) or 1.0
    entries = []
    for each in losses:
        slower = each.decode_s is not None and each.decode_s > now_s * 1.02
        look = "dotted" if each.decode_s is None else "b" if slower else "a"
        after = "no plan" if each.decode_s is None else ms(each.decode_s)
        drawn = bar(
            stacked((look, each.words, most if each.decode_s is None else each.decode_s)),
            1.25 * most,
            now_s,
            after,
        )
        entries.append((each.peer, drawn, each.words))
    return f"<small>The dashed line is now: {ms(now_s)}.</small>{rows(entries)}"
