"""Founding a mesh and joining one: the steps from a link to a member that serves.

Edge, and the door of the Python API:

    async with join(link, options, store) as mesh:
        conversation = mesh.conversation()
        async for piece in conversation.chat([Message("user", "Hello")], Settings()):
            ...
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from peer.coordination import placement_answers
from peer.coordination.coordinator import check_cuts
from peer.coordination.plan_forecast import Foresight
from peer.coordination.planner_goal import wished
from peer.errors import BadCommand, CannotServe, ConnectFailed, NoRelay, NotAdmitted, PeerError
from peer.member.mesh_entry import (
    STATE_WAIT_S,
    Latest,
    asking_in,
    coordinates,
    enter,
    meets,
    rejoining,
    take_kept,
)
from peer.member.mesh_member import WITHDRAWN, MeshMember
from peer.member.peer_options import MeshOptions, PeerOptions
from peer.member.peer_parts import PeerParts
from peer.member.progress import Phase, Report, silent
from peer.member.remeasure import MeasuringAgain
from peer.model.fetcher import Fetcher
from peer.replication.log_keeping import LogKeeping
from peer.runtime.product_benchmark import measure_product
from peer.runtime.self_benchmark import UnitTimes, measure_here
from peer.state.display_names import named
from peer.state.generated.commands import MAX_ADDRESSES, ModelChosen, PlanWished, RoleGiven, SignalingListed
from peer.state.mesh_state import MeshState, refusal
from peer.state.plan_goal import check_wish
from peer.state.protection import check_protection
from peer.state.readiness import why_no_words
from peer.state.version_negotiation import OLDER, SPOKEN, announced
from peer.storage.founder_file import KeptInvite
from peer.storage.journal import Journal
from peer.storage.peer_keys import KeptIdentity, thrown_away, viewer
from peer.transport.connection import Engine
from peer.transport.engines.choose import choose_engine
from peer.transport.engines.settings import EngineSettings, IceServer
from peer.transport.signaling_client import (
    ClientSettings,
    ClientState,
    Credentials,
    SignalingClient,
    SignalingEvents,
)
from peer.transport.udp_relay import ThirdPeer
from peer.version import VERSION
from peer.wire.generated.requests import JOIN, MEASURE
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import Store
from planner.service.planning_jobs import PlanningJobs
from signaling.errors import InviteRevoked, Replaced, SignalingError
from signaling.invites import Grant, Role, make_revocation, parse_link
from signaling.keys import Identity
from signaling.presence import SignalKind
from signaling.server import ServerOptions, own_certificate, serve

SOMEBODY_WAIT_S: Final = 10.0  # a link to a mesh of which nobody is there must say so soon
FOUNDED_WAIT_S: Final = 10.0
OTHERS_WAIT_S: Final = 20.0  # peers look for a signaling server at least every 15 s
CONNECTION_ID_BYTES: Final = 16

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Founding:
    """What the founder decides: which model, whom to let in, where to listen."""

    model_id: str | None  # that answers in words; None: the mesh runs what is offered, and nothing else
    mesh: MeshOptions
    server: ServerOptions
    meet: str | None = None  # a signaling server that runs already; None: this process runs one
    public_url: str | None = None  # how others reach the server; None: the address it listens on
    invite_expires_s: int = 0  # 0: never
    invite_uses: int = 0  # 0: any number
    invite_role: Role = Role.PEER
    kept: tuple[KeptInvite, ...] = ()  # of earlier runs, registered again; the withdrawn ones stay withdrawn
    shown: KeptInvite | None = None  # one of `kept` to show instead of a new one
    owners: tuple[str, ...] = ()  # peers that own the mesh as its founder does


class _Door:
    """The signaling client and the parts know each other through this: the client comes first."""

    def __init__(self, keep: Callable[[Grant], None] | None = None) -> None:
        self._client: SignalingClient | None = None
        self._parts: PeerParts | None = None
        self._mesh: MeshMember | None = None
        self._keep = keep or (lambda _: None)
        self._hanging_up: set[asyncio.Task[None]] = set()

    def connect(self, client: SignalingClient) -> None:
        """Signals through `client` from here on."""
        self._client = client

    def lead_to(self, parts: PeerParts) -> None:
        """Takes who it is for whom others ring."""
        self._parts = parts

    def enter(self, mesh: MeshMember) -> None:
        """Ends `mesh` when its invite is withdrawn, or its key is used elsewhere."""
        self._mesh = mesh

    def events(self) -> SignalingEvents:
        def described(peer: str, connection: bytes, kind: SignalKind, sdp: str) -> None:
            if self._parts is not None:
                self._parts.links.dialer.described(peer, connection, kind, sdp)

        def candidate(peer: str, connection: bytes, text: str) -> None:
            if self._parts is not None:
                self._parts.links.dialer.candidate(peer, connection, text)

        def left(peer: str, reason: str) -> None:
            parts = self._parts
            if parts is None:
                return
            leading = parts.leadership.current
            parts.sessions.hint(peer)  # that is no proof, and a reason to ask it
            if leading is not None and reason == InviteRevoked.__name__:
                leading.put_out(peer)
            elif leading is not None:
                leading.hinted(peer)
            if reason == InviteRevoked.__name__:
                task = asyncio.ensure_future(parts.links.dialer.hang_up(peer, WITHDRAWN))
                self._hanging_up.add(task)
                task.add_done_callback(self._hanging_up.discard)

        def state(state: ClientState, why: SignalingError | None) -> None:
            if self._mesh is not None and isinstance(why, InviteRevoked | Replaced):
                self._mesh.end(str(why))

        return SignalingEvents(
            on_description=described,
            on_candidate=candidate,
            on_left=left,
            on_membership=self._keep,
            on_state=state,
        )

    async def signal(self, kind: SignalKind, peer: str, connection: bytes, text: str) -> None:
        client = self._client
        assert client is not None
        match kind:
            case SignalKind.OFFER:
                await client.send_offer(peer, connection, text)
            case SignalKind.ANSWER:
                await client.send_answer(peer, connection, text)
            case SignalKind.CANDIDATE:
                await client.send_candidate(peer, connection, text)


def _parts(
    door: _Door, client: SignalingClient, options: PeerOptions, store: Store, *, patient: bool
) -> PeerParts:
    door.connect(client)
    make = choose_engine(options.transport, options.relay_only)
    disturbance = options.disturbance
    if options.relay_only and not any(url.startswith("turn") for s in client.ice_servers for url in s.urls):
        raise NoRelay(
            "this mesh has no relay: ask its founder for one (shoal serve --turn), or join without --relay-only"
        )

    def engine() -> Engine:
        """With the credentials of now: they are lent for a while only."""
        servers = tuple(
            IceServer(s.urls, s.username or None, s.credential or None) for s in client.ice_servers
        )
        made = make(EngineSettings(options.bind, servers, options.relay_only))
        return made if disturbance is None else disturbance.engine(made)

    versions = OLDER if options.older else SPOKEN
    hello = announced(versions, client.peer, options.name, f"shoal/{VERSION} ({engine().name})")
    parts = PeerParts(
        hello,
        engine,
        door.signal,
        lambda: os.urandom(CONNECTION_ID_BYTES),
        store,
        third=_third(options),
        patient=patient,
    )
    door.lead_to(parts)
    parts.start()
    return parts


def _third(options: PeerOptions) -> ThirdPeer | None:
    """Who keeps to a relay tells nobody an address of its own."""
    return None if options.relay_only else ThirdPeer(options.bind)


@asynccontextmanager
async def found(
    founding: Founding,
    options: PeerOptions,
    store: Store,
    mesh_key: Identity,
    report: Report = silent,
    kept: KeptIdentity | None = None,
    foresight: Foresight | None = None,
) -> AsyncIterator[MeshMember]:
    """Signaling server and founding peer in this process. `mesh.link` invites others.

    With `options.memory_bytes` 0 the founder lends nothing: it introduces and asks. `kept`: who it is, when it comes
    back or means to; then it goes on with the log that it kept, or with those who kept it meanwhile.
    `foresight`: what the history of this machine says of the times that plans are made with.

    Raises PortInUse, NotInStore, CannotServe, BadCommand.
    """
    manifest = None
    if founding.model_id is not None:
        manifest = decode_manifest(store.manifest_bytes(founding.model_id))
        _check_context(manifest, founding.mesh.context)
    units = manifest.planner_units() if manifest is not None else ()
    if founding.mesh.cuts is not None:
        check_cuts(founding.mesh.cuts, len(units))
    if founding.mesh.wish is not None:
        check_wish(founding.mesh.wish, len(units))
    check_protection(founding.mesh.protection, tuple(unit.name for unit in units))
    own = kept or thrown_away()
    door = _Door()
    async with AsyncExitStack() as stack:
        if founding.meet is None:
            planning = None
            if foresight is not None:
                jobs = PlanningJobs()
                stack.push_async_callback(jobs.close)
                planning = partial(foresight.plan_bytes, jobs)
            server = await stack.enter_async_context(
                serve(founding.server, store, planning, partial(placement_answers.answered, store))
            )
            report(Phase(f"listening on {server.url}", 0, 0))
            url, address = server.local_url, founding.public_url or server.url
        else:
            url = founding.meet
            address = founding.public_url or url
        credentials = Credentials.founder(mesh_key, own.identity, options.name)
        tls = founding.server.tls
        settings = ClientSettings(tls=own_certificate(tls) if tls is not None else None)
        async with SignalingClient(url, credentials, door.events(), settings) as client:
            parts = _parts(door, client, options, store, patient=False)
            kept_log = LogKeeping(mesh_key.id, parts.me, own.beside, partial(_tell, report))
            mesh = MeshMember(parts, client, kept_log, report)
            door.enter(mesh)
            try:
                fetcher = Fetcher(store, url)
                mesh.fetch_by(fetcher)
                mesh.keep_accounts()
                if manifest is not None:
                    mesh.model.know(manifest)
                    _ = mesh.text  # before this machine is measured: the founder asks, too
                coordinates(mesh, fetcher, foresight)
                meets(mesh)
                await _register_kept(client, founding.kept, mesh_key)
                lends = options.memory_bytes > 0
                if await _begins(mesh) or not await _come_back(mesh, options, lends):
                    await _promise(mesh, founding, address)
                    await mesh.view.ask_leader(JOIN, asking_in(mesh, options, lends))
                _check_kept_model(mesh, founding)
                await _owned_by(mesh, founding.owners)
                times: UnitTimes | None = None
                if lends:
                    report(Phase("measure this machine", 0, 0))
                    times = await _times(store, manifest, founding.mesh.context, options)
                    options = options.measured(times.lasting_bytes)
                    mesh.lend(options, fetcher, Journal())
                if founding.shown is not None:
                    mesh.show(founding.shown.link(address))
                else:
                    uses = (founding.invite_role, founding.invite_expires_s, founding.invite_uses)
                    mesh.show(await mesh.invite(mesh_key, address, *uses))
                latest = await _measured(mesh, options, times) if times is not None else None
                mesh.watch_leader(rejoining(mesh, options, latest))
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
) -> AsyncIterator[MeshMember]:
    """A member of the mesh that `link` leads to; with `compute` it lends this machine, else it only asks.

    `kept`: who this peer is, when it comes back or means to (peer.storage.peer_keys); None: nobody that was here
    before.

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
        parts = _parts(door, client, options, store, patient=not compute)
        view = parts.view
        kept_log = LogKeeping(invite.mesh, parts.me, own.beside if compute else None, partial(_tell, report))
        mesh = MeshMember(parts, client, kept_log, report, link=invite)
        door.enter(mesh)
        try:
            fetcher = Fetcher(
                store,
                invite.server,
                mesh.piece_sources,
                lambda text: report(Phase(named(text, view.state.members), 0, 0)),
            )
            meets(mesh)
            mesh.fetch_by(fetcher)
            mesh.keep_accounts(fetcher)

            async def learn() -> None:
                # Whoever is a member came in after the founder had chosen a model, or none.
                await view.until(lambda state: state.model is not None or bool(state.members), STATE_WAIT_S)
                model = view.state.model
                if model is None and not view.state.members:
                    raise NotAdmitted("the log that this peer kept has no members: begin anew without it")
                if model is not None:
                    mesh.model.know(await fetcher.manifest(model.model))
                if compute:
                    coordinates(mesh, fetcher)

            await enter(mesh, options, compute, SOMEBODY_WAIT_S, learn)
            if not mesh.leadership.is_enabled and mesh.manifest is None:
                await learn()
            model, manifest = view.state.model, mesh.manifest
            if manifest is not None:
                await fetcher.blobs([manifest.tokenizer, *manifest.graphs()])
            else:
                mesh.runs_only()
            if options.pin_ends:
                if manifest is None and not view.state.decoders:
                    raise BadCommand(
                        f"{why_no_words(view.state)}; --pin-ends is for one that does: leave it out"
                    )
                await mesh.pin_ends(options.threads)
            latest: Latest | None = None
            if compute:
                report(Phase("measure this machine", 0, 0))
                times = await _times(store, manifest, model.context if model is not None else 0, options)
                options = options.measured(times.lasting_bytes)
                journal = Journal()
                if model is not None:
                    journal = await Journal.open(
                        own.transactions(model.model), lambda text: report(Phase(text, 0, 0))
                    )
                await mesh.lend(options, fetcher, journal).held_again()
                latest = await _measured(mesh, options, times)
            mesh.watch_leader(rejoining(mesh, options, latest))
            yield mesh
        finally:
            if not mesh.ended.is_set():
                await mesh.leave("left")
            else:
                await mesh.close("left")


async def _times(store: Store, manifest: Manifest | None, context: int, options: PeerOptions) -> UnitTimes:
    """How fast this machine is with units of the model that answers, or with what meshes without one time."""
    if manifest is None:
        return await asyncio.to_thread(measure_product, options.threads)
    measure = partial(measure_here, store, context=context)
    return await asyncio.to_thread(measure, manifest, options.provider, options.threads)


async def _measured(mesh: MeshMember, options: PeerOptions, times: UnitTimes) -> Latest:
    """Tells the mesh what this peer measured, and answers from here on when the leader asks it to measure again, as it
    does by the model that answers. Returns what gives the times that were measured last.
    """
    assert mesh.lending is not None
    await mesh.view.measured(await mesh.lending.measured(times))
    if mesh.manifest is None:
        return lambda: times
    again = MeasuringAgain(mesh.view, mesh.stage, mesh.model, options, times, mesh.is_over)
    mesh.links.on(MEASURE, again.answer)
    return lambda: again.times


def _tell(report: Report, text: str) -> None:
    report(Phase(text, 0, 0))


async def _begins(mesh: MeshMember) -> bool:
    """Whether this peer leads: it begins the mesh, or was the only one to vote in it when it was here last."""
    kept, view = mesh.log, mesh.view
    newest = await asyncio.to_thread(kept.newest)
    if newest:
        await take_kept(mesh, newest)
    else:
        mesh.take_part(kept.found(MeshState()))
    assert view.replica is not None
    if view.replica.config.voters != (view.me,):
        return False
    if not await mesh.leadership.until_leads(FOUNDED_WAIT_S):
        raise CannotServe("this peer could not begin the log of its mesh; look at its state folder")
    return True


async def _promise(mesh: MeshMember, founding: Founding, address: str) -> None:
    """What the founder decides goes into the log, as far as it is not there."""
    manifest, coordinating = mesh.manifest, mesh.leadership.current
    assert coordinating is not None
    wishes = founding.mesh
    if manifest is not None:
        assert founding.model_id is not None
        model = ModelChosen(
            founding.model_id,
            manifest.name,
            len(manifest.planner_units()),
            wishes.context,
            wishes.sessions,
            wishes.objective,
        )
        if model != coordinating.state.model:
            coordinating.submit(model)
    if coordinating.state.people.roles.get(mesh.me) != "owner":
        coordinating.submit(RoleGiven(mesh.me, "owner"))
    coordinating.set_cuts(wishes.cuts)
    wish = wishes.wish
    if manifest is None and wish is None and wishes.objective != wished(coordinating.state).goal:
        wish = PlanWished("optimal", wishes.objective)  # which a model's promise says elsewhere
    if wish is not None and wish != coordinating.state.wish:
        coordinating.submit(wish)
    coordinating.protect(wishes.protection)
    if refusal(coordinating.state, wishes.fairness) == "":
        coordinating.submit(wishes.fairness)
    if coordinating.state.signaling[:1] != (address,):
        others = (other for other in coordinating.state.signaling if other != address)
        coordinating.submit(SignalingListed((address, *others)[:MAX_ADDRESSES]))


def _check_kept_model(mesh: MeshMember, founding: Founding) -> None:
    """Raises CannotServe where the mesh that was kept answers with a model and this start brings none, or the other
    way round.
    """
    model = mesh.view.state.model
    if model is not None and founding.model_id is None:
        raise CannotServe(
            f"the mesh that is kept here answers with {model.name}: give that model, too, as in "
            f"shoal serve --keep {model.model[:12]} …"
        )
    if model is None and founding.model_id is not None:
        raise CannotServe(
            "the mesh that is kept here has no model that answers in words, and others keep it as well: start without "
            "one, or all of them anew"
        )


async def _owned_by(mesh: MeshMember, owners: tuple[str, ...]) -> None:
    """Has the log say so. Where nobody takes it now, the next start tries again."""
    roles = mesh.view.state.people.roles
    for peer in owners:
        if roles.get(peer) != "owner" and roles.get(mesh.me) == "owner":
            try:
                await mesh.propose(RoleGiven(peer, "owner"))
            except (PeerError, TimeoutError) as error:
                log.info("nobody owns the mesh beside its founder: %s", error)


async def _come_back(mesh: MeshMember, options: PeerOptions, lends: bool) -> bool:
    """Others voted as well when this peer was here last, or its log is damaged. True: they are there, and it is a
    member; False: it was the only one to vote, and begins the next epoch with what can be read. Raises CannotServe.
    """
    replica = mesh.view.replica
    assert replica is not None
    damaged = replica.fresh  # else it would know the configuration
    if damaged:
        mesh.tell("looks whether others kept this mesh")
    else:
        mesh.tell("this mesh is kept by others as well: looking for them")
    try:
        await enter(mesh, options, lends, OTHERS_WAIT_S)
        return True
    except ConnectFailed as error:
        found = await asyncio.to_thread(mesh.log.salvage) if damaged else None
        if found is not None and found.alone:
            epoch = await mesh.begin_epoch(replica)
            mesh.tell(f"epoch {epoch} of the mesh has begun here; the others join it as they come back")
            return False
        others = "others keep this mesh as well, and too few of them are here"
        if damaged and found is None:
            others = (
                "nothing can be read of the log that was kept here, and nobody who kept another one is here"
            )
        raise CannotServe(
            f"{others} ({error}): start one of them, or, if they are gone for good, run shoal recover to go on from "
            "what this peer knows"
        ) from error


def _check_context(manifest: Manifest, context: int) -> None:
    most = manifest.context
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
