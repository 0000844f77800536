"""Decides how the file of a history is opened: by one writer, and by readers who get a copy of this moment.

Edge over DuckDB and files. Beside `history.duckdb` lie DuckDB's own log `.wal`, `.lock` (held by the writer as long as
it lives) and `.copy` (held while the file is copied, and while the writer moves its log into the file, so that a copy
is always one that a crash could have left: whole up to the last commit). A reader never opens the file itself, so it
can neither block the writer nor change a byte. The folder is made for its owner only: who was here and when is nobody
else's business, and DuckDB makes `.wal` anew as everybody may read it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from planner.errors import HistoryBusy, HistoryDamaged, HistoryUnusable
from planner.history.schema import MIGRATIONS, Migration, missing
from planner.model.durable_files import free_name, open_locked

NAME: Final = "history/history.duckdb"  # in a state folder, which others may be able to enter
COPY_WITHIN_S: Final = 10.0  # for the writer to have moved its log, or another reader to have copied
AGAIN_S: Final = 0.02
READ_THREADS: Final = 2
READ_MEMORY: Final = "1GB"
_NEVER: Final = "1TB"  # size of the log at which DuckDB itself would move it
_CLOSED_IN: Final = {  # what a reader's question cannot do, and cannot allow itself again
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "threads": str(READ_THREADS),
    "memory_limit": READ_MEMORY,
    "lock_configuration": "true",
}


def duckdb() -> Any:
    """The module. Raises HistoryUnusable when it is not installed."""
    try:
        import duckdb as module
    except ImportError as error:
        raise HistoryUnusable("a history needs DuckDB: install shoal-mesh[history]") from error
    return module


def beside(path: Path, what: str) -> Path:
    """Returns the path of a file that belongs to `path`, named after it."""
    return path.with_name(f"{path.name}.{what}")


def lock_writer(path: Path) -> int:
    """Makes this process the writer; the lock goes with the returned descriptor. Raises HistoryBusy."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = beside(path, "lock")
    fd = open_locked(lock)
    if fd is None:
        who = _writer(path)
        raise HistoryBusy(
            f"{path}: expected to be the only writer, but {f'process {who}' if who else 'another process'} writes "
            "this history; end it, or read with `shoal history`"
        )
    os.ftruncate(fd, 0)
    os.write(fd, f"{os.getpid()}\n".encode())
    return fd


def _writer(path: Path) -> int | None:
    """The number of the process that holds, or last held, the writer's lock."""
    try:
        return int(beside(path, "lock").read_text()[:20])
    except (OSError, ValueError):
        return None


@contextmanager
def copying(path: Path, within_s: float = COPY_WITHIN_S) -> Iterator[bool]:
    """Held while the file is copied or the log moved into it; False when others held it all that time."""
    deadline = time.monotonic() + within_s
    while (fd := open_locked(beside(path, "copy"))) is None:
        if time.monotonic() >= deadline:
            yield False
            return
        time.sleep(AGAIN_S)
    try:
        yield True
    finally:
        os.close(fd)


def connect_writer(path: Path, migrations: tuple[Migration, ...] = MIGRATIONS) -> Any:
    """A connection that may write, its tables those of today. The caller holds the writer's lock.

    Raises HistoryUnusable for a file that is no history or of a newer Shoal, and HistoryDamaged; it is left as it is.
    """
    module = duckdb()
    try:
        with copying(path) as alone:
            if not alone:
                raise HistoryBusy(
                    f"{path}: somebody has been copying it for {COPY_WITHIN_S:.0f} s; try again"
                )
            connection = module.connect(str(path), config={"checkpoint_threshold": _NEVER})
    except module.Error as error:
        raise _why(path, error) from error
    try:
        connection.execute("pragma disable_checkpoint_on_shutdown")
        connection.execute("set threads = 1")
        read_all(connection)
        _migrate(connection, path, migrations)
    except HistoryUnusable:
        connection.close()
        raise
    except module.Error as error:
        connection.close()
        raise _why(path, error) from error
    return connection


def read_all(connection: Any) -> None:
    """Reads every value of every table: blocks have checksums, which count when they are read. Raises duckdb.Error."""
    found = connection.execute("select table_name from duckdb_tables()").fetchall()
    for (table,) in found:
        connection.execute(f'select max(hash(found)) from "{table}" found').fetchall()


def set_aside(path: Path) -> Path:
    """Renames the file and its log; returns the new name. Raises OSError."""
    aside = free_name(path)
    os.replace(path, aside)
    with suppress(FileNotFoundError):
        os.replace(beside(path, "wal"), beside(aside, "wal"))
    return aside


@contextmanager
def copied(path: Path) -> Iterator[Path]:
    """A copy of the file and its log for as long as the block lasts. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="shoal-history-") as folder:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        if (log := beside(path, "wal")).exists():
            shutil.copyfile(log, beside(copy, "wal"))
        yield copy


def _why(path: Path, error: Exception) -> HistoryUnusable:
    """Damage is what a copy of the file has as well; else the disk, or whatever is around it, refuses."""
    module = duckdb()
    try:
        with copied(path) as copy, module.connect(str(copy), read_only=True) as connection:
            read_all(connection)
    except module.OutOfMemoryException:
        pass
    except module.Error:
        return HistoryDamaged(_damaged(path, error))
    except OSError as refusal:
        return HistoryUnusable(f"{path}: expected a history to read: {refusal.strerror}")
    return HistoryUnusable(_damaged(path, error))


def _damaged(path: Path, error: Exception) -> str:
    said = " ".join(str(error).split())[:200]
    return f"{path}: expected a history that opens; move it away to begin a new one ({said})"


def _migrate(connection: Any, path: Path, migrations: tuple[Migration, ...]) -> None:
    steps = missing(version_of(connection, path), migrations)
    if steps is None:
        raise HistoryUnusable(_newer(path))
    for step in steps:
        connection.execute("begin")
        try:
            for statement in step:
                connection.execute(statement)
            connection.execute("update meta set version = version + 1")
        except Exception:
            connection.execute("rollback")
            raise
        connection.execute("commit")


def _newer(path: Path) -> str:
    return f"{path}: this history is of a newer Shoal; update, or choose another file"


def version_of(connection: Any, path: Path) -> int:
    """0 for an empty file. Raises HistoryUnusable for a database that is no history."""
    tables = {row[0] for row in connection.execute("select table_name from duckdb_tables()").fetchall()}
    if not tables:
        return 0
    if "meta" not in tables:
        raise HistoryUnusable(f"{path}: expected a history, got another database; choose another file")
    return int(connection.execute("select version from meta").fetchone()[0])


@contextmanager
def opened_copy(path: Path, *, closed_in: bool = True) -> Iterator[Any]:
    """A read-only connection to a copy of the history as of its last commit. `closed_in`: it reaches no other file.

    Raises HistoryUnusable, and HistoryBusy where this process is the writer: it has its own view.
    """
    module = duckdb()
    if not path.is_file():
        raise HistoryUnusable(
            f"{path}: there is no history yet; `shoal serve --keep` writes one, or name another with --file"
        )
    if _writer(path) == os.getpid() and open_is_held(path):
        raise HistoryBusy(f"{path}: this process writes it; ask the writer for its view")
    with ExitStack() as stack:
        with copying(path) as alone:
            if not alone:
                raise HistoryBusy(f"{path}: it has been busy for {COPY_WITHIN_S:.0f} s; try again")
            try:
                copy = stack.enter_context(copied(path))
            except OSError as error:
                raise HistoryUnusable(f"{path}: expected a history to read: {error.strerror}") from error
        try:
            connection = module.connect(str(copy), read_only=True, config=_CLOSED_IN if closed_in else {})
        except module.Error as error:
            raise HistoryDamaged(_damaged(path, error)) from error
        try:
            if missing(version_of(connection, path)) is None:
                raise HistoryUnusable(_newer(path))
            yield connection
        finally:
            connection.close()


def open_is_held(path: Path) -> bool:
    """Whether somebody is the writer now."""
    fd = open_locked(beside(path, "lock"))
    if fd is None:
        return True
    os.close(fd)
    return False
