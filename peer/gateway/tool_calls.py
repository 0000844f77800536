"""Decides how a model calls tools: which style its chat template speaks, and what is a call in its words. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from peer.errors import ApiError

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Style(Enum):
    """How a family of models writes calls."""

    TAGGED = "tagged"  # Hermes, Qwen: <tool_call>{"name": ..., "arguments": {...}}</tool_call>
    BARE = "bare"  # Llama 3: {"name": ..., "parameters": {...}}, alone
    LISTED = "listed"  # Mistral: [TOOL_CALLS] [{"name": ..., "arguments": {...}}]


OPENING: Final = {Style.TAGGED: "<tool_call>", Style.LISTED: "[TOOL_CALLS]", Style.BARE: "<|python_tag|>"}
CLOSING: Final = "</tool_call>"
_MARKS: Final = frozenset((*OPENING.values(), CLOSING, "[ARGS]", "[CALL_ID]"))


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call; `whole` is its description as templates read it."""

    name: str
    parameters: Mapping[str, Any]
    whole: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model made. `arguments` is the text of a JSON object."""

    name: str
    arguments: str


def tool_of(given: object, where: str) -> Tool:
    """One entry of a request's `tools`. Raises ApiError."""
    function = given.get("function") if isinstance(given, dict) and given.get("type") == "function" else None
    if not isinstance(function, dict):
        raise ApiError(f'{where} must be {{"type": "function", "function": {{...}}}}', param=where)
    name, parameters = function.get("name"), function.get("parameters", {"type": "object", "properties": {}})
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ApiError(f"{where}.function.name must be 1 to 64 letters, digits, _, . or -", param=where)
    if not isinstance(parameters, dict):
        raise ApiError(f"{where}.function.parameters must be a JSON schema", param=where)
    return Tool(name, parameters, {"type": "function", "function": {**function, "parameters": parameters}})


def style_of(template: str) -> Style | None:
    """How a chat template that knows tools has calls written; None where it tells of none that can be read here."""
    if "<tool_call>" in template:
        return Style.TAGGED
    if "[TOOL_CALLS]" in template:
        return Style.LISTED
    if "<|python_tag|>" in template or '"parameters":' in template:
        return Style.BARE
    return None


def arguments_of(arguments: object) -> dict[str, Any] | None:
    """The arguments of a call as an object; None when they are none."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return None
    return arguments if isinstance(arguments, dict) else None


def parsed(style: Style, text: str, names: frozenset[str]) -> tuple[str, tuple[ToolCall, ...]]:
    """The words and the calls in a whole answer. What is no call of a known name stays words."""
    scanner = CallScanner(style, names)
    words = scanner.push(text)
    more, calls = scanner.end()
    return words + more, calls


class CallScanner:
    """Parts an answer into words and calls while it comes: in whatever pieces, the words and calls are the same.

    White space next to a call is no words, unless words stand on both sides of it.
    """

    def __init__(self, style: Style, names: frozenset[str]) -> None:
        self._names = names
        self._begins = _beginnings(style, names)
        self._part = _part_of_beginning(style, names)
        self._closing = CLOSING if style is Style.TAGGED else ""
        self._text = ""
        self._at = 0  # how far it is decided
        self._json = _JsonEnd()
        self._space = ""  # the blanks before what comes next
        self._after_call = False
        self._calls: list[ToolCall] = []
        self._controls: list[tuple[int, int]] = []  # where control tokens stand in the text

    def push(self, text: str, control: str = "") -> str:
        """The words that are known to be words now. `control`: the control token behind the text, which is no words."""
        self._text += text
        if control in _MARKS:
            self._controls.append((len(self._text), len(self._text) + len(control)))
            self._text += control
        return self._scan(final=False)

    def end(self) -> tuple[str, tuple[ToolCall, ...]]:
        """The words that were held back, and all calls."""
        words = self._scan(final=True)
        return words if self._calls else words + self._space, tuple(self._calls)

    def _scan(self, *, final: bool) -> str:
        shown: list[str] = []
        while self._at < len(self._text):
            if self._after_call:
                between = _BETWEEN.match(self._text, self._at)
                assert between is not None
                if between.end() == len(self._text) and not final:
                    break
                if self._begins.match(self._text, between.end()) is not None:
                    self._at = between.end()  # calls with a comma or a semicolon between them
                else:
                    self._at += len(self._text) - self._at - len(self._text[self._at :].lstrip())
                self._after_call = False
                continue
            found = self._begins.search(self._text, self._at)
            if found is None:
                part = None if final else self._part.search(self._text, self._at)
                self._show(len(self._text) if part is None else part.start(), shown)
                break
            self._show(found.start(), shown)
            stop = self._json.find(self._text, found.start("json"))
            if stop is None:
                if not final:
                    break
                self._show(found.start() + max(1, len(found["mark"] or "")), shown)  # it has no end: words
                continue
            end = self._closed(stop, final)
            if end is None:
                break
            calls, others = _calls(
                self._text[found.start("json") : stop], found.groupdict().get("name"), self._names
            )
            if not calls:
                self._show(end, shown)
                continue
            self._calls += calls
            self._at, self._json, self._after_call = end, _JsonEnd(), True
            if others:
                shown.append(self._space + others)
                self._space = ""
        return "".join(shown)

    def _closed(self, stop: int, final: bool) -> int | None:
        """The place after the mark that closes a call whose JSON ends at `stop`; None: that is not known yet."""
        if not self._closing:
            return stop
        rest = self._text[stop:].lstrip()
        if rest.startswith(self._closing):
            return len(self._text) - len(rest) + len(self._closing)
        return None if self._closing.startswith(rest) and not final else stop

    def _words(self, start: int, end: int) -> str:
        """The text from `start` to `end`, without the control tokens in it."""
        for first, stop in self._controls:
            if start <= first < end:
                return self._text[start:first] + self._words(min(stop, end), end)
        return self._text[start:end]

    def _show(self, end: int, shown: list[str]) -> None:
        """Takes the text up to `end` as words; blanks at their end wait for what follows."""
        if end == self._at:
            return
        text = self._space + self._words(self._at, end)
        kept = text.rstrip()
        self._at, self._space, self._json = end, text[len(kept) :], _JsonEnd()
        shown.append(kept)


class _JsonEnd:
    """Looks for the end of a JSON value that grows, at a cost that does not grow with it."""

    def __init__(self) -> None:
        self._at: int | None = None
        self._end: int | None = None
        self._depth = 0
        self._quoted = False

    def find(self, text: str, start: int) -> int | None:
        """The place after the value that begins at `start`; None where it goes on."""
        at = start if self._at is None else self._at
        while self._end is None and (mark := _QUOTES.search(text, at)) is not None:
            at = mark.end()
            if self._quoted:
                if mark[0] == "\\":
                    if at == len(text):  # what it escapes has not come yet
                        self._at = at - 1
                        return None
                    at += 1
                elif mark[0] == '"':
                    self._quoted = False
            elif mark[0] == '"':
                self._quoted = True
            elif mark[0] in "{[":
                self._depth += 1
            elif mark[0] in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self._end = at
        self._at = len(text)
        return self._end


_QUOTES: Final = re.compile(r'["\\{}\[\]]')
_BETWEEN: Final = re.compile(r"\s*[;,]?\s*")
# How JSON begins that can be a call: it is not held back longer than up to its first name.
_OBJECT: Final = r'\{\s*"(?:name|function|type|id|arguments|parameters)"'
_PART_OF_OBJECT: Final = r'\{\s*(?:"[a-z]{0,10})?'


def _any_of(names: frozenset[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or "(?!)"


def _beginnings(style: Style, names: frozenset[str]) -> re.Pattern[str]:
    """Where a call may begin: its mark, where there is one, its name, where that stands outside, and its JSON."""
    mark = rf"(?P<mark>{re.escape(OPENING[style])})"
    listed = rf"(?:\[\s*)?{_OBJECT}"
    match style:
        case Style.TAGGED:
            return re.compile(rf"{mark}\s*(?P<json>[{{\[])")
        case Style.BARE:
            return re.compile(rf"(?:{mark}\s*)?(?P<json>{listed})")
        case Style.LISTED:
            named = rf"(?<![\w.-])(?P<name>{_any_of(names)})(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*(?=\{{)"
            return re.compile(rf"(?:{mark}\s*)?(?:{named})?(?P<json>(?(name)\{{|{listed}))")


def _part_of_beginning(style: Style, names: frozenset[str]) -> re.Pattern[str]:
    """The end of a text that may become the beginning of a call."""
    mark = OPENING[style]
    marks = [*(re.escape(mark[:length]) for length in range(len(mark) - 1, 0, -1)), rf"{re.escape(mark)}\s*"]
    heads = [] if style is Style.TAGGED else [rf"\[\s*(?:{_PART_OF_OBJECT})?", _PART_OF_OBJECT]
    if style is Style.LISTED:
        begun = {name[:length] for name in names for length in range(1, len(name))}
        after = r"(?:\[[A-Z_]*|\[CALL_ID\]\w*(?:\[[A-Z]*)?)?(?:\[ARGS\])?\s*"
        heads += [rf"(?<![\w.-])(?:(?:{_any_of(names)}){after}|{_any_of(frozenset(begun))})"]
    after_mark = "|".join(heads) or "(?!)"
    return re.compile(rf"(?:{'|'.join(marks)}|(?:{re.escape(mark)}\s*)?(?:{after_mark}))\Z")


def _calls(text: str, name: str | None, names: frozenset[str]) -> tuple[list[ToolCall], str]:
    """The calls in a JSON value, an object or a list of them, and what else is in that list.

    `name`: that of the tool, where it stands before its arguments.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return [], ""
    if name is not None:
        return (
            [ToolCall(name, json.dumps(value, ensure_ascii=False))] if isinstance(value, dict) else []
        ), ""
    calls: list[ToolCall] = []
    others: list[str] = []
    for one in value if isinstance(value, list) else [value]:
        call = _call(one, names)
        if call is None:
            others.append(json.dumps(one, ensure_ascii=False))
        else:
            calls.append(call)
    return calls, ", ".join(others)


def _call(value: object, names: frozenset[str]) -> ToolCall | None:
    if not isinstance(value, dict):
        return None
    held = value.get("function") if isinstance(value.get("function"), dict) else value
    assert isinstance(held, dict)
    name = held.get("name")
    arguments = arguments_of(held.get("arguments", held.get("parameters", {})))
    if not isinstance(name, str) or name not in names or arguments is None:
        return None
    return ToolCall(name, json.dumps(arguments, ensure_ascii=False))
