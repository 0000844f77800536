"""JSON of other programs, read strictly: no name twice in one object, no NaN. Pure."""

from __future__ import annotations

import json
from typing import NoReturn


def parse_json(text: str, whole_numbers: bool = False) -> object:
    """Returns what `text` holds; `whole_numbers`: none with a point or an exponent. Raises ValueError for any other
    text, such as JSON that is nested too deeply or has an integer of thousands of digits.
    """
    try:
        return json.loads(
            text,
            parse_float=_no_fraction if whole_numbers else None,
            parse_constant=_no_number,
            object_pairs_hook=_each_once,
        )
    except RecursionError:
        raise ValueError("it is nested a few levels at most, got many more") from None


def _no_fraction(text: str) -> NoReturn:
    raise ValueError(f"numbers are integers, got {text[:20]}")


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found
