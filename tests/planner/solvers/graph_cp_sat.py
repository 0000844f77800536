"""The placement of a graph as a model of CP-SAT, written from the rules alone: a check on the planner's own solvers.

It may choose in which order a peer runs its stages and a link sends its values, where the planner's model takes what
was ready first; so its least is never above the planner's.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from planner.cost import evaluator
from planner.cost.graph_cost import GraphPlan, GraphRequest

NANO = 1000  # picoseconds of the solver's unit; rounded down, so that the least stays a bound


@dataclass(frozen=True, slots=True)
class Least:
    """The least latency, or seconds per run of a stream, in picoseconds; `proven` or at least so much."""

    bound_ps: int
    proven: bool


def least(request: GraphRequest, hint: GraphPlan, limit: float) -> Least:
    """`limit`: deterministic seconds."""
    model = _Model(request, hint)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = limit
    status = solver.solve(model.model)
    assert status not in (cp_model.INFEASIBLE, cp_model.MODEL_INVALID)
    return Least(int(solver.best_objective_bound) * NANO, status == cp_model.OPTIMAL)


class _Model:
    def __init__(self, request: GraphRequest, hint: GraphPlan) -> None:
        self.model = model = cp_model.CpModel()
        self.request = request
        self.names = [peer.peer for peer in request.peers]
        self.links = {(link.src, link.dst): link for link in request.links}
        self.units = range(len(request.work.units))
        self.busy = {
            (unit, peer.peer): evaluator.picoseconds(request.work.units[unit].flops / peer.flops_per_s)
            // NANO
            for unit in self.units
            for peer in request.peers
        }
        self.steps = {peer.peer: evaluator.picoseconds(peer.step_s) // NANO for peer in request.peers}
        self.on = {(unit, name): model.new_bool_var("") for unit in self.units for name in self.names}
        self.joins: list[Any] = [0, *(model.new_bool_var("") for _ in self.units[1:])]
        for unit in self.units:
            model.add_exactly_one(self.on[unit, name] for name in self.names)
            for name in self.names if unit else ():
                model.add(self.on[unit, name] == self.on[unit - 1, name]).only_enforce_if(self.joins[unit])
        self._memory()
        self.sends = self._sends()
        if request.objective == "latency":
            self._latency(evaluator.picoseconds(hint.latency_s) // NANO + 1)
        else:
            self._period()
        stage_of = {unit: stage for stage in hint.stages for unit in range(stage.first, stage.stop)}
        for unit in self.units:
            for name in self.names:
                model.add_hint(self.on[unit, name], stage_of[unit].peer == name)
            if unit:
                model.add_hint(self.joins[unit], stage_of[unit].first < unit)

    def _memory(self) -> None:
        units, most = self.request.work.units, sum(unit.scratch_bytes for unit in self.request.work.units)
        held: dict[str, list[Any]] = defaultdict(list)
        before: Any = 0
        for unit in self.units:
            widest = self.model.new_int_var(units[unit].scratch_bytes, most, "")
            if unit:
                self.model.add(widest >= before).only_enforce_if(self.joins[unit])
            before = widest
            for name in self.names:
                counted = self.model.new_int_var(0, most, "")
                when = [self.on[unit, name]]
                if unit + 1 < len(units):
                    when.append(self.joins[unit + 1].negated())
                self.model.add(counted >= widest).only_enforce_if(when)
                held[name] += [units[unit].weight_bytes * self.on[unit, name], counted]
        for peer in self.request.peers:
            self.model.add(sum(held[peer.peer]) <= peer.free_bytes)

    def _sends(self) -> dict[tuple[int, str, str], Any]:
        """(edge, from, to) -> whether it goes that way."""
        found: dict[tuple[int, str, str], Any] = {}
        origin = self.request.origin
        for number, edge in enumerate(self.request.work.edges):
            for dst in {*self.names, *([] if origin is None else [origin])}:
                wants = [self.on[unit, dst] for unit in edge.users if dst in self.names]
                wants += [1] if edge.returned and dst == origin else []
                if not wants:
                    continue
                needed = self.model.new_bool_var("")
                for want in wants:
                    self.model.add(needed >= want)
                if edge.source is None:
                    sources = [] if origin in (None, dst) else [(origin, 1)]
                else:
                    sources = [(name, self.on[edge.source, name]) for name in self.names if name != dst]
                for src, there in sources:
                    goes = self.model.new_bool_var("")
                    self.model.add(goes >= needed + there - 1)
                    if (src, dst) not in self.links:
                        self.model.add(goes == 0)
                    found[number, src, dst] = goes
        return found

    def _transfer(self, number: int, src: str, dst: str) -> int:
        size = self.request.work.edges[number].bytes
        return evaluator.transfer_ps(self.links[src, dst], size, 1) // NANO

    def _length(self, unit: int) -> Any:
        """How long a unit takes, with the step where it begins a stage."""
        parts = [self.busy[unit, name] * self.on[unit, name] for name in self.names]
        for name in self.names:
            if not unit:
                parts.append(self.steps[name] * self.on[unit, name])
            elif self.steps[name]:
                begins = self.model.new_bool_var("")
                self.model.add(begins >= self.on[unit, name] - self.joins[unit])
                parts.append(self.steps[name] * begins)
        return sum(parts)

    def _period(self) -> None:
        most = sum(max(self.busy[unit, name] for name in self.names) for unit in self.units)
        most += len(self.units) * max(self.steps.values())
        most += sum(self._transfer(*way) for way in self.sends if way[1:] in self.links)
        period = self.model.new_int_var(0, most, "")
        for name in self.names:
            parts: list[Any] = []
            for unit in self.units:
                parts.append(self.busy[unit, name] * self.on[unit, name])
                if self.steps[name]:
                    begins = self.model.new_bool_var("")
                    self.model.add(begins >= self.on[unit, name] - self.joins[unit])
                    parts.append(self.steps[name] * begins)
            self.model.add(sum(parts) <= period)
        loads: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for (number, src, dst), goes in self.sends.items():
            if (src, dst) in self.links:
                loads[src, dst].append(self._transfer(number, src, dst) * goes)
        for parts in loads.values():
            self.model.add(sum(parts) <= period)
        self.model.minimize(period)

    def _latency(self, most: int) -> None:
        """`most`: of the plan that is checked, which is one of the model's."""
        model, edges = self.model, self.request.work.edges
        delays = {way: evaluator.delay_ps(link) // NANO for way, link in self.links.items()}

        def moment() -> Any:
            return model.new_int_var(0, most, "")

        begins, ends, spent = ([moment() for _ in self.units] for _ in range(3))
        latency = moment()
        works: dict[str, list[Any]] = defaultdict(list)
        starts_at: list[Any] = []
        done: list[Any] = []
        for unit in self.units:
            length = moment()
            model.add(length == self._length(unit))
            if unit:
                joins = self.joins[unit]
                model.add(begins[unit] == begins[unit - 1]).only_enforce_if(joins)
                model.add(ends[unit] == ends[unit - 1]).only_enforce_if(joins)
                model.add(spent[unit] == spent[unit - 1] + length).only_enforce_if(joins)
                model.add(spent[unit] == length).only_enforce_if(joins.negated())
            else:
                model.add(spent[unit] == length)
            model.add(ends[unit] >= begins[unit] + spent[unit])
            at = moment()
            model.add(at == begins[unit] + spent[unit] - length)
            until = moment()
            model.add(until == at + length)
            starts_at.append(at)
            done.append(until)
            model.add(latency >= ends[unit])
            for name in self.names:
                works[name].append(
                    model.new_optional_interval_var(at, length, until, self.on[unit, name], "")
                )
        for intervals in works.values():
            model.add_no_overlap(intervals)
        there: dict[tuple[int, str], Any] = {}
        ways: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for (number, src, dst), goes in self.sends.items():
            if (src, dst) not in self.links:
                continue
            starts, stops = moment(), moment()
            transfer = self._transfer(number, src, dst)
            ways[src, dst].append(model.new_optional_interval_var(starts, transfer, stops, goes, ""))
            source = edges[number].source
            if source is not None:
                model.add(starts >= ends[source]).only_enforce_if(goes)
            arrives = there.setdefault((number, dst), moment())
            model.add(arrives >= stops + delays[src, dst]).only_enforce_if(goes)
        for intervals in ways.values():
            model.add_no_overlap(intervals)
        self._bounds(latency, starts_at, done, delays)
        for number, edge in enumerate(edges):
            if edge.returned and self.request.origin is not None:
                model.add(latency >= there.get((number, self.request.origin), 0))
            for user in edge.users:
                for name in self.names:
                    if (number, name) in there:
                        model.add(begins[user] >= there[number, name]).only_enforce_if(self.on[user, name])
                if edge.source is not None:
                    together = model.new_bool_var("")
                    for between in range(edge.source + 1, user + 1):
                        model.add_implication(together, self.joins[between])
                    model.add(begins[user] >= ends[edge.source]).only_enforce_if(together.negated())
        model.minimize(latency)

    def _bounds(
        self, latency: Any, begins: list[Any], ends: list[Any], delays: dict[tuple[str, str], int]
    ) -> None:
        """What follows from the rest, and is told for the proof: a run takes as long as all that one peer computes, and
        a unit waits for those before it, and for their values where they come over a link.
        """
        for name in self.names:
            parts: list[Any] = []
            for unit in self.units:
                parts.append(self.busy[unit, name] * self.on[unit, name])
                if self.steps[name]:
                    first = self.model.new_bool_var("")
                    self.model.add(first >= self.on[unit, name] - (self.joins[unit] if unit else 0))
                    parts.append(self.steps[name] * first)
            self.model.add(latency >= sum(parts))
        for number, edge in enumerate(self.request.work.edges):
            source = edge.source
            if source is None:
                continue
            for user in edge.users:
                self.model.add(begins[user] >= ends[source])
                for name in self.names:
                    comes = sum(
                        (self._transfer(number, src, name) + delays[src, name]) * goes
                        for (sent, src, dst), goes in self.sends.items()
                        if sent == number and dst == name and (src, dst) in self.links
                    )
                    self.model.add(begins[user] >= ends[source] + comes).only_enforce_if(self.on[user, name])
