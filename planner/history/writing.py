"""Decides when facts reach the disk: a thread of its own commits what was recorded twice a second.

Edge. A killed writer loses what it recorded since the last commit, and nothing else. Recording never waits and never
raises: a mesh must not stop because its history cannot be kept.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from planner.history.facts import TABLE_OF, TABLES, Fact, columns
from planner.history.files import beside, connect_writer, copying, lock_writer
from planner.history.salvage import alive, connect_mended
from planner.history.schema import KEEP_DAYS, MIGRATIONS, Migration

FLUSH_S: Final = 0.5  # between commits: at most this, and the time of one commit, is lost
LOG_BYTES: Final = 8 << 20  # of DuckDB's log, before it is moved into the file
MAX_WAITING: Final = 100_000  # facts that wait for a disk that refuses; beyond that the oldest are dropped
KEEP_ROWS: Final = 2_000_000  # of a table: about 100 MB
TIDY_S: Final = 3600.0  # between looks for rows that are too old

log = logging.getLogger(__name__)


def now_utc() -> datetime:
    """As the tables have it: UTC without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)


class HistoryWriter:
    """The one writer of a file. `record` may be called from any thread; close it at the end."""

    def __init__(
        self,
        path: Path,
        *,
        mend: Callable[[str], None] | None = None,
        flush_s: float = FLUSH_S,
        clock: Callable[[], datetime] = now_utc,
        migrations: tuple[Migration, ...] = MIGRATIONS,
    ) -> None:
        """Raises HistoryBusy or HistoryUnusable. `mend`: a damaged history is set aside, which this is told."""
        self.path = path
        self._tell = mend
        self._migrations = migrations
        self._flush_s = flush_s
        self._clock = clock
        self._lock = lock_writer(path)
        try:
            self._connection = self._connect()
        except BaseException:
            os.close(self._lock)
            raise
        self._waiting: deque[tuple[datetime, Fact]] = deque(maxlen=MAX_WAITING)
        self._writing = threading.Lock()  # one thread at a time between begin and commit
        self._stop = threading.Event()
        self._tidied = -TIDY_S
        self._complained = False
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def record(self, facts: Iterable[Fact]) -> None:
        """Keeps facts; they are on the disk a moment later."""
        at = self._clock()
        self._waiting.extend((at, fact) for fact in facts)

    def flush(self) -> None:
        """Commits what was recorded so far. Raises what the disk refuses with."""
        with self._writing:
            taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if not taken:
                return
            try:
                self._commit(taken)
            except BaseException:
                self._waiting.extendleft(
                    reversed(taken)
                )  # in front again, the oldest dropped if there is no room
                raise

    @contextmanager
    def view(self) -> Iterator[Any]:
        """A connection to what is committed, for this process. It may write: for questions of our own only."""
        self._revive()
        self.flush()
        cursor = self._connection.cursor()
        try:
            yield cursor
        finally:
            cursor.close()

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """One change by the caller, kept whole or not at all."""
        with self._writing:
            self._connection.execute("begin")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("rollback")
                raise
            self._connection.execute("commit")

    def forget(self, keep_days: int = KEEP_DAYS, keep_rows: int = KEEP_ROWS) -> int:
        """Drops rows older than that, and of each table the oldest beyond so many. Returns how many went."""
        gone, now = 0, self._clock()
        with self.transaction() as connection:
            for table in TABLES:
                count = "select count(*) from " + table
                before = connection.execute(count).fetchone()[0]
                connection.execute(
                    f"delete from {table} where seen < ?::timestamp - to_days(?)", [now, keep_days]
                )
                left = connection.execute(count).fetchone()[0]
                if left > keep_rows:
                    border = connection.execute(
                        f"select seen from {table} order by seen desc limit 1 offset ?", [keep_rows]
                    ).fetchone()[0]
                    connection.execute(f"delete from {table} where seen <= ?", [border])
                    left = connection.execute(count).fetchone()[0]
                gone += before - left
        return int(gone)

    def close(self) -> None:
        """Commits the rest, moves the log into the file and lets others write."""
        self._stop.set()
        self._thread.join()
        try:
            self._revive()
            self.flush()
        except Exception as error:
            log.error("the last of the history could not be kept: %s", error)
        if self._connection is not None:
            self._settle()
            self._connection.close()
        os.close(self._lock)

    def _connect(self) -> Any:
        if self._tell is None:
            return connect_writer(self.path, self._migrations)
        return connect_mended(self.path, self._tell, self._migrations)

    # --- the thread

    def _run(self) -> None:
        while not self._stop.wait(self._flush_s):
            try:
                self._revive()
                self.flush()
                self._upkeep()
            except Exception as error:
                if not self._complained:
                    log.error("the history cannot be kept now, trying on: %s", error)
                self._complained = True
            else:
                if self._complained:
                    log.warning("the history is kept again")
                self._complained = False

    def _revive(self) -> None:
        """Opens the file anew where an error has ended the connection for good: what was committed is in it."""
        with self._writing:
            if self._connection is not None and alive(self._connection):
                return
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            self._connection = self._connect()

    def _upkeep(self) -> None:
        if time.monotonic() - self._tidied >= TIDY_S:
            self._tidied = time.monotonic()
            self.forget()
        with suppress(FileNotFoundError):
            if beside(self.path, "wal").stat().st_size > LOG_BYTES:
                self._settle(0.0)

    def _settle(self, within_s: float = 1.0) -> None:
        """Moves DuckDB's log into the file, unless somebody copies it: then it stays for another time."""
        with copying(self.path, within_s) as alone, self._writing:
            if alone:
                try:
                    self._connection.execute("checkpoint")
                except Exception as error:  # somebody reads in this process: the log stays as it is
                    log.info("the log of the history stays: %s", error)

    def _commit(self, taken: Sequence[tuple[datetime, Fact]]) -> None:
        rows: dict[str, list[list[Any]]] = {}
        for at, fact in taken:
            rows.setdefault(TABLE_OF[type(fact)], []).append([at, *astuple(fact)])
        self._connection.execute("begin")
        try:
            for table, values in rows.items():
                names = columns(table)
                self._connection.execute(  # column by column: a hundred times faster than row by row
                    f"insert into {table} ({', '.join(names)}) select {', '.join(['unnest(?)'] * len(names))}",
                    [list(column) for column in zip(*values, strict=True)],
                )
        except BaseException:
            self._connection.execute("rollback")
            raise
        self._connection.execute("commit")
