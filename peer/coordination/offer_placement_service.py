"""Offered models on their way to the members that run them: manifests fetched, placements made off the loop. Edge.

`peer.coordination.offer_placement` decides. It lives as long as its coordinator, which calls `look` whenever the state
has changed and now and then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from peer.coordination.offer_placement import Wanted, placed, settle, wanted_in
from peer.coordination.offer_promotion import promoted
from peer.errors import PeerError
from peer.state.member_commands import Command
from peer.state.mesh_state import MeshState
from planner.errors import PlannerError
from planner.model.graph_manifest import GraphManifest
from planner.model.graph_work import work_of
from planner.types import GraphWork

AGAIN_S: Final = 30.0  # between tries to get a manifest that could not be had

log = logging.getLogger(__name__)


class Placing:
    """`manifest_of(model)` raises a PeerError or PlannerError; `speaks` and `flops` are those of `wanted_in`."""

    def __init__(
        self,
        manifest_of: Callable[[str], Awaitable[GraphManifest]],
        speaks: Callable[[str], int],
        flops: Mapping[str, int],
        state: Callable[[], MeshState],
        submit: Callable[[Command], None],
    ) -> None:
        """`state` with what was submitted, `submit` has the log take a command."""
        self._manifest_of = manifest_of
        self._speaks = speaks
        self._flops = flops
        self._state = state
        self._submit = submit
        self._works: dict[str, GraphWork] = {}  # by model
        self._missing: dict[str, tuple[str, float]] = {}  # by model: why, and when it is tried again
        self._seen: tuple[object, ...] = ()  # of the state, when it was looked at last
        self._key = ""  # of the last placement
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def look(self, *, thoroughly: bool = False) -> None:
        """Has standbys take over from who is lost, and places anew what is to be. `thoroughly`: though the state is
        the same, since time has passed.
        """
        state = self._state()
        own = (state.model, state.plan, state.proposed, state.refused, state.wish, state.decoders)
        seen = (state.members, state.links, state.offers, state.protection, *own)
        same = len(seen) == len(self._seen) and all(a is b for a, b in zip(seen, self._seen, strict=True))
        if self._closed or (same and not thoroughly):
            return
        self._seen = seen
        if (command := promoted(state)) is not None:
            self._submit(command)  # which looks again
            return
        if self._task is not None:
            return  # looked at again when that is done
        wanted = wanted_in(state, self._speaks, self._flops)
        if wanted is None:
            self._key = ""
            return
        if wanted.key != self._key or self._is_due():
            self._key = wanted.key
            self._task = asyncio.ensure_future(self._place(wanted))

    async def close(self) -> None:
        """Places nothing any more."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _is_due(self) -> bool:
        return any(again <= time.monotonic() for _, again in self._missing.values())

    async def _place(self, wanted: Wanted) -> None:
        try:
            asked = sorted({offer.model for offer in wanted.offers.values()})
            works = dict(zip(asked, await asyncio.gather(*map(self._work, asked)), strict=True))
            for model in (self._works.keys() | self._missing.keys()) - works.keys():
                self._works.pop(model, None)
                self._missing.pop(model, None)
            found = await asyncio.to_thread(settle, wanted, works)
            for name, each in found.items():
                if (
                    not self._closed
                    and (command := placed(self._state(), name, wanted.offers[name], each)) is not None
                ):
                    self._submit(command)
        except Exception:  # a defect, which must not end placing for good
            log.exception("offered models were not placed")
        finally:
            self._task = None
        self.look(thoroughly=True)

    async def _work(self, model: str) -> GraphWork | str:
        """One run of the model, or why that is not known."""
        if model in self._works:
            return self._works[model]
        why, again = self._missing.get(model, ("", 0.0))
        if why and time.monotonic() < again:
            return why
        try:
            manifest = await self._manifest_of(model)
            work = await asyncio.to_thread(work_of, manifest)
        except (PeerError, PlannerError) as error:
            why = f"its manifest cannot be had: {error}"
        except Exception as error:  # a defect, which must not keep other models from their places
            log.exception("the manifest of an offered model was not read")
            why = f"its manifest cannot be read: {type(error).__name__}"
        else:
            self._missing.pop(model, None)
            self._works[model] = work
            return work
        self._missing[model] = (why, time.monotonic() + AGAIN_S)
        return why
