"""How traces are written down: one row of JSON per trace, frames and effects as plain values, bytes in hex."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peer.wire.generated.frames import LAYOUTS, Frame, Token
from peer.wire.tensors import Tensor

_KINDS = {layout.frame: layout.kind.name for layout in LAYOUTS}


def shown_frame(frame: Frame) -> dict[str, Any]:
    fields_ = shown_fields(frame)
    if isinstance(frame, Token) and not frame.body:
        del fields_["body"]  # only steered answers have one
    return {"kind": _KINDS[type(frame)], **fields_}


def shown_fields(value: Any) -> dict[str, Any]:
    return {field.name: shown(getattr(value, field.name)) for field in fields(value)}


def shown(value: Any) -> Any:
    """`value` as JSON holds it."""
    match value:
        case Tensor():
            return {"dtype": int(value.dtype), "shape": list(value.shape), "data": value.data.hex()}
        case np.ndarray():
            return value.ravel().tolist()
        case bytes():
            return value.hex()
        case tuple() | list():
            return [shown(item) for item in value]
        case set() | frozenset():
            return sorted(shown(item) for item in value)
        case Mapping():
            return {str(key): shown(item) for key, item in value.items()}
        case _ if type(value) in _KINDS:
            return shown_frame(value)
        case _ if is_dataclass(value):
            return shown_fields(value)
        case _:
            return value


def written(about: str, tables: Mapping[str, Iterable[Any]]) -> str:
    """One line for each row, so that a change shows as a change of that line."""
    parts = [f'"about": {json.dumps(about)}']
    for name, rows in tables.items():
        lines = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
        parts.append(f'"{name}": [\n{lines}\n]')
    return "{" + ",\n".join(parts) + "}\n"


def beside(script: str, name: str) -> Path:
    return Path(script).with_name(name)
