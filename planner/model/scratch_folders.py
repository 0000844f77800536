"""Folders for one piece of work, which go with it; those of processes that were killed go with the next. Edge."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def scratch_folder(parent: Path, kind: str) -> Iterator[Path]:
    """A folder in `parent`, which is made where it is not there. `kind`: how folders of such work are called. Raises
    OSError.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f"{kind}-*"):
        number = left.name.removeprefix(f"{kind}-").partition("-")[0]
        if left.is_dir() and number.isdecimal() and not _runs(int(number)):
            shutil.rmtree(left, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=f"{kind}-{os.getpid()}-", dir=parent)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _runs(process: int) -> bool:
    with suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True
