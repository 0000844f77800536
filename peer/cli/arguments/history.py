"""Decides the arguments of `shoal history`. Imports little: every start of `shoal` waits."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from planner.history.schema import KEEP_DAYS

WORDS: Final = {
    "tables": "how much is in it, and what its columns are",
    "sql": "answer QUERY, which can only read",
    "report": "write a page and a picture into a folder",
    "export": "write Parquet files into a folder",
    "import": "add the Parquet files of a folder",
    "forget": "drop what is older than --days",
    "measure": "fill a throw-away history and time what is asked of it",
}


def history_arguments(made: argparse.ArgumentParser, state: Path) -> None:
    """Adds them."""
    made.add_argument(
        "what",
        nargs="?",
        choices=tuple(WORDS),
        default="tables",
        help="; ".join(f"{word}: {text}" for word, text in WORDS.items()),
    )
    made.add_argument("query", nargs="?", metavar="QUERY|FOLDER", help="a question in SQL, or a folder")
    made.add_argument("--state", type=Path, default=state, help="folder of the history [%(default)s]")
    made.add_argument(
        "--file", type=Path, help="the history itself [history/history.duckdb in the state folder]"
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_argument("--days", type=int, default=KEEP_DAYS, help="for forget [%(default)s]")
    made.add_argument("--rows", type=int, default=1_000_000, help="for measure [%(default)s]")
