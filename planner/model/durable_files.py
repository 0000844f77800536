"""How a file comes to have its name: written whole under another name, flushed, locked meanwhile, then renamed."""

from __future__ import annotations

import errno
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from planner.errors import StoreFull

DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # the disk, the quota, the limit on one file

BINARY: int = getattr(os, "O_BINARY", 0)

if sys.platform == "win32":
    import msvcrt

    _LOCK_OFFSET = 1 << 62  # far past the end: locks of Windows are mandatory, readers must not meet it

    def try_lock(fd: int) -> bool:
        """Whether this open file now holds the lock; it goes with the file, however the process ends."""
        place = os.lseek(fd, 0, os.SEEK_CUR)
        os.lseek(fd, _LOCK_OFFSET, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(fd, place, os.SEEK_SET)
        return True

    def sync_folder(folder: Path) -> None:
        """Windows keeps folder entries in order by itself."""

else:
    import fcntl

    def try_lock(fd: int) -> bool:
        """Whether this open file now holds the lock; it goes with the file, however the process ends."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def sync_folder(folder: Path) -> None:
        """Makes renames in this folder survive a power loss."""
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def write_all(fd: int, chunk: bytes | memoryview, offset: int | None = None) -> None:
    """Writes all of it, at `offset` or where the file stands."""
    view = memoryview(chunk).cast("B")
    if offset is not None:
        os.lseek(fd, offset, os.SEEK_SET)
    while view:
        view = view[os.write(fd, view) :]


def create_locked(folder: Path) -> tuple[Path, int]:
    """A new, empty, locked file. Until locked it looks orphaned: if another process removed it, try again."""
    while True:
        path = folder / secrets.token_hex(12)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | BINARY, 0o666)
        if try_lock(fd) and _is_same_file(path, fd):
            return path, fd
        os.close(fd)


def open_locked(path: Path) -> int | None:
    """The existing or new file, locked; None while another writer holds it."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | BINARY, 0o666)
        if not try_lock(fd):
            os.close(fd)
            return None
        if _is_same_file(path, fd):
            return fd
        os.close(fd)  # it was renamed or removed in between


def _is_same_file(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def rename_durably(path: Path, final: Path) -> None:
    """Gives the file its name, replacing any other of that name at once."""
    os.replace(path, final)
    sync_folder(final.parent)


def free_name(path: Path) -> Path:
    """A name beside `path`, for a damaged file or folder that is set aside: nothing has it, so nothing is lost."""
    return next(aside for number in count(1) if not (aside := Path(f"{path}.aside-{number}")).exists())


@contextmanager
def full_disk_is_named(root: Path) -> Iterator[None]:
    """Turns a refusal of the disk into StoreFull; other errors pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise StoreFull(
            f"the disk under {root} is full ({os.strerror(error.errno)}): free some space and try again"
        ) from error
