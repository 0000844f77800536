"""Decides how drawings look: one small kit for inline SVG that follows the page's light or dark colours.

Pure. A drawing has a width in pixels and is made once for wide and once for narrow screens, so that its words stay as
large as the page's. Colours are CSS variables; areas that must be told apart also differ in brightness or pattern, so
that nothing is lost in grey.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final, Literal

WIDE: Final = 920
NARROW: Final = 340
CHAR: Final = 0.56  # of the size, the width of a usual character
Anchor = Literal["start", "middle", "end"]

STYLE: Final = """
:root { color-scheme: light dark; --ground: #fbfaf7; --card: #ffffff; --ink: #1c1f23; --dim: #5b6168; --line: #d9d6cd;
  --soft: #efece4; --a: #1f5d8c; --a2: #9cc3de; --b: #c26a12; --b2: #f2cf9f; --c: #3a7d5d; --bad: #a3261f;
  --on: #ffffff }
@media (prefers-color-scheme: dark) { :root { --ground: #14171a; --card: #1c2024; --ink: #e9e7e1; --dim: #a2a8ae;
  --line: #363c42; --soft: #262b30; --a: #6cb2e3; --a2: #2c536e; --b: #f0a04b; --b2: #6b4415; --c: #7cc6a0;
  --bad: #ff9086; --on: #10181d } }
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
section > p { color: var(--dim); font-size: .92rem }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem; margin: 1.2rem 0 }
.figures div { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: .7rem .9rem }
.figures b { display: block; font-size: 1.5rem; line-height: 1.2; font-variant-numeric: tabular-nums }
.figures span { color: var(--dim); font-size: .85rem }
svg { display: block; width: 100%; height: auto; font-family: inherit; overflow: visible }
.narrow { display: none }
.scroll { overflow-x: auto; margin: 0 -.2rem; padding: 0 .2rem }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap }
th { color: var(--dim); font-weight: 600 }
th:first-child, td:first-child { text-align: left; padding-left: 0 }
td.used { outline: 2px solid var(--ink); outline-offset: -2px; font-weight: 600 }
td.words, th.words { text-align: left; white-space: normal; min-width: 13rem }
ul { padding-left: 1.1rem; margin: .3rem 0 }
ul.key { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: 0; margin: .5rem 0 0; list-style: none;
  color: var(--dim); font-size: .85rem }
ul.key svg { display: inline-block; width: 1.5em; height: .8em; margin-right: .4em; vertical-align: -.05em }
footer { color: var(--dim); font-size: .85rem }
.t { fill: var(--ink); font-size: 13px } .d { fill: var(--dim); font-size: 12px } .s { font-weight: 600 }
.on { fill: var(--on); font-size: 12px; font-weight: 600 } .bad { fill: var(--bad); font-size: 12px }
.box { fill: var(--card); stroke: var(--ink); stroke-width: 1.5 } .grid { stroke: var(--line); stroke-width: 1 }
.rule { stroke: var(--ink); stroke-width: 1.5; fill: none } .thin { stroke: var(--dim); stroke-width: 1; fill: none }
.dash { stroke: var(--dim); stroke-width: 1.5; fill: none; stroke-dasharray: 4 3 }
.front { stroke: var(--a); stroke-width: 2; fill: none; stroke-dasharray: 6 4 }
.fa { fill: var(--a) } .fa2 { fill: var(--a2) } .fb { fill: var(--b) } .fb2 { fill: var(--b2) } .fc { fill: var(--c) }
.fs { fill: var(--soft) } .no { fill: none; stroke: var(--dim); stroke-width: 1 } .fi { fill: var(--ink) }
.fo { fill: var(--card); stroke: var(--dim); stroke-width: 1 }
.ring { fill: none; stroke: var(--ink); stroke-width: 2 }
.hollow { fill: var(--card); stroke: var(--a); stroke-width: 2 }
.hb { fill: url(#hb) } .hc { fill: url(#hc) }
@media (max-width: 640px) { main { padding: 1.2rem .8rem 2rem } section { padding: .9rem .8rem 1rem }
  h1 { font-size: 1.35rem } .wide { display: none } .narrow { display: block }
  .figures { grid-template-columns: 1fr 1fr; gap: .5rem } .figures b { font-size: 1.2rem }
  table { font-size: .82rem } th, td { padding: .3rem .35rem } td.words, th.words { min-width: 8rem }
  tr > :first-child { white-space: normal; min-width: 5.5rem } }
@media print { body { background: #fff } section { break-inside: avoid } }
"""
# Patterns stand once on the page; drawings refer to them.
PATTERNS: Final = (
    '<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs>'
    '<pattern id="hb" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" fill="var(--b2)"/><rect width="2.2" height="6" fill="var(--b)"/></pattern>'
    '<pattern id="hc" width="5" height="5" patternUnits="userSpaceOnUse">'
    '<rect width="5" height="5" fill="var(--card)"/><circle cx="2.5" cy="2.5" r="1.2" fill="var(--dim)"/></pattern>'
    '<marker id="to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse" '
    'markerUnits="userSpaceOnUse"><path d="M0 0 8 4 0 8z" fill="var(--ink)"/></marker></defs></svg>'
)


def number(value: float) -> str:
    """A coordinate, short."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def fit(text: str, width: float, size: float = 12) -> str:
    """`text`, cut where it would be wider."""
    most = max(1, int(width / (CHAR * size)))
    return text if len(text) <= most else text[: max(1, most - 1)].rstrip() + "…"


@dataclass(slots=True)
class Drawing:
    """Shapes in pixels; the height grows with what is drawn."""

    width: float
    label: str  # what the picture shows, for who cannot see it
    height: float = 0.0
    parts: list[str] = field(default_factory=list)

    @property
    def narrow(self) -> bool:
        return self.width <= NARROW

    def grow(self, bottom: float) -> None:
        self.height = max(self.height, bottom)

    def text(self, x: float, y: float, text: str, look: str = "t", anchor: Anchor = "start") -> None:
        """Words whose baseline is at y."""
        how = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.parts.append(f'<text x="{number(x)}" y="{number(y)}" class="{look}"{how}>{escape(text)}</text>')
        self.grow(y + 5)

    def rect(
        self, x: float, y: float, width: float, height: float, look: str, title: str = "", radius: float = 0
    ) -> None:
        inner = f"<title>{escape(title)}</title>" if title else ""
        round_ = f' rx="{number(radius)}"' if radius else ""
        self.parts.append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(max(0.0, width))}" height="{number(height)}"'
            f'{round_} class="{look}">{inner}</rect>'
        )
        self.grow(y + height + 1)

    def path(self, d: str, look: str, bottom: float = 0, *, arrow: bool = False) -> None:
        end = ' marker-end="url(#to)"' if arrow else ""
        self.parts.append(f'<path d="{d}" class="{look}"{end}/>')
        self.grow(bottom)

    def line(self, x1: float, y1: float, x2: float, y2: float, look: str, *, arrow: bool = False) -> None:
        d = f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}"
        self.path(d, look, max(y1, y2) + 1, arrow=arrow)

    def dot(self, x: float, y: float, radius: float, look: str, title: str = "") -> None:
        inner = f"<title>{escape(title)}</title>" if title else ""
        self.parts.append(
            f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" class="{look}">{inner}</circle>'
        )
        self.grow(y + radius + 1)

    def svg(self) -> str:
        return (
            f'<svg viewBox="0 0 {number(self.width)} {number(self.height)}" role="img" '
            f'aria-label="{escape(self.label)}">{"".join(self.parts)}</svg>'
        )


def both(draw: Callable[[float], Drawing]) -> str:
    """The drawing for wide and for narrow screens; the page shows the one that suits."""
    return f'<div class="wide">{draw(WIDE).svg()}</div><div class="narrow">{draw(NARROW).svg()}</div>'


def key(*entries: tuple[str, str]) -> str:
    """What the areas mean: (look, words)."""
    items = "".join(
        '<li><svg viewBox="0 0 24 12" aria-hidden="true">'
        f'<rect x=".5" y=".5" width="23" height="11" class="{look}"/></svg>{escape(words)}</li>'
        for look, words in entries
    )
    return f'<ul class="key">{items}</ul>'


def ticks(most: float, count: int, least: float = 0.0) -> list[float]:
    """About `count` round values from `least` to `most`."""
    if most <= least:
        return [least]
    step = 10.0 ** _floor_log10((most - least) / count)
    step = next(step * factor for factor in (1, 2, 5, 10) if step * factor >= (most - least) / count * 0.999)
    return [at * step for at in range(math.ceil(least / step - 1e-9), int(most / step + 1e-9) + 1)]


def span(values: Sequence[float]) -> tuple[float, float]:
    """What an axis shows: from 0 on, unless the values lie close together and far from it."""
    least, most = min(values), max(values)
    if most - least > least / 2 or most == least:
        return 0.0, most * 1.1
    return max(0.0, least - (most - least) * 0.15), most + (most - least) * 0.15


def _floor_log10(value: float) -> int:
    found = 0
    while value >= 10:
        value, found = value / 10, found + 1
    while value < 1:
        value, found = value * 10, found - 1
    return found


def figure(value: float) -> str:
    """A number for an axis or a label, three digits."""
    return f"{value:.3g}" if 0 < abs(value) < 1000 else f"{value:.0f}"


def page(title: str, body: str) -> str:
    """A whole page that needs nothing else: no script, no font, no picture from elsewhere."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>{PATTERNS}<main>\n{body}\n"
        "</main></body></html>\n"
    )


def section(title: str, words: str, *parts: str) -> str:
    """One part of a page: heading, a sentence that says how to read it, pictures."""
    said = f"<p>{escape(words)}</p>" if words else ""
    return f"<section><h2>{escape(title)}</h2>{said}{''.join(parts)}</section>\n"


def figures(*entries: tuple[str, str]) -> str:
    """The few numbers that matter: (value, what it is)."""
    items = "".join(
        f"<div><b>{escape(value)}</b><span>{escape(what)}</span></div>" for value, what in entries
    )
    return f'<div class="figures">{items}</div>\n'


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], words: frozenset[int] = frozenset()) -> str:
    """A table that scrolls where it is too wide; columns of `words` hold sentences."""

    marks = ' class="words"'

    def cells(row: tuple[str, ...], tag: str) -> str:
        return "".join(
            f"<{tag}{marks if at in words else ''}>{escape(cell)}</{tag}>" for at, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{cells(head, "th")}</tr>{body}</table></div>'
