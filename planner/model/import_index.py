"""Which model came of which files, so that what is unchanged is not imported again.

    root/imports/<key>.json            the model that an import made; its key is a hash of all that went into it
    root/imports/files/<path>.json     the SHA-256 of one source file, for as long as the file looks unchanged

Contents alone decide: names and paths only save reading. Losing these files costs an import, nothing else. Each has a
checksum; a damaged one is set aside, and as none.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from planner.errors import CorruptModel, NoSuchModel
from planner.model.checked_fields import canonical
from planner.model.durable_files import free_name

IMPORTER: Final = (
    4  # raised when an import makes another model of the same files, so that they are imported anew
)
RACY_NS: Final = (
    2_000_000_000  # a file written this shortly before it was read may change unseen: coarse clocks
)
READ_BYTES: Final = 4 << 20
SEAL: Final = "sha256 of the rest"

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Look:
    """What a file looks like without reading it. Every write moves `changed_ns`, whatever time `modified_ns` shows."""

    bytes: int
    modified_ns: int
    changed_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Seen:
    """One file on this disk: what it looked like when it was read, at `taken_ns`, and its SHA-256."""

    path: Path
    look: Look
    taken_ns: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Contents:
    """What an import reads: SHA-256 by a file's name in the model, and the files of this disk among them."""

    hashes: tuple[tuple[str, str], ...]
    seen: tuple[Seen, ...] = ()

    def check(self) -> None:
        """Raises CorruptModel for a file that is another one now."""
        for file in self.seen:
            _check(file.path, file.look)


class ImportIndex:
    """The index of one store. Many processes may use it at the same time."""

    def __init__(self, root: Path, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._folder = root / "imports"
        self._files = self._folder / "files"
        self._now_ns = now_ns

    def contents(self, files: Mapping[str, Path], progress: Progress | None = None) -> Contents:
        """Reads the files that are not known as they are; `progress(done, total)` counts bytes of those.

        Raises NoSuchModel for one that cannot be read, CorruptModel for one that changes meanwhile.
        """
        looks = {name: (path, _look(path)) for name, path in files.items()}
        known = {name: self._remembered(path, look) for name, (path, look) in looks.items()}
        total = sum(look.bytes for name, (_, look) in looks.items() if known[name] is None)
        done = 0

        def told(read: int) -> None:
            if progress is not None:
                progress(done + read, total)

        found: dict[str, Seen] = {}
        for name, (path, look) in looks.items():
            seen = known[name]
            if seen is None:
                taken_ns = self._now_ns()
                seen = Seen(path, look, taken_ns, _hash(path, told))
                _check(path, look)
                done += look.bytes
            found[name] = seen
        return Contents(tuple((name, seen.sha256) for name, seen in found.items()), tuple(found.values()))

    def model(self, name: str, weights: str, contents: Contents) -> str | None:
        """The id of the model that an import of these contents, called `name`, made; None where none did."""
        found = _read(self._import(name, weights, contents)).get("model")
        if not isinstance(found, str):
            return None
        self._remember(contents)
        return found

    def keep(self, name: str, weights: str, contents: Contents, model_id: str, source: str) -> None:
        """Remembers what an import made. `source`: what it was asked for, for people."""
        shown = source.encode("utf-8", "replace").decode()  # a path need not be text
        self._write(self._import(name, weights, contents), {"model": model_id, "source": shown})
        self._remember(contents)

    def sources(self) -> dict[str, list[str]]:
        """By model, what it was last imported from, sorted."""
        found: dict[str, set[str]] = {}
        for path in self._folder.glob("*.json"):
            match _read(path):
                case {"model": str(model_id), "source": str(source)}:
                    found.setdefault(model_id, set()).add(source)
        return {model_id: sorted(sources) for model_id, sources in found.items()}

    def _import(self, name: str, weights: str, contents: Contents) -> Path:
        parts = {"importer": IMPORTER, "name": name, "weights": weights, "files": contents.hashes}
        return self._folder / f"{hashlib.sha256(canonical(parts)).hexdigest()}.json"

    def _remembering(self, path: Path) -> Path:
        return self._files / f"{hashlib.sha256(os.fsencode(path.absolute())).hexdigest()}.json"

    def _remember(self, contents: Contents) -> None:
        for seen in contents.seen:
            if seen != self._remembered(seen.path, seen.look):
                entry = {**asdict(seen.look), "taken_ns": seen.taken_ns, "sha256": seen.sha256}
                self._write(self._remembering(seen.path), entry)

    def _remembered(self, path: Path, look: Look) -> Seen | None:
        """What is known of a file that looks as it did, and did so long enough before it was read."""
        entry = _read(self._remembering(path))
        match entry:
            case {"taken_ns": int(taken_ns), "sha256": str(found)} if all(
                entry.get(name) == value for name, value in asdict(look).items()
            ):
                settled = max(look.modified_ns, look.changed_ns) + RACY_NS < taken_ns
                return Seen(path, look, taken_ns, found) if settled else None
        return None

    def _write(self, path: Path, entry: Mapping[str, Any]) -> None:
        """Puts the entry in place at once. A disk that refuses costs time at the next start, not this import."""
        beside = path.with_suffix(f".{os.getpid()}.new")
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(canonical({**entry, SEAL: _sum(entry)}))
            beside.replace(path)


def _check(path: Path, look: Look) -> None:
    if _look(path) != look:
        raise CorruptModel(f"{path} changed while it was imported: try again once it is complete")


def _look(path: Path) -> Look:
    try:
        found = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error
    return Look(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def _hash(path: Path, progress: Callable[[int], object]) -> str:
    digest, done = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while part := file.read(READ_BYTES):
                digest.update(part)
                done += len(part)
                progress(done)
    except OSError as error:
        raise _unreadable(path, error) from error
    return digest.hexdigest()


def _unreadable(path: Path, error: OSError) -> NoSuchModel:
    return NoSuchModel(f"{path} cannot be read: {error.strerror}")


def _read(path: Path) -> Mapping[str, Any]:
    """The entry; nothing where there is none, or one that was damaged and is set aside."""
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    try:
        entry = json.loads(data)
        if isinstance(entry, dict):
            seal = entry.pop(SEAL, None)
            if seal in (None, _sum(entry)):  # None: of an earlier version
                return entry
    except (ValueError, RecursionError):
        pass  # no JSON
    aside = free_name(path)
    with suppress(OSError):
        path.replace(aside)
        log.warning("%s is damaged: it is %s now, and what it said is found out again", path, aside.name)
    return {}


def _sum(entry: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(entry)).hexdigest()
