"""The parts of a report: one page of HTML and CSS that needs nothing else, in light or dark colours.

Pure. Bars, rows and plots are boxes placed in percent, so that they fit wide and narrow screens alike. Areas that must
be told apart also differ in brightness or pattern, so that nothing is lost in grey.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --ground: #fbfaf7; --card: #ffffff; --ink: #1c1f23; --dim: #5b6168; --line: #d9d6cd;
  --soft: #efece4; --a: #1f5d8c; --a2: #9cc3de; --b: #c26a12; --b2: #f2cf9f; --bad: #a3261f; --on: #ffffff }
@media (prefers-color-scheme: dark) { :root { --ground: #14171a; --card: #1c2024; --ink: #e9e7e1; --dim: #a2a8ae;
  --line: #363c42; --soft: #262b30; --a: #6cb2e3; --a2: #2c536e; --b: #f0a04b; --b2: #6b4415; --bad: #ff9086;
  --on: #10181d } }
* { box-sizing: border-box }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI",
  Roboto, "Liberation Sans", sans-serif; -webkit-text-size-adjust: 100% }
main { max-width: 1000px; margin: 0 auto; padding: 2rem 1.25rem 3rem }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .35rem; letter-spacing: -.01em; text-wrap: balance }
h2 { font-size: 1.1rem; margin: 0 0 .15rem }
p { margin: .2rem 0 .8rem; max-width: 44rem }
.lead { color: var(--dim) }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1.1rem 1.2rem 1.2rem;
  margin: 1rem 0 }
section > p, footer, small { color: var(--dim); font-size: .92rem }
img { max-width: 100%; height: auto; background: #fff }
ul { padding-left: 1.1rem; margin: .3rem 0 }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem; margin: 1.2rem 0 }
.figures div { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: .7rem .9rem }
.figures b { display: block; font-size: 1.5rem; line-height: 1.2; font-variant-numeric: tabular-nums }
.figures span { color: var(--dim); font-size: .85rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap }
th { color: var(--dim); font-weight: 600 }
th:first-child, td:first-child { text-align: left; padding-left: 0 }
td.used, tr.bad { outline: 2px solid var(--ink); outline-offset: -2px; font-weight: 600 }
td.words, th.words { text-align: left; white-space: normal; min-width: 13rem }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: 0; margin: .6rem 0 0; list-style: none;
  color: var(--dim); font-size: .85rem }
.key i { display: inline-block; width: 1.5em; height: .8em; margin-right: .4em; vertical-align: -.05em }
.a { background: var(--a); color: var(--on) } .a2 { background: var(--a2) }
.b { background: var(--b); color: var(--on) } .b2 { background: var(--b2) }
.ink { background: var(--ink) } .no, .free { box-shadow: inset 0 0 0 1px var(--dim) }
.free { background: var(--card) }
.striped { background: repeating-linear-gradient(45deg, var(--b) 0 2px, var(--b2) 2px 6px) }
.dotted { background: radial-gradient(var(--dim) 1.1px, var(--card) 1.5px) 0 0 / 5px 5px }
.rows { display: grid; gap: .35rem; padding: 0; margin: .6rem 0 0; list-style: none; font-size: .85rem }
.rows li { display: grid; grid-template-columns: 9.5rem 1fr 14rem; gap: .1rem .8rem; align-items: center }
.rows .name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap } .rows .said { color: var(--dim) }
.bar { position: relative; height: 1.2rem } .bar.low { height: .5rem; background: var(--soft) }
.bar i, .bar b, .plot i, .plot b, .plot span { position: absolute } .bar i { top: 0; bottom: 0; border-radius: 2px }
.bar b { top: -.2rem; bottom: -.2rem; border-left: 2px dashed var(--ink) }
.bar em { position: absolute; top: 0; padding: 0 .2rem 0 .4rem; font-style: normal; white-space: nowrap;
  background: var(--card) }
.chain { display: flex; padding: 0; margin: .6rem 0; list-style: none; font-size: .85rem }
.chain li { flex: 1 1 0; min-width: 0; display: flex; align-items: center } .chain.down li { display: block }
.stage { flex: 1; min-width: 0; border: 1.5px solid var(--ink); border-radius: 8px; padding: .6rem .7rem }
.stage p { margin: 0 0 .3rem; overflow: hidden; text-overflow: ellipsis }
.no1 { display: inline-block; min-width: 1.5rem; border-radius: .75rem; text-align: center; font-weight: 600 }
.hop { flex: none; margin: 0; padding: 0 .6rem; text-align: center } .hop::before { content: "⟶"; display: block }
.chain.down { display: block; max-width: 34rem } .chain.down .hop::before { content: "↓ "; display: inline }
.chain.down .hop { text-align: left; padding: .2rem 1rem }
.plot { position: relative; margin: 1.7rem 1rem 2.7rem 3rem; font-size: .8rem; border-left: 1px solid var(--line);
  border-bottom: 1px solid var(--line) }
.plot.named { margin-left: 8.5rem } .plot svg { position: absolute; width: 100%; height: 100%; overflow: visible }
.plot path { fill: none; stroke: var(--dim); vector-effect: non-scaling-stroke }
.plot .x { top: 0; bottom: 0; border-left: 1px solid var(--line) } .plot .y { left: 0; right: 0;
  border-bottom: 1px solid var(--line) } .plot span { color: var(--dim); white-space: nowrap; font-style: normal }
.plot .x span { top: 100%; transform: translateX(-50%); padding-top: .2rem }
.plot .y span { right: 100%; transform: translateY(-50%); padding-right: .4rem }
.plot .along { right: 0; top: 100%; padding-top: 1.4rem }
.plot .up { left: -2.6rem; bottom: 100%; padding-bottom: .3rem }
.plot.named .y span { width: 8rem; overflow: hidden; text-overflow: ellipsis; color: var(--ink); text-align: left }
.plot b { width: 9px; height: 9px; margin: 0 0 -5px -5px; border-radius: 50% } .plot b.square { border-radius: 0 }
.plot b.large { width: 22px; height: 22px; margin: 0 0 -11px -11px; text-align: center; line-height: 22px }
.plot b.chosen { outline: 2px solid var(--ink); outline-offset: 2px }
.plot i.work { text-align: center; overflow: hidden; font-style: normal; border-radius: 2px; line-height: 26px }
@media (max-width: 640px) { main { padding: 1.2rem .8rem 2rem } section { padding: .9rem .8rem 1rem }
  h1 { font-size: 1.35rem } .figures { grid-template-columns: 1fr 1fr; gap: .5rem } .figures b { font-size: 1.2rem }
  table { font-size: .82rem } th, td { padding: .3rem .35rem } td.words, th.words { min-width: 8rem }
  .rows li { grid-template-columns: 1fr } .rows li + li { margin-top: .3rem } .rows .bar { margin-right: 3.5rem }
  .chain, .chain li { display: block } .hop, .chain.down .hop { text-align: left; padding: .2rem 1rem }
  .hop::before { content: "↓ "; display: inline }
  .plot.named { margin-left: 5rem } .plot.named .y span { width: 4.7rem }
  tr > :first-child { white-space: normal; min-width: 5.5rem } }
@media print { body { background: #fff } section { break-inside: avoid } }
"""


def page(title: str, body: str) -> str:
    """A whole page that needs nothing else: no script, no font, no picture from elsewhere."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><main>\n{body}\n</main></body></html>\n"
    )


def section(title: str, words: str, *parts: str) -> str:
    """One part of a page: heading, a sentence that says how to read it, content."""
    said = f"<p>{escape(words)}</p>" if words else ""
    return f"<section><h2>{escape(title)}</h2>{said}{''.join(parts)}</section>\n"


def figures(*entries: tuple[str, str]) -> str:
    """The few numbers that matter: (value, what it is)."""
    items = "".join(
        f"<div><b>{escape(value)}</b><span>{escape(what)}</span></div>" for value, what in entries
    )
    return f'<div class="figures">{items}</div>\n'


def listed(sentences: Iterable[str]) -> str:
    """Sentences below one another."""
    return "<ul>" + "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences) + "</ul>"


def key(*entries: tuple[str, str]) -> str:
    """What the areas mean: (look, words)."""
    items = "".join(f'<li><i class="{look}"></i>{escape(words)}</li>' for look, words in entries)
    return f'<ul class="key">{items}</ul>'


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: frozenset[int] = frozenset(),
    bad: frozenset[int] = frozenset(),
) -> str:
    """A table that scrolls where it is too wide; columns of `words` hold sentences, rows of `bad` stand out."""

    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=words' if at in words else ''}>{escape(cell)}</{tag}>"
            for at, cell in enumerate(row)
        )

    body = "".join(
        f"<tr{' class=bad' if at in bad else ''}>{cells(row, 'td')}</tr>" for at, row in enumerate(rows)
    )
    return f'<div class="scroll"><table><tr>{cells(head, "th")}</tr>{body}</table></div>'


# --- bars -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """An area of a bar: `look` of STYLE, the words for who points at it, and its ends."""

    look: str
    words: str
    start: float
    stop: float


def stacked(*parts: tuple[str, str, float]) -> tuple[Part, ...]:
    """Parts of (look, words, size) side by side, from 0 on; those of no size are left out."""
    made: list[Part] = []
    for look, words, size in parts:
        start = made[-1].stop if made else 0.0
        made += [Part(look, words, start, start + size)] if size else []
    return tuple(made)


def bar(
    parts: Iterable[Part], whole: float, mark: float | None = None, after: str = "", look: str = ""
) -> str:
    """Parts of a bar that is `whole` long, a dashed line at `mark`, and words behind the last part."""
    inner, end = "", 0.0
    for part in parts:
        end = max(end, part.stop)
        inner += _area(part.look, part.words, f"left:{_percent(part.start / whole)};width:", part, whole)
    inner += f'<b style="left:{_percent(mark / whole)}"></b>' if mark is not None else ""
    inner += f'<em style="left:{_percent(end / whole)}">{escape(after)}</em>' if after else ""
    return f'<div class="bar {look}">{inner}</div>'


def _area(look: str, words: str, where: str, part: Part, whole: float) -> str:
    wide = max(0.003, (part.stop - part.start) / whole)
    return f'<i class="{look}" title="{escape(words)}" style="{where}{_percent(wide)}"></i>'


def rows(entries: Iterable[tuple[str, str, str]]) -> str:
    """Lines of (name, a bar, words)."""
    items = "".join(
        f'<li><span class="name" title="{escape(name)}">{escape(name)}</span>{drawn}'
        f'<span class="said">{escape(words)}</span></li>'
        for name, drawn, words in entries
    )
    return f'<ul class="rows">{items}</ul>'


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"


# --- plots ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Plot:
    """What is placed by two values. `x` and `y`: the least and the most that are shown; the height in pixels."""

    label: str  # what the picture shows, for who cannot see it
    x: tuple[float, float]
    y: tuple[float, float]
    height: float = 300
    named: bool = False  # the places along y are words
    _parts: list[str] = field(default_factory=list)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        (left, right), (low, high) = self.x, self.y
        return (x - left) / (right - left or 1), (y - low) / (high - low or 1)

    def grid(
        self, across: Iterable[tuple[float, str]], up: Iterable[tuple[float, str]], *titles: str
    ) -> None:
        """Lines with their values, and what is measured: along x, then along y."""
        for value, words in across:
            share = _percent(self._at(value, 0)[0])
            self._parts.append(f'<i class="x" style="left:{share}"><span>{escape(words)}</span></i>')
        for value, words in up:
            share = _percent(self._at(0, value)[1])
            self._parts.append(f'<i class="y" style="bottom:{share}"><span>{escape(words)}</span></i>')
        for place, words in zip(("along", "up"), titles, strict=False):
            self._parts.append(f'<span class="{place}">{escape(words)}</span>')

    def line(self, points: Iterable[tuple[float, float]], style: str = "") -> None:
        """A line through all of them."""
        places = [self._at(x, y) for x, y in points]
        d = " ".join(f"{100 * x:.2f},{100 - 100 * y:.2f}" for x, y in places)
        self._parts.append(
            f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">'
            f'<path d="M{d}" style="{style}"/></svg>'
        )

    def dot(self, x: float, y: float, look: str, words: str = "", inside: str = "") -> None:
        """A point, the words of which show when it is pointed at."""
        left, bottom = map(_percent, self._at(x, y))
        self._parts.append(
            f'<b class="{look}" title="{escape(words)}" style="left:{left};bottom:{bottom}">{escape(inside)}</b>'
        )

    def work(self, start: float, stop: float, y: float, look: str, words: str, inside: str) -> None:
        """A bar from `start` to `stop` of 26 pixels, in the middle of the place `y`."""
        left, bottom = map(_percent, self._at(start, y))
        wide = _percent(max(0.002, self._at(stop, y)[0] - self._at(start, y)[0]))
        self._parts.append(
            f'<i class="work {look}" title="{escape(words)}" style="left:{left};width:{wide};height:26px;'
            f'bottom:calc({bottom} - 13px)">{escape(inside)}</i>'
        )

    def html(self) -> str:
        """The plot as a box of its own."""
        named = " named" if self.named else ""
        return (
            f'<div class="plot{named}" role="img" aria-label="{escape(self.label)}" style="height:{self.height:.0f}px">'
            f"{''.join(self._parts)}</div>"
        )


def marks(most: float, count: int, least: float = 0.0) -> list[tuple[float, str]]:
    """About `count` round values from `least` to `most`, with their words."""
    return [(value, figure(value)) for value in ticks(most, count, least)]


def ticks(most: float, count: int, least: float = 0.0) -> list[float]:
    """About `count` round values from `least` to `most`."""
    if most <= least:
        return [least]
    step = 10.0 ** math.floor(math.log10((most - least) / count))
    step = next(step * factor for factor in (1, 2, 5, 10) if step * factor >= (most - least) / count * 0.999)
    return [at * step for at in range(math.ceil(least / step - 1e-9), int(most / step + 1e-9) + 1)]


def span(values: Sequence[float]) -> tuple[float, float]:
    """What an axis shows: from 0 on, unless the values lie close together and far from it."""
    least, most = min(values), max(values)
    if most - least > least / 2 or most == least:
        return 0.0, most * 1.1
    return max(0.0, least - (most - least) * 0.15), most + (most - least) * 0.15


def figure(value: float) -> str:
    """A number for an axis or a label, three digits."""
    return f"{value:.3g}" if 0 < abs(value) < 1000 else f"{value:.0f}"
