"""Decides what a report of the kept results shows: one page of HTML with tables and words, and its picture as PNG.

Edge over DuckDB and files; the words are `peer.validation.reports.advice`'s, the picture is
`peer.validation.reports.charts`'s.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from peer.errors import StateUnusable
from peer.validation.reports.advice import Seen, advice
from peer.validation.reports.results import Results
from peer.validation.scenarios.faults import MEANING, Name
from planner.reports.page_kit import listed, page, section, table

LEVELS: Final = ("basic", "standard", "high", "critical")


def write_report(results: Results, folder: Path) -> tuple[Path, Path]:
    """Writes validation.html and validation.png; returns where. Raises StateUnusable."""
    try:
        from peer.validation.reports.charts import draw
    except ImportError as error:
        raise StateUnusable("the picture needs matplotlib: install shoal-mesh[validate]") from error
    seen, costs = gathered(results), cost_rows(results)
    soaks = soak_rows(results)
    rates = {name: row["tok_s"] for name, row in costs.items()}
    words = advice(seen, rates)
    page, picture = folder / "validation.html", folder / "validation.png"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draw(picture, seen, costs, soaks)
        page.write_text(_page(seen, costs, words, picture.read_bytes(), results), encoding="utf-8")
    except OSError as error:
        raise StateUnusable(
            f"{folder}: expected a folder to write the report to: {error.strerror}"
        ) from error
    return page, picture


def gathered(results: Results) -> list[Seen]:
    """All kept runs, by level and scenario in their usual order."""
    runs = results.rows(
        "select s.level, s.seed, r.* from runs r join started s on s.id = r.started order by r.started, r.number"
    )
    answers = results.rows(
        "select s.level, a.*, r.primary_hit from answers a join started s on s.id = a.started "
        "join runs r on r.started = a.started and r.scenario = a.scenario and r.number = a.number"
    )
    found = []
    order = [name.value for name in Name]
    for level in sorted({run["level"] for run in runs}, key=lambda level: (_rank(level), level)):
        for scenario in order:
            mine = [run for run in runs if (run["level"], run["scenario"]) == (level, scenario)]
            if mine:
                its = [a for a in answers if (a["level"], a["scenario"]) == (level, scenario)]
                found.append(_seen(level, scenario, mine, its))
    return found


def _rank(level: str) -> int:
    name = level.split()[0]  # settings given alone follow it
    return LEVELS.index(name) if name in LEVELS else len(LEVELS)


def _seen(level: str, scenario: str, runs: list[dict[str, Any]], answers: list[dict[str, Any]]) -> Seen:
    kv = [run["kv_equal"] for run in runs if run["kv_equal"] is not None]
    slowdowns = [a["slowdown"] for a in answers if a["completed"]]
    return Seen(
        level=level,
        scenario=scenario,
        runs=len(runs),
        completed=_share([a["completed"] for a in answers]),
        equal=_share([a["first_difference"] == -1 for a in answers]),
        kv_equal=_share(kv) if kv else None,
        recoveries_ms=tuple(
            a["recovery_s"] * 1000 for a in answers if a["recovery_s"] is not None and a["primary_hit"]
        ),
        slowdown=median(slowdowns) if slowdowns else None,
        replayed_bytes=sum(run["replayed_bytes"] for run in runs),
        restored_s=tuple(run["restored_s"] for run in runs if run["restored_s"] is not None),
        seeds=tuple(sorted({run["seed"] for run in runs})),
        bad_runs=tuple((run["seed"], run["number"]) for run in runs if not _held(run)),
    )


def _held(run: dict[str, Any]) -> bool:
    return bool(
        run["completed"]
        and run["equal"]
        and run["kv_equal"] is not False
        and run["restored_s"] is not None
        and not run["trouble"]
    )


def cost_rows(results: Results) -> dict[str, dict[str, float]]:
    """Medians of the last cost measurement, by how standbys were fed."""
    rows = results.rows("select * from costs where started = (select max(started) from costs) order by round")
    return {
        shadow: {
            name: median(row[name] for row in rows if row["shadow"] == shadow)
            for name in ("tok_s", "rss_bytes", "weight_bytes", "kv_bytes")
        }
        for shadow in dict.fromkeys(row["shadow"] for row in rows)
    }


def soak_rows(results: Results) -> list[dict[str, Any]]:
    """The readings of the last soak."""
    return results.rows(
        "select * from soaks where started = (select max(started) from soaks) order by sessions"
    )


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values) if values else 0.0


def _page(
    seen: list[Seen], costs: dict[str, dict[str, float]], words: list[str], picture: bytes, results: Results
) -> str:
    starts = results.rows("select * from started order by id desc limit 1")
    of = starts[0] if starts else {}
    setting = (
        f"{of.get('machine', '')}; last start: {of.get('peers')} peers, {of.get('stages')} stages, "
        f"{of.get('sessions')} answers of {of.get('tokens')} tokens at a time, {of.get('weights')} weights, "
        f"seed {of.get('seed')}"
    )
    image = base64.b64encode(picture).decode()
    body = f'<h1>What answers survive</h1><p class="lead">{html.escape(setting)}</p>'
    body += section("What to change", "", listed(words))
    body += section(
        "Scenarios",
        "Recovery is the time between the tokens around the fault, less the usual gap, of the answers that needed the "
        "peer which was hit. Slowdown is the time of the whole answer, over that of the undisturbed one.",
        _scenario_table(seen),
    )
    body += _costs(costs)
    body += section(
        "Picture",
        "",
        '<img alt="Recovery times, shares of answers that held, cost of protection and a soak" '
        f'src="data:image/png;base64,{image}">',
    )
    body += section(
        "What the scenarios do", "", listed(f"{name.value}: {meaning}" for name, meaning in MEANING.items())
    )
    return page("Shoal: what answers survive", body)


def _scenario_table(seen: list[Seen]) -> str:
    heads = "level,scenario,runs,complete,equal,caches equal,recovery p50,p95,slowdown,replayed,whole again"
    rows = [
        (
            one.level,
            one.scenario,
            str(one.runs),
            f"{one.completed:.1%}",
            f"{one.equal:.1%}",
            "-" if one.kv_equal is None else f"{one.kv_equal:.1%}",
            _ms(one.p50_ms),
            _ms(one.p95_ms),
            "-" if one.slowdown is None else f"{one.slowdown:.2f}x",
            f"{one.replayed_bytes / 1e6:.1f} MB",
            f"{median(one.restored_s):.1f} s" if one.restored_s else "-",
        )
        for one in seen
    ]
    bad = frozenset(at for at, one in enumerate(seen) if not one.held)
    return table(heads.split(","), rows, bad=bad)


def _costs(costs: dict[str, dict[str, float]]) -> str:
    if not costs:
        return ""
    rows = [
        (
            shadow,
            f"{row['tok_s']:.1f}",
            f"{row['rss_bytes'] / 2**20:.0f} MiB",
            f"{row['kv_bytes'] / 2**20:.0f} MiB",
        )
        for shadow, row in costs.items()
    ]
    heads = ("standbys are fed by", "tok/s of one answer", "memory of all peers", "of it KV")
    return section("What protection costs", "", table(heads, rows))


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"
