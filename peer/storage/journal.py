"""Keeps a peer's transaction log in an SQLite file, so that after a restart it knows what it held and was doing.

Edge. `TransactionFile` is the file, used by one thread; `Journal` is what the rest of the peer tells of its operations.
Nothing here ends a peer: a damaged file is set aside and what can be read of it is used, one that cannot be opened
means a log in memory only until it can, and what a disk refuses is tried again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, assert_never
from zlib import crc32

from peer.errors import LogInUse, StateUnusable, TransactionError, WrongRecord
from peer.storage.journal_core import (
    NOTHING,
    Compact,
    Effect,
    Event,
    Recovered,
    Sampled,
    Standing,
    Transactions,
    Undo,
    Write,
    recover,
)
from peer.storage.journal_records import (
    Begun,
    CloseSession,
    Committed,
    OpenSession,
    Operation,
    Place,
    Record,
    RolledBack,
    Run,
    TakeOver,
    Unload,
    decode_record,
    describe,
    encode_record,
)
from peer.storage.peer_keys import private_folder
from planner.model.durable_files import BINARY, free_name

FORMAT: Final = 2  # user_version of the file; 2: a checksum in every row
MAX_RECORDS: Final = 100_000  # read from one file; checkpoints keep it under a thousand
SALVAGED_BYTES: Final = 64 << 20  # of a damaged file; one of ours is under one
AGAIN_S: Final = 10.0  # between tries to open a file that cannot be used
_CLOSED_S: Final = 10.0  # a disk that hangs must not keep a peer from leaving
_HEADER_BYTES: Final = 100
_VERSIONS: Final = (b"\1\1", b"\2\2")  # of the file format, for writing and reading
_DAMAGED: Final = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
)  # the last: another table
_IN_USE: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

log = logging.getLogger(__name__)


class TransactionFile:
    """An open log file. Every method belongs to the thread that made it."""

    def __init__(self, path: Path) -> None:
        """Raises LogInUse, StateUnusable, and WrongRecord for a damaged file."""
        self.path = path
        self._full = True
        private_folder(path.parent)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | BINARY, 0o600)
            try:
                header = os.read(fd, _HEADER_BYTES)
            finally:
                os.close(fd)
            if header and (len(header) < _HEADER_BYTES or header[18:20] not in _VERSIONS):
                raise WrongRecord(
                    "its header is damaged"
                )  # sqlite takes it for an empty file, or a read-only one
            self._database = sqlite3.connect(path, timeout=0, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise StateUnusable(f"{path} cannot be used: {error}") from error
        try:
            self._begin_to_use()
        except BaseException as error:
            self._database.close()
            if isinstance(error, sqlite3.Error):
                raise self._named(error) from error
            if isinstance(error, UnicodeDecodeError):  # of sqlite's message, which shows what is damaged
                raise WrongRecord("its schema is no text") from error
            raise

    def read(self) -> list[Record]:
        """All records in order. Raises WrongRecord, StateUnusable."""
        try:
            rows = self._database.execute(_ROWS, (MAX_RECORDS,))
            return [_record(expected, row) for expected, row in enumerate(rows, 1)]
        except sqlite3.Error as error:
            raise self._named(error) from error
        except UnicodeDecodeError as error:
            raise WrongRecord("a record is no text") from error

    def write(self, effects: Sequence[Effect]) -> None:
        """Writes a batch whole or not at all; returns when what has to be durable is. Raises StateUnusable."""
        whole = any(isinstance(effect, Compact) or effect.durable for effect in effects)
        try:
            if whole is not self._full:
                self._database.execute(f"PRAGMA synchronous = {'FULL' if whole else 'NORMAL'}")
                self._full = whole
            self._database.execute("BEGIN IMMEDIATE")
            try:
                for effect in effects:
                    self._write(effect)
                self._database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
                raise
        except (sqlite3.Error, WrongRecord) as error:
            raise StateUnusable(f"{self.path} cannot be written: {error}") from error

    def close(self) -> None:
        """Closes the file."""
        with suppress(sqlite3.Error):  # what was written is in the file or its write-ahead log
            self._database.close()

    def _begin_to_use(self) -> None:
        execute = self._database.execute
        execute(
            "PRAGMA locking_mode = EXCLUSIVE"
        )  # before anything is read: no other process gets in between
        execute("PRAGMA journal_mode = WAL")
        execute("BEGIN IMMEDIATE")
        try:
            checked = [str(row[0]) for row in execute("PRAGMA integrity_check(1)")]
            if checked != ["ok"]:
                raise WrongRecord(f"{' '.join(checked)[:200]}")
            (version,) = execute("PRAGMA user_version").fetchone()
            if version not in (0, 1, FORMAT):
                raise WrongRecord(f"expected format {FORMAT}, got {version}")
            if version == 1:
                self._seal_rows()
            execute(
                "CREATE TABLE IF NOT EXISTS records "
                "(number INTEGER PRIMARY KEY, record TEXT NOT NULL, sum INTEGER) STRICT"
            )
            if version != FORMAT:
                execute(f"PRAGMA user_version = {FORMAT}")
        finally:
            with suppress(sqlite3.Error):
                execute("COMMIT")

    def _seal_rows(self) -> None:
        """Turns format 1, whose rows have no checksum and any ascending numbers, into format 2."""
        rows = self._database.execute("SELECT record FROM records ORDER BY number").fetchall()
        self._database.execute("ALTER TABLE records ADD COLUMN sum INTEGER")
        self._database.execute("DELETE FROM records")
        for number, (text,) in enumerate(rows, 1):
            self._insert(number, _text(text))

    def _write(self, effect: Effect) -> None:
        match effect:
            case Write(record):
                self._append(record)
            case Compact(checkpoint):
                self._database.execute("DELETE FROM records")
                self._append(checkpoint)
            case _:
                assert_never(effect)

    def _append(self, record: Record) -> None:
        (last,) = self._database.execute("SELECT coalesce(max(number), 0) FROM records").fetchone()
        self._insert(last + 1, encode_record(record))

    def _insert(self, number: int, text: str) -> None:
        row = (number, text, _sum(number, text))
        self._database.execute("INSERT INTO records (number, record, sum) VALUES (?, ?, ?)", row)

    def _named(self, error: sqlite3.Error) -> StateUnusable | WrongRecord:
        found = getattr(error, "sqlite_errorcode", None)
        if found is None:
            return WrongRecord(str(error))  # of Python: text that is none
        code = found & 0xFF  # the low byte is the primary code
        if code in _IN_USE:
            return LogInUse(f"another process uses {self.path}: end it, or give another --state folder")
        if code in _DAMAGED or not isinstance(error, sqlite3.OperationalError):
            return WrongRecord(str(error))
        return StateUnusable(f"{self.path} cannot be used: {error}")


def open_log(
    path: Path, warn: Callable[[str], None]
) -> tuple[TransactionFile | None, Transactions, Recovered]:
    """The log in `path` and what it says of the life before. None for the file: it cannot be used, and `warn` was told
    why. A damaged file is set aside whole, and what can be read of it is used.
    """
    salvaged: list[Record] | None = None
    for _ in range(2):
        file = None
        try:
            file = TransactionFile(path)
            core, recovered, effects = (
                recover(file.read()) if salvaged is None else recover(salvaged, gaps=True)
            )
            for effect in effects:
                match effect:
                    case Compact():
                        file.write([effect])
                    case Undo(operation):
                        log.info("was half done when this peer ended, and is undone: %s", describe(operation))
                    case _:
                        assert_never(effect)
            return file, core, recovered
        except WrongRecord as error:
            if file is not None:
                file.close()
            aside = free_name(path)
            try:
                _set_aside(path, aside)
            except OSError as refusal:
                warn(f"{path} is damaged ({error}) and cannot be moved away ({refusal}): remove it")
                break
            salvaged = salvage(aside)
            goes_on = (
                f"goes on with the {len(salvaged)} records of it that can be read"
                if salvaged
                else "begins as if it held nothing"
            )
            warn(f"{path} is damaged ({error}): it is {aside.name} now, and this peer {goes_on}")
        except StateUnusable as error:
            if file is not None:
                file.close()
            warn(f"{error}; what this peer holds is not kept over a restart")
            break
    return None, Transactions(), NOTHING


def _opened_late(path: Path) -> TransactionFile | None:
    """The file, which could not be used when this peer began, and what was in it set aside; None: it still cannot."""
    with suppress(StateUnusable, OSError):
        try:
            file = TransactionFile(path)
            if not file.read():
                return file
            file.close()
        except WrongRecord:
            pass
        _set_aside(path, free_name(path))
        with suppress(WrongRecord):
            return TransactionFile(path)
    return None


def salvage(path: Path) -> list[Record]:
    """The records of a damaged file that are as they were written, in order. The file is left as it is."""
    found: list[Record] = []
    with (
        suppress(OSError, sqlite3.Error, UnicodeDecodeError),
        TemporaryDirectory(prefix="shoal-journal-") as folder,
    ):
        copy = Path(folder) / "copy"
        for ending in ("", "-wal"):
            of = Path(f"{path}{ending}")
            if of.exists() and of.stat().st_size <= SALVAGED_BYTES:
                shutil.copyfile(of, f"{copy}{ending}")
        with closing(sqlite3.connect(copy)) as database:
            database.text_factory = bytes
            columns = database.execute("SELECT name FROM pragma_table_info('records')").fetchall()
            sealed = (b"sum",) in columns
            rows = database.execute(_ROWS if sealed else _ROWS_1, (MAX_RECORDS,))
            for number, text, seal in rows:  # an error of the database ends it, those before it count
                with suppress(WrongRecord, UnicodeDecodeError):
                    decoded = text.decode() if isinstance(text, bytes) else text
                    found.append(
                        _record(number, (number, decoded, seal if sealed else _sum(number, decoded)))
                    )
    return found


def _since_checkpoint(effects: Sequence[Effect]) -> Sequence[Effect]:
    """Those that count: a checkpoint makes all before it void, so that what waits for a disk stays short."""
    last = max((at for at, effect in enumerate(effects) if isinstance(effect, Compact)), default=0)
    return effects[last:]


def _set_aside(path: Path, aside: Path) -> None:
    """A write-ahead log must not be taken for one of the next file."""
    os.replace(path, aside)
    for ending in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.replace(f"{path}{ending}", f"{aside}{ending}")


_ROWS: Final = "SELECT number, record, sum FROM records ORDER BY number LIMIT ?"
_ROWS_1: Final = "SELECT number, record, NULL FROM records ORDER BY number LIMIT ?"  # of format 1


def _record(expected: int, row: Sequence[object]) -> Record:
    """The record of a row that is the one of that number and as it was written. Raises WrongRecord."""
    number, text, seal = row
    if number != expected:
        raise WrongRecord(f"expected record {expected}, got {number}")
    if seal != _sum(expected, _text(text)):
        raise WrongRecord(f"record {expected} fails its checksum")
    return decode_record(_text(text))


def _sum(number: int, text: str) -> int:
    return crc32(f"{number} {text}".encode("utf-8", "surrogatepass"))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise WrongRecord("expected text in every record")
    return value


class Journal:
    """What the peer says of its operations; all methods belong to the event loop, all writing to one other thread.

    Operations on units are awaited: `begin` returns when its record is on the disk. What sessions do is noted on the
    way and written soon, so that no token waits for a disk.
    """

    def __init__(self) -> None:
        """A log in memory only; `open` makes one with a file."""
        self.recovered: Recovered = NOTHING
        self._core = Transactions()
        self._path: Path | None = None
        self._file: TransactionFile | None = None  # touched by the writer only
        self._again_at = 0.0  # when a file that cannot be used is tried again
        self._writer: ThreadPoolExecutor | None = None
        self._waiting: deque[Effect] = deque()
        self._scheduled = False  # a flush is on its way to the writer and has not begun
        self._refused = False  # the disk takes nothing for now; touched by the writer only
        self._warn: Callable[[str], None] = log.warning  # may be called on any thread
        self._caught_up: Callable[[], object] = lambda: None  # may be called on any thread
        self._on = True

    @classmethod
    async def open(cls, path: Path | None, warn: Callable[[str], None] = log.warning) -> Journal:
        """The log in `path`; in memory only where there is no path, or as long as the file cannot be used."""
        journal = cls()
        if path is None:
            return journal
        loop = asyncio.get_running_loop()

        def tell(text: str) -> None:
            with suppress(RuntimeError):  # the loop closed meanwhile
                loop.call_soon_threadsafe(warn, text)

        journal._warn = tell
        journal._path = path
        journal._caught_up = partial(loop.call_soon_threadsafe, journal._catch_up)
        journal._writer = ThreadPoolExecutor(1, "transactions")
        found = await loop.run_in_executor(journal._writer, open_log, path, tell)
        journal._file, journal._core, journal.recovered = found
        journal._again_at = time.monotonic() + AGAIN_S
        return journal

    @property
    def kept(self) -> bool:
        """Whether what is noted here outlives the process."""
        return self._writer is not None and self._file is not None and self._on

    @property
    def core(self) -> Transactions:
        """What is noted so far."""
        return self._core

    def turn(self, on: bool) -> None:
        """Whether the mesh wants logs. Off, the file is emptied: it must not tell of a time that is long past."""
        if on is not self._on:
            self._on = on
            self._write([self._whole()])

    # --- units: their operations are awaited

    async def begin(self, operation: Operation) -> None:
        """Notes that `operation` begins; returns when that is on the disk. Never fails: see `_step`."""
        self._step(Begun(operation))
        if self.kept and self._writer is not None:
            await asyncio.get_running_loop().run_in_executor(self._writer, self._flush)

    def commit(self, operation: Operation) -> None:
        """It is done."""
        self._step(Committed(operation))

    def roll_back(self, operation: Operation) -> None:
        """It is undone."""
        self._step(RolledBack(operation))

    def give_up(self, run: Run) -> None:
        """Units that were held before the restart are not wanted, or not here, any more."""
        if self._core.standing(run) is Standing.KEPT:
            self._at_once(Unload(run))

    # --- sessions: noted on the way

    def opened(self, session: bytes, stage: int = 0) -> None:
        """A session has a place here. Said again for a later turn, it changes nothing."""
        place = Place(session.hex(), stage)
        if self._core.standing(place) is Standing.ABSENT:
            self._at_once(OpenSession(place))

    def took_over(self, session: bytes, stage: int = 0) -> None:
        """A session goes on here in the place of a lost peer."""
        self._at_once(TakeOver(Place(session.hex(), stage)))

    def closed(self, session: bytes, stage: int = 0) -> None:
        """A session left its place. For one that is not known here, nothing happens: the oldest are forgotten."""
        place = Place(session.hex(), stage)
        if self._core.standing(place) is Standing.PRESENT:
            self._at_once(CloseSession(place))

    def tokens(self, count: int) -> None:
        """This peer helped to make so many tokens more."""
        self._step(Sampled(count))

    async def close(self) -> None:
        """Writes what waits, and a checkpoint, and lets the file go."""
        writer = self._writer
        if writer is None:
            return
        if self._on:
            self._waiting.append(self._core.compacted())
        self._writer = None
        done = asyncio.get_running_loop().run_in_executor(writer, self._close)
        try:
            async with asyncio.timeout(_CLOSED_S):
                await done
        except TimeoutError:
            log.warning("the transaction log is not closed yet; leaving without it")
        writer.shutdown(wait=False)

    # --- inner moves

    def _at_once(self, operation: Operation) -> None:
        if self._step(Begun(operation)):
            self._step(Committed(operation))

    def _step(self, event: Event) -> bool:
        """False where the log does not follow; the peer goes on, since what it does matters more than the log of it."""
        try:
            effects = self._core.step(event)
        except TransactionError as error:
            log.info("not in the transaction log: %s", error)
            return False
        if self._on:
            self._write(effects)
        return True

    def _write(self, effects: Iterable[Effect]) -> None:
        if self._writer is None:
            return
        if self._file is None:
            if time.monotonic() < self._again_at:
                return  # a checkpoint says it, later
            self._again_at = time.monotonic() + AGAIN_S
            self._waiting.clear()
            effects = [self._whole()]
        self._waiting.extend(effects)
        if self._waiting and not self._scheduled:
            self._scheduled = True
            self._writer.submit(self._flush)

    def _whole(self) -> Compact:
        return (self._core if self._on else Transactions()).compacted()

    def _catch_up(self) -> None:
        """What came while the file was opened is in the checkpoint that is written now."""
        self._write([self._whole()])

    def _flush(self) -> None:
        """Runs on the writer: everything that waits, in one go."""
        self._scheduled = False  # first: what is added from now on is either taken along or scheduled anew
        batch: list[Effect] = []
        while self._waiting:
            batch.append(self._waiting.popleft())
        if self._file is None and batch and self._path is not None:
            self._file = _opened_late(self._path)
            if self._file is not None:
                self._warn(f"{self._path} is written again")
                with suppress(RuntimeError):  # the loop closed meanwhile
                    self._caught_up()
        file = self._file
        if not batch or file is None:
            return
        try:
            file.write(batch)
        except StateUnusable as error:
            self._waiting.extendleft(reversed(_since_checkpoint(batch)))  # tried again with what comes next
            if not self._refused:
                self._warn(f"{error}; until it can, what this peer holds is not kept over a restart")
            self._refused = True
            return
        if self._refused:
            self._refused = False
            self._warn(f"{file.path} is written again")

    def _close(self) -> None:
        self._flush()
        if self._file is not None:
            self._file.close()
            self._file = None
