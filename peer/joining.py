"""Founding a mesh and joining one: the steps from a link to a member that serves.

Edge, and the door of the Python API:

    async with join(link, options, store) as mesh:
        conversation = mesh.conversation()
        async for piece in conversation.chat([Message("user", "Hello")], Settings()):
            ...
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from peer import VERSION
from peer.connection import Engine
from peer.coordinating import Coordinating
from peer.coordinator import Coordinator, check_cuts
from peer.engines import EngineSettings, IceServer, choose_engine
from peer.errors import ConnectFailed, NotAdmitted
from peer.fetch import Fetcher
from peer.frames import PROTOCOL_VERSION, Hello
from peer.measure import measure_units
from peer.mesh import Mesh, Phase, Report, silent
from peer.mesh_state import MemberJoined, ModelChosen
from peer.node import Node
from peer.options import MeshOptions, PeerOptions
from peer.signaling_client import Credentials, SignalingClient, SignalingEvents
from planner.codec import decode_request, encode_answer
from planner.manifest import decode_manifest
from planner.placement import plan
from planner.store import Store
from signaling.invites import Role, parse_link
from signaling.keys import SEED_BYTES, Identity, identity_from_seed
from signaling.presence import SignalKind
from signaling.server import ServerOptions, serve

FOUNDER_WAIT_S: Final = 10.0  # a link to a mesh whose founder is gone must say so soon
SNAPSHOT_WAIT_S: Final = 10.0
CONNECTION_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Founding:
    """What the founder decides: which model, whom to let in, where to listen."""

    model_id: str
    mesh: MeshOptions
    server: ServerOptions
    public_url: str | None = None  # how others reach the server; None: the address it listens on
    invite_expires_s: int = 0  # 0: never
    invite_uses: int = 0  # 0: any number
    invite_role: Role = Role.PEER


class _Door:
    """The signaling client and the node know each other through this: the client comes first."""

    def __init__(self) -> None:
        self.node: Node | None = None
        self.client: SignalingClient | None = None

    def events(self) -> SignalingEvents:
        def described(peer: str, connection: bytes, kind: SignalKind, sdp: str) -> None:
            if self.node is not None:
                self.node.dialer.described(peer, connection, kind, sdp)

        def candidate(peer: str, connection: bytes, text: str) -> None:
            if self.node is not None:
                self.node.dialer.candidate(peer, connection, text)

        return SignalingEvents(on_description=described, on_candidate=candidate)

    async def signal(self, kind: SignalKind, peer: str, connection: bytes, text: str) -> None:
        client = self.client
        assert client is not None
        match kind:
            case SignalKind.OFFER:
                await client.send_offer(peer, connection, text)
            case SignalKind.ANSWER:
                await client.send_answer(peer, connection, text)
            case SignalKind.CANDIDATE:
                await client.send_candidate(peer, connection, text)


def _node(door: _Door, client: SignalingClient, options: PeerOptions) -> Node:
    door.client = client
    make = choose_engine(options.transport)
    servers = tuple(IceServer(s.urls, s.username or None, s.credential or None) for s in client.ice_servers)
    settings = EngineSettings(options.bind, servers)

    def engine() -> Engine:
        return make(settings)

    hello = Hello(PROTOCOL_VERSION, client.peer, options.name, f"shoal/{VERSION} ({engine().name})")
    door.node = Node(hello, engine, door.signal, lambda: os.urandom(CONNECTION_ID_BYTES))
    door.node.start()
    return door.node


def plan_bytes(request: bytes) -> bytes:
    """The planning service: JSON request in, JSON answer out. Raises RequestError."""
    return encode_answer(plan(decode_request(request)))


@asynccontextmanager
async def found(
    founding: Founding, options: PeerOptions, store: Store, mesh_key: Identity, report: Report = silent
) -> AsyncIterator[Mesh]:
    """Signaling server, founding peer and coordinator in this process. `mesh.link` invites others.

    Raises PortInUse, NotInStore, CannotServe, BadCommand.
    """
    manifest = decode_manifest(store.manifest_bytes(founding.model_id))
    units = manifest.planner_units()
    if founding.mesh.cuts is not None:
        check_cuts(founding.mesh.cuts, len(units))
    identity = identity_from_seed(os.urandom(SEED_BYTES))
    door = _Door()
    async with serve(founding.server, store, plan_bytes) as server:
        report(Phase(f"listening on {server.url}", 0, 0))
        credentials = Credentials.founder(mesh_key, identity, options.name)
        async with SignalingClient(server.url, credentials, door.events()) as client:
            node = _node(door, client, options)
            mesh = Mesh(node, client, store, report)
            try:
                mesh.use_model(manifest)
                coordinator = Coordinator(node.me, units, founding.mesh.cuts)
                node.coordinating = Coordinating(
                    coordinator, node.send, node.state_changed, lambda peer: _may_compute(client, peer)
                )
                node.coordinator = node.me
                node.coordinating.submit(
                    ModelChosen(
                        founding.model_id,
                        manifest.name,
                        len(units),
                        founding.mesh.context,
                        founding.mesh.sessions,
                        founding.mesh.objective,
                    )
                )
                node.coordinating.submit(MemberJoined(node.me, options.name, True))
                report(Phase("measure this machine", 0, 0))
                times = await asyncio.to_thread(measure_units, manifest, options.provider, options.threads)
                mesh.compute(options, Fetcher(store, server.url))
                mesh.link = await mesh.invite(
                    mesh_key,
                    founding.public_url or server.url,
                    founding.invite_role,
                    founding.invite_expires_s,
                    founding.invite_uses,
                )
                node.coordinating.submit(await mesh.measured(options, times))
                yield mesh
            finally:
                if not mesh.ended.is_set():
                    await mesh.close("the founder closed the mesh")


@asynccontextmanager
async def join(
    link: str, options: PeerOptions, store: Store, *, compute: bool = False, report: Report = silent
) -> AsyncIterator[Mesh]:
    """A member of the mesh that `link` leads to; with `compute` it lends this machine, else it only asks.

    Raises WrongLink, InviteExpired, InviteUsedUp, InviteRevoked, ServerUnreachable, NotAdmitted, ConnectFailed.
    """
    invite = parse_link(link)
    identity = identity_from_seed(os.urandom(SEED_BYTES))
    door = _Door()
    report(Phase("connect", 0, 0))
    credentials = Credentials.from_link(invite, identity, options.name)
    async with SignalingClient(invite.server, credentials, door.events()) as client:
        node = _node(door, client, options)
        mesh = Mesh(node, client, store, report)
        mesh.link = invite
        try:
            fetcher = Fetcher(store, invite.server)
            await _enter(node, client, options, compute)
            model = node.state.model
            assert model is not None
            manifest = await fetcher.manifest(model.model)
            await fetcher.blobs([manifest.tokenizer])
            mesh.use_model(manifest)

            async def rejoin() -> None:
                await _enter(node, client, options, compute)
                if compute:
                    await node.tell_coordinator("measured", await mesh.measured(options, times))

            if compute:
                report(Phase("measure this machine", 0, 0))
                times = await asyncio.to_thread(measure_units, manifest, options.provider, options.threads)
                mesh.compute(options, fetcher)
                await node.tell_coordinator("measured", await mesh.measured(options, times))
            mesh.watch_coordinator(rejoin)
            yield mesh
        finally:
            if not mesh.ended.is_set():
                await mesh.leave("left")
            else:
                await mesh.close("left")


async def _enter(node: Node, client: SignalingClient, options: PeerOptions, compute: bool) -> None:
    """Finds the founder, connects, and takes its snapshot of the mesh."""
    founder = await _founder(client)
    node.coordinator = founder
    await node.dialer.dial(founder)
    node.state = node.state.__class__()
    await node.calls.call(
        founder, "join", {"name": options.name, "compute": compute, "protocol": PROTOCOL_VERSION}
    )
    if not await node.until(
        lambda state: state.model is not None and node.me in state.members, SNAPSHOT_WAIT_S
    ):
        raise NotAdmitted("the founder let this peer in but sent no state of the mesh; try again")


async def _founder(client: SignalingClient) -> str:
    deadline = asyncio.get_running_loop().time() + FOUNDER_WAIT_S
    while True:
        for peer, presence in sorted(client.members().items()):
            if presence.role is Role.FOUNDER:
                return peer
        if asyncio.get_running_loop().time() > deadline:
            raise ConnectFailed(
                f"the founder of this mesh has not been there for {FOUNDER_WAIT_S:.0f} s; ask whoever sent the link"
            )
        await asyncio.sleep(0.1)


def _may_compute(client: SignalingClient, peer: str) -> bool:
    presence = client.members().get(peer)
    return presence is not None and presence.role is not Role.GUEST
