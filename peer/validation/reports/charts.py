"""Draws the kept results: recovery times as distributions, shares that held, cost of protection, a soak.

Readable in grey: levels differ by marker and brightness, shares by length and number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib
import numpy as np

from peer.validation.reports.advice import HARDLY_NOTICED_MS, Seen

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_MARKS: Final = {"basic": "x", "standard": "o", "high": "^", "critical": "s"}
_GREYS: Final = {"basic": "#8c8c8c", "standard": "#1b4f8a", "high": "#e08a2e", "critical": "#111111"}
MEDIAN_WANTED_MS: Final = 300.0
LEAST_MS: Final = 1.0  # of a logarithmic axis
PANEL_IN: Final = 3.4
LEAST_GROWTH_MIB: Final = 20.0  # of the axis: less is noise of allocators


def draw(
    file: Path,
    seen: Sequence[Seen],
    costs: Mapping[str, Mapping[str, float]],
    soaks: Sequence[dict[str, Any]],
) -> None:
    """Writes the picture as PNG."""
    lower = bool(costs) + bool(soaks)
    rows = max(1, len({one.scenario for one in seen}))
    tall = 1.2 + 0.24 * len(seen) + 0.3 * rows
    figure = Figure(figsize=(12, tall + (PANEL_IN if lower else 0)), dpi=110, layout="constrained")
    parts = figure.subfigures(
        2 if lower else 1, 1, height_ratios=(tall, PANEL_IN)[: 2 if lower else 1], squeeze=False
    )
    upper, under = parts[0, 0], parts[1, 0] if lower else None
    recovery, shares = upper.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    places = _places(seen)
    _recoveries(recovery, seen, places)
    _shares(shares, seen, places)
    if under is not None:
        panels = iter(np.atleast_1d(under.subplots(1, lower)))
        if costs:
            _cost(next(panels), costs)
        if soaks:
            _soak(next(panels), soaks)
    figure.savefig(file)


def _places(seen: Sequence[Seen]) -> dict[tuple[str, str], float]:
    """Heights of the rows, from the top: scenarios together, their levels below one another."""
    found: dict[tuple[str, str], float] = {}
    height = 0.0
    for scenario in dict.fromkeys(one.scenario for one in seen):
        for one in (one for one in seen if one.scenario == scenario):
            found[scenario, one.level] = height
            height -= 1.0
        height -= 0.6
    return found


def _label_rows(axes: Axes, seen: Sequence[Seen], places: Mapping[tuple[str, str], float]) -> None:
    several = len({one.level for one in seen}) > 1
    axes.set_yticks(
        [places[one.scenario, one.level] for one in seen],
        [f"{one.scenario.replace('_', ' ')}{f' · {one.level}' if several else ''}" for one in seen],
    )
    axes.tick_params(axis="y", length=0)


def _recoveries(axes: Axes, seen: Sequence[Seen], places: Mapping[tuple[str, str], float]) -> None:
    axes.set_title("time without a token because of the fault", loc="left", fontsize=11)
    _label_rows(axes, seen, places)
    spread = np.random.default_rng(0)
    for one in seen:
        height = places[one.scenario, one.level]
        values = np.maximum(np.asarray(one.recoveries_ms), LEAST_MS)
        if not len(values):
            axes.text(LEAST_MS * 1.2, height, "not hit", va="center", fontsize=8, color="#555555")
            continue
        color = _GREYS.get(one.level.split()[0], "#111111")
        jitter = height + spread.uniform(-0.22, 0.22, len(values))
        axes.scatter(
            values,
            jitter,
            s=9,
            marker=_MARKS.get(one.level.split()[0], "o"),
            color=color,
            alpha=0.5,
            linewidths=0.7,
        )
        p50, p95 = one.p50_ms or 0.0, one.p95_ms or 0.0
        axes.plot([max(p50, LEAST_MS)] * 2, [height - 0.36, height + 0.36], color="#111111", linewidth=2.2)
        axes.plot(
            [max(p95, LEAST_MS)] * 2,
            [height - 0.3, height + 0.3],
            color="#111111",
            linewidth=1.2,
            linestyle=(0, (2, 1)),
        )
        axes.annotate(
            f"{p50:.0f} / {p95:.0f} ms",
            (1.0, height),
            xycoords=("axes fraction", "data"),
            xytext=(-4, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
        )
    axes.set_xscale("log")
    longest = max((value for one in seen for value in one.recoveries_ms), default=HARDLY_NOTICED_MS)
    axes.set_xlim(LEAST_MS, max(longest, 1000.0) * 6)
    for wanted in (MEDIAN_WANTED_MS, HARDLY_NOTICED_MS):
        axes.axvline(wanted, color="#777777", linewidth=0.8, linestyle=":")
        axes.annotate(
            f"{wanted:.0f}",
            (wanted, 0),
            xycoords=("data", "axes fraction"),
            xytext=(2, 2),
            textcoords="offset points",
            fontsize=7,
            color="#555555",
        )
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(min(places.values(), default=0.0) - 0.8, 0.8)
    axes.set_xlabel("ms, logarithmic; thick: median, dashed: 95th percentile (numbers at the right)")
    _plain(axes)


def _shares(axes: Axes, seen: Sequence[Seen], places: Mapping[tuple[str, str], float]) -> None:
    axes.set_title("answers with the tokens of the undisturbed one", loc="left", fontsize=11)
    for one in seen:
        height = places[one.scenario, one.level]
        axes.barh(height, one.completed, 0.62, color="#e4e4e4", edgecolor="#111111", linewidth=0.7)
        axes.barh(height, one.equal, 0.62, color=_GREYS.get(one.level.split()[0], "#111111"), alpha=0.85)
        text = f"{one.equal:.0%} equal, {one.completed:.0%} complete, {one.runs} runs"
        axes.text(1.02, height, text, va="center", fontsize=8)
    axes.set_xlim(0, 1.95)
    axes.set_xticks([0, 0.5, 1.0], ["0", "50%", "100%"])
    axes.tick_params(axis="y", length=0, labelleft=False)
    _plain(axes)


def _cost(axes: Axes, costs: Mapping[str, Mapping[str, float]]) -> None:
    axes.set_title("cost of protection: one answer's tokens a second", loc="left", fontsize=11)
    base = costs.get("off", next(iter(costs.values())))["tok_s"]
    for place, row in enumerate(costs.values()):
        axes.bar(
            place, row["tok_s"], 0.6, color=("#dddddd", "#999999", "#555555")[place % 3], edgecolor="#111111"
        )
        text = f"{row['tok_s']:.1f} ({row['tok_s'] / base:.0%})\n{row['rss_bytes'] / 2**20:.0f} MiB in all"
        axes.text(place, row["tok_s"], text, ha="center", va="bottom", fontsize=8)
    axes.set_xticks(range(len(costs)), list(costs))
    axes.set_ylim(0, max(row["tok_s"] for row in costs.values()) * 1.3)
    _plain(axes)


def _soak(axes: Axes, soaks: Sequence[dict[str, Any]]) -> None:
    axes.set_title("soak: memory of each process since its start, MiB over sessions", loc="left", fontsize=11)
    styles = ("-", "--", ":", "-.")
    for number, peer in enumerate(dict.fromkeys(row["peer"] for row in soaks)):
        mine = [row for row in soaks if row["peer"] == peer]
        axes.plot(
            [row["sessions"] for row in mine],
            [(row["rss_bytes"] - mine[0]["rss_bytes"]) / 2**20 for row in mine],
            styles[number % len(styles)],
            color=str(0.6 * (number % 5) / 5),
            linewidth=1.2,
            label=peer,
        )
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, -LEAST_GROWTH_MIB / 4), max(high, LEAST_GROWTH_MIB))
    axes.axhline(0, color="#777777", linewidth=0.8)
    axes.legend(fontsize=7, ncols=2, frameon=False)
    _plain(axes)


def _plain(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
