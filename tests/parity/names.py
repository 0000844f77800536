"""What a module defines, as text alone tells: its names, the values of its constants, the members of its enums.

Both languages are read into the same form. Python is parsed here; TypeScript by web_peer/list_names.js, which has the
compiler's parser.
"""

from __future__ import annotations

import ast
import json
import math
import operator
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

CONSTANT: Final = re.compile(r"_?[A-Z][A-Z0-9_]*")
PACKAGES: Final = ("peer", "planner", "signaling")
GENERATED: Final = re.compile(r"Generated from\W+schema/\w+\.toml\b")
OPENING: Final = 1000  # characters of a module, in which it says that it is generated
FOLDED: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.BitOr: operator.or_,
}


class Unknown(Exception):
    """A value that only a running program knows."""


@dataclass(frozen=True, slots=True)
class Name:
    """One top-level definition. `value` is None where it is no constant, or one whose value text does not tell."""

    name: str
    kind: str  # function, class, type, constant or value
    exported: bool  # and used by another file of its language
    value: object = None
    members: tuple[str, ...] | None = None  # of an enum of strings or a union of strings
    fields: Mapping[str, object] = field(default_factory=dict)  # defaults of a dataclass, by name
    uses: frozenset[str] = frozenset()  # `module:name` of ours that it uses


@dataclass(frozen=True, slots=True)
class Module:
    """Its definitions by name; of TypeScript also strings that name variants of a union. `generated`: by schema/."""

    names: Mapping[str, Name]
    labels: frozenset[str] = frozenset()
    generated: bool = False


@dataclass(frozen=True, slots=True)
class User:
    """A TypeScript file beside src/: the vectors that it reads, the tests that it imports, the names that it uses."""

    vectors: frozenset[str]
    imports: frozenset[str]
    uses: frozenset[str]


# TypeScript


LISTS: Final = Path(__file__).parents[2] / "web_peer" / "list_names.js"


def typescript(root: Path) -> tuple[dict[str, Module], dict[str, User]]:
    """The modules of web_peer/src by path without ending, and the files beside src/ that use them."""
    command = ["node", str(LISTS), str(root / "web_peer")]
    said = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    used = {use for one in said["users"].values() for use in one["uses"]} | {
        use
        for module, text in said["modules"].items()
        for one in text["names"].values()
        for use in one["uses"]
        if not use.startswith(f"src/{module}:")
    }
    modules: dict[str, Module] = {
        module: Module(
            {
                name: Name(
                    name,
                    one["kind"],
                    one["exported"] and f"src/{module}:{name}" in used,
                    plain(one.get("value")),
                    tuple(one["union"]) if one.get("union") else None,
                    uses=frozenset(use.removeprefix("src/") for use in one["uses"]),
                )
                for name, one in text["names"].items()
            },
            frozenset(text["labels"]),
            is_generated(source_of(root, module)),
        )
        for module, text in said["modules"].items()
    }
    users = {
        name: User(
            frozenset(vector.split(".")[0] for vector in one["vectors"]),
            frozenset(one["imports"]),
            frozenset(use.removeprefix("src/") for use in one["uses"]),
        )
        for name, one in said["users"].items()
    }
    return modules, users


def source_of(root: Path, module: str) -> str:
    """The text of a module of web_peer/src."""
    file = root / "web_peer" / "src" / module
    ending = next(ending for ending in (".ts", ".tsx") if file.with_name(file.name + ending).is_file())
    return file.with_name(file.name + ending).read_text(encoding="utf-8")


def is_generated(opening: str) -> bool:
    """Whether the comment or docstring that a module opens with says that the schema makes it."""
    return GENERATED.search(opening[:OPENING]) is not None


def plain(value: Any) -> object:
    """A value as list_names.js writes it: tables as dicts, sets as frozensets, lists as tuples."""
    if value == "Infinity":
        return math.inf
    if isinstance(value, list):
        return tuple(plain(one) for one in value)
    if isinstance(value, dict):
        if "set" in value:
            return frozenset(value["set"])
        if "table" in value:
            return {key: plain(one) for key, one in value["table"]}
        return None
    return value


# Python


def python(root: Path) -> dict[str, Module]:
    """The modules of Python, by the path of their twins."""
    trees = {
        path.relative_to(root).with_suffix("").as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
    }
    values = Values(trees)
    imported_elsewhere = importers(root)
    return {
        twin_path(path): Module(
            {
                name.name: name
                for name in (read(statement, path, values, imported_elsewhere) for statement in tree.body)
                if name is not None
            },
            generated=is_generated(ast.get_docstring(tree) or ""),
        )
        for path, tree in trees.items()
    }


def twin_path(path: str) -> str:
    """Where the twin of a module lies under web_peer/src: of the planner a tab has planner/model alone."""
    return path.removeprefix("peer/").replace("planner/model/", "planner/")


def importers(root: Path) -> frozenset[str]:
    """`module:name` of all that some other file of Python imports: the product, tests or examples."""
    found: set[str] = set()
    for folder in (*PACKAGES, "tests", "examples"):
        for path in (root / folder).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            modules: dict[str, str] = {}
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.module:
                    base = node.module.replace(".", "/")
                    found |= {f"{base}:{one.name}" for one in node.names}
                    modules |= {one.asname or one.name: f"{base}/{one.name}" for one in node.names}
            found |= {
                f"{modules[node.value.id]}:{node.attr}"
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in modules
            }
    return frozenset(found)


def read(statement: ast.stmt, path: str, values: Values, imported: frozenset[str]) -> Name | None:
    """What one top-level statement defines, if anything."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        name, kind = statement.name, "function"
    elif isinstance(statement, ast.ClassDef):
        name, kind = statement.name, "class"
    else:
        target = assigned(statement)
        if target is None:
            return None
        name = target
        kind = "constant" if CONSTANT.fullmatch(name) else "type" if name[:1].isupper() else "value"
    exported = not name.startswith("_") and f"{path}:{name}" in imported
    value = members = None
    fields: dict[str, object] = {}
    if isinstance(statement, ast.ClassDef):
        members = enum_members(statement, path, values)
        fields = field_defaults(statement, path, values)
    elif kind == "constant":
        value = values.of(path, name)
    elif kind == "type" and isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
        members = literal_members(statement.value)
    return Name(name, kind, exported, value, members, fields)


def assigned(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return None


def enum_members(node: ast.ClassDef, path: str, values: Values) -> tuple[str, ...] | None:
    """Values of an enum of strings, or the names in lower case of one of numbers."""
    if not any(ast.unparse(base).split(".")[-1] in {"Enum", "StrEnum", "IntEnum"} for base in node.bases):
        return None
    members: list[str] = []
    for statement in node.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            value = values.evaluated(path, statement.value)
            members.append(value if isinstance(value, str) else statement.targets[0].id.lower())
    return tuple(members)


def literal_members(node: ast.expr) -> tuple[str, ...] | None:
    """Members of `Literal["a", "b"]`."""
    if not (isinstance(node, ast.Subscript) and ast.unparse(node.value).split(".")[-1] == "Literal"):
        return None
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    texts = [one.value for one in items if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return tuple(texts) if len(texts) == len(items) else None


def field_defaults(node: ast.ClassDef, path: str, values: Values) -> dict[str, object]:
    found = {}
    for statement in node.body:
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.value
        ):
            value = values.evaluated(path, statement.value)
            if value is not None:
                found[statement.target.id] = value
    return found


class Values:
    """Values of constants as text tells them; names are followed through imports."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self.constants: dict[str, dict[str, ast.expr]] = {}
        self.links: dict[str, dict[str, tuple[str, str]]] = {}
        for path, tree in trees.items():
            self.constants[path] = {
                name: statement.value
                for statement in tree.body
                if isinstance(statement, ast.Assign | ast.AnnAssign)
                and statement.value is not None
                and (name := assigned(statement)) is not None
            }
            self.links[path] = {
                one.asname or one.name: (node.module.replace(".", "/"), one.name)
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom) and node.module
                for one in node.names
            }

    def of(self, path: str, name: str) -> object:
        return self.evaluated(path, self.constants[path][name])

    def evaluated(self, path: str, node: ast.expr) -> object:
        """The value, or None where text does not tell it."""
        try:
            return self._value(path, node)
        except Unknown:
            return None

    def _value(self, path: str, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bytes()):
                raise Unknown
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._named(path, name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._value(path, operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in FOLDED:
                try:
                    return FOLDED[type(op)](self._value(path, left), self._value(path, right))
                except TypeError:
                    raise Unknown from None
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(self._value(path, one) for one in items)
            case ast.Set(elts=items):
                return frozenset(self._value(path, one) for one in items)
            case ast.Dict(keys=keys, values=items):
                return {
                    self._value(path, key): self.evaluated(path, one)
                    for key, one in zip(keys, items, strict=True)
                    if key is not None
                }
            case ast.Call(func=ast.Name(id="frozenset" | "tuple" | "Mapping"), args=[one]):
                return self._value(path, one)
            case ast.Call(func=ast.Name(id="frozenset"), args=[]):
                return frozenset()
            case ast.Attribute(value=ast.Name(id="math"), attr="inf"):
                return math.inf
            case _:
                raise Unknown

    def _named(self, path: str, name: str) -> Any:
        if name in self.constants.get(path, {}):
            return self._value(path, self.constants[path][name])
        link = self.links.get(path, {}).get(name)
        if link is None:
            raise Unknown
        return self._named(*link)
