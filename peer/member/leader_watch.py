"""Watches whether this peer is a whole member: somebody leads, there is a way there, and it is among the members. Edge.

When something is missing it waits a moment, since leadership may just be handed over, then tells people and searches
(`peer.member.reconnect`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from peer.member.reconnect import Away, Returning
from peer.replication.mesh_view import MeshView
from peer.session.routes import unserved
from peer.state.display_names import names
from peer.transport.listeners import Listeners
from peer.transport.peer_links import PeerLinks

HANDOVER_GRACE_S: Final = 0.7  # without a leader, before anybody is told


class LeaderWatch:
    """`start` runs a task of the owner's. Nothing is watched before `begin`."""

    def __init__(
        self,
        links: PeerLinks,
        view: MeshView,
        start: Callable[[Coroutine[Any, Any, None]], object],
        grace_s: float = HANDOVER_GRACE_S,
    ) -> None:
        self.led_by = ""  # who led when this peer was last a whole member
        self._links = links
        self._view = view
        self._start = start
        self._grace_s = grace_s
        self._returning: Returning | None = None
        self._is_over: Callable[[], bool] = lambda: False
        self._searching = False
        self._changed = asyncio.Event()  # something that a search may end with
        self._on_away = Listeners[Callable[[], None]]()

    @property
    def away(self) -> Away | None:
        """Set from the moment the leader is lost until this peer is back with it, or gave up."""
        return self._returning.away if self._returning is not None else None

    def on_away(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener()` when `away` is new, until what is returned is called."""
        return self._on_away.add(listener)

    def begin(self, rejoin: Callable[[], Awaitable[None]], is_over: Callable[[], bool]) -> None:
        """Watches from here on, until `is_over()`. `rejoin` makes one try to be a whole member again."""
        self._returning = Returning(self.missing, rejoin, self._away_changed)
        self._is_over = is_over
        self._view.on_role(self.look)
        self._view.subscribe(self.look)
        self._links.on_connected(lambda _: self.look())
        self.missing(0)  # notes who leads now: nothing may change until that one is lost

    def try_now(self) -> None:
        """Looks for a lost leader at once instead of after the next pause."""
        if self._returning is not None:
            self._returning.try_now()

    def look(self) -> None:
        """Begins to search when something is missing, and lets a search end when nothing is."""
        if self._returning is None or self._is_over():
            return
        if self._searching:
            self._changed.set()
            if self.missing(0) is None:
                self._returning.try_now()
        elif self.missing(0) is not None:
            self._searching = True
            self._start(self._search(self._returning))

    def missing(self, attempt: int) -> Away | None:
        """What this peer lacks to be a whole member, after so many attempts to find the mesh; None: nothing."""
        view, replica = self._view, self._view.replica
        leader = view.leader
        there = leader == view.me or (leader is not None and self._links.is_connected(leader))
        if there and (view.me in view.state.members or (replica is not None and replica.order[1] == 0)):
            self.led_by = leader or ""
            return None
        refused = replica.refused if replica is not None else ""
        state, plan = view.state, view.state.serving()
        gone = self._links.unreached | {self.led_by}
        voters = replica.config.voters if replica is not None else ()
        here = [peer for peer in voters if peer == view.me or self._links.is_connected(peer)]
        return Away(
            names(state.members).get(self.led_by, ""),
            plan is not None and bool(unserved(state, plan, gone)),
            len(voters),
            len([peer for peer in here if peer == view.me or peer != self.led_by]),
            0 if refused else attempt,
            refused,
        )

    async def _search(self, returning: Returning) -> None:
        try:
            await self._wait_for_handover()
            await returning.search()
        finally:
            self._searching = False

    async def _wait_for_handover(self) -> None:
        """Waits for a leader that is about to be there again: nobody is told of that."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace_s):
                while self.missing(0) is not None:
                    self._changed.clear()
                    await self._changed.wait()

    def _away_changed(self) -> None:
        if self._is_over():  # who leaves loses the others on purpose
            return
        for listener in self._on_away:
            listener()
