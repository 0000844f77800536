"""Decides what a report of a history says: speed over time, by browser and provider, predicted against measured, and
what stands out; as a page of HTML and as one PNG.

Edge over DuckDB and files. The sums are DuckDB's, so that a million rows take a second or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from planner.errors import HistoryUnusable
from planner.history.files import opened_copy
from planner.history.reading import Seen, cells, measured_again, rows_of, sizes, stays
from planner.predict.unit_times import Predictor, fit, samples_of

PAGE: Final = "history.html"
PICTURE: Final = "history.png"
MOST_POINTS: Final = 400  # of a chart: the latest
FAR: Final = 5.0  # times the usual spread beyond the median: an anomaly
MOST_ANOMALIES: Final = 12

_OVER_TIME: Final = """select date_trunc('hour', seen) at_hour, classes, median(token_s) token_s,
    quantile_cont(token_s, 0.9) p90_s, count(*) answers from sessions where token_s > 0
    group by all order by at_hour, classes"""
_BY_PROVIDER: Final = """select browser, provider, kind, quantile_cont(seconds, 0.1) low_s, median(seconds) as seconds,
    quantile_cont(seconds, 0.9) high_s, count(*) runs from units where phase = 'decode' and seconds > 0
    and kind in ('attn', 'ffn') group by all order by kind, seconds"""
_PREDICTED: Final = """select classes, plan, stages, median(predicted_s) predicted_s, median(token_s) token_s,
    count(*) answers, max(seen) seen from sessions where predicted_s > 0 and token_s > 0 and sessions = 1
    group by mesh, classes, plan, stages order by seen desc limit ?"""
_ANOMALIES: Final = """with usual as (select mesh, classes, plan, median(token_s) mid, mad(token_s) spread, count(*) n
    from sessions where token_s > 0 group by all having n >= 8)
    select s.seen, s.classes, s.tokens, s.token_s, u.mid, s.longest_s
    from sessions s join usual u using (mesh, classes, plan)
    where s.token_s > u.mid + ? * greatest(u.spread, 0.05 * u.mid) order by s.token_s / u.mid desc, s.seen limit ?"""
_RECOVERIES: Final = """select device_class, polite, count(*) losses, median(seconds) as seconds, max(seconds) worst_s,
    count(*) filter (where seconds is null) never from recoveries group by all order by losses desc limit 12"""


def gathered(connection: Any) -> Seen:
    """Everything the report shows."""
    found = sizes(connection)
    times = [at for _, first, last in found.values() for at in (first, last) if at is not None]
    try:
        predictor: Predictor | None = fit(samples_of(cells(connection)))
    except HistoryUnusable as error:
        predictor, gate = None, str(error)
    if predictor is not None:
        gate = predictor.gate.words()
    return Seen(
        sizes={table: int(count) for table, (count, _, _) in found.items()},
        since=f"{min(times):%Y-%m-%d %H:%M}" if times else "",
        until=f"{max(times):%Y-%m-%d %H:%M}" if times else "",
        over_time=_thinned(rows_of(connection, _OVER_TIME)),
        by_provider=rows_of(connection, _BY_PROVIDER),
        predicted=rows_of(connection, _PREDICTED, [MOST_POINTS]),
        anomalies=rows_of(connection, _ANOMALIES, [FAR, MOST_ANOMALIES]),
        recoveries=rows_of(connection, _RECOVERIES),
        stays=stays(connection),
        gate=gate,
        again=measured_again(connection),
    )


def _thinned(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Hours of each class, every so many of them where there are more than a chart can show."""
    by_class: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_class.setdefault(row["classes"], []).append(row)
    found = []
    for its in by_class.values():
        step = -(-len(its) // (MOST_POINTS // 2))
        found += its[::-1][::step][::-1]  # the latest is always among them
    return found


def write_report(path: Path, folder: Path) -> tuple[Path, Path]:
    """Writes history.html and history.png into `folder`; returns where. Raises HistoryUnusable or HistoryBusy."""
    from planner.reports.history_page import history_page

    try:
        from planner.reports.history_image import draw
    except ImportError as error:
        raise HistoryUnusable("the picture needs matplotlib: install shoal-mesh[history]") from error
    with opened_copy(path) as connection:
        seen = gathered(connection)
    page, picture = folder / PAGE, folder / PICTURE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page.write_text(history_page(seen), encoding="utf-8")
        draw(picture, seen)
    except OSError as error:
        raise HistoryUnusable(
            f"{folder}: expected a folder to write the report to: {error.strerror}"
        ) from error
    return page, picture
