"""Values on their way between two processes of one machine: files in the memory that they share, or where a system has
no folder of it (macOS) in the user's folder of temporary files. Edge.

Who takes values makes a folder for each peer that asks for one: its name is drawn, only processes of the same user
reach it, and it says for whom it is. Who finds it there is on the same machine, and leaves files of 16 random bytes in
hex. A folder is locked while its process lives; what processes left that were killed is removed by the next one.
Python alone: a tab shares no memory.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from peer.errors import BadCommand, CannotServe

_SHARED: Final = Path("/dev/shm")
ROOT: Final = (
    _SHARED if _SHARED.is_dir() else Path(tempfile.gettempdir())
)  # there its pages stay in memory for a while
LEAST_BYTES: Final = 64 << 10  # of a value that is worth a request and its answer
NEW_S: Final = 60.0  # a folder as young as this may not be locked yet
ENDS: Final = "ends"  # in a folder: who leaves values there, and who takes them
_NAME: Final = re.compile(r"shoal-[0-9a-f]{32}")
_FILE: Final = re.compile(r"[0-9a-f]{32}")
_BYTES: Final = 16


class Inbox:
    """The folders of this process, one for each peer that leaves values in it. `me` is this peer."""

    def __init__(self, me: str, root: Path = ROOT) -> None:
        self._me = me
        self._root = root
        self._folders: dict[str, tuple[str, int]] = {}  # by sender: its name, and what holds its lock

    def folder(self, sender: str) -> str:
        """The name of the folder for what `sender` leaves. Raises CannotServe where there is no shared memory."""
        if sender in self._folders:
            return self._folders[sender][0]
        name = f"shoal-{os.urandom(_BYTES).hex()}"
        path = self._root / name
        try:
            if not self._folders:
                remove_leftovers(self._root)
            path.mkdir(mode=0o700)
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (path / ENDS).write_text(_ends(sender, self._me))
        except OSError as error:
            raise CannotServe(f"this machine has no memory that processes share: {error.strerror}") from None
        self._folders[sender] = (name, lock)
        return name

    def take(self, sender: str, file: str, total: int) -> bytearray:
        """The bytes of a file that `sender` left, which is removed. Raises BadCommand where it is not there so."""
        found = self._folders.get(sender)
        if found is None or not _FILE.fullmatch(file):
            raise BadCommand("run_left: a file in this peer's folder expected")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with open(os.open(file, flags, dir_fd=found[1]), "rb", buffering=0) as source:
                facts = os.fstat(source.fileno())
                if not stat.S_ISREG(facts.st_mode) or facts.st_size != total:
                    raise BadCommand(f"run_left: a file of {total} bytes expected, got {facts.st_size}")
                data = bytearray(total)
                view, at = memoryview(data), 0
                while at < total:
                    count = source.readinto(view[at:])
                    if not count:
                        raise BadCommand(f"run_left: a file of {total} bytes expected, it ends after {at}")
                    at += count
        except OSError as error:
            raise BadCommand(f"run_left: {file} cannot be read: {error.strerror}") from None
        finally:
            self.drop(sender, file)
        return data

    def drop(self, sender: str, file: str) -> None:
        """Removes a file that is not wanted."""
        found = self._folders.get(sender)
        if found is not None and _FILE.fullmatch(file):
            with suppress(OSError):
                os.unlink(file, dir_fd=found[1])

    def forget(self, sender: str) -> None:
        """Removes the folder of a peer that is gone."""
        name, lock = self._folders.pop(sender, ("", -1))
        if name:
            shutil.rmtree(self._root / name, ignore_errors=True)
            os.close(lock)

    def outbox(self, name: str, taker: str) -> Path | None:
        """Where this peer leaves values for `taker`, which says that its folder has that name; None: not here."""
        path = self._root / name
        if not _NAME.fullmatch(name):
            return None
        try:
            facts = path.lstat()
            ends = (path / ENDS).read_text()
        except (OSError, ValueError):
            return None
        own = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077
        return path if own and ends == _ends(self._me, taker) else None

    def close(self) -> None:
        """Removes all folders."""
        for sender in list(self._folders):
            self.forget(sender)


def leave(folder: Path, data: bytes | memoryview) -> Path | None:
    """Writes a file of its own; None where there is no room, or no folder any more."""
    path = folder / os.urandom(_BYTES).hex()
    try:
        with open(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb", buffering=0
        ) as file:
            view, at = memoryview(data), 0
            while at < len(view):
                at += file.write(view[at:])
    except OSError:
        remove(path)
        return None
    return path


def remove(path: Path) -> None:
    """Removes a file, whether or not it is there."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def remove_leftovers(root: Path = ROOT) -> None:
    """Removes the folders of this user's processes that have ended."""
    for path in root.glob("shoal-*"):
        with suppress(OSError):
            facts = path.lstat()
            mine = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid()
            if not mine or not _NAME.fullmatch(path.name) or time.time() - facts.st_mtime < NEW_S:
                continue
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


def _ends(sender: str, taker: str) -> str:
    return f"{sender}\n{taker}\n"
