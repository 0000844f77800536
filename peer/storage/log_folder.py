"""How files of one locked folder are written so that a power loss spares them: every method returns when it is so.

Edge. The names are fixed by the caller; nobody else may use the folder meanwhile.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from peer.errors import LogInUse, StateUnusable
from peer.storage.peer_keys import private_folder
from planner.model.durable_files import (
    BINARY,
    free_name,
    open_locked,
    rename_durably,
    sync_folder,
    write_all,
)

MAX_FILE_BYTES: Final = 1 << 30  # more than any peer writes; nothing larger is read
_LOCK: Final = "lock"
_DRAFT: Final = ".new"

if sys.platform == "darwin":
    import fcntl

    def _sync(fd: int) -> None:
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync there leaves it in the disk's own cache

else:

    def _sync(fd: int) -> None:
        os.fsync(fd)


class Folder:
    """A folder of files, locked until it is closed. What a crash left half made is removed."""

    def __init__(self, path: Path) -> None:
        """Raises LogInUse, StateUnusable."""
        self.path = path
        self._open: tuple[str, int] | None = None  # the file that is appended to
        private_folder(path)
        try:
            lock = open_locked(path / _LOCK)
            if lock is None:
                raise LogInUse(f"another process uses {path}: end it, or give another --state folder")
            self._lock: int | None = lock
            sync_folder(path.parent)
            for draft in path.glob(f"*{_DRAFT}"):
                draft.unlink()
        except OSError as error:
            raise StateUnusable(f"{path} cannot be used: {error.strerror or error}") from error

    def read(self, name: str) -> bytes | None:
        """The whole file; None where there is none. Raises OSError, StateUnusable."""
        try:
            with open(self.path / name, "rb") as file:
                if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
                    raise StateUnusable(
                        f"{self.path / name} is larger than any that a peer writes: move it away"
                    )
                return file.read()
        except FileNotFoundError:
            return None

    def draft(self, files: Mapping[str, bytes]) -> None:
        """All of them are on the disk, under other names: `rename` follows. Raises OSError: all is as it was."""
        try:
            for name, data in files.items():
                fd = os.open(self._draft(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | BINARY, 0o600)
                try:
                    write_all(fd, data)
                    _sync(fd)
                finally:
                    os.close(fd)
        except BaseException:
            for name in files:
                with suppress(OSError):
                    self._draft(name).unlink()
            raise

    def rename(self, names: Iterable[str]) -> None:
        """Each file becomes what was drafted, in this order. Raises OSError: the first ones may be new already."""
        self._let_go()
        for name in names:
            rename_durably(self._draft(name), self.path / name)

    def set_aside(self, name: str) -> str:
        """The file stays under another name, too, which is returned, until somebody removes it. Raises OSError."""
        aside = free_name(self.path / name)
        try:
            os.link(self.path / name, aside)
        except OSError:  # not every file system has links
            shutil.copyfile(self.path / name, aside)
        sync_folder(self.path)
        return aside.name

    def append(self, name: str, at: int, data: bytes) -> None:
        """The file, `at` bytes long until now, goes on with `data`. Raises OSError: any part may be there."""
        fd = self._file(name)
        write_all(fd, data, at)
        _sync(fd)

    def cut(self, name: str, length: int) -> None:
        """The file keeps its first `length` bytes. Raises OSError."""
        fd = self._file(name)
        os.ftruncate(fd, length)
        _sync(fd)

    def close(self) -> None:
        """Lets others use the folder."""
        self._let_go()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _draft(self, name: str) -> Path:
        return self.path / f"{name}{_DRAFT}"

    def _file(self, name: str) -> int:
        if self._open is None or self._open[0] != name:
            self._let_go()
            self._open = (name, os.open(self.path / name, os.O_RDWR | BINARY))
        return self._open[1]

    def _let_go(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None
