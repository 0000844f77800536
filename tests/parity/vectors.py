"""Which exported functions of the protocol packages no shared vector reaches.

In Python a function is reached when it runs while the vectors are written or replayed (tests/parity/reach.py); in
TypeScript when a test that reads a vector uses it, or what that uses does, as the text tells.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.parity.compare import Finding, shared_name
from tests.parity.names import Module, User

PROTOCOL: Final = ("wire", "consensus", "state", "session")


def unreached(
    root: Path, python: Mapping[str, Module], typescript: Mapping[str, Module], users: Mapping[str, User]
) -> list[Finding]:
    """One finding for each function, whichever language does not reach it."""
    missing: dict[tuple[str, str], list[str]] = {}
    for language, modules, reached in (
        ("Python", python, reached_in_python(root)),
        ("TypeScript", typescript, reached_in_typescript(typescript, users)),
    ):
        for place, name in exported_functions(modules):
            if f"{place}:{name}" not in reached:
                shared = shared_name(modules[place].names[name])
                missing.setdefault((place, shared), []).append(language)
    return sorted(
        Finding(place, "vector", name, f"no vector reaches it in {' and '.join(languages)}")
        for (place, name), languages in missing.items()
    )


def exported_functions(modules: Mapping[str, Module]) -> Iterator[tuple[str, str]]:
    for place, module in modules.items():
        if place.split("/")[0] in PROTOCOL:
            for name in module.names.values():
                if name.kind == "function" and name.exported:
                    yield place, name.name


def reached_in_python(root: Path) -> frozenset[str]:
    command = [sys.executable, str(root / "tests" / "parity" / "reach.py")]
    return frozenset(
        json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
    )


def reached_in_typescript(modules: Mapping[str, Module], users: Mapping[str, User]) -> frozenset[str]:
    """From the tests that read a vector, with the files beside them that they import."""
    uses = {
        f"{place}:{name.name}": name.uses
        for place, module in modules.items()
        for name in module.names.values()
    }
    waiting: list[str] = []
    for name in users:
        files = with_imports(name, users)
        if any(users[file].vectors for file in files):
            waiting += [use for file in files for use in users[file].uses]
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += uses.get(name, ())
    return frozenset(reached)


def with_imports(name: str, users: Mapping[str, User]) -> set[str]:
    """A test and the files of tests/ that it imports, and theirs."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        file = waiting.pop()
        if file in users and file not in found:
            found.add(file)
            waiting += users[file].imports
    return found
