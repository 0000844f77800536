"""Decides what a conversation looks like to the model: renders its chat template, within bounds.

A template comes with a foreign model, so it runs in Jinja's immutable sandbox and on a budget: so many turns
of loops and macro calls, so many characters in any one value and in the output. Names and filters are
those of Hugging Face transformers: raise_exception, strftime_now, tojson, loop controls, generation blocks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.ext import loopcontrols as LoopControls  # noqa: N812
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from jinja2.runtime import Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from peer.errors import ChatTemplateError as ChatTemplateError
from peer.errors import TemplateSpent

MAX_TEMPLATE_CHARACTERS: Final = 200_000  # the longest published ones are some 30,000
MAX_TURNS: Final = 500_000  # turns of loops, calls and touched values in one rendering: some seconds at worst
MAX_VALUE: Final = 2_000_000  # characters or items in one value; a prompt that long fits no model
MAX_INTEGER_BITS: Final = 256
CHARACTERS_PER_TURN: Final = 4096  # text that takes about as long to copy as a turn of an empty loop
ITEMS_PER_TURN: Final = 8

# Attributes of strings that make a long string from a short one; no published template uses them.
_REFUSED_METHODS: Final = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "translate"})
_REFUSED_FILTERS: Final = (
    "center",
    "format",
    "xmlattr",
    "wordwrap",
    "slice",
    "batch",
    "pprint",
    "urlize",
    "sum",
)


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str  # "system", "user", "assistant"; a template may know more
    content: str


class ChatTemplate:
    """A compiled chat template. One rendering at a time: not for several threads at once."""

    def __init__(self, source: str, *, bos_token: str, eos_token: str, turns: int = MAX_TURNS) -> None:
        if len(source) > MAX_TEMPLATE_CHARACTERS:
            raise ChatTemplateError(
                f"a chat template has up to {MAX_TEMPLATE_CHARACTERS} characters, this one {len(source)}"
            )
        self._environment = _BoundedEnvironment()
        self.turns = turns  # of one rendering
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        try:
            self._template = self._environment.from_string(source)
            names = find_undeclared_variables(self._environment.parse(source))
            self._knows_tools = "tools" in names
        except (TemplateError, RecursionError) as problem:
            raise ChatTemplateError(
                f"the model's chat template does not compile: {_line(problem)}"
            ) from problem

    @property
    def knows_tools(self) -> bool:
        """Whether the template says anything about tools."""
        return self._knows_tools

    def render(self, messages: Sequence[Message], *, today: date | None = None, answer: bool = True) -> str:
        """The prompt for `messages`; with `answer` it ends where the assistant's next words begin.

        `today` is what strftime_now formats; without it the template sees no strftime_now.
        """
        turns = [{"role": message.role, "content": message.content} for message in messages]
        return self.render_turns(turns, today=today, answer=answer)

    def render_turns(
        self,
        turns: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        today: date | None = None,
        answer: bool = True,
    ) -> str:
        """The same for turns as templates read them: with `role` and `content`, and whatever else belongs to tools."""
        names: dict[str, Any] = dict(self._tokens)
        if tools is not None:
            names["tools"] = list(tools)
        if today is not None:
            names["strftime_now"] = lambda pattern: today.strftime(str(pattern)[:100])
        self._environment.turns_left = self.turns
        pieces: list[str] = []
        length = 0
        try:
            for piece in self._template.generate(messages=list(turns), add_generation_prompt=answer, **names):
                length += len(piece)
                _bounded(length)
                pieces.append(piece)
        except _Raised as refusal:
            raise ChatTemplateError(f"the model's chat template refuses these messages: {refusal}") from None
        except _TooMuch as problem:
            raise TemplateSpent(f"the model's chat template failed: {_line(problem)}") from problem
        except (
            Exception
        ) as problem:  # a foreign program: whatever it runs into is its error, told in one line
            raise ChatTemplateError(f"the model's chat template failed: {_line(problem)}") from problem
        return "".join(pieces)


def plain_chat(messages: Sequence[Message]) -> str:
    """The prompt for a model that has no chat template: `Role: words` paragraphs, then `Assistant:`."""
    turns = [f"{message.role.capitalize()}: {message.content.strip()}\n\n" for message in messages]
    return "".join(turns) + "Assistant:"


class _Raised(Exception):
    """What raise_exception of a template throws."""


class _TooMuch(SecurityError):
    """The template's budget is spent."""


def _raise_exception(message: object) -> NoReturn:
    raise _Raised(str(message)[:500])


def _line(problem: BaseException) -> str:
    if isinstance(problem, RecursionError):
        return "it calls itself without end"
    kind = "it asks for too much" if isinstance(problem, _TooMuch) else type(problem).__name__
    return " ".join(f"{kind}: {problem}".split())[:300]


def _bounded(size: int) -> None:
    if size > MAX_VALUE:
        raise _TooMuch(f"a value grew beyond {MAX_VALUE} characters or items")


def _size(value: object) -> int:
    return len(value) if isinstance(value, str | bytes | list | tuple | dict | range) else 0


def _text(value: Any) -> str:
    """str(value), measured first: a short list can hold one long string many times over."""
    if not isinstance(value, str):
        _measure(value, 0)
    return str(value)


def _measure(value: object, so_far: int) -> int:
    _bounded(so_far)
    match value:
        case str() | bytes():
            so_far += len(value)
        case dict():
            for key, held in value.items():
                so_far = _measure(held, _measure(key, so_far))
        case list() | tuple() | set() | frozenset():
            for held in value:
                so_far = _measure(held, so_far)
        case _:
            pass
    _bounded(so_far + 1)
    return so_far + 1


def _finalize(value: Any) -> Any:
    return value if isinstance(value, str | Undefined) else _text(value)


def _tojson(value: object, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """As in transformers: not escaped for HTML, unlike Jinja's own filter."""
    if indent is not None and not 0 <= indent <= 16:
        raise _TooMuch("tojson indents by 0 to 16")
    _measure(value, 0)
    allowed = {key: options[key] for key in ("separators", "sort_keys") if key in options}
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **allowed)


def _join(values: Iterable[Any], separator: str = "", attribute: str | None = None) -> str:
    separator = _text(separator)
    parts: list[str] = []
    length = 0
    for value in values:
        parts.append(_text(value[attribute] if attribute is not None else value))
        length += len(parts[-1]) + len(separator)
        _bounded(length)
    return separator.join(parts)


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    text, old, new = _text(text), _text(old), _text(new)
    _bounded(len(text) + text.count(old) * len(new))
    return text.replace(old, new, -1 if count is None else count)


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    text = _text(text)
    margin = width if isinstance(width, str) else " " * min(width, 200)
    _bounded(len(text) + (text.count("\n") + 1) * len(margin))
    lines = text.split("\n")
    return "\n".join(
        margin + line if (first or number) and (blank or line.strip()) else line
        for number, line in enumerate(lines)
    )


class _GenerationBlocks(Extension):
    """`{% generation %}...{% endgeneration %}` marks words for training; here it is what it holds."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Metered(NodeTransformer):
    """Puts a call of the budget into every loop and macro, and a check into every concatenation."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, _tick(node.lineno))
        if node.test is not None:  # a filtered loop turns for what it drops, too
            node.test = nodes.And(_call("spend", [], node.lineno), node.test, lineno=node.lineno)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, _tick(node.lineno))
        return node

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, _tick(node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("concatenate", node.nodes, node.lineno)

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if node.node is not None:
            node.node = _call("weigh", [node.node], node.lineno)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _call("weigh", [node.node], node.lineno)
        return node

    def visit_Operand(self, node: nodes.Operand) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if not isinstance(node.expr, nodes.Const):
            node.expr = _call("weigh", [node.expr], node.lineno)
        return node


def _call(name: str, arguments: list[nodes.Expr], line: int) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name, lineno=line), arguments, [], None, None, lineno=line)


def _tick(line: int) -> nodes.Node:
    return nodes.ExprStmt(_call("spend", [], line), lineno=line)


class _BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with a budget for what it lets through."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationBlocks, LoopControls],
            finalize=_finalize,
        )
        self.turns_left = 0
        for name in _REFUSED_FILTERS:
            self.filters.pop(name, None)
        self.filters.update(tojson=_tojson, join=_join, replace=_replace, indent=_indent, string=_text)
        self.globals["raise_exception"] = _raise_exception
        for name in ("lipsum", "cycler", "joiner"):
            self.globals.pop(name, None)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Metered().visit(tree)
        tree.set_environment(self)
        return tree

    def spend(self, turns: int = 1) -> bool:
        """One turn of a loop, one call of a macro."""
        self.turns_left -= turns
        if self.turns_left < 0:
            raise _TooMuch("it took more turns of loops than a conversation can need")
        return True

    def weigh(self, value: Any) -> Any:
        """`value`, after the cost of going through it once."""
        if size := _size(value):
            self.spend(
                1 + size // (CHARACTERS_PER_TURN if isinstance(value, str | bytes) else ITEMS_PER_TURN)
            )
        return value

    def concatenate(self, *values: object) -> str:
        """`a ~ b`, bounded."""
        for value in values:
            self.weigh(value)
        return _join(values)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str | bytes) and attr in _REFUSED_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self.weigh(left)
        self.weigh(right)
        if operator == "+":
            _bounded(_size(left) + _size(right))
        elif operator == "*":
            for value, times in ((left, right), (right, left)):
                if _size(value) and isinstance(times, int):
                    _bounded(_size(value) * max(times, 0))
        elif operator == "%" and isinstance(left, str | bytes):
            raise SecurityError("the % operator on text is not available; use ~ to put text together")
        if isinstance(left, int) and isinstance(right, int):
            bits = (
                left.bit_length() * max(right, 1)
                if operator == "**"
                else left.bit_length() + right.bit_length()
            )
            if bits > MAX_INTEGER_BITS:
                raise _TooMuch(f"a whole number grew beyond {MAX_INTEGER_BITS} bits")
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        for value in (owner, *args):
            self.weigh(value)
        if isinstance(owner, str) and args:
            if name == "replace" and len(args) >= 2:
                return _replace(owner, *args[:3])
            if name == "join":
                return _join(args[0], owner)
        result = super().call(context, obj, *args, **kwargs)
        _bounded(_size(result))
        return result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`text.format(...)` without format specs: a spec can ask for any width."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        pattern = str(value.__self__)

        def bounded_format(*args: Any, **kwargs: Any) -> str:
            if ":" in pattern or "format_map" in value.__name__:
                raise SecurityError("format specs are not available; use ~ to put text together")
            _bounded(pattern.count("{") * _measure((args, kwargs), 0))
            return wrapped(*args, **kwargs)

        return bounded_format
