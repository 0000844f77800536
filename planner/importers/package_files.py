"""How files of a package on PyPI or npm come to this machine: fetched once, checked to the byte, kept.

Only archives are fetched, and only pinned files are taken out of them: nothing of a package runs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final

from planner.errors import CorruptModel, NoSuchModel, StoreFull
from planner.model.durable_files import DISK_FULL

Progress = Callable[[str], None]  # one sentence about what is going on
Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]

COPY_BYTES = 1 << 20
NPM: Final = "npm:"  # begins a requirement of npm's: "npm:package@version"; of PyPI's: "package==version"


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A file inside a package, pinned to the byte: of a wheel on PyPI, or of a tarball on npm."""

    requirement: str
    member: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class JoinedFile:
    """A file whose parts, one behind the other, lie in packages of their own; pinned to the byte, as they are."""

    name: str
    parts: tuple[PackageFile, ...]
    sha256: str

    @property
    def bytes(self) -> int:
        """Of the whole."""
        return sum(part.bytes for part in self.parts)


def fetch_joined(
    name: str, wanted: JoinedFile, cache: Path, progress: Progress | None = None, run: Run | None = None
) -> Path:
    """The file of these parts, fetched and joined unless it is there; the parts do not stay."""
    folder = cache / "sources"
    final = folder / wanted.name
    with _disk_is_named(name, cache, 3 * wanted.bytes):
        folder.mkdir(parents=True, exist_ok=True)
        if _is_whole(final, wanted):
            return final
        with _only_one(folder / f"{name}.join.lock"):
            if _is_whole(final, wanted):
                return final
            places = []
            for part in wanted.parts:
                places.append(folder / PurePosixPath(part.member).name)
                fetch_files(places[-1].name, {places[-1]: part}, cache, progress, run)
            joined, digest = folder / f"{name}.part", hashlib.sha256()
            with joined.open("wb") as target:
                for place in places:
                    with place.open("rb") as source:
                        while chunk := source.read(COPY_BYTES):
                            digest.update(chunk)
                            target.write(chunk)
                target.flush()
                os.fsync(target.fileno())
            if digest.hexdigest() != wanted.sha256:
                joined.unlink()
                raise CorruptModel(
                    f"{name}: its parts together are not the file they should be (SHA-256 {wanted.sha256}): got "
                    f"SHA-256 {digest.hexdigest()}; it was thrown away"
                )
            os.replace(joined, final)
            for place in places:
                place.unlink()
    return final


def fetch_files(
    name: str,
    wanted: Mapping[Path, PackageFile],
    cache: Path,
    progress: Progress | None = None,
    run: Run | None = None,
) -> None:
    """Puts files of one package to their places below `cache`, unless they are there. `run`: how a command is run."""
    folder = cache / "sources"
    with _disk_is_named(name, cache, 3 * _size(wanted)):
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


def keep_made(name: str, content: bytes, cache: Path) -> Path:
    """The file `name`.onnx beside fetched ones, which has this content: written whole, or left as it is."""
    folder = cache / "sources"
    final = folder / f"{name}.onnx"
    with _disk_is_named(name, cache, len(content)), _only_one(folder / f"{name}.lock"):
        if not final.is_file() or final.read_bytes() != content:
            part = folder / f"{name}.part"
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, final)
    return final


@contextmanager
def _disk_is_named(name: str, cache: Path, needed_bytes: int) -> Iterator[None]:
    """What a disk refuses, as an error of ours."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise StoreFull(
                f"the disk under {cache} is full: {name} needs {needed_bytes >> 20} MiB"
            ) from error
        raise NoSuchModel(
            f"{name} cannot be kept in {cache}: {error.strerror}; choose another folder"
        ) from error


def silent(_: str) -> None:
    """Tells nobody."""


def _size(wanted: Mapping[Path, PackageFile]) -> int:
    return sum(file.bytes for file in wanted.values())


def _missing(wanted: Mapping[Path, PackageFile]) -> dict[Path, PackageFile]:
    return {final: file for final, file in wanted.items() if not _is_whole(final, file)}


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )


def _fetch(requirement: str, scratch: Path, run: Run) -> None:
    """Leaves a wheel or its unpacked files, or a tarball of npm, in `scratch`. Nothing of the package runs."""
    failures: list[str] = []
    of_npm = requirement.startswith(NPM)
    commands = (
        _npm_commands(requirement.removeprefix(NPM), scratch)
        if of_npm
        else _pip_commands(requirement, scratch)
    )
    for command in commands:
        try:
            done = run(command)
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            return
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        if lines and "No module named pip" not in lines[-1]:
            failures.append(_telling(lines))
    missing = "npm is not installed" if of_npm else "neither pip nor uv is installed beside this Python"
    reason = failures[0][:300] if failures else missing
    raise NoSuchModel(f"{requirement} could not be fetched from the package registry: {reason}")


def _telling(lines: Sequence[str]) -> str:
    """The line that says what went wrong: the last one, but npm's last ones name its log."""
    return next((line for line in lines if line.startswith("npm error") and " code " not in line), lines[-1])


def _npm_commands(package: str, scratch: Path) -> Iterator[list[str]]:
    """npm on the path; the one that `make setup` puts beside this Python."""
    options = ["pack", package, "--silent", "--ignore-scripts", "--pack-destination", str(scratch)]
    for npm in ("npm", str(Path(sys.prefix) / "node" / "npm")):
        yield [npm, *options]


def _pip_commands(requirement: str, scratch: Path) -> Iterator[list[str]]:
    """pip of this environment; the pip that Python carries for new environments; uv."""
    wheel_only = ["--no-deps", "--only-binary", ":all:"]
    options = ["download", "--quiet", "--no-input", "--disable-pip-version-check", *wheel_only]
    options += ["--dest", str(scratch), requirement]
    yield [sys.executable, "-m", "pip", *options]
    for bundled in sorted(Path(os.__file__).parent.glob("ensurepip/_bundled/pip-*.whl")):
        yield [sys.executable, str(bundled / "pip"), *options]
    yield ["uv", "pip", "install", "--quiet", *wheel_only, "--target", str(scratch / "unpacked"), requirement]


def _take_out(wanted: PackageFile, scratch: Path, final: Path) -> None:
    """Copies the one pinned file out of the archive, checks it, and only then gives it its name."""
    part = scratch / "part"
    archive = next(scratch.glob("*.whl"), None) or next(scratch.glob("*.tgz"), None)
    unpacked = scratch / "unpacked" / wanted.member
    if archive is not None:
        try:
            with _opened(archive, wanted) as (source, size):
                if size != wanted.bytes:
                    raise _not_pinned(wanted, f"{size} bytes")
                digest = _copy(source, part, wanted.bytes)
        except (zipfile.BadZipFile, tarfile.TarError, zlib.error, KeyError, EOFError) as error:
            raise CorruptModel(f"{archive.name} does not hold {wanted.member}: try again") from error
    elif unpacked.is_file() and not unpacked.is_symlink():
        with unpacked.open("rb") as source:
            digest = _copy(source, part, wanted.bytes)
    else:
        raise CorruptModel(f"{wanted.requirement} does not hold {wanted.member}: try again")
    if digest != wanted.sha256:
        raise _not_pinned(wanted, f"SHA-256 {digest}")
    os.replace(part, final)


@contextmanager
def _opened(archive: Path, wanted: PackageFile) -> Iterator[tuple[IO[bytes], int]]:
    """The member of exactly that name, with its size; no path of the archive's choosing is written."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            entry = wheel.getinfo(wanted.member)
            with wheel.open(entry) as source:
                yield source, entry.file_size
        return
    with tarfile.open(archive, "r:gz") as tarball:
        member = tarball.getmember(wanted.member)
        found = tarball.extractfile(member) if member.isfile() else None
        if found is None:
            raise KeyError(wanted.member)
        with found:
            yield found, member.size


def _not_pinned(wanted: PackageFile, got: str) -> CorruptModel:
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


def _is_whole(path: Path, wanted: PackageFile | JoinedFile) -> bool:
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
