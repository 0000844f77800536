"""Decides, event by event, what a server of the group does next."""

from __future__ import annotations

from peer.consensus.types import Effect, Event, Status


class Core:
    """One server. `step` takes one event and returns what the edge is to perform, in order."""

    def step(self, now_ms: int, event: Event) -> list[Effect]:
        """The first event is Boot. Raises BadBoot only then."""
        raise NotImplementedError

    def status(self) -> Status:
        raise NotImplementedError

    def digest(self) -> str:
        """16 hex digits (FNV-1a) over canonical JSON of the whole state; equal states in all languages, equal digests."""
        raise NotImplementedError
