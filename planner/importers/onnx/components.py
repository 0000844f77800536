"""Which part of a model a unit belongs to. Pure.

An ONNX file does not say what its parts are, but exporters call values by the module that makes them:
"/encoder/layers.0/fc1/MatMul_output_0" is the encoder's. Where the names have such paths, the first module that they do
not all share is the component.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

WHOLE: Final = "model"  # of a model whose names say nothing
MOST_COMPONENTS: Final = 8  # more are layers, not parts
_MODULE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)


def components(units: Sequence[Sequence[tuple[str, float]]]) -> list[str]:
    """The component of each unit, of the values that its steps make and their work: that of most of its work."""
    paths = [[(_modules(value), work) for value, work in unit] for unit in units]
    scoped = [modules for unit in paths for modules, _ in unit if modules]
    depth = _shared(scoped)
    found = [_most(unit, depth) for unit in paths]
    if not 1 < len(set(found) - {None}) <= MOST_COMPONENTS:
        return [WHOLE] * len(units)
    return [name or WHOLE for name in found]


def named_parts(steps: Sequence[tuple[Sequence[str], Sequence[str]]]) -> list[list[int]] | None:
    """The places of steps, given by the values that they take and make, in groups whose values have the same path: each
    a unit, each after those that it needs. What has no path belongs to what it is made of. None where groups would wait
    for each other.
    """
    group_of: dict[str, tuple[str, ...]] = {}  # by value
    found: dict[tuple[str, ...], list[int]] = {}
    for place, (inputs, outputs) in enumerate(steps):
        path = next(filter(None, map(_modules, outputs)), ())
        path = path or next((group_of[name] for name in inputs if name in group_of), ())
        group_of |= dict.fromkeys(outputs, path)
        found.setdefault(path, []).append(place)
    made_by = {name: path for path, group in found.items() for place in group for name in steps[place][1]}
    needs = {
        path: {made_by[name] for place in group for name in steps[place][0] if name in made_by} - {path}
        for path, group in found.items()
    }
    ordered: list[list[int]] = []
    done: set[tuple[str, ...]] = set()
    while len(done) < len(found):
        ready = [path for path in found if path not in done and needs[path] <= done]
        if not ready:
            return None
        first = min(ready, key=lambda path: found[path][-1])
        done.add(first)
        ordered.append(found[first])
    return ordered


def _modules(value: str) -> tuple[str, ...]:
    """The modules of the path that a value is called by, the outermost first; none where it has no path."""
    if not value.startswith("/"):
        return ()
    modules = tuple(value.split("/")[1:-1])
    return modules if all(_MODULE.fullmatch(module) for module in modules) else ()


def _shared(paths: Sequence[tuple[str, ...]]) -> int:
    """How many modules all paths begin with alike, at least one of each path left."""
    if not paths:
        return 0
    first, last, shortest = min(paths), max(paths), min(map(len, paths))
    depth = 0
    while depth < shortest - 1 and first[depth] == last[depth]:
        depth += 1
    return depth


def _most(unit: Sequence[tuple[tuple[str, ...], float]], depth: int) -> str | None:
    work_of: dict[str, float] = {}
    for modules, work in unit:
        if modules:
            work_of[modules[depth]] = work_of.get(modules[depth], 0.0) + work
    return max(work_of, key=lambda name: work_of[name], default=None)
