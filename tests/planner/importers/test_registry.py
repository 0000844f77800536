"""Names of models: where they lead, what is fetched, and what a failed fetch leaves behind."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import huggingface_hub
import pytest

from planner.errors import CorruptModel, ModelError, NoSuchModel, StoreFull
from planner.importers import registry
from planner.importers.package_files import JoinedFile, PackageFile
from planner.importers.registry import SHORT_NAMES, fetch_short_name, resolve

if TYPE_CHECKING:
    from tests.planner.tiny_models import TinyModel

Completed = subprocess.CompletedProcess


@pytest.fixture
def tiny_file(tiny_model: TinyModel, tmp_path: Path) -> bytes:
    return tiny_model.write_gguf(tmp_path / "source.gguf").read_bytes()


@pytest.fixture
def pinned(tiny_file: bytes, monkeypatch: pytest.MonkeyPatch) -> PackageFile:
    wanted = PackageFile("tiny==1", "tiny/Tiny.gguf", len(tiny_file), hashlib.sha256(tiny_file).hexdigest())
    monkeypatch.setattr(registry, "SHORT_NAMES", {"smollm2-135m": wanted})
    return wanted


class Registry:
    """Stands in for pip, uv and npm: answers commands, counts them."""

    def __init__(self, members: dict[str, bytes], *, works: Sequence[str] = ("pip",), says: str = "") -> None:
        self.members = members
        self.works = works
        self.says = says
        self.commands: list[Sequence[str]] = []

    def __call__(self, command: Sequence[str]) -> Completed[str]:
        self.commands.append(command)
        tool = command[0] if command[0] in ("uv", "npm") else "pip" if command[1] == "-m" else "bundled"
        if command[0].endswith("/node/npm"):
            tool = "own npm"
        if tool not in self.works:
            if tool in ("uv", "own npm") or (tool == "npm" and not self.says):
                raise FileNotFoundError(tool)
            return Completed(command, 1, "", self.says or "/usr/bin/python: No module named pip\n")
        if tool == "uv":
            target = Path(command[command.index("--target") + 1])
            for name, content in self.members.items():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                (target / name).write_bytes(content)
        elif tool in ("npm", "own npm"):
            folder = Path(command[command.index("--pack-destination") + 1])
            with tarfile.open(folder / "tiny-1.tgz", "w:gz") as tarball:
                for name, content in self.members.items():
                    entry = tarfile.TarInfo(name)
                    entry.size = len(content)
                    tarball.addfile(entry, io.BytesIO(content))
        else:
            folder = Path(command[command.index("--dest") + 1])
            with zipfile.ZipFile(folder / "tiny-1-py3-none-any.whl", "w") as wheel:
                for name, content in self.members.items():
                    wheel.writestr(name, content)
        return Completed(command, 0, "", "")


def left(cache: Path) -> set[str]:
    return {path.name for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"}


@pytest.mark.parametrize("tool", ["pip", "bundled", "uv"])
def test_a_short_name_is_fetched_once_whatever_tool_there_is(
    pinned: PackageFile, tiny_file: bytes, tmp_path: Path, tool: str
) -> None:
    run = Registry({pinned.member: tiny_file, "../evil": b"x", "tiny/setup.py": b"raise"}, works=(tool,))
    said: list[str] = []
    cache = tmp_path / "cache"
    path = fetch_short_name("smollm2-135m", cache, said.append, run)
    assert path.read_bytes() == tiny_file
    assert left(cache) == {"Tiny.gguf"}, "nothing else of the wheel is kept or written anywhere"
    assert not (tmp_path / "evil").exists()
    assert said == ["fetching smollm2-135m (1 MB, package tiny==1)"] or len(said) == 1
    assert all("--no-deps" in command and ":all:" in command for command in run.commands)
    before = len(run.commands)
    assert fetch_short_name("smollm2-135m", cache, said.append, run) == path
    assert (len(run.commands), len(said)) == (before, 1)
    source = resolve("smollm2-135m", cache)
    assert source.name == "smollm2-135m"


def test_a_file_in_parts_is_joined_and_the_parts_go(
    tiny_file: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = (tiny_file[:5000], tiny_file[5000:9000], tiny_file[9000:])
    parts = tuple(
        PackageFile(
            f"tiny-part{at}==1", f"tiny/Tiny.gguf.part{at}", len(piece), hashlib.sha256(piece).hexdigest()
        )
        for at, piece in enumerate(pieces)
    )
    whole = JoinedFile("Tiny.gguf", parts, hashlib.sha256(tiny_file).hexdigest())
    monkeypatch.setattr(registry, "SHORT_NAMES", {"tiny": whole})
    members = {part.member: piece for part, piece in zip(parts, pieces, strict=True)}
    run, cache = Registry(members), tmp_path / "cache"
    path = fetch_short_name("tiny", cache, None, run)
    assert path.read_bytes() == tiny_file
    assert left(cache) == {"Tiny.gguf"}
    assert [command[-1] for command in run.commands] == [part.requirement for part in parts]
    assert fetch_short_name("tiny", cache, None, run) == path
    assert len(run.commands) == len(parts)
    assert resolve("tiny", cache).name == "tiny"
    monkeypatch.setattr(registry, "SHORT_NAMES", {"tiny": replace(whole, name="Other.gguf", sha256="0" * 64)})
    with pytest.raises(CorruptModel, match="parts together are not the file"):
        fetch_short_name("tiny", cache, None, run)
    assert not (cache / "sources" / "Other.gguf").exists()


@pytest.fixture
def of_npm(pinned: PackageFile, monkeypatch: pytest.MonkeyPatch) -> PackageFile:
    wanted = replace(pinned, requirement="npm:tiny@1", member="package/Tiny.gguf")
    monkeypatch.setattr(registry, "SHORT_NAMES", {"smollm2-135m": wanted})
    return wanted


@pytest.mark.parametrize("tool", ["npm", "own npm"])
def test_a_file_of_npm_is_fetched_as_one_of_pypi(
    of_npm: PackageFile, tiny_file: bytes, tmp_path: Path, tool: str
) -> None:
    members = {"../evil": b"x", "package/install.js": b"throw 1", of_npm.member: tiny_file}
    run, cache = Registry(members, works=(tool,)), tmp_path / "cache"
    assert fetch_short_name("smollm2-135m", cache, run=run).read_bytes() == tiny_file
    assert left(cache) == {"Tiny.gguf"}, "nothing else of the tarball is kept or written anywhere"
    assert not (tmp_path / "evil").exists()
    assert all(
        command[1:3] == ["pack", "tiny@1"] and "--ignore-scripts" in command for command in run.commands
    )


@pytest.mark.parametrize(
    ("run", "error", "says"),
    [
        (Registry({}, works=()), NoSuchModel, "npm is not installed"),
        (
            Registry({}, works=(), says="npm error code E404\nnpm error 404 no tiny\nnpm error A log: x\n"),
            NoSuchModel,
            "npm error 404 no tiny$",
        ),
        (Registry({"package/other": b"x"}, works=("npm",)), CorruptModel, "does not hold package/Tiny"),
        (Registry({"package/Tiny.gguf": b"x"}, works=("npm",)), CorruptModel, "is not the file it should be"),
    ],
)
def test_a_failed_fetch_of_npm_is_one_line_and_leaves_nothing(
    of_npm: PackageFile, tmp_path: Path, run: Registry, error: type[ModelError], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        fetch_short_name("smollm2-135m", tmp_path / "cache", run=run)
    assert "\n" not in str(caught.value)
    assert left(tmp_path / "cache") == set()


@pytest.mark.parametrize("content", [b"", b"not a tarball", b"\x1f\x8b\x08\x00" + bytes(30)])
def test_a_tarball_that_is_none(of_npm: PackageFile, tmp_path: Path, content: bytes) -> None:
    def run(command: Sequence[str]) -> Completed[str]:
        (Path(command[command.index("--pack-destination") + 1]) / "tiny-1.tgz").write_bytes(content)
        return Completed(command, 0, "", "")

    with pytest.raises(CorruptModel, match="does not hold"):
        fetch_short_name("smollm2-135m", tmp_path / "cache", run=run)
    assert left(tmp_path / "cache") == set()


def test_a_damaged_copy_is_fetched_again_and_a_killed_download_is_cleared(
    pinned: PackageFile, tiny_file: bytes, tmp_path: Path
) -> None:
    run = Registry({pinned.member: tiny_file})
    path = fetch_short_name("smollm2-135m", tmp_path / "cache", run=run)
    path.write_bytes(tiny_file[:-1] + b"!")
    (path.parent / "smollm2-135m.download").mkdir()
    (path.parent / "smollm2-135m.download" / "half.whl").write_bytes(b"half")
    assert fetch_short_name("smollm2-135m", tmp_path / "cache", run=run).read_bytes() == tiny_file
    assert left(tmp_path / "cache") == {"Tiny.gguf"}


def test_two_at_once_fetch_once(pinned: PackageFile, tiny_file: bytes, tmp_path: Path) -> None:
    run = Registry({pinned.member: tiny_file})
    with ThreadPoolExecutor(4) as pool:
        paths = [pool.submit(fetch_short_name, "smollm2-135m", tmp_path / "cache", run=run) for _ in range(4)]
        assert {path.result().read_bytes() for path in paths} == {tiny_file}
    assert len(run.commands) == 1


@pytest.mark.parametrize(
    ("run", "error", "says"),
    [
        (Registry({}, works=()), NoSuchModel, "neither pip nor uv is installed"),
        (
            Registry({}, works=(), says="WARNING: x\nERROR: No matching distribution\n"),
            NoSuchModel,
            "ERROR: No matching",
        ),
        (Registry({"tiny/other": b"x"}), CorruptModel, r"does not hold tiny/Tiny\.gguf"),
        (Registry({"tiny/other": b"x"}, works=("uv",)), CorruptModel, r"does not hold tiny/Tiny\.gguf"),
        (
            Registry({"tiny/Tiny.gguf": b"x"}),
            CorruptModel,
            "is not the file it should be .* got 1 bytes; it was thrown away",
        ),
        (Registry({"tiny/Tiny.gguf": b"x"}, works=("uv",)), CorruptModel, "is not the file it should be"),
    ],
)
def test_a_failed_fetch_is_one_line_and_leaves_nothing(
    pinned: PackageFile, tmp_path: Path, run: Registry, error: type[ModelError], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        fetch_short_name("smollm2-135m", tmp_path / "cache", run=run)
    assert "\n" not in str(caught.value)
    assert left(tmp_path / "cache") == set()
    assert not (tmp_path / "cache" / "sources" / "smollm2-135m.download").exists()


def test_other_bytes_of_the_same_length_are_refused(
    pinned: PackageFile, tiny_file: bytes, tmp_path: Path
) -> None:
    run = Registry({pinned.member: bytes(len(tiny_file))})
    with pytest.raises(CorruptModel, match="SHA-256"):
        fetch_short_name("smollm2-135m", tmp_path / "cache", run=run)
    assert left(tmp_path / "cache") == set()


def test_a_wheel_that_is_no_archive(pinned: PackageFile, tmp_path: Path) -> None:
    def run(command: Sequence[str]) -> Completed[str]:
        (Path(command[command.index("--dest") + 1]) / "tiny-1-py3-none-any.whl").write_bytes(b"not a zip")
        return Completed(command, 0, "", "")

    with pytest.raises(CorruptModel, match="does not hold"):
        fetch_short_name("smollm2-135m", tmp_path / "cache", run=run)


def test_a_full_disk_leaves_nothing(
    pinned: PackageFile, tiny_file: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreFull, match="is full"):
        fetch_short_name("smollm2-135m", tmp_path / "cache", run=Registry({pinned.member: tiny_file}))
    assert left(tmp_path / "cache") == set()


def test_a_cache_that_is_a_file(pinned: PackageFile, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(NoSuchModel, match=r"cannot be kept in .*; choose another folder"):
        fetch_short_name("smollm2-135m", tmp_path / "cache")


def test_paths_lead_to_files_and_folders(tiny_model: TinyModel, tmp_path: Path) -> None:
    file = tiny_model.write_gguf(tmp_path / "Tiny.Q8.gguf")
    assert resolve(str(file), tmp_path).name == "Tiny.Q8"
    folder = tiny_model.write_folder(tmp_path / "folder")
    assert resolve(str(folder), tmp_path).name == "folder"
    with pytest.raises(NoSuchModel, match="give the folder"):
        resolve(str(folder / "model.safetensors"), tmp_path)
    (tmp_path / "ggufs").mkdir()
    tiny_model.write_gguf(tmp_path / "ggufs" / "a.gguf")
    assert resolve(str(tmp_path / "ggufs"), tmp_path).name == "a"
    tiny_model.write_gguf(tmp_path / "ggufs" / "b.gguf")
    with pytest.raises(NoSuchModel, match=r"several GGUF files, name one: a\.gguf, b\.gguf"):
        resolve(str(tmp_path / "ggufs"), tmp_path)


@pytest.mark.parametrize("name", ["nothing", "absent.gguf", "", "/absent/folder", "SMOLLM2-135M", "a/b"])
def test_an_unknown_name_lists_what_is_accepted(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(NoSuchModel) as caught:
        resolve(name or "''", tmp_path)
    for accepted in (".gguf", "Hugging Face folder", "hf:owner/repo", *SHORT_NAMES):
        assert accepted in str(caught.value)


@pytest.mark.parametrize(
    "name", ["hf:", "hf:repo", "hf:a/b/c", "hf:a/../b", "hf:../b", "hf:a/b/../c.gguf", "hf:a b/c"]
)
def test_a_malformed_hub_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(NoSuchModel, match="expected hf:owner/repo"):
        resolve(name, tmp_path)


class Hub:
    """Stands in for the hub: one folder; remembers what it was asked for."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.asked: list[tuple[str, str | None, list[str]]] = []
        monkeypatch.setattr(huggingface_hub, "snapshot_download", self.snapshot)
        monkeypatch.setattr(
            huggingface_hub.HfApi,
            "list_repo_files",
            lambda *_, **__: sorted(p.name for p in folder.iterdir()),
        )

    def snapshot(self, repo: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        self.asked.append((repo, revision, allow_patterns))
        return str(self.folder)


def test_a_hub_repo_with_safetensors(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(tiny_model.write_folder(tmp_path / "snapshot", shards=2), monkeypatch)
    said: list[str] = []
    assert resolve("hf:owner/Some.Repo-1", tmp_path, said.append).name == "owner/Some.Repo-1"
    assert resolve("hf:owner/repo@v1.0", tmp_path).name == "owner/repo"
    assert [(repo, revision) for repo, revision, _ in hub.asked] == [
        ("owner/Some.Repo-1", None),
        ("owner/repo", "v1.0"),
    ]
    assert not any(
        pattern.endswith((".bin", ".pt", "*")) for _, _, patterns in hub.asked for pattern in patterns
    )
    assert said == ["fetching owner/Some.Repo-1 from Hugging Face"]


def test_a_hub_repo_with_gguf_files(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "snapshot"
    folder.mkdir()
    tiny_model.write_gguf(folder / "tiny.Q8.gguf")
    tiny_model.write_gguf(folder / "big.gguf", split_tensors=12)
    hub = Hub(folder, monkeypatch)
    with pytest.raises(
        NoSuchModel, match=r"name one of its GGUF files as hf:owner/repo/FILE: .*tiny\.Q8\.gguf"
    ):
        resolve("hf:owner/repo", tmp_path)
    assert resolve("hf:owner/repo/tiny.Q8.gguf", tmp_path).name == "tiny.Q8"
    assert hub.asked[-1] == ("owner/repo", None, ["tiny.Q8.gguf"])
    assert resolve("hf:owner/repo@main/big-00001-of-00002.gguf", tmp_path).name == "big"
    assert hub.asked[-1] == ("owner/repo", "main", ["big-*-of-00002.gguf"])
    with pytest.raises(NoSuchModel, match=r"has no file absent\.gguf; name one of"):
        resolve("hf:owner/repo/absent.gguf", tmp_path)


def test_a_hub_that_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> str:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fails)
    with pytest.raises(
        NoSuchModel, match=r"hf:a/b could not be fetched \(ConnectionError: no route\): check"
    ) as caught:
        resolve("hf:a/b", tmp_path)
    assert "\n" not in str(caught.value)


def test_the_real_short_name(smollm2_gguf: Path) -> None:
    wanted = SHORT_NAMES["smollm2-135m"]
    assert smollm2_gguf.stat().st_size == wanted.bytes
