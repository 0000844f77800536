"""The mesh as the parts see it that serve one model: its own, or a further one that answers in words. Edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from peer.replication.leader_client import PATIENCE_S, spelled
from peer.replication.mesh_view import MeshView
from peer.replication.replica import Replica
from peer.session.seat import Run_
from peer.state.decoder_sight import seen_as
from peer.state.generated.commands import DecoderHeld, HeldSlice
from peer.state.member_commands import Command
from peer.state.mesh_state import MeshState
from peer.transport.listeners import Listeners
from peer.wire.generated.requests import HELD, HeldRequest
from peer.wire.request_kind import RequestKind

T = TypeVar("T")
A = TypeVar("A")


class ModelView(Protocol):
    """What the parts that serve one model know of the mesh, and tell it."""

    @property
    def me(self) -> str:
        """The id of this peer."""

    @property
    def replica(self) -> Replica | None:
        """This peer's copy of the log; None: it is in no mesh."""

    @property
    def state(self) -> MeshState:
        """The state of the mesh, whose model is the one that these parts serve."""

    @property
    def leader(self) -> str | None:
        """Who leads, as far as this peer knows; None: nobody."""

    @property
    def incarnation(self) -> int:
        """Which life of this peer its log is of; 0 outside a mesh."""

    async def until(self, holds: Callable[[MeshState], bool], timeout_s: float | None) -> bool:
        """As MeshView.until."""

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """As MeshView.subscribe."""

    async def ask_leader(
        self, kind: RequestKind[T, A], said: T, patience_s: float = PATIENCE_S, first: str = ""
    ) -> A:
        """As MeshView.ask_leader."""

    async def propose(self, command: Command) -> None:
        """As MeshView.propose."""

    async def holds(self, runs: tuple[Run_, ...], slices: tuple[HeldSlice, ...] = ()) -> None:
        """Tells whoever leads which runs of units of the model are loaded here, and with which slices this peer can
        compute in teams. Raises MeshError.
        """


class DecoderView:
    """The same of the further model that the mesh calls `name`. Close it when the model is not offered any more."""

    def __init__(self, view: MeshView, name: str) -> None:
        self.name = name
        self._view = view
        self._seen_of = view.state
        self._seen = seen_as(view.state, name)
        self._on_state = Listeners[Callable[[], None]]()
        self._unsubscribe = view.subscribe(self._changed)

    @property
    def me(self) -> str:
        """The id of this peer."""
        return self._view.me

    @property
    def replica(self) -> Replica | None:
        """This peer's copy of the log."""
        return self._view.replica

    @property
    def leader(self) -> str | None:
        """Who leads, as far as this peer knows; None: nobody."""
        return self._view.leader

    @property
    def incarnation(self) -> int:
        """Which life of this peer its log is of; 0 outside a mesh."""
        return self._view.incarnation

    @property
    def state(self) -> MeshState:
        """The state as if this model were the mesh's own."""
        if self._seen_of is not self._view.state:
            self._seen_of = self._view.state
            self._seen = seen_as(self._seen_of, self.name)
        return self._seen

    async def until(self, holds: Callable[[MeshState], bool], timeout_s: float | None) -> bool:
        """Waits until this state satisfies `holds`; False when the time is over first."""
        return await self._view.until(lambda _: holds(self.state), timeout_s)

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener()` after each change of the state, until what is returned is called."""
        return self._on_state.add(listener)

    async def ask_leader(
        self, kind: RequestKind[T, A], said: T, patience_s: float = PATIENCE_S, first: str = ""
    ) -> A:
        """Returns the answer of whoever leads, as MeshView.ask_leader does."""
        return await self._view.ask_leader(kind, said, patience_s, first)

    async def propose(self, command: Command) -> None:
        """Has the log say so, as MeshView.propose does."""
        await self._view.propose(command)

    async def holds(self, runs: tuple[Run_, ...], slices: tuple[HeldSlice, ...] = ()) -> None:
        """Tells whoever leads which runs of units of this model are loaded here; no team computes it. Raises MeshError,
        ValueError for slices.
        """
        if slices:
            raise ValueError("no slices of a further model expected")
        await self._view.ask_leader(HELD, HeldRequest(spelled(DecoderHeld(self.name, self.me, runs))))

    def close(self) -> None:
        """Tells nobody of changes any more."""
        self._unsubscribe()

    def _changed(self) -> None:
        for listener in self._on_state:
            listener()
