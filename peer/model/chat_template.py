"""Decides what a conversation looks like to the model: renders its chat template, within bounds.

A template comes with a foreign model, so it runs in Jinja's immutable sandbox and on a budget: so many turns
of loops and macro calls, so many characters in any one value and in the output. Names and filters are
those of Hugging Face transformers: raise_exception, strftime_now, tojson, loop controls, generation blocks;
`tools` and `documents` are None where there are none. A tab has an interpreter of its own for the same
templates; `not_in_tabs` tells what that one refuses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final, NoReturn

from jinja2 import Environment, TemplateError, nodes, pass_environment
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.ext import loopcontrols as LoopControls  # noqa: N812
from jinja2.filters import do_batch, do_indent, make_attrgetter, sync_do_slice
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

_REFUSED_METHODS: Final = frozenset(
    {"expandtabs", "translate", "format_map"}
)  # no published template uses them
_REFUSED_FILTERS: Final = ("xmlattr", "wordwrap", "pprint", "urlize", "random", "filesizeformat", "urlencode")
_SPEC: Final = re.compile(r"\{[^{}!:]*(?:![rs])?:(?:[^{}]?[<>^])?0?\d{0,3}(?:\.\d{1,2})?[sdf]?\}")
_PERCENT: Final = re.compile(r"%(?:%|-?0?\d{0,3}(?:\.\d{1,2})?[sdifr])")


# What a tab's interpreter knows (web_peer/src/model/template_filters.ts and template_methods.ts).
def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TAB_FILTERS: Final = _words(
    """abs attr batch capitalize center count d default dictsort e escape first float forceescape format groupby
    indent int items join last length list lower map max min reject rejectattr replace reverse round safe select
    selectattr slice sort string sum title tojson trim truncate unique upper wordcount"""
)
TAB_TESTS: Final = _words(
    """boolean callable defined divisibleby eq equalto even false float ge greaterthan gt in integer iterable le
    lessthan lower lt mapping ne none number odd sameas sequence string true undefined upper"""
)
TAB_METHODS: Final = _words(
    """capitalize center count endswith find format index isalnum isalpha isdecimal isdigit islower isnumeric isspace
    isupper join ljust lower lstrip partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit
    rstrip split splitlines startswith strip title upper zfill"""
)
_TEXT_METHODS: Final = frozenset(name for name in dir(str) if not name.startswith("_"))
_MARKING: Final = frozenset(
    {"e", "escape", "forceescape", "safe"}
)  # `+` escapes what is put to their results
_DATE_MARKS: Final = re.compile(r"%(?:[YymdBbhAaHMSIpF%ej]|-[dmHIMS])")
_TAB_STATEMENTS: Final = (
    nodes.Output,
    nodes.For,
    nodes.If,
    nodes.Assign,
    nodes.AssignBlock,
    nodes.Macro,
    nodes.CallBlock,
    nodes.FilterBlock,
    nodes.With,
    nodes.Scope,
    nodes.Break,
    nodes.Continue,
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

    def render(self, messages: Sequence[Message], *, today: date, answer: bool = True) -> str:
        """The prompt for `messages`; with `answer` it ends where the assistant's next words begin.

        `today` is what strftime_now formats.
        """
        turns = [{"role": message.role, "content": message.content} for message in messages]
        return self.render_turns(turns, today=today, answer=answer)

    def render_turns(
        self,
        turns: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        today: date,
        answer: bool = True,
    ) -> str:
        """The same for turns as templates read them: with `role` and `content`, and whatever else belongs to tools."""
        midnight = datetime(today.year, today.month, today.day)
        names: dict[str, Any] = {
            **self._tokens,
            "tools": list(tools) if tools else None,
            "documents": None,
            "strftime_now": lambda format: midnight.strftime(str(format)[:100]),
        }
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


def not_in_tabs(source: str) -> str | None:
    """What in a template a tab refuses, in some words; None where it renders all of it as it is rendered here.

    Tabs have an interpreter of their own (web_peer/src/model/chat_template.ts), which knows what published templates
    use of Jinja. ChatTemplateError for a template that does not compile here either.
    """
    try:
        tree = ImmutableSandboxedEnvironment(extensions=[_GenerationBlocks, LoopControls]).parse(source)
    except (TemplateError, RecursionError) as problem:
        raise ChatTemplateError(f"the model's chat template does not compile: {_line(problem)}") from problem
    for node in _all_nodes(tree):
        match node:
            case nodes.Filter(name=name) if name not in TAB_FILTERS:
                return f"the filter {name}"
            case nodes.Test(name=name) if name not in TAB_TESTS:
                return f"the test {name}"
            case nodes.Getattr(attr=name) if name in _TEXT_METHODS and name not in TAB_METHODS:
                return f"the method {name}"
            case nodes.Call(node=nodes.Getattr(attr="format", node=nodes.Const(value=str(pattern)))) if (
                ":" in _SPEC.sub("", pattern)
            ):
                return "a format spec"
            case nodes.Mod(left=nodes.Const(value=str(pattern))) if "%" in _PERCENT.sub("", pattern):
                return "a format of %"
            case nodes.Call(
                node=nodes.Name(name="strftime_now"), args=[nodes.Const(value=str(pattern)), *_]
            ) if "%" in _DATE_MARKS.sub("", pattern):
                return "a mark of strftime_now"
            case nodes.Pair(key=nodes.Const(value=bool() | float()) | nodes.Tuple()):
                return "a dict whose keys are neither text nor whole numbers"
            case nodes.Pow(left=nodes.Const(value=int(base)), right=nodes.Const(value=int(power))) if (
                power > 0 and abs(base) > 1 and abs(base).bit_length() * power > 53
            ):
                return "a whole number of more than 53 bits"
            case nodes.Expr() | nodes.Helper() | nodes.Template():
                pass
            case nodes.Stmt() if not isinstance(node, _TAB_STATEMENTS):
                return f"the statement {type(node).__name__.lower()}"
            case _:
                pass
    return None


def _all_nodes(tree: nodes.Node) -> Iterator[nodes.Node]:
    yield tree
    for child in tree.iter_child_nodes():
        yield from _all_nodes(child)


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


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As in transformers: not escaped for HTML, unlike Jinja's own filter."""
    if indent is not None and not 0 <= indent <= 16:
        raise _TooMuch("tojson indents by 0 to 16")
    _measure(value, 0)
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


@pass_environment
def _join(
    environment: Environment, value: Iterable[Any], d: str = "", attribute: str | int | None = None
) -> str:
    read = make_attrgetter(environment, attribute) if attribute is not None else None
    return _joined(_text(d), (read(one) if read is not None else one for one in value))


def _joined(separator: str, values: Iterable[Any]) -> str:
    parts: list[str] = []
    length = 0
    for value in values:
        parts.append(_text(value))
        length += len(parts[-1]) + len(separator)
        _bounded(length)
    return separator.join(parts)


def _replaced(text: str, old: str, new: str, count: int = -1) -> str:
    _bounded(len(text) + text.count(old) * len(new))
    return text.replace(old, new, count)


def _replace(s: object, old: object, new: object, count: int | None = None) -> str:
    return _replaced(_text(s), _text(old), _text(new), -1 if count is None else count)


def _indent(s: object, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    text = _text(s)
    margin = width if isinstance(width, str) else " " * min(width, 1000)
    _bounded(len(text) + (len(text.splitlines()) + 1) * len(margin))
    return do_indent(text, margin, first, blank)


def _center(value: object, width: int = 80) -> str:
    _bounded(width)
    return _text(value).center(width)


def _format(value: object, *args: object) -> str:
    return _percent(_text(value), args)


def _percent(pattern: str, values: object) -> str:
    """`pattern % values`, without widths that make long text of short."""
    if "%" in _PERCENT.sub("", pattern):
        raise SecurityError("% formats with s, d, i, f and r, and up to three digits of width")
    _bounded(len(pattern) + pattern.count("%") * (1000 + _measure(values, 0)))
    return pattern % values


def _batch(value: Iterable[Any], linecount: int, fill_with: object = None) -> Iterable[Any]:
    _bounded(linecount)
    return do_batch(value, linecount, fill_with)


def _slice(value: Collection[Any], slices: int, fill_with: object = None) -> Iterable[Any]:
    _bounded(slices)
    return sync_do_slice(value, slices, fill_with)


@pass_environment
def _sum(environment: Environment, iterable: Iterable[Any], attribute: Any = None, start: Any = 0) -> Any:
    read = make_attrgetter(environment, attribute) if attribute is not None else None
    values = [read(one) if read is not None else one for one in iterable]
    if not all(isinstance(value, int | float) for value in [*values, start]):
        raise SecurityError("sum adds numbers")
    return sum(values, start)


class _GenerationBlocks(Extension):
    """`{% generation %}...{% endgeneration %}` marks words for training; here it is what it holds."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


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
        self.filters.update(center=_center, format=_format, batch=_batch, slice=_slice, sum=_sum)
        self.globals["raise_exception"] = _raise_exception
        self.globals.pop("lipsum", None)

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
        return _joined("", values)

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
        elif operator == "%" and isinstance(left, str):
            return _percent(left, right)
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
                _bounded(len(owner) + owner.count(args[0]) * len(args[1]))
            elif name in ("center", "ljust", "rjust", "zfill") and isinstance(args[0], int):
                _bounded(args[0])
            elif name == "join":
                values = list(args[0])
                _joined(owner, values)
                return super().call(context, obj, values)
        result = super().call(context, obj, *args, **kwargs)
        _bounded(_size(result))
        return result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`text.format(...)` with specs of up to three digits: others can ask for any width."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        pattern = str(value.__self__)

        def bounded_format(*args: Any, **kwargs: Any) -> str:
            if ":" in _SPEC.sub("", pattern) or "format_map" in value.__name__:
                raise SecurityError("format specs have up to three digits of width, and s, d or f")
            _bounded(pattern.count("{") * (1000 + _measure((args, kwargs), 0)))
            return wrapped(*args, **kwargs)

        return bounded_format
