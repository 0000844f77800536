"""What is in the wheel and in the source archive, and what commands of a package say where something is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email import message_from_string
from pathlib import Path

import pytest

from peer.version import VERSION
from tests.package import PAGE, ROOT, built_package, only

PACKAGES = ("planner", "signaling", "peer")
WITHIN_S = 60.0
STRAYS = {"tests", "node_modules", "build", "bench", "__pycache__", ".venv", ".git", ".ci"}
CANNOT_JOIN = "browsers cannot join, since this package was made without the page: install a wheel"


@dataclass(frozen=True)
class Package:
    """The contents of both archives by name; those of the source archive without its leading folder."""

    wheel: dict[str, bytes]
    source: dict[str, bytes]
    wheel_file: Path


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """As by `make dist`: the wheel is made from the source archive, with no Node within reach."""
    folder = tmp_path_factory.mktemp("dist")
    built_package(folder)
    with zipfile.ZipFile(only(folder, "*.whl")) as archive:
        wheel = {name: archive.read(name) for name in archive.namelist()}
    with tarfile.open(only(folder, "*.tar.gz")) as archive:
        source = {
            member.name.partition("/")[2]: file.read()
            for member in archive
            if (file := archive.extractfile(member)) is not None
        }
    return Package(wheel, source, only(folder, "*.whl"))


def files(folder: Path, pattern: str = "*") -> dict[str, bytes]:
    """The contents of the files under `folder` by their names there."""
    found = (path for path in folder.rglob(pattern) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_the_wheel_is_the_packages_and_the_page_and_nothing_else(package: Package) -> None:
    expected = {f"signaling/web_app/{name}": content for name, content in files(PAGE).items()}
    for name in PACKAGES:
        expected |= {f"{name}/{path}": content for path, content in files(ROOT / name, "*.py").items()}
    told = f"shoal_mesh-{VERSION}.dist-info/"
    assert {n: c for n, c in package.wheel.items() if not n.startswith(told)} == expected
    assert f"{told}licenses/LICENSE" in package.wheel


def test_the_source_archive_has_the_page_and_what_it_is_made_of(package: Package) -> None:
    names = package.source.keys()
    assert {n.removeprefix("web_peer/dist/"): c for n, c in package.source.items() if "/dist/" in n} == files(
        PAGE
    )
    for path in (
        "pyproject.toml",
        "LICENSE",
        "README.md",
        "web_peer/package-lock.json",
        "web_peer/src/member/mesh_member.ts",
    ):
        assert path in names
    assert [name for name in names if STRAYS & set(name.removeprefix("peer/bench/").split("/"))] == []


def test_the_page_carries_the_licences_of_what_is_in_it(package: Package) -> None:
    bundled = json.loads((ROOT / "web_peer" / "package.json").read_text())["dependencies"]
    told = "".join(
        package.wheel[f"signaling/web_app/{name}"].decode()
        for name in ("licenses.md", "onnxruntime-web.license.txt")
    )
    assert [name for name in bundled if name not in told] == []


def test_the_wheel_is_called_as_the_program_calls_itself(package: Package) -> None:
    told = message_from_string(package.wheel[f"shoal_mesh-{VERSION}.dist-info/METADATA"].decode())
    assert (told["Name"], told["Version"], told["License-Expression"]) == (
        "shoal-mesh",
        VERSION,
        "Apache-2.0",
    )
    assert b"shoal = peer.cli.entry:main" in package.wheel[f"shoal_mesh-{VERSION}.dist-info/entry_points.txt"]


# --- outside a checkout


@pytest.fixture
def unpacked(package: Package, tmp_path: Path) -> Path:
    """Where the wheel lies as if it was installed there, away from the checkout."""
    folder = tmp_path / "installed"
    with zipfile.ZipFile(package.wheel_file) as archive:
        archive.extractall(folder)
    return folder


def without_page(unpacked: Path) -> Path:
    for path in (unpacked / "signaling" / "web_app").iterdir():
        path.rename(unpacked / path.name)
    return unpacked


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "peer.cli.main", *words]


def environment(unpacked: Path) -> dict[str, str]:
    """The unpacked package comes before the programs that the tests run with."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return kept | {"PYTHONPATH": str(unpacked), "HOME": str(unpacked.parent)}


@contextmanager
def meeting(unpacked: Path) -> Iterator[tuple[str, list[str]]]:
    """`shoal signaling`: its address, and the lines of stderr, which are there once the block ended."""
    said: list[str] = []
    with subprocess.Popen(
        command("signaling", "--port", "0", "--until-stdin-closes"),
        cwd=unpacked.parent,
        env=environment(unpacked),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), said
        said += process.communicate(timeout=WITHIN_S)[1].splitlines()
    assert process.returncode == 0, said


def test_the_page_of_an_unpacked_wheel_is_served(unpacked: Path) -> None:
    with meeting(unpacked) as (url, said), urllib.request.urlopen(url, timeout=WITHIN_S) as page:
        assert page.read() == (PAGE / "index.html").read_bytes()
    assert not any("browsers cannot join" in line for line in said)


def test_a_server_without_the_page_says_so_and_so_does_what_it_shows(unpacked: Path) -> None:
    with (
        meeting(without_page(unpacked)) as (url, said),
        urllib.request.urlopen(url, timeout=WITHIN_S) as page,
    ):
        assert "without the page with which browsers join" in page.read().decode()
    assert [line for line in said if CANNOT_JOIN in line]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("demo --once --browsers chromium", CANNOT_JOIN),
        ("validate run --browsers chromium", CANNOT_JOIN),
        ("bench browser", "shoal bench browser builds its page from a checkout of Shoal"),
    ],
)
def test_what_needs_the_page_or_a_checkout_says_so_in_one_line(
    unpacked: Path, words: str, complaint: str
) -> None:
    done = subprocess.run(
        command(*words.split()),
        cwd=unpacked.parent,
        env=environment(without_page(unpacked)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert [line.startswith(f"shoal: {complaint}") for line in done.stderr.splitlines()] == [True], (
        done.stderr
    )
