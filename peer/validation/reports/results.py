"""Keeps what validation measured, in one DuckDB file: a row for each start of it, each run, each answer and each gap.

Edge. Nothing of prompts or answers is kept, only counts and times.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from peer.errors import StateUnusable
from peer.validation.runs.loss_runner import Run
from peer.version import VERSION

FORMAT: Final = 1
OPEN_WITHIN_S: Final = 10.0
AGAIN_S: Final = 0.05
_TABLES: Final = (
    """create table if not exists started (id bigint primary key, format integer, begun timestamp, version text,
        machine text, level text, strategy text, protection text, seed bigint, peers integer, stages integer,
        sessions integer, tokens integer, weights text, transport text, browsers text)""",
    """create table if not exists runs (started bigint, scenario text, number integer, completed boolean,
        equal boolean, kv_equal boolean, primary_hit boolean, replayed_bytes bigint, restored_s double,
        trouble text, notes text)""",
    """create table if not exists answers (started bigint, scenario text, number integer, place integer,
        completed boolean, first_difference integer, recovery_s double, longest_gap_s double, slowdown double,
        tokens integer, seconds double)""",
    """create table if not exists costs (started bigint, round integer, shadow text, tok_s double, rss_bytes bigint,
        kv_bytes bigint, weight_bytes bigint, standby_steps integer)""",
    """create table if not exists soaks (started bigint, sessions integer, at_s double, peer text, rss_bytes bigint,
        descriptors integer, tasks integer, held integer)""",
)


@dataclass(frozen=True, slots=True)
class Start:
    """How validation was started, so that results compare."""

    level: str
    strategy: str
    protection: str
    seed: int
    peers: int
    stages: int
    sessions: int
    tokens: int
    weights: str
    transport: str
    browsers: str


class Results:
    """One open file. Made by `open_results`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        for table in _TABLES:
            connection.execute(table)

    def start(self, start: Start) -> int:
        """Begins a set of rows; returns its id."""
        found = self._connection.execute("select coalesce(max(id), 0) + 1 from started").fetchone()
        key = int(found[0])
        machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
        self._insert(
            "started",
            [(key, FORMAT, _now(), VERSION, machine, *asdict(start).values())],
        )
        return key

    def run(self, started: int, run: Run) -> None:
        """Keeps one run and its answers."""
        ran, at = run.ran, (started, run.scenario.value, run.number)
        completed = all(answer.completed for answer in ran.judged)
        equal = all(answer.equal for answer in ran.judged)
        notes = json.dumps(ran.notes)
        more = (ran.kv_equal, ran.primary_hit, ran.replayed_bytes, ran.restored_s, ran.trouble, notes)
        self._insert("runs", [(*at, completed, equal, *more)])
        answers = zip(ran.judged, run.streams, strict=True)
        self._insert(
            "answers",
            [
                (
                    *(*at, place, a.completed, a.first_difference, a.recovery_s, a.longest_gap_s, a.slowdown),
                    *(len(stream.tokens), stream.seconds),
                )
                for place, (a, stream) in enumerate(answers)
            ],
        )

    def cost(self, started: int, rows: Sequence[tuple[int, str, float, int, int, int, int]]) -> None:
        """Keeps rounds of `shoal validate --cost`, as `peer.validation.reports.cost` makes them."""
        self._insert("costs", [(started, *row) for row in rows])

    def soak(self, started: int, rows: Sequence[tuple[int, float, str, int, int, int, int]]) -> None:
        """Keeps readings of `shoal validate --soak`: sessions so far, seconds, and what one peer occupied."""
        self._insert("soaks", [(started, *row) for row in rows])

    def rows(self, query: str, *given: object) -> list[dict[str, Any]]:
        """What a query finds."""
        found = self._connection.execute(query, list(given))
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def _insert(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            places = ", ".join("?" * len(rows[0]))
            self._connection.executemany(
                f"insert into {table} values ({places})", [list(row) for row in rows]
            )


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())


@contextmanager
def open_results(file: Path) -> Iterator[Results]:
    """The results in `file`, made when it is not there. Open it for a moment only: others write there, too.

    Raises StateUnusable.
    """
    try:
        import duckdb
    except ImportError as error:
        raise StateUnusable(
            "results need DuckDB: install shoal-mesh[validate], or give --no-results"
        ) from error
    deadline = time.monotonic() + OPEN_WITHIN_S
    while True:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            connection = duckdb.connect(str(file))
            break
        except (OSError, duckdb.Error) as error:  # another validation has it open for a moment
            if time.monotonic() > deadline:
                raise StateUnusable(f"{file}: expected a file of results that opens: {error}") from error
            time.sleep(AGAIN_S)
    try:
        yield Results(connection)
    finally:
        connection.close()
