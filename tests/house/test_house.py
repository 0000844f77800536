"""The house rules that no other tool checks: first lines, lengths, names, links, and commands people are told of."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from peer.cli.arguments.combinations import check_combinations, given_options
from peer.cli.main import parser

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    path
    for folder in ("planner", "signaling", "peer", "examples", "tests")
    for path in (ROOT / folder).rglob("*.py")
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MOST_MODULES = 25  # in one folder: beyond it nobody finds anything


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_says_what_it_is_about(path: Path) -> None:
    source = path.read_text()
    if not source.strip():
        assert path.name == "__init__.py"
        assert path.is_relative_to(ROOT / "tests")
        return
    docstring = ast.get_docstring(ast.parse(source))
    assert docstring, "the first line of a module says what it is about"
    assert len(docstring.splitlines()[0]) > 10
    assert source.startswith(('"""', "#!/"))
    assert path.stem not in {"utils", "util", "helpers", "common", "misc"}


def test_no_folder_has_more_modules_than_a_reader_takes_in() -> None:
    """Fewer in each language: web_peer/check_layers.js says the same of the tab."""
    count: dict[Path, int] = {}
    for path in MODULES:
        if not path.is_relative_to(ROOT / "tests") and path.name != "__init__.py":
            count[path.parent] = count.get(path.parent, 0) + 1
    assert {folder: many for folder, many in count.items() if many > MOST_MODULES} == {}


def test_the_readme_begins_with_what_to_type() -> None:
    text = (ROOT / "README.md").read_text()
    assert 0 < text.index("make demo") < text.index("make test") < 1500
    for command in commands():
        assert f"shoal {command}" in text


def commands() -> list[str]:
    """Every word that can follow `shoal`."""
    return re.findall(r"^    ([a-z]+) {2,}", parser().format_help(), re.MULTILINE)


def told_commands() -> list[str]:
    """Every `shoal ...` line of the code blocks that people are told to type."""
    blocks = [
        block for page in PAGES for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    ]
    lines = [line.strip().removeprefix(".venv/bin/") for block in blocks for line in block.splitlines()]
    return sorted({line for line in lines if line.startswith("shoal ")})


@pytest.mark.parametrize("line", told_commands())
def test_the_command_line_takes_what_people_are_told_to_type(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    check_combinations(parser().parse_args(words), given_options(words))


@pytest.mark.parametrize("target", ["setup", "demo", "test", "check", "bench", "dist", "clean"])
def test_make_knows_what_the_readme_says(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_readme_picture_is_what_its_script_draws() -> None:
    picture = ROOT / "docs" / "how-it-works.svg"
    drawn = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "draw_how_it_works.py"), "-"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert picture.read_text() == drawn, "run docs/draw_how_it_works.py"


def test_every_module_is_pure_by_contract_or_named_as_an_edge() -> None:
    """A new module is either held to the import contract of the pure ones or listed here, by choice."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    pure = next(
        set(contract["source_modules"])
        for contract in contracts
        if "asyncio" in contract.get("forbidden_modules", ())
    )
    says_pure = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in MODULES
        if path.relative_to(ROOT).parts[0] in {"planner", "signaling", "peer"}
        and re.search(r"\bPure\b|\(pure\b", ast.get_docstring(ast.parse(path.read_text())) or "")
    }
    says_pure.remove("peer.member.peer_options")  # holds paths, and opens none
    held = {
        name for name in says_pure if name in pure or any(name.startswith(f"{package}.") for package in pure)
    }
    assert says_pure == held, "a module that calls itself pure belongs in pyproject.toml's contract"


def test_a_wait_that_may_lose_a_cancellation_is_refused() -> None:
    """`asyncio.wait_for` of Python 3.11: a cancellation in the moment in which what it waits for is done is lost."""
    source = "import asyncio\n\nasyncio.wait_for\n"
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--stdin-filename", "peer/waits.py", "-"]
    found = subprocess.run(command, input=source, capture_output=True, text=True, cwd=ROOT, check=False)
    assert "TID251" in found.stdout


def test_onnxruntime_does_not_report_to_its_maker(tmp_path: Path) -> None:
    """It is loaded in one place, which turns that off first: then no name for this machine is made up and kept."""
    imports = re.compile(r"^\s*(import|from) onnxruntime\b", re.MULTILINE)
    ours = [path for path in MODULES if not path.is_relative_to(ROOT / "tests")]
    assert [path.name for path in ours if imports.search(path.read_text())] == ["onnxruntime_import.py"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "ORT_"))}
    home = kept | {"HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    for module in ("peer.runtime.execution", "peer.gateway.embedder"):
        subprocess.run([sys.executable, "-c", f"import {module}"], env=home, cwd=ROOT, check=True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
