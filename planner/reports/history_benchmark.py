"""Decides how the limits of a history are checked: a made-up one of so many rows, and how long what is asked takes."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from planner.history.files import NAME
from planner.history.reading import cells
from planner.history.writing import HistoryWriter
from planner.reports.history_report import write_report

RUNS: Final = 9
OF_A_PLAN: Final = 4  # classes that the planner asks about at a time
_CLASSES: Final = """create temp table made as select i,
    ['Python', 'Chrome', 'Firefox', 'Edge', 'Safari'][1 + i % 5] browser,
    ['cpu', 'webgpu', 'wasm', 'webgpu', 'wasm'][1 + i % 5] provider, 1 + i % 4 threads, 130 + i % 3 version,
    if(i % 7 = 6, 'phone', 'computer') device, 0.4 + (i * 37 % 100) / 60.0 slowness from range(24) t(i)"""
_NAME: Final = "browser || ' ' || version || ' ' || provider || ' x' || threads || ' ' || device"
_UNITS: Final = f"""insert into units select timestamp '2026-01-01' + to_seconds(n * 25), 'mesh', 'model',
    'peer ' || n % 200, {_NAME}, browser, provider, kind, bucket, 'decode', weight * 2, weight,
    slowness * base * exp(0.06 * (random() + random() + random() - 1.5))
    from range(?) t(n) join made on i = n % 24
    join (values (0, 'attn', 20, 900000, 0.0009), (1, 'ffn', 22, 2600000, 0.002), (2, 'embed', 15, 30000, 0.00002),
        (3, 'head', 25, 28000000, 0.012)) k(j, kind, bucket, weight, base) on j = n // 24 % 4"""
_SESSIONS: Final = f"""insert into sessions select timestamp '2026-01-01' + to_seconds(n * 80), 'mesh', 'model',
    n // 500 % 40, 3, {_NAME}, 64, 3.0,
    slowness * 0.03 * (1 + 0.1 * sin(n / 9000.0)) * exp(0.1 * (random() + random() - 1)) * if(n % 4003 = 2, 6, 1),
    0.05, 0.2, slowness * 0.03, 1 from range(?) t(n) join made on i = n % 24 and i < 5"""
_OTHERS: Final = (
    f"""insert into stays select timestamp '2026-01-01' + to_seconds(n * 800), 'mesh', 'peer', {_NAME},
    if(n % 9 = 0, 'background', ''), 3600 * random(), true from range(2000) t(n) join made on i = n % 24""",
    f"""insert into recoveries select timestamp '2026-01-01' + to_seconds(n * 8000), 'mesh', 'peer', {_NAME},
    n % 3 = 0, n, n + 1, 0.1 + random() from range(300) t(n) join made on i = n % 24""",
)


def fill(writer: HistoryWriter, rows: int) -> None:
    """About `rows` rows, most of them unit times."""
    with writer.transaction() as connection:
        connection.execute("select setseed(0.5)")
        connection.execute(_CLASSES)
        connection.execute(_UNITS, [rows - rows // 4])
        connection.execute(_SESSIONS, [24 * (rows // 4) // 5])
        for statement in _OTHERS:
            connection.execute(statement)
        connection.execute("drop table made")


def measure(rows: int, runs: int = RUNS) -> dict[str, Any]:
    """Seconds of filling, of the planner's question and of the report, and the bytes on the disk."""
    with tempfile.TemporaryDirectory(prefix="shoal-measure-") as folder:
        path = Path(folder) / NAME
        begun = time.perf_counter()
        writer = HistoryWriter(path)
        try:
            fill(writer, rows)
            filled_s = time.perf_counter() - begun
            with writer.view() as view:
                count = sum(
                    view.execute(f"select count(*) from {table}").fetchone()[0]
                    for table in ("units", "sessions")
                )
                names = [
                    row[0]
                    for row in view.execute("select distinct device_class from units order by 1").fetchall()
                ]
                some = _times(lambda: cells(view, names[:OF_A_PLAN]), runs)
                every = _times(lambda: cells(view), runs)
        finally:
            writer.close()
        report = _times(lambda: write_report(path, Path(folder) / "report"), min(runs, 3))
        return {
            "rows": int(count),
            "file_mb": round(path.stat().st_size / 1e6, 1),
            "fill_s": round(filled_s, 2),
            "planner_query_ms": round(some * 1000, 1),
            "query_of_all_classes_ms": round(every * 1000, 1),
            "report_s": round(report, 2),
        }


def _times(run: Callable[[], object], runs: int) -> float:
    taken = []
    for _ in range(runs):
        begun = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)
