"""The coordinator at work: answers members, runs the planner off the loop, and sends the log to everyone.

Edge around `peer.coordinator`, which decides.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from peer.calls import Body
from peer.coordinator import SILENT, Coordinator, Wanted, solve
from peer.errors import BadCommand, NotAdmitted, PeerError
from peer.frames import PROTOCOL_VERSION, Entry, Frame, Snapshot
from peer.mesh_state import (
    Command,
    LinkFacts,
    Member,
    MemberDraining,
    MemberJoined,
    MemberLeaving,
    MemberLeft,
    MemberMeasured,
    MemberPaused,
    MeshState,
    ProtectionChosen,
    UnitsHeld,
    apply,
    decode_command,
    encode_command,
    encode_state,
)
from peer.names import plain
from peer.protection import Protection
from peer.suspicion import Findings, Reach, Suspicions
from planner.errors import PlannerError
from planner.types import Infeasible

MAX_MEMBER_NAME: Final = 64
MAX_REASON: Final = 500
MAX_PEER: Final = 128
MAX_COMMANDS: Final = 120  # reports of one member in COMMANDS_S; an honest one has a handful for each plan
COMMANDS_S: Final = 60.0
SAME_PEER_S: Final = 3.0  # how long the strategy `simple` waits for a peer that was lost before it plans anew

log = logging.getLogger(__name__)


class Coordinating:
    """`send(peer, frame)` reaches a member; `changed()` is called after each change of state on this peer."""

    def __init__(
        self,
        coordinator: Coordinator,
        send: Callable[[str, Frame], None],
        changed: Callable[[], None],
        may_compute: Callable[[str], bool],
        reach: Reach | None = None,
    ) -> None:
        self._core = coordinator
        self._send = send
        self._changed = changed
        self._may_compute = may_compute
        self._followers: set[str] = set()
        self._spent: dict[str, tuple[float, int]] = {}  # by peer: since when, how many reports
        self._planning: asyncio.Task[None] | None = None
        self._away: dict[
            str, tuple[Member, tuple[LinkFacts, ...]]
        ] = {}  # silent and gone, as they were known
        self._waits: dict[str, asyncio.TimerHandle] = {}  # for lost peers to come back
        findings = Findings(self._silent, self._silent_and_gone, self._back)
        self._suspicions = None if reach is None else Suspicions(reach, findings, self._wait_s)
        self.plan_seconds = 0.0

    @property
    def state(self) -> MeshState:
        return self._core.state

    def submit(self, command: Command) -> None:
        """Appends to the log and tells every member; plans anew when members changed."""
        before = self._core.state.index
        commands = self._core.submit(command)
        self._publish(before, commands)
        self._plan_if_wanted()
        for peer in self._core.awaited - self._waits.keys():
            loop = asyncio.get_running_loop()
            self._waits[peer] = loop.call_later(SAME_PEER_S, self._waited, peer)

    def protect(self, protection: Protection) -> None:
        """How answers are protected from now on."""
        if protection != self.state.protection:
            self.submit(ProtectionChosen(protection))

    def hinted(self, peer: str) -> None:
        """The signaling server says that `peer` left: maybe it did."""
        if self._suspicions is not None and peer in self.state.members and peer != self._core.me:
            self._suspicions.look(peer)

    def set_cuts(self, cuts: tuple[int, ...] | None) -> None:
        """Fixes the borders of stages by hand, or hands them back to the planner. Raises BadCommand."""
        self._core.set_cuts(cuts)
        self._plan_if_wanted()

    def answer(self, peer: str, method: str, body: Body) -> Body:
        """A member's request to the coordinator. Raises BadCommand or NotAdmitted."""
        match method:
            case "join":
                return self._join(peer, body)
            case "measured" | "held" | "drain" | "paused" | "leaving":
                self._from_member(peer, method, body)
                return {}
            case "suspect":
                suspect = body.get("peer")
                if not isinstance(suspect, str) or len(suspect) > MAX_PEER or peer not in self.state.members:
                    raise BadCommand("suspect: expected a member's word on another one, its id as `peer`")
                self._spend(peer)
                self.hinted(suspect)
                return {}
            case _:
                raise BadCommand(f"unknown request {method[:40]!r}")

    def breakers(self) -> list[tuple[str, str]]:
        """The peers that this coordinator leaves alone, with the state of each breaker."""
        if self._suspicions is None:
            return []
        return [*self._suspicions.breakers.shown(round(time.monotonic() * 1000))]

    def gone(self, peer: str, reason: str) -> None:
        """The connection to a member ended."""
        self._followers.discard(peer)
        self._spent.pop(peer, None)
        self._away.pop(peer, None)
        if self._suspicions is not None:
            self._suspicions.ended(peer)
        if peer in self.state.members:
            self.submit(MemberLeft(peer, reason[:MAX_REASON]))

    async def close(self) -> None:
        """Ends a planner run under way, and every question to others."""
        for wait in self._waits.values():
            wait.cancel()
        if self._suspicions is not None:
            await self._suspicions.close()
        if self._planning is not None:
            self._planning.cancel()
            await asyncio.gather(self._planning, return_exceptions=True)

    # --- silence

    def _wait_s(self) -> float:
        return SAME_PEER_S if self.state.protection.strategy == "simple" else 0.0

    def _waited(self, peer: str) -> None:
        self._waits.pop(peer, None)
        before = self.state.index
        self._publish(before, self._core.stop_waiting(peer))
        self._plan_if_wanted()

    def _silent(self, peer: str) -> bool:
        """Its connection holds, but it says nothing: plans leave it out where they can."""
        member = self.state.members.get(peer)
        if member is None or not member.compute or member.status not in ("measured", "draining"):
            return False
        self.submit(MemberDraining(peer, SILENT))
        return True

    def _silent_and_gone(self, peer: str) -> bool:
        member = self.state.members.get(peer)
        if member is None:
            return False
        links = tuple(link for link in self.state.links if peer in (link.src, link.dst))
        self._away[peer] = (member, links)
        self.submit(MemberLeft(peer, "silent, and gone from the signaling server"))
        return True

    def _back(self, peer: str) -> None:
        """It speaks again, and was quiet for long enough: it is as it was, and lends what it lent."""
        member, links = self._away.pop(peer, (self.state.members.get(peer), ()))
        if member is None:
            return
        if peer not in self.state.members:
            self.submit(MemberJoined(peer, member.name, member.compute))
            if member.held:
                self.submit(UnitsHeld(peer, member.held))
        elif member.reason != SILENT:
            return
        if member.profile is not None:
            here = [link for link in links if {link.src, link.dst} <= self.state.members.keys()]
            self.submit(MemberMeasured(peer, member.profile, tuple(here)))

    # --- members

    def _join(self, peer: str, body: Body) -> Body:
        name, compute, protocol = body.get("name"), body.get("compute"), body.get("protocol")
        if not isinstance(name, str) or not isinstance(compute, bool) or len(name) > MAX_MEMBER_NAME:
            raise BadCommand(f"join: expected a name of at most {MAX_MEMBER_NAME} characters, and compute")
        if plain(name) != name:
            raise BadCommand("join: expected a name without control characters; choose another with --name")
        if protocol != PROTOCOL_VERSION:
            raise NotAdmitted(
                f"this mesh speaks protocol {PROTOCOL_VERSION}, not {protocol!r:.20}; update shoal"
            )
        if compute and not self._may_compute(peer):
            raise NotAdmitted(
                "this invite lets you ask, not lend memory; ask for an invite with the role peer"
            )
        if peer not in self.state.members:
            self.submit(MemberJoined(peer, name, compute))
        self._followers.add(peer)
        state = self.state
        self._send(peer, Snapshot(state.term, state.index, encode_state(state)))
        return {}

    def _from_member(self, peer: str, method: str, body: Body) -> None:
        member = self.state.members.get(peer)
        if member is None:
            raise NotAdmitted("join first")
        self._spend(peer)
        command: Command | None
        match method:
            case "measured" | "held":
                said = decode_command(_bytes(body.get("command")))
                if not isinstance(said, MemberMeasured if method == "measured" else UnitsHeld):
                    raise BadCommand(f"{method}: expected what this peer itself measured or holds")
                command = self._core.told(peer, said)
            case "drain" | "paused":
                lends_less = MemberDraining if method == "drain" else MemberPaused
                command = lends_less(peer, plain(str(body.get("why", "")))[:MAX_REASON])
                if apply(self.state, command).members == self.state.members:
                    command = None  # it lends nothing anyway, or said so before
            case _:
                command = None if member.status == "leaving" else MemberLeaving(peer)
        if command is not None:
            self.submit(command)

    def _spend(self, peer: str) -> None:
        """Every command goes to every member: nobody may send them in floods. Raises BadCommand."""
        now = time.monotonic()
        since, count = self._spent.get(peer, (now, 0))
        if now - since > COMMANDS_S:
            since, count = now, 0
        if count >= MAX_COMMANDS:
            raise BadCommand(f"expected at most {MAX_COMMANDS} reports in {COMMANDS_S:.0f} s; slow down")
        self._spent[peer] = (since, count + 1)

    def _publish(self, before: int, commands: list[Command]) -> None:
        term = self.state.term
        for index, command in enumerate(commands, start=before + 1):
            body = encode_command(command)
            for peer in sorted(self._followers):
                try:
                    self._send(peer, Entry(term, index, body))
                except PeerError as error:
                    log.info("entry %d did not reach %s: %s", index, peer[:8], error)
        self._changed()

    def _plan_if_wanted(self) -> None:
        if self._planning is not None and not self._planning.done():
            return  # looked at again when that run is done
        wanted = self._core.wanted()
        if wanted is not None:
            self._planning = asyncio.ensure_future(self._plan(wanted))

    async def _plan(self, wanted: Wanted) -> None:
        begun = time.perf_counter()
        try:
            result = self._core.by_hand(wanted.request)
            if result is None:
                result = await asyncio.to_thread(solve, wanted)
        except PlannerError as error:
            result = Infeasible(str(error))
        except Exception as error:  # a defect, which must not end planning for good
            log.exception("planning failed")
            result = Infeasible(f"the planner failed: {type(error).__name__}")
        self.plan_seconds = time.perf_counter() - begun
        before = self.state.index
        commands = self._core.planned(wanted, result)
        if commands:
            self._publish(before, commands)
        self._planning = None
        self._plan_if_wanted()


def _bytes(text: object) -> bytes:
    if not isinstance(text, str):
        raise BadCommand("expected the command as text")
    return text.encode(errors="replace")


def body_of(command: Command) -> dict[str, Any]:
    """A command as the body of a request."""
    return {"command": encode_command(command).decode()}
