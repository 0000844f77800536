"""The page of a history: its charts and tables, from what planner.reports.history_report gathered."""

from __future__ import annotations

import math
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Final

from planner.cost.wording import ONCE_MORE, ms
from planner.reports.page_kit import Part, Plot, bar, figure, figures, key, marks, page, rows, section, table

if TYPE_CHECKING:  # it is drawn from its data; DuckDB is not needed here
    from planner.history.reading import Seen

_LINES: Final = (  # marks and lines of the classes
    ("a", "stroke:var(--a);stroke-width:2"),
    ("b square", "stroke:var(--b);stroke-width:2"),
    ("a2", "stroke:var(--a2);stroke-width:2"),
    ("ink square", "stroke:var(--ink);stroke-width:2"),
    ("dotted", "stroke:var(--dim);stroke-width:2;stroke-dasharray:5 3"),
)
_MOST_ROWS: Final = 14  # of a table


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
            over_time(seen),
            key(*((_LINES[at][0], name) for at, name in enumerate(seen.lines))),
        )
    if seen.by_provider:
        body += section(
            "By browser and provider",
            "One unit, one token: 10th to 90th percentile, in milliseconds; the mark at the median. Logarithmic.",
            by_provider(seen),
        )
    if seen.predicted:
        body += section(
            "Predicted against measured",
            "Each point is a plan: what it promised for one session, and its answers' median. Grey: within 10\u00a0%.",
            predicted(seen),
            f"<p>Unit times: {escape(seen.gate)}.{_again(seen.again)}</p>",
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


def _hazard(ended: int, seconds: float) -> str:
    return f"{seconds / ended / 3600:.1f} h" if ended else "nobody left"


def over_time(seen: Seen) -> str:
    """Lines of median token times."""
    shown_rows = [row for row in seen.over_time if row["classes"] in seen.lines]
    first, last = (edge(row["at_hour"] for row in shown_rows).timestamp() for edge in (min, max))
    span = max(3600.0, last - first)
    most = 1.1 * max(row["token_s"] for row in shown_rows) * 1000
    form = "%H:%M" if span < 2 * 86_400 else "%b %d"
    days = [first + span * place / 4 for place in range(5)]
    plot = Plot(
        "Milliseconds a token over time, by the classes of peers", (first, first + span), (0, most), 230
    )
    dates = [(at, f"{datetime.fromtimestamp(at):{form}}") for at in days]
    plot.grid(dates, marks(most, 5), "", "ms a token")
    for (look, line), name in zip(_LINES, seen.lines, strict=False):
        mine = [row for row in shown_rows if row["classes"] == name]
        points = [(row["at_hour"].timestamp(), 1000 * row["token_s"]) for row in mine]
        if len(points) > 1:
            plot.line(points, line)
        for x, y in points[:: max(1, len(points) // 14)]:
            plot.dot(x, y, look, name)
    return plot.html()


def by_provider(seen: Seen) -> str:
    """A range for each browser, provider and kind."""
    found = seen.by_provider[:24]
    low = math.log(min(row["low_s"] for row in found) * 800)
    whole = math.log(max(row["high_s"] for row in found) * 1200) - low
    entries = []
    for row in found:
        ends = [math.log(row[name] * 1000) - low for name in ("low_s", "seconds", "high_s")]
        light, strong = ("a2", "a") if row["kind"] == "attn" else ("b2", "b")
        at, mark = ends[1], 0.006 * whole
        parts = (
            Part(light, "10th to 90th percentile", ends[0], ends[2]),
            Part(strong, "median", at - mark, at + mark),
        )
        drawn = bar(parts, 1.25 * whole, after=figure(row["seconds"] * 1000))
        spread = f"{figure(1000 * row['low_s'])} to {figure(1000 * row['high_s'])}"
        name = f"{row['browser']} {row['provider']}, {row['kind']}"
        entries.append((name, drawn, f"{spread} ms, {row['runs']:,} runs"))
    return rows(entries)


def predicted(seen: Seen) -> str:
    """Points around the diagonal."""
    pairs = [(1000 * row["predicted_s"], 1000 * row["token_s"], row["classes"]) for row in seen.predicted]
    most = 1.1 * max(max(x, y) for x, y, _ in pairs)
    plot = Plot("Predicted and measured milliseconds a token", (0, most), (0, most), 340)
    plot.grid(marks(most, 5), marks(most, 5), "predicted, ms a token", "measured, ms a token")
    band = ((0, 0), (most / 1.1, most), (most, most), (most, 0.9 * most), (0, 0))
    plot.line(band, "fill:var(--soft);stroke:none")
    plot.line(((0, 0), (most, most)))
    for x, y, classes in pairs:
        plot.dot(x, y, "a", classes)
    return plot.html()


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
