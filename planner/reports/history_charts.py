"""Decides what the page of a history shows: the charts of planner.reports.history_report as inline SVG, and its
tables.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from planner.cost.wording import ONCE_MORE, ms
from planner.reports.svg import (
    Anchor,
    Drawing,
    both,
    figure,
    figures,
    fit,
    key,
    number,
    page,
    section,
    table,
    ticks,
)

if TYPE_CHECKING:  # it is drawn from its data; DuckDB is not needed here
    from planner.history.reading import Seen

_LINES: Final = (("fa", "o"), ("fb", "s"), ("fa2", "o"), ("fi", "s"), ("hc", "o"))
_MOST_ROWS: Final = 14  # of a table
_STROKES: Final = ("var(--a)", "var(--b)", "var(--a2)", "var(--ink)", "var(--dim)")


def history_page(seen: Seen) -> str:
    """The whole page."""
    body = "<h1>What was measured</h1>"
    if not sum(seen.sizes.values()):
        return page("What was measured", body + "<p>Nothing yet: `shoal serve` writes a history.</p>")
    answers = sum(row["answers"] for row in seen.over_time)
    body += (
        f'<p class="lead">From {seen.since} to {seen.until} UTC. '
        "No prompt or answer is kept, only times and counts.</p>"
    )
    errors = sorted(abs(row["token_s"] / row["predicted_s"] - 1) for row in seen.predicted)
    body += figures(
        (f"{seen.sizes['sessions']:,}", "answers"),
        (f"{seen.sizes['units']:,}", "measured unit times"),
        (f"{seen.sizes['recoveries']:,}", "losses of serving peers"),
        (f"{errors[len(errors) // 2]:.0%}" if errors else "-", "median error of plans"),
    )
    if answers:
        body += section(
            "Speed over time",
            "Milliseconds a token, median of each hour, by the classes of peers on the route.",
            both(lambda width: over_time(seen, width)),
            key(*((_LINES[at][0], name) for at, name in enumerate(seen.lines))),
        )
    if seen.by_provider:
        body += section(
            "By browser and provider",
            "One unit, one token: 10th to 90th percentile, the mark at the median. The axis is logarithmic.",
            both(lambda width: by_provider(seen, width)),
        )
    if seen.predicted:
        body += section(
            "Predicted against measured",
            "Each point is a plan: what it promised for one session, and its answers' median. Grey: within 10\u00a0%.",
            both(lambda width: predicted(seen, width)),
            f"<p>Unit times: {_plain(seen.gate)}.{_again(seen.again)}</p>",
        )
    body += section("What stands out", "", _anomalies(seen))
    if seen.recoveries:
        rows = [
            (
                row["device_class"] or "unknown",
                "polite" if row["polite"] else "lost",
                str(row["losses"]),
                "-" if row["seconds"] is None else ms(row["seconds"]),
                "-" if row["worst_s"] is None else ms(row["worst_s"]),
                str(row["never"]),
            )
            for row in seen.recoveries
        ]
        body += section(
            "Losses",
            "How long the mesh could not serve after a peer that served was gone.",
            table(("class", "how", "times", "median", "worst", "never again"), rows),
        )
    if seen.stays:
        told = [
            (name, condition or "as usual", str(ended), f"{seconds / 3600:.1f} h", _hazard(ended, seconds))
            for name, condition, ended, seconds in sorted(seen.stays, key=lambda row: -row[3])[:_MOST_ROWS]
        ]
        body += section(
            "How long peers stay",
            "The classes that were here longest, as usual or under a condition.",
            table(("class", "condition", "left", "stayed in all", "leaves every"), told),
        )
    return page("What was measured", body)


def _again(count: int) -> str:
    return f" Measurements of peers that were made {ONCE_MORE}: {count}." if count else ""


def _plain(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _hazard(ended: int, seconds: float) -> str:
    return f"{seconds / ended / 3600:.1f} h" if ended else "nobody left"


def over_time(seen: Seen, width: float) -> Drawing:
    """Lines of median token times."""
    shown = Drawing(width, "Milliseconds a token over time, by the classes of peers")
    left, top, tall = 44.0, 22.0, 230.0
    rows = [row for row in seen.over_time if row["classes"] in seen.lines]
    first, last = min(row["at_hour"] for row in rows), max(row["at_hour"] for row in rows)
    span = max(3600.0, (last - first).total_seconds())
    most = 1.1 * max(row["token_s"] for row in rows) * 1000
    bottom = top + tall

    def at(row: dict[str, Any], name: str) -> tuple[float, float]:
        x = left + (row["at_hour"] - first).total_seconds() / span * (width - left - 10)
        return x, bottom - min(most, row[name] * 1000) / most * tall

    for value in ticks(most, 5):
        y = bottom - value / most * tall
        shown.line(left, y, width, y, "grid")
        shown.text(left - 7, y + 4, figure(value), "d", "end")
    shown.text(0, 10, "ms a token", "d")
    _dates(shown, first, span, left, bottom)
    for count, name in enumerate(seen.lines):
        mine = [row for row in rows if row["classes"] == name]
        points = [at(row, "token_s") for row in mine]
        look, mark = _LINES[count]
        dashed = ' stroke-dasharray="5 3"' if look == "hc" else ""
        if len(points) > 1:
            d = "".join(
                f"{'L' if place else 'M'}{number(x)} {number(y)}" for place, (x, y) in enumerate(points)
            )
            shown.parts.append(
                f'<path d="{d}" fill="none" stroke="{_STROKES[count]}" stroke-width="1.8"{dashed}/>'
            )
        step = max(1, len(points) // 14)
        for x, y in points[::step]:
            if mark == "o":
                shown.dot(x, y, 3.4, look)
            else:
                shown.rect(x - 3, y - 3, 6, 6, look)
    return shown


def _dates(shown: Drawing, first: datetime, span: float, left: float, bottom: float) -> None:
    count = 3 if shown.narrow else 6
    for place in range(count + 1):
        when = datetime.fromtimestamp(first.timestamp() + span * place / count)
        x = left + (shown.width - left - 10) * place / count
        form = "%H:%M" if span < 2 * 86_400 else "%b %d"
        anchor: Anchor = "end" if place == count else "middle"
        shown.text(x + (10 if place == count else 0), bottom + 18, f"{when:{form}}", "d", anchor)


def by_provider(seen: Seen, width: float) -> Drawing:
    """A range for each browser, provider and kind."""
    shown = Drawing(width, "Milliseconds of one unit by browser and provider")
    rows = seen.by_provider[:24]
    left = 4.0 if shown.narrow else 250.0
    right = 60.0
    low = math.log(min(row["low_s"] for row in rows) * 1000 * 0.8)
    high = math.log(max(row["high_s"] for row in rows) * 1000 * 1.2)
    scale = (width - left - right) / max(1e-9, high - low)
    row_tall = 44.0 if shown.narrow else 26.0
    bottom = 6 + row_tall * len(rows)
    for power in range(math.floor(low / math.log(10)), math.ceil(high / math.log(10)) + 1):
        for step in (1, 2, 5):
            value = step * 10.0**power
            x = left + (math.log(value) - low) * scale
            if left - 1 <= x <= width - right + 1:
                shown.line(x, 4, x, bottom, "grid")
                shown.text(x, bottom + 16, figure(value), "d", "middle")
    shown.text(width, bottom + 32, "ms a token", "d", "end")
    for at, row in enumerate(rows):
        y = 6 + at * row_tall
        told = f"{row['browser']} {row['provider']}, {row['kind']}"
        bar_y = y + (20 if shown.narrow else 5)
        if shown.narrow:
            shown.text(0, y + 13, f"{fit(told, width - 90, 13)}", "t")
            shown.text(width, y + 13, f"{row['runs']:,} runs", "d", "end")
        else:
            shown.text(0, bar_y + 12, fit(told, left - 90, 13), "t")
            shown.text(left - 14, bar_y + 12, f"{row['runs']:,} runs", "d", "end")
        x1, xm, x2 = (
            left + (math.log(row[name] * 1000) - low) * scale for name in ("low_s", "seconds", "high_s")
        )
        light, strong = ("fa2", "fa") if row["kind"] == "attn" else ("fb2", "fb")
        shown.rect(x1, bar_y + 3, max(2.0, x2 - x1), 10, light, radius=5)
        if row["kind"] == "attn":
            shown.dot(xm, bar_y + 8, 6, strong)
        else:
            shown.rect(xm - 5.5, bar_y + 2.5, 11, 11, strong)
        shown.text(max(x2, xm) + 9, bar_y + 12, figure(row["seconds"] * 1000), "t")
    return shown


def predicted(seen: Seen, width: float) -> Drawing:
    """Points around the diagonal."""
    shown = Drawing(width, "Predicted and measured milliseconds a token")
    left, top = 46.0, 22.0
    across = min(width, 560.0) - left - 14
    tall = across * 0.72
    xs = [row["predicted_s"] * 1000 for row in seen.predicted]
    ys = [row["token_s"] * 1000 for row in seen.predicted]
    most = 1.1 * max(*xs, *ys)
    bottom = top + tall

    def place(x: float, y: float) -> str:
        return f"{number(left + x / most * across)} {number(bottom - min(y, most) / most * tall)}"

    band = f"M{place(0, 0)}L{place(most / 1.1, most)}L{place(most, most)}L{place(most, 0.9 * most)}Z"
    shown.path(band, "fs")
    for value in ticks(most, 5):
        x, y = left + value / most * across, bottom - value / most * tall
        shown.line(x, top, x, bottom, "grid")
        shown.line(left, y, left + across, y, "grid")
        shown.text(x, bottom + 17, figure(value), "d", "middle")
        shown.text(left - 7, y + 4, figure(value), "d", "end")
    shown.path(f"M{place(0, 0)}L{place(most, most)}", "thin")
    for row, x, y in zip(seen.predicted, xs, ys, strict=True):
        shown.dot(left + x / most * across, bottom - y / most * tall, 3.6, "fa", row["classes"])
    shown.text(0, 11, "measured, ms a token", "d")
    shown.text(left + across, bottom + 34, "predicted, ms a token", "d", "end")
    return shown


def _anomalies(seen: Seen) -> str:
    if not seen.anomalies:
        return "<p>Nothing: no answer was far from the usual of its plan.</p>"
    rows = [
        (
            f"{row['seen']:%Y-%m-%d %H:%M}",
            f"{row['token_s'] / row['mid']:.1f}x",
            ms(row["token_s"]),
            ms(row["mid"]),
            ms(row["longest_s"]),
            row["classes"],
        )
        for row in seen.anomalies
    ]
    said = "<p>Answers far slower than is usual for their plan.</p>"
    return said + table(
        ("when (UTC)", "slower", "a token", "usual", "longest gap", "peers"), rows, frozenset({5})
    )
