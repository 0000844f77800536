"""Where tests are: in the folder of what they test; what they share is a module of its own, what they replay text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
TAB = ROOT / "web_peer" / "tests"
MIRRORED = ("peer", "planner", "signaling")
OWN = {
    "consensus",
    "e2e",
    "harness",
    "sim",
    "sim-consensus",
}  # of the tab: more than one package, or real browsers
PYTHON = sorted(TESTS.rglob("*.py"))
SCRIPTS = sorted(path for path in TAB.rglob("*") if path.suffix in {".ts", ".tsx"})


def modules_in(folder: Path, ending: str) -> set[str]:
    """The names of the modules there, and of the folder itself, which stands for all of them."""
    return {folder.name, *(path.stem for path in folder.glob(ending))}


def is_named_for(name: str, modules: set[str]) -> bool:
    """Whether a test is named for one of these modules: as it, or as it with its subject behind (`store_damage`)."""
    return any(name == module or name.startswith(f"{module}_") for module in modules)


def misplaced() -> Iterator[str]:
    """Every test that is not where its module is."""
    for package in MIRRORED:
        for path in sorted((TESTS / package).rglob("test_*.py")):
            folder = ROOT / path.parent.relative_to(TESTS)
            if not is_named_for(path.stem.removeprefix("test_"), modules_in(folder, "*.py")):
                yield str(path.relative_to(ROOT))
    for path in SCRIPTS:
        place = path.parent.relative_to(TAB)
        if not path.name.endswith((".test.ts", ".test.tsx")) or (place.parts and place.parts[0] in OWN):
            continue
        base = ROOT / "web_peer" if place.parts[:1] == ("ui",) else ROOT / "web_peer" / "src"
        name = path.name.split(".")[0]
        if place == Path() or not is_named_for(name, modules_in(base / place, "*.ts*")):
            yield str(path.relative_to(ROOT))


def test_a_test_is_in_the_folder_of_its_module_and_named_for_it() -> None:
    assert list(misplaced()) == []


def test_a_name_with_another_word_in_front_is_not_that_module() -> None:
    modules = {"origin", "session"}
    assert is_named_for("origin", modules)
    assert is_named_for("origin_reroute", modules)
    assert not is_named_for("originality", modules)
    assert not is_named_for("the_origin", modules)


def imported_tests(path: Path) -> set[str]:
    """Names of test modules and of conftests that a module imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.ImportFrom(module="aiohttp.test_utils"):
                continue  # of the library
            case ast.ImportFrom(module=module, names=names):
                found.update((module or "").split("."))
                found.update(alias.name for alias in names if module in (None, "tests") or node.level)
            case ast.Import(names=names):
                found.update(part for alias in names for part in alias.name.split("."))
    return {name for name in found if name == "conftest" or re.fullmatch(r"test_\w+", name)}


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_tests_share_is_a_module_of_its_own(path: Path) -> None:
    assert imported_tests(path) == set(), "move what is shared out of the test, or of the conftest"


def test_what_tests_of_the_tab_share_is_a_module_of_its_own() -> None:
    shared = re.compile(r"""from ['"][^'"]*\.test(?:\.tsx?)?['"]""")
    assert [
        str(path.relative_to(ROOT)) for path in SCRIPTS if shared.search(path.read_text(encoding="utf-8"))
    ] == []


def test_an_import_from_a_test_is_seen_in_every_form(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "if True:\n    from .test_a import World\nimport tests.test_b\nfrom conftest import Models\n"
    )
    assert imported_tests(module) == {"test_a", "test_b", "conftest"}


@pytest.mark.parametrize("path", sorted((TESTS / "vectors").iterdir()), ids=lambda path: path.name)
def test_recorded_traces_are_text(path: Path) -> None:
    """Lines that a reviewer can compare: no archive, and no file that is one line."""
    if path.is_file():
        lines = path.read_text(encoding="utf-8").splitlines()
        assert max(map(len, lines)) * 2 < sum(map(len, lines)), "one line holds half of the whole"
