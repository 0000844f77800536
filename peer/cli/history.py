"""`shoal history`: what was measured in the meshes founded here, as tables, answers, a report or files."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from peer.errors import BadCommand
from peer.launch.terminal import out, say
from peer.state.display_names import plain
from planner.cost.wording import ONCE_MORE
from planner.history.facts import TABLES, columns
from planner.history.files import NAME, opened_copy
from planner.history.reading import Answer, ask, measured_again, sizes

MOST_SHOWN = 200  # rows of an answer on a terminal; --json shows all that were read


def history(args: argparse.Namespace) -> int:
    """One of the words of `shoal history`. Raises HistoryError."""
    file: Path = args.file if args.file is not None else args.state / NAME
    if args.query is not None and args.what in ("tables", "forget", "measure"):
        raise BadCommand(
            f"shoal history {args.what} takes nothing more; a question goes after `shoal history sql`"
        )
    match args.what:
        case "tables":
            return _tables(file, as_json=args.json)
        case "sql":
            if args.query is None:
                raise BadCommand(
                    "expected a question, as `shoal history sql 'select * from sessions limit 5'`"
                )
            return _answer(ask(file, args.query), as_json=args.json)
        case "report":
            from planner.reports.history_report import write_report

            for path in write_report(file, Path(args.query or "report")):
                out.print(str(path), markup=False)
        case "export":
            from planner.history.parquet import export_parquet

            _say_rows("written", export_parquet(file, _folder(args)), as_json=args.json)
        case "import":
            from planner.history.parquet import import_parquet
            from planner.history.writing import HistoryWriter

            folder = _folder(args)
            writer = HistoryWriter(file)
            try:
                _say_rows("added", import_parquet(writer, folder), as_json=args.json)
            finally:
                writer.close()
        case "forget":
            from planner.history.writing import HistoryWriter

            if args.days < 0:
                raise BadCommand(f"expected --days of at least 0, got {args.days}")
            writer = HistoryWriter(file)
            try:
                gone = writer.forget(args.days)
            finally:
                writer.close()
            say(f"{gone} rows older than {args.days} days are gone")
        case _:
            from planner.reports.history_benchmark import measure

            if args.rows < 100:
                raise BadCommand(f"expected --rows of at least 100, got {args.rows}")
            found = measure(args.rows)
            for line in (
                [json.dumps(found)] if args.json else [f"{name:26} {value}" for name, value in found.items()]
            ):
                out.print(line, markup=False)
    return 0


def _folder(args: argparse.Namespace) -> Path:
    if args.query is None:
        raise BadCommand(f"expected a folder, as `shoal history {args.what} FOLDER`")
    return Path(args.query)


def _tables(file: Path, *, as_json: bool) -> int:
    with opened_copy(file) as connection:
        found, again = sizes(connection), measured_again(connection)
    if as_json:
        data = {
            table: {
                "rows": count,
                "first": _text(first),
                "last": _text(last),
                "columns": list(columns(table)),
            }
            for table, (count, first, last) in found.items()
        }
        out.print(json.dumps(data), markup=False)
        return 0
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in ("table", "rows", "first (UTC)", "last (UTC)"):
        shown.add_column(heading, justify="right" if heading == "rows" else "left")
    for table in TABLES:
        count, first, last = found[table]
        when = [f"{at:%Y-%m-%d %H:%M}" if at is not None else "-" for at in (first, last)]
        shown.add_row(table, f"{count:,}", *when)
    out.print(shown)
    for table in TABLES:
        out.print(Text(f"{table}: {', '.join(columns(table))}", style="dim"))
    if again:
        out.print(Text(f"measurements of peers that were made {ONCE_MORE}: {again}"))
    return 0


def _answer(answer: Answer, *, as_json: bool) -> int:
    if as_json:
        out.print(json.dumps(answer.dicts(), default=_text), markup=False)
    else:
        shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for name in answer.names:
            shown.add_column(Text(plain(name)))
        for row in answer.rows[:MOST_SHOWN]:
            shown.add_row(*(Text(plain(_text(value))) for value in row))
        out.print(shown)
        if len(answer.rows) > MOST_SHOWN:
            say(f"{len(answer.rows) - MOST_SHOWN} more rows: --json shows them")
    if answer.more:
        say(f"there are more than {len(answer.rows)} rows; ask for less, or export the history")
    return 0


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _say_rows(what: str, rows: dict[str, int], *, as_json: bool) -> None:
    if as_json:
        out.print(json.dumps(rows), markup=False)
    else:
        for table, count in rows.items():
            out.print(f"{table:12} {count:>10,} {what}", markup=False)
