"""Recorded lives of consensus servers as text: how they are written and read.

    # seed 7 a 2                    a life: its name
    1559 698416f9 {"kind":...}      a step: the time in ms, the digest of the state after it, the event
      {"kind":...}                  an effect of that step; one line each, in order

Events and effects are JSON as peer.consensus.trace_json spells it. A digest may be cut short, or be missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any


def written_life(name: str, steps: Iterable[list[Any]]) -> str:
    """The text of one life; a step is [now, event, effects, digest] of plain values."""
    text = f"# {name}\n"
    for now, event, effects, digest in steps:
        text += f"{now} {digest} {_spelt(event)}\n" + "".join(f"  {_spelt(effect)}\n" for effect in effects)
    return text


def read_lives(text: str) -> list[dict[str, Any]]:
    """The lives in `text`, each {"name", "steps": [[now, event, effects, digest], ...]}. For recorded files only."""
    lives: list[dict[str, Any]] = []
    for line in text.splitlines():
        if line.startswith("# "):
            lives.append({"name": line[2:], "steps": []})
        elif line.startswith("  "):
            lives[-1]["steps"][-1][2].append(json.loads(line))
        else:
            now, digest, event = line.split(" ", 2)
            lives[-1]["steps"].append([int(now), json.loads(event), [], digest])
    return lives


def _spelt(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
