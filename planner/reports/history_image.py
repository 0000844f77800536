"""Draws a history as one PNG: speed over time, by browser and provider, predicted against measured, and outliers.

Readable in grey: lines differ by marker and brightness, areas by length and number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import matplotlib

from planner.history.reading import Seen

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

INK: Final = "#1c1f23"
DIM: Final = "#5b6168"
LOOKS: Final = (("#1f5d8c", "o"), ("#c26a12", "s"), ("#7fb3d5", "^"), ("#1c1f23", "x"), ("#8b8f94", "D"))


def draw(file: Path, seen: Seen) -> None:
    """Writes the picture."""
    groups = len(seen.by_provider)
    figure = Figure(figsize=(12, 8.4 + 0.12 * max(0, groups - 12)), dpi=110, layout="constrained")
    panels = figure.subplots(2, 2, width_ratios=(3, 2))
    _over_time(panels[0][0], seen)
    _by_provider(panels[1][0], seen)
    _predicted(panels[0][1], seen)
    _anomalies(panels[1][1], seen)
    figure.savefig(file)


def _title(axes: Axes, words: str, rows: int) -> None:
    axes.set_title(words, loc="left", fontsize=11, color=INK)
    axes.tick_params(colors=DIM, labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if not rows:
        axes.text(0.5, 0.5, "nothing was recorded yet", ha="center", color=DIM, transform=axes.transAxes)
        axes.set_xticks([])
        axes.set_yticks([])


def _over_time(axes: Axes, seen: Seen) -> None:
    _title(axes, "speed over time: ms a token, median of each hour", len(seen.over_time))
    for (colour, mark), name in zip(LOOKS, seen.lines, strict=False):
        rows = [row for row in seen.over_time if row["classes"] == name]
        times = [row["at_hour"] for row in rows]
        axes.fill_between(
            times,
            [r["token_s"] * 1000 for r in rows],
            [r["p90_s"] * 1000 for r in rows],
            color=colour,
            alpha=0.15,
        )
        every = max(1, len(rows) // 12)
        axes.plot(
            times,
            [r["token_s"] * 1000 for r in rows],
            color=colour,
            marker=mark,
            markersize=4,
            markevery=every,
            linewidth=1.2,
            label=name if len(name) <= 60 else f"{name[:59]}…",
        )
    if seen.over_time:
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        axes.set_ylim(0, axes.get_ylim()[1] * (1 + 0.07 * len(seen.lines)))
        axes.set_ylabel("ms a token", fontsize=9, color=DIM)
        axes.legend(fontsize=7, frameon=False, loc="upper left")


def _by_provider(axes: Axes, seen: Seen) -> None:
    rows = seen.by_provider[::-1]
    _title(axes, "by browser and provider: ms of one unit, 10th, 50th and 90th percentile", len(rows))
    if not rows:
        return
    for at, row in enumerate(rows):
        colour, mark = LOOKS[0] if row["kind"] == "attn" else LOOKS[1]
        axes.plot(
            [row["low_s"] * 1000, row["high_s"] * 1000], [at, at], color=colour, linewidth=5, alpha=0.35
        )
        axes.plot([row["seconds"] * 1000], [at], color=colour, marker=mark, markersize=6)
    axes.set_yticks(
        range(len(rows)), [f"{r['browser']} {r['provider']} · {r['kind']} ({r['runs']:,})" for r in rows]
    )
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("ms a token (log)", fontsize=9, color=DIM)


def _predicted(axes: Axes, seen: Seen) -> None:
    rows = seen.predicted
    _title(axes, "predicted against measured: ms a token", len(rows))
    if not rows:
        return
    xs = [row["predicted_s"] * 1000 for row in rows]
    ys = [row["token_s"] * 1000 for row in rows]
    most = 1.1 * max(*xs, *ys)
    axes.fill_between([0, most], [0, 0.9 * most], [0, 1.1 * most], color=INK, alpha=0.08, linewidth=0)
    axes.plot([0, most], [0, most], color=INK, linewidth=1)
    axes.scatter(xs, ys, s=14, color=LOOKS[0][0], alpha=0.7)
    axes.set_xlim(0, most)
    axes.set_ylim(0, most)
    axes.set_xlabel("predicted by the plan (band: 10 % either way)", fontsize=9, color=DIM)
    axes.set_ylabel("measured", fontsize=9, color=DIM)


def _anomalies(axes: Axes, seen: Seen) -> None:
    rows = seen.anomalies[::-1]
    _title(axes, "what stands out: answers, in times the usual", 1)
    if not rows:
        axes.text(0.5, 0.5, "nothing", ha="center", color=DIM, transform=axes.transAxes)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    times = [row["token_s"] / row["mid"] for row in rows]
    axes.barh(range(len(rows)), times, color=LOOKS[1][0], alpha=0.45, height=0.65)
    for at, (row, value) in enumerate(zip(rows, times, strict=True)):
        words = f"{value:.1f}x, {row['token_s'] * 1000:.0f} ms, {row['classes']:.40}"
        axes.text(1 + 0.02 * max(times), at, words, va="center", fontsize=8, color=INK)
    axes.set_yticks(range(len(rows)), [f"{row['seen']:%m-%d %H:%M}" for row in rows])
    axes.axvline(1, color=INK, linewidth=1)
    axes.set_xlim(0, 1.1 * max(times))
    axes.set_ylim(min(-0.6, len(rows) - 6.4), len(rows) - 0.4)  # few rows do not become walls
