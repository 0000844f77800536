"""Events, effects and messages in recorded traces: one JSON, spelt alike by every language.

A dataclass becomes an object with the names of its fields; where several kinds can stand in one place, "kind" holds
its class name in lower_snake. Bytes are lower-case hex, tuples arrays. Keys are sorted, no spaces, UTF-8 unescaped.
"""

from __future__ import annotations

import json
import re
import types as builtin_types
import typing
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, Final, cast

from peer.consensus import events, messages

_TAGGED: Final = {
    re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower(): cls
    for union in (events.Event, events.Effect, events.Change, messages.Body)
    for cls in typing.get_args(union)
}
_TAG_OF: Final = {cls: tag for tag, cls in _TAGGED.items()}


def plain(value: Any) -> Any:
    """`value` as what JSON can hold."""
    if is_dataclass(value) and not isinstance(value, type):
        found = {each.name: plain(getattr(value, each.name)) for each in fields(value)}
        tag = _TAG_OF.get(type(value))
        return {"kind": tag, **found} if tag is not None else found
    match value:
        case bytes():
            return value.hex()
        case tuple() | list():
            return [plain(item) for item in value]
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case _:
            return value


def text_of(value: Any) -> str:
    """A value of a trace in its one spelling."""
    return json.dumps(plain(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def event_of(text: str) -> events.Event:
    """The event that `text_of` wrote. Only for traces: it trusts what it reads."""
    return cast(events.Event, _read(json.loads(text), events.Event))


def effect_of(text: str) -> events.Effect:
    """The effect that `text_of` wrote. Only for traces: it trusts what it reads."""
    return cast(events.Effect, _read(json.loads(text), events.Effect))


def message_of(text: str) -> messages.Message:
    """The message that `text_of` wrote. Only for traces: it trusts what it reads."""
    return cast(messages.Message, _read(json.loads(text), messages.Message))


@lru_cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _read(value: Any, hint: Any) -> Any:
    if value is None:
        return None
    if typing.get_origin(hint) is tuple:
        return tuple(_read(item, typing.get_args(hint)[0]) for item in value)
    if hint is bytes:
        return bytes.fromhex(value)
    if typing.get_origin(hint) in (builtin_types.UnionType, typing.Union):
        if isinstance(value, dict) and value.get("kind") in _TAGGED:
            return _read(value, _TAGGED[value["kind"]])
        return _read(value, next(arm for arm in typing.get_args(hint) if arm is not builtin_types.NoneType))
    if is_dataclass(hint) and isinstance(hint, type):
        hints = _hints(hint)
        return hint(**{name: _read(item, hints[name]) for name, item in value.items() if name in hints})
    return value
