"""Decides what the log says: who is in, which plan serves. A stand-in for the coordinator that never fails.

A loss becomes known after a while; then each stage goes to a standby that is here, or to a peer that loads its units
first. Every peer hears of each state in order, each at its own time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from peer.state.generated.commands import Member as Listed
from peer.state.generated.commands import ModelChosen, PlanRecord, PlanStage
from peer.state.mesh_state import MeshState
from peer.state.plan_record import holders_of, route_of
from tests.sim.member import Member
from tests.sim.network import Network
from tests.sim.toy import UNITS

LOAD_S = 0.3
UNLOAD_S = 1.0


class Mesh:
    """Writes the log and tells everyone."""

    def __init__(
        self,
        network: Network,
        rng: random.Random,
        members: Mapping[str, Member],
        compute: tuple[str, ...],
        plan: PlanRecord,
    ) -> None:
        self._network = network
        self._rng = rng
        self._members = members
        self._compute = frozenset(compute)
        self._told: dict[str, float] = {}
        self._leaving: set[str] = set()
        self.on_state: Callable[[MeshState], None] = lambda state: None
        listed = {name: Listed(name, name, name in self._compute, "measured", None, ()) for name in members}
        for name, runs in holders_of(plan).items():
            listed[name] = replace(listed[name], held=tuple(sorted(runs)))
            for run in runs:
                members[name].load(run)
        model = ModelChosen("toy", "toy", UNITS, 4096, 8, "latency")
        self.state = MeshState(1, 1, model, listed, (), plan, None, plan.version)
        for member in members.values():
            member.know(self.state)

    def left(self, name: str) -> None:
        """The coordinator noticed that `name` is gone, or it said so itself."""
        if name not in self.state.members or (self._members[name].alive and name not in self._leaving):
            return
        members = {peer: listed for peer, listed in self.state.members.items() if peer != name}
        self._write(replace(self.state, members=members))
        self.replan()

    def suspected(self, name: str) -> None:
        """Somebody thinks that `name` is lost: it is asked, and who does not answer is out."""
        self._network.at(self._network.now + 0.05 + 0.2 * self._rng.random(), self.left, name)

    def leaving(self, name: str) -> None:
        """`name` says that it leaves; it serves nobody from here on."""
        if name in self.state.members:
            self._leaving.add(name)
            members = dict(self.state.members)
            members[name] = replace(members[name], status="leaving")
            self._write(replace(self.state, members=members))
            self.replan()

    def joined(self, name: str) -> None:
        """A restarted peer is here again, without anything loaded."""
        self._leaving.discard(name)
        listed = Listed(name, name, name in self._compute, "measured", None, ())
        self._write(replace(self.state, members={**self.state.members, name: listed}))
        if self.state.proposed is None and self.state.serving() is not None:
            self._load_standbys(name)
        else:
            self.replan()

    def shuffle(self) -> None:
        """A plan that moves work though nobody is lost: a standby becomes primary, or the model is cut elsewhere."""
        plan = self.state.plan
        if plan is None or self.state.proposed is not None or self.state.serving() is None:
            return
        stages = list(plan.stages)
        if len(stages) > 1 and self._rng.random() < 0.3:
            place = self._rng.randrange(len(stages) - 1)
            border = self._rng.randrange(stages[place].first + 1, stages[place + 1].stop)
            stages[place] = replace(stages[place], stop=border)
            stages[place + 1] = replace(stages[place + 1], first=border)
        else:
            place = self._rng.randrange(len(stages))
            stage = stages[place]
            others = [*stage.standbys] or [peer for peer in sorted(self._here()) if peer != stage.primary]
            if not others:
                return
            fresh = self._rng.choice(others)
            standbys = (*(peer for peer in stage.standbys if peer != fresh), stage.primary)
            stages[place] = replace(stage, primary=fresh, standbys=standbys)
        self._propose(tuple(stages))

    def replan(self) -> None:
        """Puts every stage with somebody who is here; those who hold it already come first."""
        plan = self.state.plan
        if plan is None:
            return
        here = self._here()
        stages = []
        for stage in plan.stages:
            holders = [peer for peer in (stage.primary, *stage.standbys) if peer in here]
            if not holders:
                rest = sorted(here, key=lambda peer: (peer in route_of(plan), peer))
                holders = rest[:1]
            if not holders:
                return
            stages.append(replace(stage, primary=holders[0], standbys=tuple(holders[1:])))
        if tuple(stages) != plan.stages:
            self._propose(tuple(stages))

    def _here(self) -> set[str]:
        return {
            name
            for name, listed in self.state.members.items()
            if name in self._compute and listed.status == "measured"
        }

    def _propose(self, stages: tuple[PlanStage, ...]) -> None:
        record = PlanRecord(self.state.last_version + 1, stages, 0, 0)
        self._write(replace(self.state, proposed=record, last_version=record.version))
        for name, runs in holders_of(record).items():
            self._load(name, frozenset(runs))
        self._settle()

    def _load_standbys(self, name: str) -> None:
        for plan in (self.state.plan, self.state.proposed):
            if plan is not None:
                self._load(name, holders_of(plan).get(name, frozenset()))

    def _load(self, name: str, runs: frozenset[tuple[int, int]]) -> None:
        held = self.state.members[name].held if name in self.state.members else ()
        for run in sorted(runs - set(held)):
            self._network.at(self._network.now + LOAD_S * (0.5 + self._rng.random()), self._loaded, name, run)

    def _loaded(self, name: str, run: tuple[int, int]) -> None:
        member = self._members[name]
        if not member.alive or name not in self.state.members:
            return
        if member.frozen:
            member.later(0.0, self._loaded, name, run)
            return
        member.load(run)
        listed = self.state.members[name]
        held = tuple(sorted({*listed.held, run}))
        self._write(replace(self.state, members={**self.state.members, name: replace(listed, held=held)}))
        self._settle()

    def _settle(self) -> None:
        proposed = self.state.proposed
        if proposed is None:
            return
        if any(stage.primary not in self._here() for stage in proposed.stages):
            self._write(replace(self.state, proposed=None))
            self.replan()
        elif self.state.ready_for(proposed):
            self._write(replace(self.state, plan=proposed, proposed=None))
            self._network.at(self._network.now + UNLOAD_S, self._unload)

    def _unload(self) -> None:
        """What no plan wants any more is let go."""
        wanted: dict[str, set[tuple[int, int]]] = {}
        for plan in (self.state.plan, self.state.proposed):
            for name, runs in holders_of(plan).items() if plan is not None else ():
                wanted.setdefault(name, set()).update(runs)
        members = dict(self.state.members)
        for name, listed in sorted(self.state.members.items()):
            member = self._members[name]
            kept = tuple(run for run in listed.held if run in wanted.get(name, ()))
            if kept == listed.held or not member.alive or member.frozen:
                continue
            for run in set(listed.held) - set(kept):
                member.unload(run)
            members[name] = replace(listed, held=kept)
        if members != self.state.members:
            self._write(replace(self.state, members=members))

    def _write(self, state: MeshState) -> None:
        self.state = replace(state, index=self.state.index + 1)
        self.on_state(self.state)
        for name in sorted(self._members):
            when = max(self._network.now + 0.03 * self._rng.random(), self._told.get(name, 0.0))
            self._told[name] = when
            self._network.at(when, self._tell, name, self.state)

    def _tell(self, name: str, state: MeshState) -> None:
        member = self._members[name]
        if member.alive and name in state.members:
            member.later(0.0, member.know, state)
