"""Plans of further models that answer in words, on the peer that coordinates: manifests fetched, the planner run. Edge.

Each has a `peer.coordination.coordinator` of its own, which decides as for the mesh's own model. It lives as long as
the coordinator of the mesh, which calls `look` whenever the state has changed and now and then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from peer.coordination.coordinator import Coordinator, Wanted, solve
from peer.coordination.decoder_planning import (
    OWN,
    Sharing,
    Weights,
    planned_with,
    said_of,
    shared_runs,
    weights_of,
)
from peer.errors import PeerError
from peer.state.generated.commands import DecoderRefused
from peer.state.member_commands import Command
from peer.state.mesh_state import MeshState
from planner.errors import JobBroken, PlannerError
from planner.model.manifest import Manifest
from planner.service.planning_jobs import OWN_BUDGET, PlanningJobs
from planner.types import Infeasible, Plan, Unit

AGAIN_S: Final = 10.0  # between tries to get a manifest that could not be had
IN_THREAD_PEERS: Final = 3  # a plan of so few takes some hundredths of a second

log = logging.getLogger(__name__)


class DecoderPlanning:
    """`manifest_of(model)` raises a PeerError or PlannerError. `own`: the units that members measured themselves with;
    `answering`: the mesh's own model; `speaks(peer)`: its version of the protocol.
    """

    def __init__(
        self,
        me: str,
        manifest_of: Callable[[str], Awaitable[Manifest]],
        own: Sequence[Unit],
        answering: Manifest | None,
        speaks: Callable[[str], int],
        state: Callable[[], MeshState],
        submit: Callable[[Command], None],
    ) -> None:
        """`state` with what was submitted, `submit` has the log take a command."""
        self._me = me
        self._manifest_of = manifest_of
        self._own = tuple(own)
        self._answering = answering
        self._speaks = speaks
        self._state = state
        self._submit = submit
        self._weights: dict[str, Weights] = {}  # by model
        self._own_weights: Weights | None = None
        self._again: dict[str, float] = {}  # by model: when its manifest is asked for again
        self._fetching: dict[str, asyncio.Task[None]] = {}  # by model
        self._cores: dict[tuple[str, str], Coordinator] = {}  # by name and model
        self._seen: MeshState | None = None
        self._looking = False
        self._planning: asyncio.Task[None] | None = None
        self._jobs = PlanningJobs(OWN_BUDGET, OWN_BUDGET.cpu_s)
        self._closed = False

    def look(self, *, thoroughly: bool = False) -> None:
        """Says what follows from the state, and plans what is to be planned. `thoroughly`: though the state is the
        same, since time has passed.
        """
        if self._looking or self._closed or not (self._state().decoders or self._cores):
            return
        self._looking = True
        try:
            while (thoroughly or self._state() is not self._seen) and not self._closed:
                thoroughly, self._seen = False, self._state()
                self._follow()
            self._plan_next()
        finally:
            self._looking = False

    def unit_costs(self, name: str, model: str) -> tuple[int, ...] | None:
        """What the units of a further model cost beside one another; None before its manifest is known."""
        core = self._cores.get((name, model))
        return core.unit_costs() if core is not None else None

    async def close(self) -> None:
        """Plans nothing any more."""
        self._closed = True
        tasks = [*self._fetching.values(), *([self._planning] if self._planning is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._jobs.close()

    def _follow(self) -> None:
        """Shows each coordinator the state of now, and has the log take what it decides at once."""
        offered = {(name, decoder.model) for name, decoder in self._state().decoders.items()}
        self._cores = {key: core for key, core in self._cores.items() if key in offered}
        for name, model in sorted(offered):
            weights = self._weights.get(model)
            if weights is None:
                self._fetch(name, model)
                continue
            units, sharing = weights.units, self.sharing()
            seen = planned_with(self._state(), name, units, self._own, self._speaks, sharing)
            shared = shared_runs(self._state(), name, sharing)
            core = self._cores.get((name, model))
            if core is None:
                core = self._cores[name, model] = Coordinator(self._me, units, None, seen, shared)
                decided = core.go_on()
            else:
                decided = core.follow(seen, shared)
            self._say(name, decided)

    def sharing(self) -> Sharing:
        """The weights of the models that answer in words, as far as their manifests are here."""
        if self._own_weights is None and self._answering is not None and self._state().decoders:
            self._own_weights = weights_of(self._answering)
        own = {} if self._own_weights is None else {OWN: self._own_weights}
        further = {
            name: self._weights[decoder.model]
            for name, decoder in self._state().decoders.items()
            if decoder.model in self._weights
        }
        return Sharing({**own, **further}, self._speaks)

    def _say(self, name: str, decided: Sequence[Command]) -> None:
        for command in decided:
            if not self._closed:
                self._submit(said_of(name, command))

    def _plan_next(self) -> None:
        """One at a time, in the order of names: each is planned with what those before it take."""
        state = self._state()
        waits = state.model is not None and state.plan is None and state.proposed is None
        if self._closed or self._planning is not None or (waits and not state.refused):
            return  # looked at again when that is over
        for (name, _), core in sorted(self._cores.items()):
            if core.state.proposed is None and (wanted := core.wanted()) is not None:
                self._planning = asyncio.ensure_future(self._plan(name, core, wanted))
                return

    async def _plan(self, name: str, core: Coordinator, wanted: Wanted) -> None:
        try:
            result = await self._solved(wanted)
        except PlannerError as error:
            result = Infeasible(str(error))
        except Exception as error:  # a defect, which must not end planning for good
            log.exception("planning failed")
            result = Infeasible(f"the planner failed: {type(error).__name__}")
        self._planning = None
        if core in self._cores.values():
            self._say(name, core.planned(wanted, result))
        self.look(thoroughly=True)

    async def _solved(self, wanted: Wanted) -> Plan | Infeasible:
        if len(wanted.request.peers) > IN_THREAD_PEERS:
            try:
                return await self._jobs.solved(solve, wanted)
            except JobBroken as error:
                log.warning("plans are made in this process: %s", error)
        return await asyncio.to_thread(solve, wanted)

    def _fetch(self, name: str, model: str) -> None:
        if model not in self._fetching and time.monotonic() >= self._again.get(model, 0.0):
            self._fetching[model] = asyncio.ensure_future(self._fetched(name, model))

    async def _fetched(self, name: str, model: str) -> None:
        try:
            manifest = await self._manifest_of(model)
            self._weights[model] = weights_of(manifest)
        except (PeerError, PlannerError) as error:
            self._again[model] = time.monotonic() + AGAIN_S
            decoder = self._state().decoders.get(name)
            if decoder is not None and decoder.plan is None and not decoder.refused and not self._closed:
                self._submit(DecoderRefused(name, f"its manifest cannot be had: {error}"[:500]))
        except Exception:  # a defect, which must not keep other models from their plans
            log.exception("the manifest of a model was not read")
            self._again[model] = time.monotonic() + AGAIN_S
        finally:
            del self._fetching[model]
        self.look(thoroughly=True)
