"""The slices of units that this peer has loaded for teams, as lead or as helper. Edge (Python)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from peer.errors import CannotServe
from peer.model.fetcher import Fetcher, Progress
from peer.runtime.teams.member_execution import MemberExecution, load_member
from peer.runtime.teams.team import Team
from peer.stage.unit_host import Room
from peer.state.generated.commands import HeldSlice
from planner.model.manifest import Manifest
from planner.model.store import Store


class Slices:
    """Of one model, each with room for what `room` promises."""

    def __init__(self, store: Store, fetcher: Fetcher, manifest: Manifest, room: Room) -> None:
        self.store = store
        self.manifest = manifest
        self.room = room
        self._fetcher = fetcher
        self._loaded: dict[HeldSlice, MemberExecution] = {}

    @property
    def loaded(self) -> tuple[HeldSlice, ...]:
        """What is loaded, in a fixed order."""
        return tuple(sorted(self._loaded, key=lambda part: (part.first, part.stop, part.place, part.shares)))

    def execution(self, part: HeldSlice) -> MemberExecution | None:
        """What computes it; None: it is not loaded."""
        return self._loaded.get(part)

    async def load(self, part: HeldSlice, progress: Progress | None = None) -> None:
        """Fetches the units, and loads the slice of them. Raises CannotServe, and nothing stays loaded."""
        if part in self._loaded:
            return
        await self._fetcher.blobs(self.manifest.blobs(part.first, part.stop), progress)
        making = asyncio.ensure_future(asyncio.to_thread(self._make, part))
        try:
            self._loaded[part] = await asyncio.shield(making)
        except asyncio.CancelledError:  # this peer leaves; what was loaded must not stay behind
            with suppress(CannotServe):
                (await making).close()
            raise

    async def unload(self, part: HeldSlice) -> None:
        """Gives its memory back. Nothing computes with it any more."""
        found = self._loaded.pop(part, None)
        if found is not None:
            await asyncio.to_thread(found.close)

    def memory_bytes(self) -> dict[str, int]:
        """Bytes of weights, and of the KV arrays, of all slices."""
        parts = list(self._loaded.values())
        return {
            "weights": sum(each.weight_bytes for each in parts),
            "kv": sum(each.kv_bytes for each in parts),
        }

    async def close(self) -> None:
        """Unloads everything."""
        for part in self.loaded:
            await self.unload(part)

    def _make(self, part: HeldSlice) -> MemberExecution:
        if self.room.provider != "cpu":
            raise CannotServe(f"slices are computed by the provider cpu, not by {self.room.provider}")
        try:
            team = Team(part.first, part.stop, part.shares)
        except ValueError as error:
            raise CannotServe(str(error)) from None
        return load_member(
            self.manifest, self.store, team, part.place, threads=self.room.threads, context=self.room.context
        )
