"""How many bytes of JSON a request or its answer may have, by the bounds of its fields.

JSON is taken as spelled at its longest: letters beyond ASCII escaped, a space behind each colon and comma.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from schema.definitions import Number, Reader, SchemaError, Type
from schema.records import Record, Vocabulary

NEWER_BYTES: Final = 1024  # room for fields of newer versions, which this one passes over
STEP_BYTES: Final = 1024  # bounds are multiples of it
LETTER_BYTES: Final = 12  # a character outside the basic plane: two escapes
ESCAPE_BYTES: Final = 6  # a control character, which has one byte of UTF-8
INTEGER_BYTES: Final = 17  # 2^53 and a sign
NAME_BYTES: Final = len('"": , ')  # around the name of a field


def max_bytes(
    words: Vocabulary, limits: Mapping[str, Number], record: Record, given: Mapping[str, Any]
) -> int:
    """Returns how long the JSON of `record` may be: `max_bytes` of `given`, or else what its fields may need.

    Raises SchemaError where the fields allow more than a frame carries and nothing is given, or where what is given
    bounds nothing.
    """
    most = int(limits["MAX_BODY_BYTES"].value)
    needed = _record_bytes(words, limits, record)
    allowed = None if needed is None else -(-(needed + NEWER_BYTES) // STEP_BYTES) * STEP_BYTES
    if "max_bytes" not in given:
        if allowed is None or allowed > most:
            raise SchemaError(f"{record.name}: expected `max_bytes`, its fields allow more than {most}")
        return allowed
    said = int(Reader(limits).number(given["max_bytes"]).value)
    if said > most or (allowed is not None and said >= allowed):
        raise SchemaError(f"{record.name}: expected `max_bytes` below {allowed} and up to {most}, got {said}")
    return said


def _record_bytes(words: Vocabulary, limits: Mapping[str, Number], record: Record) -> int | None:
    total = len("{}")
    for field in record.fields:
        each = _field_bytes(words, limits, field.type)
        if each is None:
            return None
        total += len(field.name) + NAME_BYTES + each
    return total


def _field_bytes(words: Vocabulary, limits: Mapping[str, Number], type_: Type) -> int | None:
    """Returns how long a value may be; None: nothing bounds it."""
    match type_.name:
        case "text":
            return 2 + LETTER_BYTES * int(limits["MAX_TEXT"].value)
        case "prose":
            return 2 + ESCAPE_BYTES * int(type_.number(0).value)
        case "uint" | "integer":
            return INTEGER_BYTES
        case "up_to":
            return len(str(type_.number(0).value))
        case "flag":
            return len("false")
        case "span":
            return len("[, ]") + 2 * INTEGER_BYTES
        case "word":
            return 2 + max(map(len, words.words[type_.type().name]))
        case "pattern":
            longest = words.patterns[type_.type().name].longest
            return 2 + longest if longest else None
        case "record":
            found = next(each for each in words.records if each.name == type_.type().name)
            return _record_bytes(words, limits, found)
    each = _field_bytes(words, limits, type_.type())
    if each is None or type_.name == "maybe":
        return each
    count = int((type_.number(1) if len(type_.args) > 1 else limits["MAX_ITEMS"]).value)
    if type_.name == "table":
        each += 2 + LETTER_BYTES * int(limits["MAX_TEXT"].value) + len(": ")
    return len("[]") + count * (each + len(", "))
