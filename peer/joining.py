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
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from peer import VERSION
from peer.connection import Engine
from peer.consensus.errors import BadBoot
from peer.coordinating import Coordinating
from peer.coordinator import Coordinator, check_cuts
from peer.engines import EngineSettings, IceServer, choose_engine
from peer.errors import BadCommand, BeginAnew, CannotServe, ConnectFailed, NotAdmitted, PeerError
from peer.fetch import Fetcher
from peer.frames import PROTOCOL_VERSION, Hello
from peer.identities import KeptIdentity, thrown_away, viewer
from peer.kept_log import LogKeeping
from peer.kept_mesh import KeptInvite
from peer.measure import UnitTimes, measure_units
from peer.mesh import WITHDRAWN, Mesh, Phase, Report, silent
from peer.mesh_state import MeshState, ModelChosen
from peer.mesh_upkeep import SignalingListed
from peer.names import named
from peer.node import Node
from peer.options import MeshOptions, PeerOptions
from peer.protection import check_protection
from peer.replica import Beginning, Replica
from peer.signaling_client import (
    ClientSettings,
    ClientState,
    Credentials,
    SignalingClient,
    SignalingEvents,
)
from peer.suspicion import Reach
from peer.transaction_store import Journal
from planner.codec import decode_request, encode_answer
from planner.manifest import Manifest, decode_manifest
from planner.placement import plan
from planner.store import Store
from signaling.errors import InviteRevoked, Replaced, SignalingError
from signaling.invites import Grant, Role, make_revocation, parse_link
from signaling.keys import Identity
from signaling.presence import SignalKind
from signaling.server import ServerOptions, own_certificate, serve

SOMEBODY_WAIT_S: Final = 10.0  # a link to a mesh of which nobody is there must say so soon
TRY_S: Final = 5.0  # to find the mesh again, before a person reads of the next try
STATE_WAIT_S: Final = 10.0
FOUNDED_WAIT_S: Final = 10.0
STAGGER_S: Final = 0.5  # between members that are asked who leads: the first may be frozen
CONNECTION_ID_BYTES: Final = 16
LEAST_PATIENCE_S: Final = 0.1  # for a peer that may be gone to answer the coordinator
MOST_PATIENCE_S: Final = 1.0


_LIKELY: Final = (Role.FOUNDER, Role.PEER, Role.GUEST)  # to be members, and to stay


@dataclass(frozen=True, slots=True)
class Founding:
    """What the founder decides: which model, whom to let in, where to listen."""

    model_id: str
    mesh: MeshOptions
    server: ServerOptions
    meet: str | None = None  # a signaling server that runs already; None: this process runs one
    public_url: str | None = None  # how others reach the server; None: the address it listens on
    invite_expires_s: int = 0  # 0: never
    invite_uses: int = 0  # 0: any number
    invite_role: Role = Role.PEER
    kept: tuple[KeptInvite, ...] = ()  # of earlier runs, registered again; the withdrawn ones stay withdrawn
    shown: KeptInvite | None = None  # one of `kept` to show instead of a new one


class _Door:
    """The signaling client and the node know each other through this: the client comes first."""

    def __init__(self, keep: Callable[[Grant], None] | None = None) -> None:
        self.node: Node | None = None
        self.client: SignalingClient | None = None
        self.mesh: Mesh | None = None
        self._keep = keep or (lambda _: None)
        self._hanging_up: set[asyncio.Task[None]] = set()

    def events(self) -> SignalingEvents:
        def described(peer: str, connection: bytes, kind: SignalKind, sdp: str) -> None:
            if self.node is not None:
                self.node.dialer.described(peer, connection, kind, sdp)

        def candidate(peer: str, connection: bytes, text: str) -> None:
            if self.node is not None:
                self.node.dialer.candidate(peer, connection, text)

        def left(peer: str, reason: str) -> None:
            if self.node is not None:
                self.node.hinted(peer)
                if self.node.coordinating is not None:
                    self.node.coordinating.hinted(peer)
            if self.node is not None and reason == InviteRevoked.__name__:
                task = asyncio.ensure_future(self.node.dialer.hang_up(peer, WITHDRAWN))
                self._hanging_up.add(task)
                task.add_done_callback(self._hanging_up.discard)

        def state(state: ClientState, why: SignalingError | None) -> None:
            if self.mesh is not None and isinstance(why, InviteRevoked | Replaced):
                self.mesh.end(str(why))

        return SignalingEvents(
            on_description=described,
            on_candidate=candidate,
            on_left=left,
            on_membership=self._keep,
            on_state=state,
        )

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

    disturbance = options.disturbance

    def engine() -> Engine:
        made = make(settings)
        return made if disturbance is None else disturbance.engine(made)

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

    With `options.memory_bytes` 0 the founder lends nothing: it introduces, coordinates and asks.

    Raises PortInUse, NotInStore, CannotServe, BadCommand.
    """
    manifest = decode_manifest(store.manifest_bytes(founding.model_id))
    units = manifest.planner_units()
    if founding.mesh.cuts is not None:
        check_cuts(founding.mesh.cuts, len(units))
    _check_context(manifest, founding.mesh.context)
    check_protection(founding.mesh.protection, tuple(unit.name for unit in units))
    identity = thrown_away().identity
    door = _Door()
    async with AsyncExitStack() as stack:
        if founding.meet is None:
            url = (await stack.enter_async_context(serve(founding.server, store, plan_bytes))).url
            report(Phase(f"listening on {url}", 0, 0))
        else:
            url = founding.meet
        credentials = Credentials.founder(mesh_key, identity, options.name)
        tls = founding.server.tls
        settings = ClientSettings(tls=own_certificate(tls) if tls is not None else None)
        async with SignalingClient(url, credentials, door.events(), settings) as client:
            node = _node(door, client, options)
            mesh = door.mesh = Mesh(node, client, store, report)
            try:
                mesh.know(manifest)
                _ = mesh.text  # before this machine is measured: the founder asks, too
                _coordinates(mesh)
                _meets(mesh)
                mesh.log = LogKeeping(mesh_key.id, node.me, None)
                _take_part(mesh, mesh.log.found(MeshState()))
                if not await node.until_leads(FOUNDED_WAIT_S):
                    raise CannotServe(
                        "this peer could not begin the log of its mesh; look at its state folder"
                    )
                assert node.coordinating is not None
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
                node.coordinating.set_cuts(founding.mesh.cuts)
                node.coordinating.protect(founding.mesh.protection)
                node.coordinating.submit(SignalingListed((founding.public_url or url,)))
                lends = options.memory_bytes > 0
                await node.line.ask("join", _joining(mesh, options, lends))
                times: UnitTimes | None = None
                if lends:
                    report(Phase("measure this machine", 0, 0))
                    times = await asyncio.to_thread(
                        measure_units, manifest, options.provider, options.threads
                    )
                    mesh.compute(options, Fetcher(store, url))
                await _register_kept(client, founding.kept, mesh_key)
                address = founding.public_url or url
                if founding.shown is not None:
                    mesh.link = founding.shown.link(address)
                else:
                    mesh.link = await mesh.invite(
                        mesh_key,
                        address,
                        founding.invite_role,
                        founding.invite_expires_s,
                        founding.invite_uses,
                    )
                if times is not None:
                    await node.tell_coordinator("measured", await mesh.measured(options, times))
                mesh.watch_coordinator(_rejoining(mesh, options, times))
                yield mesh
            finally:
                if not mesh.ended.is_set():
                    await mesh.leave("the founder left")
                else:
                    await mesh.close("the founder left")


@asynccontextmanager
async def join(
    link: str,
    options: PeerOptions,
    store: Store,
    *,
    compute: bool = False,
    report: Report = silent,
    kept: KeptIdentity | None = None,
) -> AsyncIterator[Mesh]:
    """A member of the mesh that `link` leads to; with `compute` it lends this machine, else it only asks.

    `kept`: who this peer is, when it comes back or means to (peer.identities); None: nobody that was here before.

    Raises WrongLink, InviteExpired, InviteUsedUp, InviteRevoked, ServerUnreachable, NotAdmitted, ConnectFailed.
    """
    invite = parse_link(link)
    own = kept or thrown_away()
    if not compute:
        own = viewer(own)
    door = _Door(own.keep)
    report(Phase("connect", 0, 0))
    membership = own.membership(invite.invite().public.encoded)
    voucher = own.voucher.identity if own.voucher is not None and not compute else None
    credentials = Credentials.from_link(invite, own.identity, options.name, membership, voucher)
    async with SignalingClient(invite.server, credentials, door.events()) as client:
        node = _node(door, client, options)
        mesh = door.mesh = Mesh(node, client, store, report)
        mesh.link = invite
        try:
            fetcher = Fetcher(
                store,
                invite.server,
                mesh.piece_sources,
                lambda text: report(Phase(named(text, node.state.members), 0, 0)),
            )
            mesh.log = LogKeeping(invite.mesh, node.me, own.beside if compute else None)
            node.patient = not compute
            _meets(mesh)
            await _enter(mesh, options, compute, SOMEBODY_WAIT_S)
            model = node.state.model
            assert model is not None
            manifest = await fetcher.manifest(model.model)
            mesh.know(manifest)
            await fetcher.blobs([manifest.tokenizer])
            times: UnitTimes | None = None
            if compute:
                _coordinates(mesh)
                report(Phase("measure this machine", 0, 0))
                times = await asyncio.to_thread(measure_units, manifest, options.provider, options.threads)
                mesh.journal = await Journal.open(
                    own.transactions(model.model), lambda text: report(Phase(text, 0, 0))
                )
                mesh.compute(options, fetcher)
                await mesh.held_again()
                await node.tell_coordinator("measured", await mesh.measured(options, times))
            mesh.watch_coordinator(_rejoining(mesh, options, times))
            yield mesh
        finally:
            if not mesh.ended.is_set():
                await mesh.leave("left")
            else:
                await mesh.close("left")


def _check_context(manifest: Manifest, context: int) -> None:
    most = manifest.architecture.context
    if context > most:
        raise BadCommand(
            f"{manifest.name} was trained for {most} tokens of context, got --context {context}: "
            f"give {most} or less"
        )


async def _register_kept(client: SignalingClient, kept: tuple[KeptInvite, ...], mesh_key: Identity) -> None:
    """Lets the links of earlier runs work again, and the withdrawn ones not."""
    grants = [invite.grant for invite in kept if not invite.revoked]
    if grants:
        await client.register(*grants)
    withdrawn = [make_revocation(mesh_key, invite.grant.key) for invite in kept if invite.revoked]
    if withdrawn:
        await client.withdraw(*withdrawn)


def _coordinates(mesh: Mesh) -> None:
    """From here on this peer coordinates whenever it leads: it knows the model."""
    node, client, manifest = mesh.node, mesh.client, mesh.manifest
    assert manifest is not None
    units = manifest.planner_units()

    def coordinate(state: MeshState) -> Coordinating:
        assert node.replica is not None
        return Coordinating(
            Coordinator(node.me, units, None, state),
            node.replica,
            lambda peer: peer == node.me or _may_compute(client, peer),
            Reach(lambda peer, times: _answers(node, peer, times), lambda peer: peer in client.members()),
            node.coordinate_again,
            node.is_connected,
        )

    node.coordinate = coordinate
    node.log_known()


def _meets(mesh: Mesh) -> None:
    """Follows the addresses in the log where the mesh meets."""
    mesh.node.on_state.append(lambda: mesh.client.also(mesh.node.state.signaling))


def _take_part(mesh: Mesh, begin: Beginning) -> None:
    """Starts this peer's copy of the log."""
    assert mesh.log is not None
    node = mesh.node
    store = mesh.log.store if mesh.log.durable else None
    node.keep_log(Replica(begin, store, node.send_message, node))


def _joining(mesh: Mesh, options: PeerOptions, compute: bool) -> dict[str, object]:
    replica, kept = mesh.node.replica, mesh.log
    assert replica is not None
    assert kept is not None
    return {
        "name": options.name,
        "compute": compute,
        "protocol": PROTOCOL_VERSION,
        "incarnation": replica.begin.incarnation,
        "fresh": replica.fresh,
        "epoch": replica.begin.epoch,
        "headless": not mesh.node.patient,
        "durable": kept.durable,
    }


def _rejoining(mesh: Mesh, options: PeerOptions, times: UnitTimes | None) -> Callable[[], Awaitable[None]]:
    """One try to be a whole member again."""

    async def rejoin() -> None:
        compute = times is not None
        await _enter(mesh, options, compute, TRY_S)
        if times is not None:
            await mesh.node.tell_coordinator("measured", await mesh.measured(options, times))
            if mesh.holding is not None:
                mesh.holding.forget_report()

    return rejoin


async def _enter(mesh: Mesh, options: PeerOptions, compute: bool, wait_s: float) -> None:
    """Finds who leads, asks to be let in, and waits for the log. Raises ConnectFailed, NotAdmitted, NotLeader."""
    node, kept = mesh.node, mesh.log
    assert kept is not None
    leader, epoch = await _who_leads(mesh, wait_s)
    for _ in range(2):
        await _with_epoch(mesh, epoch)
        assert node.replica is not None
        node.replica.trusted = leader
        try:
            await node.line.ask("join", _joining(mesh, options, compute), wait_s, leader)
            break
        except BeginAnew:
            await node.leave_log()
            _take_part(mesh, await asyncio.to_thread(kept.anew, epoch))
    if not await node.until(lambda state: state.model is not None and node.me in state.members, STATE_WAIT_S):
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
        _take_part(mesh, begin)
    except BadBoot:
        await node.leave_log()
        _take_part(mesh, await asyncio.to_thread(kept.anew, epoch))


async def _who_leads(mesh: Mesh, wait_s: float) -> tuple[str, int]:
    """The leader and epoch, as the first member says who knows. Raises ConnectFailed when nobody does in time."""
    node, client = mesh.node, mesh.client
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    asking: dict[str, asyncio.Task[tuple[str, int]]] = {}
    mine = node.replica.begin.epoch if node.replica is not None else 0
    try:
        while True:
            present = client.members()
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
                if error is None and task.result()[0] and task.result()[1] >= mine:
                    return task.result()
                if error is not None and not isinstance(error, PeerError | TimeoutError):
                    raise error
                del asking[peer]
                asking[peer] = asyncio.ensure_future(_ask_again(node, peer))
            if loop.time() > deadline:
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
