"""What this peer knows of the mesh: its copy of the log, the state built from it, and who leads. Edge.

Everything that waits for the mesh waits here (`until`), and everything that follows it subscribes here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

from peer.consensus.events import Settings
from peer.consensus.message_codec import encode as encode_message
from peer.consensus.messages import Message
from peer.consensus.records import Entry
from peer.errors import BadCommand, NoPlan
from peer.replication.leader_client import PATIENCE_S, LeaderLine, spelled
from peer.replication.replica import Beginning, Keeper, Replica, who_leads
from peer.state.generated.commands import HeldSlice, MemberMeasured, ModelChosen, UnitsHeld
from peer.state.member_commands import Command
from peer.state.mesh_state import MeshState
from peer.state.readiness import why_no_words
from peer.state.version_negotiation import too_new
from peer.transport.listeners import Listeners
from peer.transport.peer_links import PeerLinks
from peer.transport.redial import Redial, wanted
from peer.wire.generated.frames import Consensus
from peer.wire.generated.requests import (
    HELD,
    LEADER,
    MEASURED,
    PROPOSE,
    HeldRequest,
    LeaderAnswer,
    MeasuredRequest,
    ProposeRequest,
)
from peer.wire.request_kind import RequestKind

PATIENT_S: Final = 2.0  # most questions are over by then


T = TypeVar("T")
A = TypeVar("A")


class MeshView:
    """`patient`: a peer that only asks connects to voters when it has been here for a while."""

    def __init__(self, links: PeerLinks, *, patient: bool = False) -> None:
        self.me = links.me
        self.patient = patient
        self.replica: Replica | None = None  # None: this peer is in no mesh
        self.state = MeshState()
        self._links = links
        self._line = LeaderLine(lambda: self.leader or "", links.ask)
        self._changed = asyncio.Event()
        self._on_state = Listeners[Callable[[], None]]()
        self._on_log = Listeners[Callable[[tuple[Entry, ...]], None]]()
        self._on_role = Listeners[Callable[[], None]]()
        self._on_log_refused = Listeners[Callable[[str], None]]()
        self._on_log_lost = Listeners[Callable[[str], None]]()
        self._redial = Redial()
        self._since = time.monotonic()
        links.on(LEADER, self._who_leads)

    # --- what is known

    @property
    def leader(self) -> str | None:
        """Who leads, as far as this peer knows; None: nobody."""
        return (self.replica.leader or None) if self.replica is not None else None

    @property
    def chosen(self) -> ModelChosen:
        """The model of the mesh that answers in words. Raises NoPlan where there is none, and while this peer is out of
        the mesh.
        """
        if self.state.model is not None:
            return self.state.model
        if self.me in self.state.members:
            raise NoPlan(why_no_words(self.state))
        raise NoPlan("this peer is not in its mesh now, and looks for it: try again")

    @property
    def incarnation(self) -> int:
        """Which life of this peer its log is of; 0 outside a mesh."""
        return self.replica.begin.incarnation if self.replica is not None else 0

    async def until(self, holds: Callable[[MeshState], bool], timeout_s: float | None) -> bool:
        """Waits until the state satisfies `holds`; False when the time is over first. Looks again whenever the state
        or the leader is new.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not holds(self.state):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener()` after each change of the state, until what is returned is called."""
        return self._on_state.add(listener)

    def on_log(self, listener: Callable[[tuple[Entry, ...]], None]) -> Callable[[], None]:
        """Calls `listener(entries)` with what the log has anew, before the state is told; ends when what is returned is
        called.
        """
        return self._on_log.add(listener)

    def on_role(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener()` when role, term or leader is new, until what is returned is called."""
        return self._on_role.add(listener)

    def on_log_refused(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Calls `listener(why)` when the log cannot be written for now, and `listener("")` when it can be again, until
        what is returned is called.
        """
        return self._on_log_refused.add(listener)

    def on_log_lost(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Calls `listener(why)` when the log cannot be kept any more, until what is returned is called."""
        return self._on_log_lost.add(listener)

    # --- what this peer has the log say

    async def ask_leader(
        self, kind: RequestKind[T, A], said: T, patience_s: float = PATIENCE_S, first: str = ""
    ) -> A:
        """Returns the answer of whoever leads, which may be this peer; waits while nobody does. `first`: whom to ask
        first. Raises the refusal, or NotLeader when patience ends.
        """
        return await self._line.ask(kind, said, patience_s, first)

    async def measured(self, command: MemberMeasured, *, again: bool = False) -> None:
        """Tells whoever leads what this peer measured, `again` where it was asked to; it is committed then. Raises
        MeshError.
        """
        await self.ask_leader(MEASURED, MeasuredRequest(spelled(command), again))

    async def holds(self, runs: tuple[tuple[int, int], ...], slices: tuple[HeldSlice, ...] = ()) -> None:
        """Tells whoever leads which runs of units of the mesh's own model are loaded here, and with which slices this
        peer can compute in teams. Raises MeshError.
        """
        await self.ask_leader(HELD, HeldRequest(spelled(UnitsHeld(self.me, runs, slices))))

    async def propose(self, command: Command) -> None:
        """Has the log say so; returns when it is committed. Raises MeshError, as where it is not this peer's to say."""
        if self.leader is not None and (why := too_new(command, [self.leader], self._links.dialer.speaks)):
            raise BadCommand(why)
        await self.ask_leader(PROPOSE, ProposeRequest(spelled(command)))

    # --- the log

    def take_part(self, begin: Beginning, keeper: Keeper | None, settings: Settings | None = None) -> None:
        """Starts this peer's copy of the log. `keeper` None: it is in memory only. Raises BadBoot."""
        self.replica = Replica(begin, keeper, self._send, self, settings)
        self.replica.start()

    async def leave_log(self) -> None:
        """Forgets what this peer knows of the mesh, which is void: it is to begin anew."""
        replica, self.replica = self.replica, None
        if replica is not None:
            await replica.close()
        self.obey(MeshState())

    async def close(self) -> None:
        """Stops the copy of the log; what is known stays."""
        if self.replica is not None:
            await self.replica.close()

    def received(self, peer: str, frame: Consensus) -> None:
        """Takes a message of another server. Raises WrongField for one that is none."""
        if self.replica is not None:
            self.replica.received(peer, frame.body)

    def unreachable(self, peer: str) -> None:
        """Takes that a connection ended, which may mean that the peer is gone."""
        if self.replica is not None:
            self.replica.unreachable(peer)

    def tick(self, now: float) -> None:
        """Dials the members that this peer keeps connections to for the log's sake, and those that it lost. `now`:
        monotonic seconds.
        """
        if self.replica is None or (self.patient and now - self._since <= PATIENT_S):
            return
        peers = wanted(self.replica.config, self.me, leads=self.replica.leads) | self._links.unreached
        for peer in self._redial.due(now, peers, self._links.is_connected):
            self._links.dialer.prepare(peer)

    def obey(self, state: MeshState) -> None:
        """Takes the state that holds from now on; who is a member follows from it. Tells nobody yet."""
        self.state = state
        self._links.know(state.members, self.leader or "")

    # --- ReplicaEvents

    def log_changed(self, entries: tuple[Entry, ...]) -> None:
        """Takes the state that the log leads to, and tells who follows it."""
        assert self.replica is not None
        self.obey(self.replica.state)
        for reader in self._on_log:
            reader(entries)
        self._changed.set()
        for listener in self._on_state:
            listener()

    def role_changed(self) -> None:
        """Tells that role, term or leader is new."""
        self._links.know(self.state.members, self.leader or "")
        self._line.changed()
        self._changed.set()
        for listener in self._on_role:
            listener()

    def log_refused(self, why: str) -> None:
        """Tells that the log cannot be written for now; "": it can be again."""
        for listener in self._on_log_refused:
            listener(why)

    def log_lost(self, why: str) -> None:
        """Tells that the log cannot be kept any more."""
        for listener in self._on_log_lost:
            listener(why)

    # --- inner moves

    def _send(self, peer: str, message: Message) -> None:
        """Hands a message of the core over. One that cannot go now is lost; the core sends again."""
        if self._links.is_connected(peer):
            self._links.send_or_lose(peer, Consensus(encode_message(message)))

    async def _who_leads(self, peer: str, _: None) -> LeaderAnswer:
        return who_leads(self.replica, self.me)
