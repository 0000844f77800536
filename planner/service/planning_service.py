"""Decides what a planning service answers to a request in JSON: a plan, and beside stages that serve what it is worth.

Pure. A request may have two fields beside those of a PlanRequest: `wish`, and `serving`, with the stages that serve and
the runs that peers hold, for whoever coordinates without a planner of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from planner.adapt.plan_comparison import Serving, beside, planned
from planner.cost.objectives import Wish
from planner.service.request_codec import (
    MAX_NAME,
    MAX_PEERS,
    MAX_UNITS,
    Fields,
    encoded,
    parse,
    refuse,
    request_of,
    wish_of,
)
from planner.types import MOST_HELPERS, Infeasible, Plan, PlanRequest, Stage


@dataclass(frozen=True, slots=True)
class Asked:
    """A plan request with what the mesh wishes of its plans and what serves; None where the caller names none."""

    request: PlanRequest
    wish: Wish | None
    serving: Serving | None


def decode_asked(data: bytes) -> Asked:
    """Raises RequestError."""
    raw = parse(data)
    fields: dict[str, Any] = raw if isinstance(raw, dict) else {}
    wish = wish_of(fields.pop("wish")) if "wish" in fields else None
    said = fields.pop("serving", None)
    request = request_of(raw)
    return Asked(request, wish, None if said is None else _serving(said, len(request.units)))


def answer(asked: Asked, explained: Callable[[Plan], Plan] = lambda plan: plan) -> bytes:
    """`explained`: says in a plan's reasons where its times come from. Raises RequestError."""
    request, serving = asked.request, asked.serving
    found = planned(request, asked.wish, serving)
    if isinstance(found, Infeasible):
        return encoded({"infeasible": dataclasses.asdict(found)})
    plan = explained(found)
    made: dict[str, object] = {"plan": dataclasses.asdict(plan)}
    if serving is not None:
        made["serving"] = dataclasses.asdict(beside(request, asked.wish, serving, plan))
    return encoded(made)


def plan_bytes(body: bytes) -> bytes:
    """JSON request in, JSON answer out. Raises RequestError."""
    return answer(decode_asked(body))


def _serving(raw: object, units: int) -> Serving:
    fields = Fields("serving", raw, Serving)
    stages = fields.items("stages", _place, MAX_PEERS)
    borders = [0, *(stop for stage in stages for stop in (stage.first, stage.stop)), units]
    if not stages or any(before != after for before, after in list(pairwise(borders))[::2]):
        refuse("serving.stages", f"stages one after the other over all {units} units", borders[1:-1])
    held = fields.raw["held"]
    if not isinstance(held, dict) or len(held) > MAX_PEERS:
        refuse("serving.held", f"an object of runs by peer, at most {MAX_PEERS}", held)
    first = fields.items("first", _whole, MAX_PEERS)
    if any(place >= len(stages) for place in first):
        refuse("serving.first", f"places of {len(stages)} stages", first)
    runs = {peer: _runs(f"serving.held[{peer[:40]!r}]", each, units) for peer, each in held.items()}
    return Serving(stages, runs, fields.flag("lost"), first)


def _place(where: str, raw: object) -> Stage:
    fields = Fields(where, raw, Stage)
    first, stop = fields.integer("first", MAX_UNITS), fields.integer("stop", MAX_UNITS)
    if first >= stop:
        refuse(where, "first before stop", (first, stop))
    helpers, shares = (
        fields.items("helpers", _name, MOST_HELPERS),
        fields.items("shares", _whole, MOST_HELPERS + 1),
    )
    team = (fields.name("peer"), *helpers)
    if len({*team}) < len(team) or len(shares) != (len(team) if helpers else 0) or 0 in shares:
        refuse(where, "a team of different peers, and a share above 0 of each", raw)
    return Stage(first, stop, fields.name("peer"), helpers=helpers, shares=shares)


def _name(where: str, raw: object) -> str:
    if not isinstance(raw, str) or not 1 <= len(raw) <= MAX_NAME:
        refuse(where, f"a name of 1 to {MAX_NAME} characters", raw)
    return raw


def _runs(where: str, raw: object, units: int) -> tuple[tuple[int, int], ...]:
    if not isinstance(raw, list) or len(raw) > units:
        refuse(where, f"a list of at most {units} runs", raw)
    return tuple(_run(where, each, units) for each in raw)


def _run(where: str, raw: object, units: int) -> tuple[int, int]:
    if not isinstance(raw, list) or [type(border) for border in raw] != [int, int]:
        refuse(where, f"[first, stop) within {units} units", raw)
    first, stop = raw
    if not 0 <= first < stop <= units:
        refuse(where, f"[first, stop) within {units} units", raw)
    return first, stop


def _whole(where: str, raw: object) -> int:
    if type(raw) is not int or raw < 0:
        refuse(where, "a whole number", raw)
    return raw
