"""Decides what may be asked of a history: any question in SQL that only reads, within limits, and the planner's own.

Edge. A reader's connection is one to a copy that reaches no file (planner.history.files); here statements that are not
questions are refused before they run, and those that take too long are ended.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from planner.errors import QueryRefused
from planner.history.facts import TABLES
from planner.history.files import duckdb, opened_copy

MAX_SQL: Final = 20_000  # characters
MAX_ROWS: Final = 10_000
MAX_SECONDS: Final = 30.0
FEW_DAYS: Final = 90  # the planner looks back so far: machines and browsers change


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of a question. `more`: there were more than the limit."""

    names: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool = False

    def dicts(self) -> list[dict[str, Any]]:
        """Returns each row as an object, by the names of the columns."""
        return [dict(zip(self.names, row, strict=True)) for row in self.rows]


MOST_LINES: Final = 5  # classes with a line of their own


@dataclass(frozen=True, slots=True)
class Seen:
    """What a report is made of."""

    sizes: dict[str, int]
    since: str
    until: str
    over_time: list[dict[str, Any]]
    by_provider: list[dict[str, Any]]
    predicted: list[dict[str, Any]]
    anomalies: list[dict[str, Any]]
    recoveries: list[dict[str, Any]]
    stays: list[tuple[str, str, int, float]]
    gate: str  # what predictions for classes that were left out are worth
    again: int  # how often a peer measured itself because a prediction abstained

    @property
    def lines(self) -> list[str]:
        """The classes with most answers, each with a line of its own."""
        counts: dict[str, int] = {}
        for row in self.over_time:
            counts[row["classes"]] = counts.get(row["classes"], 0) + row["answers"]
        return sorted(counts, key=lambda name: (-counts[name], name))[:MOST_LINES]


def ask(path: Path, sql: str, *, most_rows: int = MAX_ROWS, most_s: float = MAX_SECONDS) -> Answer:
    """One question in SQL. Raises QueryRefused, HistoryUnusable or HistoryBusy."""
    module = duckdb()
    if len(sql) > MAX_SQL:
        raise QueryRefused(f"expected a question of at most {MAX_SQL} characters, got {len(sql)}")
    try:
        statements = module.extract_statements(sql)
    except module.Error as error:
        raise QueryRefused(_words(error)) from None
    kinds = [statement.type for statement in statements]
    if len(kinds) != 1 or kinds[0] not in (module.StatementType.SELECT, module.StatementType.EXPLAIN):
        got = ", ".join(str(kind).removeprefix("StatementType.").lower() for kind in kinds) or "nothing"
        raise QueryRefused(f"expected one question, as `select ... from units`, got {got}")
    with opened_copy(path) as connection:
        ended = threading.Event()

        def end() -> None:
            ended.set()
            connection.interrupt()

        alarm = threading.Timer(most_s, end)
        alarm.start()
        try:
            found = connection.execute(sql)
            names = tuple(column[0] for column in found.description or ())
            rows = found.fetchmany(most_rows + 1)
        except module.Error as error:
            if ended.is_set():
                raise QueryRefused(f"expected an answer within {most_s:g} s; ask for less") from None
            raise QueryRefused(_words(error)) from None
        finally:
            alarm.cancel()
            alarm.join()
    return Answer(names, tuple(tuple(row) for row in rows[:most_rows]), len(rows) > most_rows)


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:500]


def rows_of(connection: Any, sql: str, given: Sequence[object] = ()) -> list[dict[str, Any]]:
    """What a question of ours finds."""
    found = connection.execute(sql, list(given))
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def sizes(connection: Any) -> Mapping[str, tuple[int, Any, Any]]:
    """Of each table: how many rows, when the first and the last was recorded."""
    return {
        table: connection.execute(f"select count(*), min(seen), max(seen) from {table}").fetchone()
        for table in TABLES
    }


@dataclass(frozen=True, slots=True)
class Cell:
    """What is known of one (class, provider, kind, bucket): so many runs, the mean and variance of ln seconds."""

    device_class: str
    provider: str
    kind: str
    bucket: int
    flops: float
    weight_bytes: float
    runs: int
    mean_ln_s: float
    var_ln_s: float


_CELLS: Final = """select device_class, provider, kind, bucket, avg(flops) flops, avg(weight_bytes) weight_bytes,
    count(*) runs, avg(ln(seconds)) mean_ln_s, coalesce(var_samp(ln(seconds)), 0) var_ln_s
    from units where phase = 'decode' and seconds > 0 and seen >= (select max(seen) from units) - to_days(?) {which}
    group by device_class, provider, kind, bucket order by all"""


def cells(connection: Any, classes: Sequence[str] | None = None, days: int = FEW_DAYS) -> list[Cell]:
    """The planner's question: how units ran on peers of these classes (None: on all), of the last days there are."""
    which = "" if classes is None else f"and device_class in ({', '.join('?' * len(classes)) or 'null'})"
    found = rows_of(connection, _CELLS.format(which=which), [days, *(classes or ())])
    return [Cell(**row) for row in found]


def measured_often(connection: Any, times: int, since: datetime) -> frozenset[str]:
    """The peers that measured themselves at least so many times since then (UTC, without a zone)."""
    found = connection.execute(
        "select peer from peers where seen >= ? group by peer having count(*) >= ?", [since, times]
    ).fetchall()
    return frozenset(str(peer) for (peer,) in found)


def has_columns(connection: Any, table: str) -> frozenset[str]:
    """The columns of `table`; those of an older history may be fewer than today's."""
    found = connection.execute(
        "select column_name from duckdb_columns() where table_name = ?", [table]
    ).fetchall()
    return frozenset(str(name) for (name,) in found)


def measured_again(connection: Any) -> int:
    """How often a peer measured itself because a prediction of its times abstained."""
    if "again" not in has_columns(connection, "peers"):
        return 0
    return int(connection.execute("select count(*) from peers where again").fetchone()[0])


def stays(connection: Any, days: int = FEW_DAYS) -> list[tuple[str, str, int, float]]:
    """By class and condition: how many ended, and how many seconds peers stayed in all."""
    found = connection.execute(
        """select device_class, condition, count(*) filter (where ended), sum(seconds) from stays
        where seen >= (select max(seen) from stays) - to_days(?) group by all order by all""",
        [days],
    ).fetchall()
    return [(str(name), str(condition), int(count), float(total)) for name, condition, count, total in found]
