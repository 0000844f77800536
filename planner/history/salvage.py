"""Decides what of a damaged history goes into the next one: all rows that can still be read.

Edge. The damaged file is set aside whole; rows are read from a copy of it, some at a time, since damage of one block
costs the rows of that block only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from planner.errors import HistoryDamaged
from planner.history.facts import TABLES
from planner.history.files import connect_writer, copied, duckdb, set_aside
from planner.history.schema import MIGRATIONS, Migration

AT_ONCE: Final = 16_384  # rows; a block has as many of some column


def connect_mended(
    path: Path, tell: Callable[[str], None], migrations: tuple[Migration, ...] = MIGRATIONS
) -> Any:
    """As connect_writer; a damaged history is set aside, which `tell` is told, and what can be read of it is kept.

    Raises HistoryUnusable, HistoryBusy, OSError.
    """
    try:
        return connect_writer(path, migrations)
    except HistoryDamaged as error:
        aside = set_aside(path)
        connection = connect_writer(path, migrations)
        rows = salvage(aside, connection)
        tell(f"{error}: it is kept as {aside.name}, and {rows} rows that can be read are in a new one")
        return connection


def salvage(aside: Path, connection: Any) -> int:
    """Copies the rows that can be read into the history that `connection` writes. Returns how many."""
    total = 0
    with copied(aside) as copy:
        for table in TABLES:
            for found in _readable(copy, table):
                names = list(found)
                connection.execute(
                    f"insert into {table} ({', '.join(names)}) select {', '.join(['unnest(?)'] * len(names))}",
                    list(found.values()),
                )
                total += len(found[names[0]])
    return total


def _readable(copy: Path, table: str) -> Iterator[dict[str, list[Any]]]:
    """The rows of a table that can be read, some at a time, column by column."""
    module = duckdb()
    first = 0
    while True:
        try:
            with module.connect(str(copy), read_only=True) as damaged:
                (count,) = damaged.execute(f"select count(*) from {table}").fetchone()
                while first < count:
                    between = f"rowid >= {first} and rowid < {first + AT_ONCE}"
                    first += AT_ONCE  # whatever comes of these: an error may end the connection
                    try:
                        found = damaged.execute(f"select * from {table} where {between}")
                        names = [column[0] for column in found.description]
                        rows = found.fetchall()
                    except module.Error:
                        if not alive(damaged):
                            break
                    else:
                        if rows:
                            yield dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
                else:
                    return
        except module.Error:
            return  # not even how many there are


def alive(connection: Any) -> bool:
    """Whether it answers still: some errors end it for good."""
    try:
        connection.execute("select 1").fetchall()
    except duckdb().Error:
        return False
    return True
