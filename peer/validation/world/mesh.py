"""A mesh under validation: this process founds, coordinates and asks; the peers that compute are its children.

Edge. Whatever was done to the peers, `restore` brings all of them back and waits until the mesh is whole again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from peer.consensus.records import Entry
from peer.errors import CannotServe
from peer.launch.browsers import check_app
from peer.member.joining import Founding, found
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import Lent, MeshOptions, PeerOptions
from peer.origin.answer_stream import Conversation
from peer.state.generated.commands import PlanRecord, Profile
from peer.state.mesh_state import MeshState
from peer.validation.scenarios.faults import Victim
from peer.validation.scenarios.link_conditions import CLEAR
from peer.validation.scenarios.unit_coverage import Coverage, other_cuts
from peer.validation.world.child_processes import Child, How, JoinedProcess, Tab
from peer.validation.world.injection import Injection, disturbance
from peer.validation.world.relay_client import RelayProcess, relay
from planner.model.store import Store
from signaling.app_files import built_app
from signaling.keys import SEED_BYTES, identity_from_seed
from signaling.server import ServerOptions

WHOLE_WITHIN_S: Final = 120.0  # peers start, measure and load on a busy machine
ASKER: Final = "asker"
Talks = Sequence[Conversation]


@dataclass(frozen=True, slots=True)
class Shape:
    """What mesh is built."""

    model_id: str
    mesh: MeshOptions
    peers: int
    memory: Lent  # of a process
    threads: int
    transport: str
    browsers: tuple[str, ...] = ()
    tab_bytes: int = 0  # that a tab lends in all

    def doubled(self, stages: int) -> bool:
        """Whether every stage must have a standby before the mesh counts as whole. Not where the planner cuts the
        model: a fast plan comes before room for copies.
        """
        protection = self.mesh.protection
        return self.mesh.cuts is not None and (
            protection.redundancy_milli >= 2000 or (protection.spare and self.peers >= 2 * stages)
        )


class Rig:
    """The mesh and its peers by name. Made by `rig`."""

    def __init__(
        self, founder: MeshMember, shape: Shape, children: dict[str, Child], relay: RelayProcess | None
    ) -> None:
        self.founder = founder
        self.shape = shape
        self.children = children
        self.relay = relay
        self.coverage: Coverage | None = None  # of the units, since answers were to move
        self._moves = 0
        self._called: dict[str, str] = {}  # names by id, of all that were here when the mesh was whole
        self._stale: dict[str, Profile | None] = {}  # of peers that were ended: until they measured anew

    @property
    def state(self) -> MeshState:
        """What the mesh knows."""
        return self.founder.view.state

    @property
    def names(self) -> list[str]:
        """The peers that compute, in the order they were started."""
        return list(self.children)

    def plan(self) -> PlanRecord:
        """The plan in force. Raises CannotServe when there is none."""
        plan = self.state.plan
        if plan is None:
            raise CannotServe("the mesh under validation has no plan")
        return plan

    def victim(self, victim: Victim, route: Sequence[str]) -> str:
        """The name of whom a schedule means: who serves its stage on `route`, or stands by for it; a stage without a
        standby gives who serves it.
        """
        if victim.stage < 0:
            return self.names[victim.peer % len(self.names)]
        place = victim.stage % len(route)
        stage = self.plan().stages[place]
        others = [
            p for p in (*stage.standbys, stage.primary) if p in self.state.members and p != route[place]
        ]
        return self.name(others[0] if victim.standby and others else route[place])

    def neighbour(self, victim: Victim, route: Sequence[str]) -> str:
        """The name of who serves the stage after the victim's, the first after the last; with one stage the asker."""
        return self.name(route[(victim.stage + 1) % len(route)]) if len(set(route)) > 1 else ASKER

    def name(self, peer: str) -> str:
        """What the peer with this id is called here."""
        member = self.state.members.get(peer)
        return self._called[peer] if member is None else member.name

    def ended(self, name: str) -> None:
        """Notes that this peer was ended, so that what the mesh knows of it is out of date."""
        for member in self.state.members.values():
            if member.name == name:
                self._stale[name] = member.profile

    # --- moving

    def cut_elsewhere(self, talks: Talks) -> tuple[int, ...]:
        """Has the model cut in another way, or as it was at first when it is not; the borders. From here on the log is
        checked.
        """
        first = self.shape.mesh.cuts or ()
        cuts = self.state.cuts or ()
        if cuts == first:
            ways = other_cuts(first, self.state.model.units if self.state.model is not None else 0)
            cuts, self._moves = ways[self._moves % len(ways)], self._moves + 1
        else:
            cuts = first
        self.coverage = Coverage(self.state, lambda: [way for talk in talks if (way := talk.way) is not None])
        self.founder.set_cuts(cuts)
        return cuts

    def watch_log(self) -> None:
        """Checks each entry that is committed once answers are to move."""

        def log_changed(entries: tuple[Entry, ...]) -> None:
            if self.coverage is not None:
                for entry in entries:
                    if entry.kind == "command":
                        self.coverage.entry(entry.data)

        self.founder.view.on_log(log_changed)

    # --- being whole

    def lacking(self) -> str:
        """What keeps the mesh from being whole; "" when nothing does."""
        state, plan = self.state, self.state.serving()
        if plan is None or state.proposed is not None:
            return state.refused or "no plan is served yet"
        here = {member.name: member for member in state.members.values() if member.compute}
        for name in self.names:
            member = here.get(name)
            if member is None or member.status != "measured" or member.profile is None:
                return f"{name} is not back"
            if name in self._stale and member.profile is self._stale[name]:
                return f"the loss of {name} was not noticed"
        doubled = self.shape.doubled(len(plan.stages))
        for number, stage in enumerate(plan.stages, start=1):
            run = (stage.first, stage.stop)
            late = [p for p in stage.standbys if p not in state.members or run not in state.members[p].held]
            if late or (doubled and not stage.standbys):
                return f"stage {number} has no standby that holds its units"
        return ""

    async def until_joined(self, count: int) -> None:
        """Waits for so many peers that compute. Raises CannotServe when they do not come."""

        def joined(state: MeshState) -> bool:
            return (
                sum(member.compute and member.profile is not None for member in state.members.values())
                >= count
            )

        if not await self.founder.view.until(joined, WHOLE_WITHIN_S):
            raise CannotServe(f"a peer did not join within {WHOLE_WITHIN_S:.0f} s")

    async def until_whole(self) -> None:
        """Raises CannotServe, saying what is lacking, when the mesh is not whole in time, or a peer gave up."""
        changed = asyncio.Event()
        unsubscribe = self.founder.view.subscribe(changed.set)
        deadline = asyncio.get_running_loop().time() + WHOLE_WITHIN_S
        try:
            while self.lacking():
                changed.clear()
                try:
                    async with asyncio.timeout(1.0):
                        await changed.wait()
                except TimeoutError:
                    self._check_children()
                if asyncio.get_running_loop().time() > deadline:
                    raise CannotServe(f"not whole again within {WHOLE_WITHIN_S:.0f} s: {self.lacking()}")
        finally:
            unsubscribe()
        self._stale.clear()
        self._called.update({peer: member.name for peer, member in self.state.members.items()})

    def _check_children(self) -> None:
        if self.founder.ended.is_set():
            raise CannotServe(self.founder.why_ended)
        for name, child in self.children.items():
            if not child.running:
                raise CannotServe(f"{name} ended by itself: {child.complaint() or 'it said nothing'}")

    def tabs(self) -> list[str]:
        """Names of the peers that are tabs."""
        return [name for name, child in self.children.items() if isinstance(child, Tab)]

    async def need_a_tab(self) -> None:
        """Sees to it that a tab is the primary of a stage, where there are tabs."""
        await self.need(self.tabs())

    async def need(self, wanted: Sequence[str]) -> None:
        """Restarts others politely until one of `wanted` is the primary of a stage; each restart lets it move up."""
        for _ in self.names:
            serving = [self.name(stage.primary) for stage in self.plan().stages]
            if not wanted or set(wanted) & set(serving):
                return
            behind = [
                self.name(stage.primary)
                for stage in self.plan().stages
                if {self.name(peer) for peer in stage.standbys if peer in self.state.members} & set(wanted)
            ]
            name = (behind or serving)[0]
            self.ended(name)
            self.children[name].send(signal.SIGINT)
            await self.children[name].gone()
            await self.restore()

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
        await self.until_whole()


def joined_process(_: int, name: str, how: How) -> Child:
    """A peer as people start it."""
    return JoinedProcess(name, how)


@asynccontextmanager
async def rig(
    shape: Shape,
    store: Store,
    *,
    relayed: bool,
    seed: int,
    last_words: list[Callable[[], None]],
    process: Callable[[int, str, How], Child] = joined_process,
    in_order: int = 0,
) -> AsyncIterator[Rig]:
    """A whole mesh until the block ends; no process of it is left then.

    `process` makes the processes, numbered from 1; the first `in_order` of them join one after the other, as tabs do:
    stages go to peers in that order. `last_words` gets what ends the children when this process is told to end at
    once. Raises what founding raises, and NoBrowser when there are to be tabs and there is no page for them.
    """
    check_app(shape.browsers)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-validate-")))
        way = await stack.enter_async_context(relay(folder, seed)) if relayed else None
        way_path = way.path if way is not None else ""
        led = disturbance(Injection(folder / "none", way_path, ASKER))
        options = PeerOptions(ASKER, 0, 1, "cpu", shape.transport, ("127.0.0.1",), disturbance=led)
        server = ServerOptions(web_app=built_app() if shape.browsers else None)
        key = identity_from_seed(os.urandom(SEED_BYTES))
        founder = await stack.enter_async_context(
            found(Founding(shape.model_id, shape.mesh, server), options, store, key)
        )
        assert founder.link is not None
        link = founder.link.url()
        how = How(link, store.root, folder, shape.memory, shape.threads, shape.transport, way_path)
        children: dict[str, Child] = {}
        for number, browser in enumerate(shape.browsers, start=1):
            children[f"tab {number}"] = Tab(f"tab {number}", browser, link, shape.tab_bytes, folder)
        for number in range(1, shape.peers - len(shape.browsers) + 1):
            children[f"peer {number}"] = process(number, f"peer {number}", how)
        last_words.append(lambda: _kill(children.values()))
        stack.push_async_callback(_end, children.values())
        made = Rig(founder, shape, children, way)
        made.watch_log()
        tabs = [child for child in children.values() if isinstance(child, Tab)]
        for child in tabs:
            await child.start()
        await made.until_joined(len(tabs))  # stages go to peers in the order they joined
        others = [child for child in children.values() if child not in tabs]
        for joined, other in enumerate(others[:in_order], start=len(tabs) + 1):
            await other.start()
            await made.until_joined(joined)
        await asyncio.gather(*(child.start() for child in others[in_order:]))
        await made.until_whole()
        yield made


async def _end(children: Iterable[Child]) -> None:
    await asyncio.gather(*(child.end() for child in children))


def _kill(children: Iterable[Child]) -> None:
    for child in children:
        child.send(signal.SIGCONT)
        child.send(signal.SIGKILL)
