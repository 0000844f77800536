"""How a peer gets into a mesh, and back into it: who leads, which epoch, being let in, having the log.

Edge. The founder goes the same way when others kept its mesh; whoever leads lets in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from peer.consensus.errors import BadBoot
from peer.conversation.entry_links import is_proven
from peer.coordination.coordinator import Coordinator
from peer.coordination.coordinator_service import Coordinating, Gate
from peer.coordination.plan_forecast import Foresight, agent_of
from peer.coordination.remeasure_requests import freshening
from peer.coordination.suspicion import Reach
from peer.errors import BadCommand, BeginAnew, ConnectFailed, NotAdmitted, NotLeader, PeerError
from peer.member.frame_router import Node
from peer.member.mesh_member import Mesh
from peer.member.peer_options import PeerOptions
from peer.member.remeasure import MeasuringAgain
from peer.replication.leader_client import PATIENCE_S
from peer.state.mesh_state import MeshState
from peer.transport.signaling_client import SignalingClient
from peer.wire.frame_codec import LOWEST_VERSION
from peer.wire.json_codec import whole
from signaling.invites import Role

LED_S: Final = 5.0  # whoever is said to lead answers within this, or the others are asked again
TRY_S: Final = 5.0  # to find the mesh again, before a person reads of the next try
Learn = Callable[[], Awaitable[None]]
STATE_WAIT_S: Final = 10.0
STAGGER_S: Final = 0.5  # between members that are asked who leads: the first may be frozen
LEAST_PATIENCE_S: Final = 0.1  # for a peer that may be gone to answer the coordinator
MOST_PATIENCE_S: Final = 1.0
_LIKELY: Final = (Role.FOUNDER, Role.PEER, Role.GUEST)  # to be members, and to stay


def coordinates(mesh: Mesh, foresight: Foresight | None = None) -> None:
    """From here on this peer coordinates whenever it leads: it knows the model."""
    node, client, manifest = mesh.node, mesh.client, mesh.manifest
    assert manifest is not None
    units = manifest.planner_units()

    def coordinate(state: MeshState) -> Coordinating:
        assert node.replica is not None
        made = Coordinating(
            Coordinator(node.me, units, None, state),
            node.replica,
            lambda peer: peer == node.me or _may_compute(client, peer),
            Reach(lambda peer, times: _answers(node, peer, times), lambda peer: peer in client.members()),
            node.coordinate_again,
            node.is_connected,
            gate=Gate(node.dialer.speaks, partial(is_proven, node.replica.begin.mesh)),
        )
        made.foresight = foresight
        made.freshening = freshening(node) if foresight is not None else None
        return made

    if foresight is not None:
        foresight.knows(lambda: node.state, partial(agent_of, node))

    node.coordinate = coordinate
    node.take_lead()


def meets(mesh: Mesh) -> None:
    """Follows the addresses in the log where the mesh meets."""
    mesh.node.on_state.append(lambda: mesh.client.also(mesh.node.state.signaling))


def asking_in(mesh: Mesh, options: PeerOptions, compute: bool) -> dict[str, object]:
    replica, kept = mesh.node.replica, mesh.log
    assert replica is not None
    assert kept is not None
    return {
        "name": options.name,
        "compute": compute,
        "protocol": LOWEST_VERSION,
        "incarnation": replica.begin.incarnation,
        "fresh": replica.fresh,
        "epoch": replica.begin.epoch,
        "headless": not mesh.node.patient,
        "durable": kept.durable,
    }


def rejoining(
    mesh: Mesh, options: PeerOptions, again: MeasuringAgain | None
) -> Callable[[], Awaitable[None]]:
    """One try to be a whole member again. `again`: what was measured here; None: this peer lends nothing."""

    async def rejoin() -> None:
        await enter(mesh, options, again is not None, TRY_S)
        if again is not None:
            await mesh.node.tell_coordinator("measured", await mesh.measured(options, again.times))
            if mesh.holding is not None:
                mesh.holding.forget_report()

    return rejoin


async def enter(
    mesh: Mesh, options: PeerOptions, compute: bool, wait_s: float, learn: Learn | None = None
) -> None:
    """Finds who leads, asks to be let in, and waits for the log. Raises ConnectFailed, NotAdmitted, NotLeader.

    Who kept a log takes part with it at once: without its vote there may be nobody to ask. `learn`: what this peer
    does to be able to coordinate, if it finds that it leads.
    """
    node, kept = mesh.node, mesh.log
    assert kept is not None
    if node.replica is None and (epochs := await asyncio.to_thread(kept.epochs)):
        await _with_epoch(mesh, epochs[-1])
    until = asyncio.get_running_loop().time() + (PATIENCE_S if learn is not None else wait_s)
    anew = 0
    while True:
        leader, epoch = await _who_leads(mesh, wait_s)
        if leader == node.me and learn is not None and node.coordinate is None:
            await learn()
        await _with_epoch(mesh, epoch)
        assert node.replica is not None
        node.replica.trusted = leader
        try:
            said = await node.line.ask("join", asking_in(mesh, options, compute), LED_S, leader)
            index = whole(said, "index")
            break
        except BeginAnew:
            anew += 1
            if anew > 1:
                raise NotAdmitted("this peer was told twice to begin anew; try again") from None
            await node.leave_log()
            mesh.take_part(await asyncio.to_thread(kept.anew, epoch))
        except NotLeader:  # whoever led may just be gone: the others know soon who does
            if asyncio.get_running_loop().time() > until:
                raise

    def whole_member(state: MeshState) -> bool:
        known = node.replica is not None and node.replica.order[1] >= index
        return known and state.model is not None and node.me in state.members

    if not await node.until(whole_member, STATE_WAIT_S):
        raise NotAdmitted("this peer was let in but got no state of the mesh; try again")


async def _with_epoch(mesh: Mesh, epoch: int) -> None:
    """Has this peer's log of `epoch`; that of another one is void."""
    node, kept = mesh.node, mesh.log
    assert kept is not None
    if node.replica is not None and node.replica.begin.epoch == epoch:
        return
    await node.leave_log()
    known = kept.epochs()
    begin = await asyncio.to_thread(kept.open if known in ([], [epoch]) else kept.anew, epoch)
    try:
        mesh.take_part(begin)
    except BadBoot:
        await node.leave_log()
        mesh.take_part(await asyncio.to_thread(kept.anew, epoch))


async def _who_leads(mesh: Mesh, wait_s: float) -> tuple[str, int]:
    """The leader and epoch, as the first member says who knows. Raises ConnectFailed when nobody does in time."""
    node, client = mesh.node, mesh.client
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    asking: dict[str, asyncio.Task[tuple[str, int]]] = {}
    mine = node.replica.begin.epoch if node.replica is not None else 0
    asked: set[str] = set()  # and their answer came, or they cannot be reached
    try:
        while True:
            present = client.members()
            late = loop.time() > deadline
            if node.replica is not None and node.replica.leads and (late or present.keys() <= asked):
                return node.me, mine  # and nobody knows of a later epoch
            for peer in sorted(present, key=lambda peer: (_LIKELY.index(present[peer].role), peer)):
                if peer not in asking:
                    asking[peer] = asyncio.ensure_future(_ask_who_leads(node, peer))
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
                if error is None and task.result()[0] not in ("", node.me) and task.result()[1] >= mine:
                    return task.result()
                if error is not None and not isinstance(error, PeerError | TimeoutError):
                    raise error
                del asking[peer]
                asking[peer] = asyncio.ensure_future(_ask_again(node, peer))
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


async def _ask_again(node: Node, peer: str) -> tuple[str, int]:
    await asyncio.sleep(STAGGER_S)
    return await _ask_who_leads(node, peer)


async def _ask_who_leads(node: Node, peer: str) -> tuple[str, int]:
    await node.dialer.dial(peer)
    said = await node.calls.call(peer, "leader", {})
    leader, epoch = said.get("leader"), said.get("epoch")
    if not isinstance(leader, str) or type(epoch) is not int or not 0 <= epoch < 2**53:
        raise BadCommand("leader: expected a peer and an epoch")
    return (leader if epoch else "", epoch)


async def _answers(node: Node, peer: str, times: float) -> bool:
    """Whether `peer` answers within so many times what its link usually takes, with room for a busy machine."""
    connection = node.dialer.connection(peer)
    if connection is None:
        return False
    rtt_s = connection.rtt_s
    patience_s = MOST_PATIENCE_S if rtt_s is None else min(MOST_PATIENCE_S, LEAST_PATIENCE_S + 4 * rtt_s)
    return await node.prober.answers(peer, times * patience_s)


def _may_compute(client: SignalingClient, peer: str) -> bool:
    presence = client.members().get(peer)
    return presence is not None and presence.role is not Role.GUEST
