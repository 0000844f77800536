"""How a peer gets into a mesh, and back into it: who leads, which epoch, being let in, having the log.

Edge. The founder goes the same way when others kept its mesh; whoever leads lets in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from peer.consensus.errors import BadBoot
from peer.conversation.entry_links import is_proven
from peer.coordination.coordinator import Coordinator
from peer.coordination.coordinator_service import Coordinating, Gate
from peer.coordination.decoder_planning_service import DecoderPlanning
from peer.coordination.offer_placement_service import Placing
from peer.coordination.plan_forecast import Foresight, agent_of
from peer.coordination.remeasure_requests import freshening
from peer.coordination.suspicion import Reach
from peer.errors import BeginAnew, ConnectFailed, NotAdmitted, NotLeader, PeerError
from peer.limits import LOWEST_VERSION
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import PeerOptions
from peer.model.fetcher import Fetcher
from peer.replication.leader_client import PATIENCE_S
from peer.replication.replica import Replica
from peer.runtime.self_benchmark import UnitTimes
from peer.state.mesh_state import MeshState
from peer.state.version_negotiation import TEAMS
from peer.transport.peer_links import PeerLinks
from peer.transport.signaling_client import SignalingClient
from peer.wire.generated.requests import JOIN, LEADER, JoinRequest
from planner.errors import PlannerError
from planner.model.manifest import Manifest
from planner.model.store import Store
from planner.model.yardstick import UNITS
from planner.types import Unit
from signaling.invites import Role

LED_S: Final = 5.0  # whoever is said to lead answers within this, or the others are asked again
TRY_S: Final = 5.0  # to find the mesh again, before a person reads of the next try
log = logging.getLogger(__name__)
Learn = Callable[[], Awaitable[None]]
Latest = Callable[[], UnitTimes]  # what was measured last
STATE_WAIT_S: Final = 10.0
STAGGER_S: Final = 0.5  # between members that are asked who leads: the first may be frozen
LEAST_PATIENCE_S: Final = 0.1  # for a peer that may be gone to answer the coordinator
MOST_PATIENCE_S: Final = 1.0
_LIKELY: Final = (Role.FOUNDER, Role.PEER, Role.GUEST)  # to be members, and to stay


def coordinates(mesh: MeshMember, fetcher: Fetcher, foresight: Foresight | None = None) -> None:
    """From here on this peer coordinates whenever it leads: it knows the model that answers, or that there is none.
    `fetcher` gets manifests of others.
    """
    links, view, leadership, client = mesh.links, mesh.view, mesh.leadership, mesh.client
    manifest = mesh.manifest
    units = manifest.planner_units() if manifest is not None else UNITS
    cut = _cut_units(mesh.model.store, manifest)
    flops: dict[str, int] = {unit.kind: unit.flops_per_token for unit in units}

    def coordinate(state: MeshState, replica: Replica) -> Coordinating:
        return Coordinating(
            Coordinator(
                view.me,
                units,
                None,
                state,
                cut_units=cut,
                slices=lambda peer: (
                    _computes_slices(view.state, peer)
                    and (peer == view.me or links.dialer.speaks(peer) >= TEAMS)
                ),
            ),
            replica,
            lambda peer: peer == view.me or _may_compute(client, peer),
            Reach(lambda peer, times: _answers(links, peer, times), lambda peer: peer in client.members()),
            leadership.again,
            links.is_connected,
            gate=Gate(links.dialer.speaks, partial(is_proven, replica.begin.mesh)),
            foresight=foresight,
            freshening=freshening(links) if foresight is not None else None,
            placing=partial(Placing, fetcher.graph_manifest, links.dialer.speaks, flops),
            decoders=partial(
                DecoderPlanning, view.me, fetcher.manifest, units, manifest, links.dialer.speaks
            ),
        )

    if foresight is not None:
        foresight.knows(lambda: view.state, partial(agent_of, links))
    leadership.enable(coordinate)


def _cut_units(store: Store, manifest: Manifest | None) -> tuple[Unit, ...]:
    """The units with how they can be cut for a team; none where the graphs are not all here."""
    if manifest is None:
        return ()
    from planner.slices.cuts import cut_units  # reads ONNX, which whoever never leads needs not

    try:
        return cut_units(manifest, store)
    except PlannerError as error:
        log.info("no plan will have a team, since it is not known how units are cut: %s", error)
        return ()


def _computes_slices(state: MeshState, peer: str) -> bool:
    """Whether a member is a process, which computes slices on its processor; tabs do not yet."""
    member = state.members.get(peer)
    return member is not None and member.profile is not None and member.profile.provider == "cpu"


def meets(mesh: MeshMember) -> None:
    """Follows the addresses in the log where the mesh meets."""
    mesh.view.subscribe(lambda: mesh.client.also(mesh.view.state.signaling))


def asking_in(mesh: MeshMember, options: PeerOptions, compute: bool) -> JoinRequest:
    """The request `join`, of a member that has a copy of the log."""
    replica = mesh.view.replica
    assert replica is not None
    return JoinRequest(
        mesh.renamed or options.name,
        compute,
        LOWEST_VERSION,
        replica.begin.incarnation,
        replica.fresh,
        replica.begin.epoch,
        headless=not mesh.view.patient,
        durable=mesh.log.durable,
    )


def rejoining(mesh: MeshMember, options: PeerOptions, latest: Latest | None) -> Callable[[], Awaitable[None]]:
    """One try to be a whole member again. `latest`: what was measured here; None: this peer lends nothing."""

    async def rejoin() -> None:
        await enter(mesh, options, latest is not None, TRY_S)
        if latest is not None and mesh.lending is not None and not mesh.is_over():
            await mesh.view.measured(await mesh.lending.measured(latest()))
            mesh.lending.report_again()
            mesh.parts.decoders.report_again()

    return rejoin


async def enter(
    mesh: MeshMember, options: PeerOptions, compute: bool, wait_s: float, learn: Learn | None = None
) -> None:
    """Finds who leads, asks to be let in, and waits for the log. Raises ConnectFailed, NotAdmitted, NotLeader.

    Who kept a log takes part with it at once: without its vote there may be nobody to ask. `learn`: what this peer
    does to be able to coordinate, if it finds that it leads.
    """
    view, kept = mesh.view, mesh.log
    if view.replica is None and (newest := await asyncio.to_thread(kept.newest)):
        await _with_epoch(mesh, newest)
    until = asyncio.get_running_loop().time() + (PATIENCE_S if learn is not None else wait_s)
    anew = 0
    while True:
        leader, epoch = await _who_leads(mesh, wait_s)
        if leader == view.me and learn is not None and not mesh.leadership.is_enabled:
            await learn()
        await _with_epoch(mesh, epoch)
        assert view.replica is not None
        view.replica.trust(leader)
        try:
            index = (await view.ask_leader(JOIN, asking_in(mesh, options, compute), LED_S, leader)).index
            break
        except BeginAnew as error:
            anew += 1
            if anew > 1:
                raise NotAdmitted("this peer was told twice to begin anew; try again") from None
            await mesh.leave_log()
            mesh.take_part(await asyncio.to_thread(kept.anew, epoch, error.above))
        except NotLeader:  # whoever led may just be gone: the others know soon who does
            if asyncio.get_running_loop().time() > until:
                raise

    def whole_member(state: MeshState) -> bool:
        known = view.replica is not None and view.replica.order[1] >= index
        return known and view.me in state.members

    if not await view.until(whole_member, STATE_WAIT_S):
        raise NotAdmitted("this peer was let in but got no state of the mesh; try again")


async def _with_epoch(mesh: MeshMember, epoch: int) -> None:
    """Has this peer's log of `epoch`; that of another one is void."""
    kept, replica = mesh.log, mesh.view.replica
    if replica is not None and replica.begin.epoch == epoch:
        return
    await mesh.leave_log()
    if kept.epochs() in ([], [epoch]):
        await take_kept(mesh, epoch)
    else:
        mesh.take_part(await asyncio.to_thread(kept.anew, epoch))


async def take_kept(mesh: MeshMember, epoch: int) -> None:
    """Takes part with what is kept of that epoch; with a new life where it is damaged, which is said."""
    kept = mesh.log
    try:
        mesh.take_part(await asyncio.to_thread(kept.open, epoch))
    except BadBoot as error:
        await mesh.leave_log()
        await asyncio.to_thread(kept.set_aside, epoch, f"the log kept of this mesh is damaged ({error})")
        mesh.take_part(await asyncio.to_thread(kept.open, epoch))


async def _who_leads(mesh: MeshMember, wait_s: float) -> tuple[str, int]:
    """The leader and epoch, as the first member says who knows. Raises ConnectFailed when nobody does in time."""
    links, view, client = mesh.links, mesh.view, mesh.client
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    asking: dict[str, asyncio.Task[tuple[str, int]]] = {}
    mine = view.replica.begin.epoch if view.replica is not None else 0
    asked: set[str] = set()  # and their answer came, or they cannot be reached
    try:
        while True:
            present = client.members()
            late = loop.time() > deadline
            if view.replica is not None and view.replica.leads and (late or present.keys() <= asked):
                return view.me, mine  # and nobody knows of a later epoch
            for peer in sorted(present, key=lambda peer: (_LIKELY.index(present[peer].role), peer)):
                if peer not in asking:
                    asking[peer] = asyncio.ensure_future(_ask_who_leads(links, peer))
                    break
            if asking:
                await asyncio.wait(asking.values(), timeout=STAGGER_S, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(0.1)
            for peer, task in list(asking.items()):
                if not task.done():
                    continue
                error = task.exception()
                asked.add(peer)
                if error is None and task.result()[0] not in ("", view.me) and task.result()[1] >= mine:
                    return task.result()
                if error is not None and not isinstance(error, PeerError | TimeoutError):
                    raise error
                del asking[peer]
                asking[peer] = asyncio.ensure_future(_ask_again(links, peer))
            if late:
                if not present:
                    raise ConnectFailed(
                        f"nobody of this mesh has been there for {wait_s:.0f} s; ask whoever sent the link"
                    )
                raise ConnectFailed(
                    "nobody coordinates this mesh now: too few of its voters are there; try again"
                )
    finally:
        for task in asking.values():
            task.cancel()
        await asyncio.gather(*asking.values(), return_exceptions=True)


async def _ask_again(links: PeerLinks, peer: str) -> tuple[str, int]:
    await asyncio.sleep(STAGGER_S)
    return await _ask_who_leads(links, peer)


async def _ask_who_leads(links: PeerLinks, peer: str) -> tuple[str, int]:
    said = await links.ask(peer, LEADER, None)
    return (said.leader if said.epoch else "", said.epoch)


async def _answers(links: PeerLinks, peer: str, times: float) -> bool:
    """Whether `peer` answers within so many times what its link usually takes, with room for a busy machine."""
    connection = links.dialer.connection(peer)
    if connection is None:
        return False
    rtt_s = connection.rtt_s
    patience_s = MOST_PATIENCE_S if rtt_s is None else min(MOST_PATIENCE_S, LEAST_PATIENCE_S + 4 * rtt_s)
    return await links.prober.answers(peer, times * patience_s)


def _may_compute(client: SignalingClient, peer: str) -> bool:
    presence = client.members().get(peer)
    return presence is not None and presence.role is not Role.GUEST
