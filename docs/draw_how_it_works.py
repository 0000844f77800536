"""Draws docs/how-it-works.svg: how one question travels through the peers of a mesh.

    python docs/draw_how_it_works.py        writes the file beside this one
    python docs/draw_how_it_works.py -      prints it

The picture has a background of its own and follows the reader's light or dark setting.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from typing import Final

WIDTH: Final = 964
HEIGHT: Final = 590

STYLE: Final = """
  svg { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
  .sheet { fill: #ffffff; stroke: #d0d7de }
  .peer { fill: #eef6ff; stroke: #4a8fd4; stroke-width: 1.5 }
  .asker { fill: #f1faf0; stroke: #4f9a57; stroke-width: 1.5 }
  .core { fill: #faf6ee; stroke: #b08d3c; stroke-width: 1.5 }
  .unit { fill: #cfe4fb; stroke: #4a8fd4 }
  .end { fill: #bcd7f6; stroke: #4a8fd4 }
  .kv { fill: none; stroke: #4a8fd4; stroke-dasharray: 3 3 }
  .title { fill: #1f2328; font-size: 17px; font-weight: 600 }
  .name { fill: #1f2328; font-size: 15px; font-weight: 600 }
  .word { fill: #3d444d; font-size: 13px }
  .small { fill: #59636e; font-size: 12px }
  .data { stroke: #d2691e; stroke-width: 3; fill: none }
  .data-head { fill: #d2691e }
  .data-word { fill: #b4540f; font-size: 13px; font-weight: 600 }
  .token { stroke: #4f9a57; stroke-width: 2.5; fill: none }
  .token-head { fill: #4f9a57 }
  .token-word { fill: #3a7a42; font-size: 13px; font-weight: 600 }
  .meet { stroke: #b08d3c; stroke-width: 1.5; fill: none; stroke-dasharray: 5 4 }
  .meet-word { fill: #8a6a1f; font-size: 13px }
  @media (prefers-color-scheme: dark) {
    .sheet { fill: #0d1117; stroke: #3d444d }
    .peer { fill: #12233a; stroke: #5ea1e6 }
    .asker { fill: #12281a; stroke: #6cbf76 }
    .core { fill: #2a2415; stroke: #cfae5f }
    .unit { fill: #1f416b; stroke: #5ea1e6 }
    .end { fill: #2b5488; stroke: #5ea1e6 }
    .kv { stroke: #5ea1e6 }
    .title, .name { fill: #f0f6fc }
    .word { fill: #d1d7e0 }
    .small { fill: #9198a1 }
    .data { stroke: #f0883e }
    .data-head { fill: #f0883e }
    .data-word { fill: #f5a368 }
    .token { stroke: #6cbf76 }
    .token-head { fill: #6cbf76 }
    .token-word { fill: #8fd698 }
    .meet { stroke: #cfae5f }
    .meet-word { fill: #dcc07c }
  }
"""


def box(x: float, y: float, width: float, height: float, kind: str, radius: float = 10) -> str:
    """A rounded rectangle."""
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"/>'


def text(x: float, y: float, words: str, kind: str, anchor: str = "middle") -> str:
    """One line of text, its baseline at y."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def arrow(path: str, kind: str) -> str:
    """A line along an SVG path, with a head at its end."""
    head = "" if kind == "meet" else f' marker-end="url(#{kind})"'
    return f'<path class="{kind}" d="{path}"{head}/>'


def marker(kind: str) -> str:
    """The arrow head of one kind of line."""
    return (
        f'<marker id="{kind}" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="11" markerHeight="11" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path class="{kind}-head" d="M0 0 L10 5 L0 10 z"/></marker>'
    )


def stage(x: float, name: str, units: tuple[str, ...], note: str) -> list[str]:
    """One peer with the units it holds and the KV cache of its attention units."""
    parts = [box(x, 215, 176, 210, "peer"), text(x + 88, 240, name, "name")]
    for row, unit in enumerate(units):
        top = 253 + row * 27
        if unit == "⋮":
            parts.append(text(x + 88, top + 15, unit, "word"))
            continue
        kind = "end" if unit in ("embed", "head, sampling") else "unit"
        parts += [box(x + 12, top, 152, 22, kind, 4), text(x + 88, top + 15.5, unit, "word")]
    parts += [box(x + 12, 391, 152, 23, "kv", 4), text(x + 88, 407, note, "small")]
    return parts


def picture() -> str:
    """The whole SVG file."""
    parts = [
        box(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "sheet", 14),
        text(28, 36, "One model, several peers, one answer", "title", "start"),
        # who introduces
        box(355, 58, 420, 78, "core"),
        text(565, 83, "signaling core", "name"),
        text(565, 104, "invite link · introductions · model store over HTTP", "word"),
        text(565, 123, "sees no prompt, no token, no activation", "small"),
        arrow("M 430 136 L 360 215", "meet"),
        arrow("M 580 136 L 604 215", "meet"),
        arrow("M 710 136 L 848 215", "meet"),
        arrow("M 355 97 L 116 97 L 116 215", "meet"),
        text(128, 122, "offers and answers,", "meet-word", "start"),
        text(128, 140, "weights (once)", "meet-word", "start"),
        # who asks
        box(28, 215, 176, 210, "asker"),
        text(116, 240, "the peer that asks", "name"),
        text(116, 272, "“What is the capital", "word"),
        text(116, 290, "of France?”", "word"),
        text(116, 322, "words → tokens", "small"),
        text(116, 364, "tokens → words", "small"),
        text(116, 388, "“The capital of", "word"),
        text(116, 406, "France is Paris.”", "word"),
        # who computes
        *stage(272, "peer A", ("embed", "attn.0", "ffn.0", "⋮", "attn.9"), "KV cache of attn.0–9"),
        *stage(516, "peer B", ("ffn.9", "attn.10", "ffn.10", "⋮", "attn.20"), "KV cache of attn.10–20"),
        *stage(
            760, "peer C", ("ffn.20", "attn.21", "⋮", "ffn.29", "head, sampling"), "KV cache of attn.21–29"
        ),
        # what travels
        arrow("M 204 315 L 268 315", "data"),
        arrow("M 448 315 L 512 315", "data"),
        arrow("M 692 315 L 756 315", "data"),
        text(237, 304, "tokens", "data-word"),
        text(481, 304, "2.3 KB", "data-word"),
        text(725, 304, "2.3 KB", "data-word"),
        arrow("M 848 425 L 848 482 L 360 482 L 360 430", "token"),
        arrow("M 848 425 L 848 500 L 116 500 L 116 430", "token"),
        text(604, 472, "each new token goes to the first stage and to the asker at once", "token-word"),
        # what the lines mean
        arrow("M 28 540 L 72 540", "data"),
        text(82, 544, "activations, straight from peer to peer (WebRTC, encrypted)", "word", "start"),
        arrow("M 508 540 L 552 540", "token"),
        text(562, 544, "tokens", "word", "start"),
        arrow("M 648 540 L 692 540", "meet"),
        text(702, 544, "introductions and weights", "word", "start"),
        text(
            28,
            571,
            "A unit is half a block. The planner cuts between any two, by measured speed, memory and links.",
            "small",
            "start",
        ),
    ]
    markers = "".join(marker(kind) for kind in ("data", "token"))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="How a question travels through the peers of a mesh">\n'
        f"<style>{STYLE}</style>\n<defs>{markers}</defs>\n{body}\n</svg>\n"
    )


def main(arguments: list[str]) -> None:
    """Writes the picture, or prints it when asked with `-`."""
    if arguments == ["-"]:
        sys.stdout.write(picture())
    else:
        Path(__file__).with_name("how-it-works.svg").write_text(picture())


if __name__ == "__main__":
    main(sys.argv[1:])
