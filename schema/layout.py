"""How generated code is laid out: names in both spellings, comments, imports of what a text uses."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

WIDTH = 105  # of comments


def camel(name: str) -> str:
    """Returns a name with underscores as TypeScript spells it: `data_bytes` is `dataBytes`."""
    return re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name)


def camel_doc(doc: str) -> str:
    """Returns a comment whose names in backticks are spelled as in TypeScript."""
    return re.sub(r"`([a-z][a-z0-9_]*)`", lambda found: f"`{camel(found[1])}`", doc)


def used(text: str, names: Iterable[str]) -> list[str]:
    """Returns those of `names` that stand in `text` as words, sorted as both import sorters have them."""
    words = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", text))
    return sorted(words & set(names))


def docstring(doc: str, indent: str = "    ") -> str:
    """Returns a Python docstring, with its indentation and line end."""
    lines = doc.splitlines()
    if len(lines) == 1 and len(doc) <= WIDTH + 5:
        return f'{indent}"""{doc}"""\n'
    body = "\n\n".join("\n".join(textwrap.wrap(part.replace("\n", " "), WIDTH)) for part in doc.split("\n\n"))
    return textwrap.indent(f'"""{body}\n"""', indent).rstrip() + "\n"


def jsdoc(doc: str, indent: str = "") -> str:
    """Returns a TypeScript comment of a declaration, with its line end."""
    if "\n" not in doc and len(doc) <= WIDTH:
        return f"{indent}/** {doc} */\n"
    parts = ["\n".join(textwrap.wrap(part.replace("\n", " "), WIDTH)) for part in doc.split("\n\n")]
    lines = "\n\n".join(parts).splitlines()
    return (
        f"{indent}/**\n" + "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines) + f"{indent} */\n"
    )
