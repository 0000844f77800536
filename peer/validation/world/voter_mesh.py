"""A mesh whose voters are all processes of their own: each may be hurt, the founder too. This process asks and watches.

Edge. The signaling server runs in this process, so that a peer that is killed takes nothing along but itself.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from peer.consensus.records import Config
from peer.coordination.voter_policy import ENOUGH
from peer.errors import CannotServe, PeerError
from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import PeerOptions
from peer.state.generated.commands import Profile
from peer.state.mesh_state import MeshState
from peer.state.plan_record import route_of
from peer.validation.scenarios.link_conditions import CLEAR
from peer.validation.world.child_processes import FoundingProcess, How, JoinedProcess
from peer.validation.world.injection import Injection, disturbance
from peer.validation.world.mesh import ASKER, Shape
from peer.validation.world.relay_client import RelayProcess, relay
from peer.wire.generated.requests import LEADER
from planner.model.store import Store
from signaling.server import ServerOptions, serve

WHOLE_WITHIN_S: Final = 180.0  # peers start, measure, load, and wait until they may vote, on a busy machine
FOLLOWS_WITHIN_S: Final = 60.0
LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Placed:
    """Who coordinates by name ("": nobody), and in which term, as this process knows."""

    name: str
    term: int


class Voters:
    """The mesh and its processes by name. Made by `voters`."""

    def __init__(
        self, asker: MeshMember, shape: Shape, children: dict[str, JoinedProcess], relay: RelayProcess | None
    ) -> None:
        self.asker = asker
        self.shape = shape
        self.children = children
        self.relay = relay
        self.all_vote = True  # else a whole mesh has as many voters as let any one of them vanish
        self.down: set[str] = set()  # names of those that were ended
        self._stale: dict[str, Profile | None] = {}  # of those: until they measured anew
        self._called: dict[str, str] = {}  # names by id, of all that were here when the mesh was whole

    @property
    def state(self) -> MeshState:
        """The mesh as this process knows it."""
        return self.asker.view.state

    @property
    def config(self) -> Config:
        """Raises CannotServe where this process is in no mesh any more."""
        replica = self.asker.view.replica
        if replica is None:
            raise CannotServe(f"the asker is in no mesh any more: {self.asker.why_ended}")
        return replica.config

    @property
    def order(self) -> tuple[int, int]:
        """(term, index) of the last entry that this process obeyed."""
        replica = self.asker.view.replica
        return replica.order if replica is not None else (0, 0)

    @property
    def placed(self) -> Placed:
        """Who leads and in which term; "" and 0: nobody known."""
        replica = self.asker.view.replica
        if replica is None or not replica.leader:
            return Placed("", 0)
        return Placed(self.name(replica.leader), replica.term)

    def name(self, peer: str) -> str:
        """What the peer is called, or how its id begins."""
        member = self.state.members.get(peer)
        return member.name if member is not None else self._called.get(peer, peer[:8])

    def peer(self, name: str) -> str:
        """The id of who is called so, and was here. Raises CannotServe."""
        for peer, called in self._called.items():
            if called == name:
                return peer
        raise CannotServe(f"{name} was never here")

    def ended(self, name: str) -> None:
        """Notes that this peer was ended, so that what the mesh knows of it is out of date."""
        self.down.add(name)
        member = self.state.members.get(self.peer(name))
        self._stale[name] = member.profile if member is not None else None

    def route(self) -> tuple[str, ...]:
        """Names of those who serve the stages."""
        plan = self.state.serving()
        return tuple(self.name(peer) for peer in route_of(plan)) if plan is not None else ()

    def lacking(self) -> str:
        """What keeps the mesh from being whole; "" when nothing does."""
        state, plan, voters = self.state, self.state.serving(), self.config.voters
        if not self.placed.name:
            return "nobody coordinates"
        if plan is None or state.proposed is not None:
            return state.refused or "no plan is served yet"
        here = {member.name: (peer, member) for peer, member in state.members.items() if member.compute}
        for name in self.children:
            peer, member = here.get(name, ("", None))
            if member is None or member.status != "measured" or member.profile is None:
                return f"{name} is not back"
            if name in self._stale and member.profile is self._stale[name]:
                return f"the loss of {name} was not noticed"
            if self.all_vote and peer not in voters:
                return f"{name} does not vote"
        if self.all_vote and set(voters) != {peer for peer, _ in here.values()}:
            return "others vote"
        if len(voters) < ENOUGH or not {peer for peer, _ in here.values()}.issuperset(voters):
            return f"fewer than {ENOUGH} vote"
        doubled = self.shape.doubled(len(plan.stages))
        for number, stage in enumerate(plan.stages, start=1):
            run = (stage.first, stage.stop)
            late = [p for p in stage.standbys if p not in state.members or run not in state.members[p].held]
            if late or (doubled and not stage.standbys):
                return f"stage {number} has no standby that holds its units"
        return ""

    async def until(
        self, holds: Callable[[], bool], within_s: float, what: Callable[[], str] | None = None
    ) -> None:
        """Raises CannotServe, with `what` is lacking, when it does not hold in time or a peer gave up."""
        deadline = asyncio.get_running_loop().time() + within_s
        while not holds():
            self._check()
            if asyncio.get_running_loop().time() > deadline:
                raise CannotServe(f"not within {within_s:.0f} s: {what() if what is not None else 'nothing'}")
            await asyncio.sleep(LOOK_S)

    async def until_whole(self) -> None:
        """Everybody votes, is measured, and every stage has its standby."""
        await self.until(lambda: not self.lacking(), WHOLE_WITHIN_S, self.lacking)
        self._called.update({peer: member.name for peer, member in self.state.members.items()})

    def _check(self) -> None:
        if self.asker.ended.is_set():
            raise CannotServe(self.asker.why_ended)
        for name, child in self.children.items():
            if not child.running and name not in self.down:
                raise CannotServe(f"{name} ended by itself: {child.complaint() or 'it said nothing'}")

    async def restore(self) -> None:
        """Wakes who is frozen, starts who is gone, clears the links, and waits until the mesh is whole."""
        if self.relay is not None:
            await self.relay.set_links(CLEAR)
        gone = []
        for child in self.children.values():
            child.send(signal.SIGCONT)
            if not child.running:
                gone.append(child.start())
        await asyncio.gather(*gone)
        self.down.clear()
        await self.until_whole()
        for name in self._stale:
            await self.follows(name)
        self._stale.clear()

    async def follows(self, name: str) -> None:
        """Waits until a peer that was hurt knows who leads. Raises CannotServe when it never does."""
        links, view, peer = self.asker.links, self.asker.view, self.peer(name)
        deadline = asyncio.get_running_loop().time() + FOLLOWS_WITHIN_S
        while asyncio.get_running_loop().time() < deadline:
            with suppress(PeerError, TimeoutError):
                said = await links.ask(peer, LEADER, None, 2.0)
                if said.leader == view.leader and said.term == self.placed.term:
                    return
            await asyncio.sleep(LOOK_S)
        raise CannotServe(f"{name} does not follow")

    async def settled(self) -> int:
        """Waits until every voter has applied all that is committed; the index up to which. Raises CannotServe."""
        deadline = asyncio.get_running_loop().time() + FOLLOWS_WITHIN_S
        index = 0
        while asyncio.get_running_loop().time() < deadline:
            reports = await self.asker.status()
            applied = [int(report.get("applied", 0)) for report in reports.values()]
            index = max(int(report.get("commit", 0)) for report in reports.values())
            if len(applied) == len(self.children) + 1 and min(applied) == index:
                return index
            await asyncio.sleep(LOOK_S)
        raise CannotServe(f"not everybody has applied the log up to {index}")

    def complaints(self, words: str) -> int:
        """In how many lines that peers wrote these words stand."""
        texts = [child.wrote.read_text(errors="replace") for child in self.children.values()]
        return sum(words in line for text in texts for line in text.splitlines())


@asynccontextmanager
async def voters(
    shape: Shape,
    store: Store,
    *,
    relayed: bool,
    seed: int,
    protection: Sequence[str],
    last_words: list[Callable[[], None]],
) -> AsyncIterator[Voters]:
    """A whole mesh of `shape.peers` voters until the block ends; no process of it is left then.

    `protection`: as one types it. `last_words` gets what ends the children when this process is told to end at once.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-validate-")))
        way = await stack.enter_async_context(relay(folder, seed)) if relayed else None
        way_path = way.path if way is not None else ""
        meeting = await stack.enter_async_context(serve(ServerOptions(), store))
        how = How("", store.root, folder, shape.memory, shape.threads, shape.transport, way_path)
        mesh = shape.mesh
        more = ["--context", str(mesh.context), "--sessions", str(mesh.sessions), *protection]
        if mesh.cuts:
            more += ["--cuts", ",".join(map(str, mesh.cuts))]
        founder = FoundingProcess("peer 1", how, meeting.url, shape.model_id, more)
        children: dict[str, JoinedProcess] = {founder.name: founder}
        last_words.append(lambda: _kill(children.values()))
        stack.push_async_callback(_end, children)
        await founder.start()
        link = await founder.link()
        led = disturbance(Injection(folder / "none", way_path, ASKER))
        options = PeerOptions(ASKER, 0, 1, "cpu", shape.transport, ("127.0.0.1",), disturbance=led)
        asker = await stack.enter_async_context(join(link, options, store))
        how = How(link, store.root, folder, shape.memory, shape.threads, shape.transport, way_path)
        for number in range(2, shape.peers + 1):
            children[f"peer {number}"] = JoinedProcess(f"peer {number}", how)
        await asyncio.gather(*(child.start() for child in children.values() if child is not founder))
        made = Voters(asker, shape, children, way)
        await made.until_whole()
        yield made


async def _end(children: dict[str, JoinedProcess]) -> None:
    await asyncio.gather(*(child.end() for child in children.values()))


def _kill(children: Iterable[JoinedProcess]) -> None:
    for child in children:
        child.send(signal.SIGCONT)
        child.send(signal.SIGKILL)
