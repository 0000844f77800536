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
from peer.coordinator import Coordinator, Wanted
from peer.errors import BadCommand, NotAdmitted, PeerError
from peer.frames import PROTOCOL_VERSION, Entry, Frame, Snapshot
from peer.mesh_state import (
    Command,
    MemberDraining,
    MemberJoined,
    MemberLeaving,
    MemberLeft,
    MemberMeasured,
    MemberPaused,
    MeshState,
    UnitsHeld,
    apply,
    decode_command,
    encode_command,
    encode_state,
)
from peer.names import plain
from planner.errors import PlannerError
from planner.placement import plan
from planner.types import Infeasible

MAX_MEMBER_NAME: Final = 64
MAX_REASON: Final = 500
MAX_COMMANDS: Final = 120  # reports of one member in COMMANDS_S; an honest one has a handful for each plan
COMMANDS_S: Final = 60.0

log = logging.getLogger(__name__)


class Coordinating:
    """`send(peer, frame)` reaches a member; `changed()` is called after each change of state on this peer."""

    def __init__(
        self,
        coordinator: Coordinator,
        send: Callable[[str, Frame], None],
        changed: Callable[[], None],
        may_compute: Callable[[str], bool],
    ) -> None:
        self._core = coordinator
        self._send = send
        self._changed = changed
        self._may_compute = may_compute
        self._followers: set[str] = set()
        self._spent: dict[str, tuple[float, int]] = {}  # by peer: since when, how many reports
        self._planning: asyncio.Task[None] | None = None
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
            case _:
                raise BadCommand(f"unknown request {method[:40]!r}")

    def gone(self, peer: str, reason: str) -> None:
        """The connection to a member ended."""
        self._followers.discard(peer)
        self._spent.pop(peer, None)
        if peer in self.state.members:
            self.submit(MemberLeft(peer, reason[:MAX_REASON]))

    async def close(self) -> None:
        """Ends a planner run under way."""
        if self._planning is not None:
            self._planning.cancel()
            await asyncio.gather(self._planning, return_exceptions=True)

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
                result = await asyncio.to_thread(plan, wanted.request)
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
