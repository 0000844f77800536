"""In what the two languages differ: names, constants, members of enums. Every difference is a finding.

A twin is the same path in both languages. What counts as the same: `snake_case` and `camelCase`; `PATIENCE_S = 1.0`
and `PATIENCE_MS = 1000`; a class of integers and a table of them; defaults of a dataclass and a table of settings. A
name is exported where another file of its language uses it; its twin must define it, exported or not. Names of modules
that schema/ generates in both languages are not compared: one table says what both define, and each generator spells
it as its language does; constants and members of enums are compared there too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tests.parity.names import Module, Name

UNITS: Final[Mapping[str, float]] = {"_S": 1.0, "_MS": 1e-3, "_US": 1e-6}
IN_PART: Final = ("planner/", "signaling/")  # packages of which a tab has what it needs
DIGITS: Final = 9  # to which values in seconds are compared


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One difference: at a twin, of a kind, of one name; `detail` says what each language has."""

    place: str
    kind: str  # python, typescript: only there; differs: a constant; members: of an enum; vector: none reaches it
    name: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.kind} {self.name}{': ' if self.detail else ''}{self.detail}"


Constants = Mapping[str, object]


def snake(name: str) -> str:
    """`camelCase` as `camel_case`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def in_seconds(name: str, value: object) -> tuple[str, object]:
    """A constant without the unit of its name, its value in seconds where the unit is one of time."""
    for unit, factor in UNITS.items():
        if name.upper().endswith(unit):
            return f"{name[: -len(unit)]}~", scaled(value, factor)
    return name, scaled(value, 1.0) if isinstance(value, float) else value


def scaled(value: object, factor: float) -> object:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return round(value * factor, DIGITS)
    if isinstance(value, tuple):
        return tuple(scaled(one, factor) for one in value)
    return value


def constants(module: Module) -> dict[str, object]:
    """Constants by the name that both languages share; None is a value that text does not tell."""
    found: dict[str, object] = {}
    for name in module.names.values():
        if name.kind == "constant":
            key, value = in_seconds(name.name.lstrip("_"), name.value)
            if isinstance(value, dict) and value and all(isinstance(one, str) for one in value):
                found[key] = None
                for field, one in value.items():
                    found |= [in_seconds(f"{key}.{snake(field)}", one)]
            else:
                found[key] = value
        for field, one in name.fields.items():
            found |= [in_seconds(f"{snake(name.name).upper()}.{field}", one)]
    return found


def same(one: object, other: object) -> bool:
    """Whether two values are one; whole numbers and floats that are equal are."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return isinstance(one, bool) == isinstance(other, bool) and float(one) == float(other)
    return one == other


def shared_name(name: Name) -> str:
    """The name of a definition in both languages: functions and values in snake_case, the rest as it is.

    The codec of a record is `member_codec` in Python and `member` in TypeScript.
    """
    plain = name.name.lstrip("_")
    if name.kind == "value":
        return snake(plain).removesuffix("_codec")
    return snake(plain) if name.kind == "function" else plain


def is_shape(name: Name) -> bool:
    """Whether it only names a shape: an alias of Python, an interface or a type of TypeScript. It has no behaviour."""
    return name.kind == "type" and name.members is None


def is_variant(name: Name, there: Module) -> bool:
    """Whether the twin tells this class apart by a string, or by a table of its members."""
    if name.kind != "class":
        return False
    spelled = {name.name, snake(name.name), name.name[:1].lower() + name.name[1:]}
    return bool(spelled & there.labels) or snake(name.name).upper() in there.names


def differences(python: Mapping[str, Module], typescript: Mapping[str, Module]) -> list[Finding]:
    """All of them, of all twins, sorted."""
    found: list[Finding] = []
    everywhere = values_everywhere(python), values_everywhere(typescript)
    for place in sorted(python.keys() & typescript.keys()):
        if not (python[place].generated and typescript[place].generated):
            found += names_that_differ(place, python[place], typescript[place])
        found += constants_that_differ(place, python[place], typescript[place], *everywhere)
        found += members_that_differ(place, python[place], typescript[place])
    return sorted(found)


def names_that_differ(place: str, python: Module, typescript: Module) -> Iterator[Finding]:
    """Functions, classes, types and values that only one language has."""
    for kind, here, there in (("python", python, typescript), ("typescript", typescript, python)):
        known = {shared_name(one) for one in there.names.values()}
        for name in here.names.values():
            if not name.exported or name.kind == "constant" or name.name == "log":
                continue
            if kind == "python" and place.startswith(IN_PART):
                continue
            if shared_name(name) not in known and not is_shape(name) and not is_variant(name, there):
                yield Finding(place, kind, name.name)


Everywhere = Mapping[str, list[object]]


def values_everywhere(modules: Mapping[str, Module]) -> Everywhere:
    found: dict[str, list[object]] = {}
    for module in modules.values():
        for name, value in constants(module).items():
            found.setdefault(name, []).append(value)
    return found


def constants_that_differ(
    place: str,
    python: Module,
    typescript: Module,
    everywhere_python: Everywhere,
    everywhere_typescript: Everywhere,
) -> Iterator[Finding]:
    """Constants of one name and two values, and numbers of one language alone; the other may keep them elsewhere."""
    here, there = constants(python), constants(typescript)
    for name in sorted(here.keys() & there.keys()):
        one, other = here[name], there[name]
        if one is not None and other is not None and not same(one, other):
            yield Finding(place, "differs", name, f"Python {one!r}, TypeScript {other!r}")
    for kind, mine, others, elsewhere in (
        ("python", here, there, everywhere_typescript),
        ("typescript", there, here, everywhere_python),
    ):
        if kind == "python" and place.startswith(IN_PART):
            continue
        for name in sorted(mine.keys() - others.keys()):
            value = mine[name]
            if "." in name or isinstance(value, bool) or not isinstance(value, int | float):
                continue  # words, lists and tables are of one program; a number is a limit or a time
            known = elsewhere.get(name, [])
            if not any(same(value, one) for one in known):
                yield Finding(place, kind, name, f"{value!r}{f', elsewhere {known!r}' if known else ''}")


def members_that_differ(place: str, python: Module, typescript: Module) -> Iterator[Finding]:
    """Enums and unions of strings of one name, and enums of numbers beside a table of constants."""
    for name in python.names.values():
        if name.members is None:
            continue
        here = {member.replace("-", "_").lower() for member in name.members}
        twin = typescript.names.get(name.name) or typescript.names.get(snake(name.name).upper())
        if twin is None:
            continue
        members = twin.members
        if members is None and isinstance(twin.value, dict):
            members = tuple(str(one) for one in twin.value)
        if members is None:
            continue
        there = {snake(member).replace("-", "_") for member in members}
        if here != there:
            detail = f"Python alone {sorted(here - there)}, TypeScript alone {sorted(there - here)}"
            yield Finding(place, "members", name.name, detail)
