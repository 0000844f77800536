"""Decides how a history travels: a folder with one Parquet file for each table, and a note of its version.

Edge. Importing twice adds nothing: rows that are there already are left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from planner.errors import HistoryUnusable
from planner.history.facts import TABLES, columns
from planner.history.files import duckdb, opened_copy, version_of
from planner.history.reading import has_columns
from planner.history.schema import MIGRATIONS
from planner.history.writing import HistoryWriter

NOTE: Final = "history.json"
_ADDED: Final = {"peers": ("again",)}  # columns that came after the first version


def export_parquet(path: Path, folder: Path) -> dict[str, int]:
    """Writes the tables of the history at `path` into `folder`; returns the rows of each. Raises HistoryUnusable."""
    found: dict[str, int] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with opened_copy(path, closed_in=False) as connection:
            for table in TABLES:
                has = has_columns(connection, table)  # an older history may lack some
                names = ", ".join(name for name in columns(table) if name in has)
                connection.execute(
                    f"copy (select {names} from {table} order by seen) to {_quoted(folder / f'{table}.parquet')} "
                    "(format parquet, compression zstd)"
                )
                found[table] = int(connection.execute(f"select count(*) from {table}").fetchone()[0])
            version = version_of(connection, path)
        (folder / NOTE).write_text(json.dumps({"shoal_history": version, "rows": found}, indent=1) + "\n")
    except OSError as error:
        raise HistoryUnusable(f"{folder}: expected a folder to write to: {error.strerror}") from error
    return found


def import_parquet(writer: HistoryWriter, folder: Path) -> dict[str, int]:
    """Adds what `folder` has and the history has not; returns the rows added to each table. All of it, or nothing.

    Raises HistoryUnusable.
    """
    module = duckdb()
    _check_note(folder)
    found: dict[str, int] = {}
    try:
        with writer.transaction() as connection:
            for table in TABLES:
                file = folder / f"{table}.parquet"
                if file.is_file():
                    found[table] = _add(connection, table, file)
    except module.Error as error:
        said = " ".join(str(error).split())[:200]
        raise HistoryUnusable(f"{folder}: expected an exported history: {said}") from error
    return found


def _check_note(folder: Path) -> None:
    try:
        note = json.loads((folder / NOTE).read_text())
        version = note["shoal_history"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HistoryUnusable(f"{folder}: expected {NOTE} beside the tables: {error}") from error
    if not isinstance(version, int) or not 1 <= version <= len(MIGRATIONS):
        raise HistoryUnusable(
            f"{folder}: expected a history of at most version {len(MIGRATIONS)}, got {version}"
        )


def _add(connection: Any, table: str, file: Path) -> int:
    has = {
        row[0] for row in connection.execute("describe select * from read_parquet(?)", [str(file)]).fetchall()
    }
    older = {name for name in _ADDED.get(table, ()) if name not in has}  # what an older history did not know
    names = ", ".join(name for name in columns(table) if name not in older)
    count = f"select count(*) from {table}"
    before = connection.execute(count).fetchone()[0]
    connection.execute(
        f"insert into {table} ({names}) select {names} from read_parquet(?) except all select {names} from {table}",
        [str(file)],
    )
    return int(connection.execute(count).fetchone()[0] - before)


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
