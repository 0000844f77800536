"""`shoal serve` and `shoal join`: this machine as a peer until Ctrl-C; `shoal rename` calls it otherwise meanwhile."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import segno

from peer.cli.arguments.plan_goal import wish_of
from peer.cli.fairness_view import fairness_of
from peer.cli.gateway_beside import beside, embedder_beside, measured
from peer.coordination.history_writer import open_history
from peer.coordination.placement_answers import answered
from peer.coordination.plan_forecast import Foresight
from peer.errors import BadCommand, CannotServe, StateUnusable
from peer.launch.defaults import default_name
from peer.launch.nearby import announced
from peer.launch.offered_models import CONTEXT, Offered, Room, offer_beside, served_of_store
from peer.launch.renaming import ask_to_rename, naming, renamable
from peer.launch.served_models import holding_words, offer_line, offer_shown
from peer.launch.streams import can_say
from peer.launch.terminal import either, err, interrupts, out, reporting, say, whisper
from peer.member.byte_sizes import bytes_text
from peer.member.epoch_recovery import FOUNDERS, kept_peers, recover
from peer.member.history import keep_history
from peer.member.joining import Founding, found, join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import Disturbance, MeshOptions, PeerOptions
from peer.state.display_names import name_fault, named, names
from peer.state.generated.commands import PlanRecord, Protection
from peer.state.mesh_state import MeshState
from peer.state.protection import chosen
from peer.storage.founder_file import KeptInvite, KeptMesh, KeptMeshFile, new_invite, server_address
from peer.storage.peer_keys import kept_identity, owner_beside
from planner.history.files import NAME
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from signaling.app_files import built_app, no_app
from signaling.errors import BadCertificate
from signaling.ice import ice_services
from signaling.invites import Role, parse_link
from signaling.keys import SEED_BYTES, identity_from_seed
from signaling.room import Policy
from signaling.server import ServerOptions, Tls
from signaling.server import serve as run_server

SETTLED_S = (
    1.0  # a reason for having no plan is told when it stands this long: each peer that joins changes it
)
HALF_BLOCKS = "\u2580\u2584\u2588"  # of a compact QR code


def peer_options(args: argparse.Namespace, name: str) -> PeerOptions:
    """The peer's part of the arguments."""
    return PeerOptions(
        name,
        args.memory.bytes,
        args.threads,
        args.provider,
        args.transport,
        tuple(args.bind),
        relay_only=args.relay_only,
        owner=args.owner or "",
        machine=args.machine,
        beside_program=args.memory.beside_program,
    )


def protection(args: argparse.Namespace) -> Protection:
    """How answers are protected, by the arguments."""
    return chosen(args.protection, args.redundancy, args.shadow, args.recovery, args.priority)


def founding(
    args: argparse.Namespace, store: Store, model_id: str | None, kept: KeptMeshFile | None
) -> Founding:
    """The founder's part of the arguments. Raises WrongLink when --public-url cannot be part of a link, BadCommand for
    options of a model that answers in words where there is none.
    """
    context = args.context
    if model_id is None:
        _check_words_only(args)
        context = 0
    elif context is None:
        context = min(CONTEXT, decode_manifest(store.manifest_bytes(model_id)).context)
    return Founding(
        model_id=model_id,
        mesh=MeshOptions(
            context,
            args.sessions,
            "throughput" if args.goal == "throughput" else args.objective,
            args.cuts,
            protection(args),
            fairness_of(args),
            wish_of(args),
        ),
        server=ServerOptions(
            host=args.host,
            port=args.port,
            policy=policy_of(args),
            allow_hosts=frozenset(args.allow_host),
            behind_proxy=args.behind_proxy,
            state_folder=kept.signaling if kept is not None else None,
            web_app=built_app(),
            tls=tls_of(args),
        ),
        meet=server_address(args.signaling) if args.signaling is not None else None,
        public_url=server_address(args.public_url) if args.public_url is not None else None,
        invite_expires_s=args.expires,
        invite_uses=args.uses,
        invite_role=Role(args.role),
    )


def _check_words_only(args: argparse.Namespace) -> None:
    given = {
        "--context": args.context is not None,
        "--cuts": args.cuts is not None,
        "--component": bool(args.component),
        "--priority": bool(args.priority),
    }
    for option, is_given in given.items():
        if is_given:
            raise BadCommand(
                f"{option} is about a model that answers in words, and none of these does: leave it out, or name one, "
                "too"
            )


def policy_of(args: argparse.Namespace) -> Policy:
    """How peers reach each other, by the arguments. Raises BadIceServer."""
    secret = os.environ.get("SHOAL_TURN_SECRET", "").strip().encode() or None
    if args.turn_secret is not None:
        secret = args.turn_secret.read_bytes().strip()
    if not args.turn and args.turn_secret is None:
        secret = None  # that of the environment is for another mesh
    servers, turn = ice_services(args.stun, args.turn, secret, round(args.turn_lifetime))
    return Policy(ice_servers=servers, turn=turn)


def tls_of(args: argparse.Namespace) -> Tls | None:
    """Raises BadCertificate when only one of --cert and --key was given."""
    if (args.cert is None) != (args.key is None):
        raise BadCertificate("HTTPS takes both: --cert FILE with the certificate and --key FILE with its key")
    return None if args.cert is None else Tls(args.cert, args.key)


def with_kept(promise: Founding, file: KeptMeshFile, kept: KeptMesh) -> Founding:
    """Earlier invites are registered again, and the first that fits what was asked for is shown instead of a new one.

    Used-up invites are among them: those who came may come back. Expired ones need no server for that.
    """
    now = time.time()
    admissions = file.admissions(kept.key.id)

    def fits(invite: KeptInvite) -> bool:
        grant = invite.grant
        lasts = bool(grant.expires_unix) == bool(promise.invite_expires_s)
        same = (grant.role, grant.uses) == (promise.invite_role, promise.invite_uses)
        return lasts and same and invite.usable(admissions, now)

    current = [i for i in kept.invites if not i.grant.expires_unix or now <= i.grant.expires_unix]
    shown = next(filter(fits, current), None)
    if shown is None:
        shown = new_invite(kept.key, promise.invite_role, promise.invite_expires_s, promise.invite_uses)
        file.add(shown)
        current.append(shown)
    return replace(promise, kept=tuple(current), shown=shown)


def serve(args: argparse.Namespace) -> int:
    """Founds a mesh and serves it until Ctrl-C."""
    store = Store(args.store)
    room = Room(args.context, args.sessions, "throughput" if args.goal == "throughput" else args.objective)
    model_id, offered = served_of_store(
        store, (args.model, *args.more), args.weights, room
    )  # before there is a loop: Ctrl-C ends it at once
    if model_id is not None:
        say(f"starting {decode_manifest(store.manifest_bytes(model_id)).name}, model {model_id[:12]}")
    else:
        say(
            f"starting without a model that answers in words: runs {', '.join(each.name for each in offered)}"
        )
    return asyncio.run(_serve(args, store, model_id, offered))


async def _serve(
    args: argparse.Namespace, store: Store, model_id: str | None, offered: Sequence[Offered]
) -> int:
    async with AsyncExitStack() as stack:
        ctrl = stack.enter_context(interrupts())
        report = stack.enter_context(reporting())
        file = KeptMeshFile(args.state) if args.keep else None
        promise = founding(args, store, model_id, file)
        key, own = identity_from_seed(os.urandom(SEED_BYTES)), None
        if file is not None:
            stack.enter_context(file.serving())
            kept = file.read_or_make()
            key, promise = kept.key, with_kept(promise, file, kept)
            promise = replace(promise, owners=(owner_beside(args.state, key.id),))
            own = stack.enter_context(kept_identity(args.state / FOUNDERS, key.id))
        called = naming(args.name, default_name(), own)
        with ctrl.cancelling():
            loaded = await stack.enter_async_context(embedder_beside(args))
            options = replace(peer_options(args, called.name), disturbance=_disturbance(args.inject))
            foresight, writer = Foresight(), None
            if args.keep and args.history:
                history = open_history(args.state / NAME, say, foresight)
                writer = await stack.enter_async_context(history)
            founding_it = found(promise, options, store, key, report, own, foresight)
            mesh = await stack.enter_async_context(founding_it)
        assert mesh.link is not None
        if file is not None:
            file.listens(mesh.link.server, mesh.client.server)
        if writer is not None:
            stack.enter_context(keep_history(mesh, writer, foresight))
        for wanted in offered:
            await offer_beside(mesh, wanted)
        show_link(mesh, qr=not args.no_qr)
        if args.nearby:
            model = mesh.view.state.model
            shown = model.name if model is not None else ", ".join(each.name for each in offered)
            announcing = announced(mesh.link.url(), called.name, shown)
            code = await stack.enter_async_context(announcing)
            say(f"announced to this network: shoal join --nearby there, with the code {code}")
        if promise.meet is None and promise.server.web_app is None:
            say(no_app())
        follow(mesh, say)
        await stack.enter_async_context(renamable(args.state, mesh.log.mesh, called, mesh.rename))
        await stack.enter_async_context(beside(args, mesh, loaded, say))
        await stack.enter_async_context(measured(args, mesh, say))
        await either(ctrl.asked, mesh.ended)
        return ending(mesh, ctrl.asked, say)


async def signaling(args: argparse.Namespace) -> int:
    """A signaling server without a peer, until Ctrl-C; it shows the models of the store."""
    folder = args.state / "signaling" if args.keep else None
    options = ServerOptions(
        host=args.host,
        port=args.port,
        policy=policy_of(args),
        allow_hosts=frozenset(args.allow_host),
        behind_proxy=args.behind_proxy,
        state_folder=folder,
        web_app=built_app(),
        tls=tls_of(args),
    )
    with interrupts() as ctrl:
        store = Store(args.store)
        async with run_server(options, store, placing=partial(answered, store)) as server:
            say("peers meet here; give this address to shoal serve --signaling")
            out.print(server.url, markup=False)
            if options.web_app is None:
                say(no_app())
            await ctrl.asked.wait()
    return 0


def run_recover(args: argparse.Namespace) -> int:
    """Begins the next epoch of a mesh from what a peer of this machine kept. Raises StateUnusable."""
    mesh = parse_link(args.mesh).mesh if "#" in args.mesh else args.mesh
    found = kept_peers(args.state, mesh)
    if not found:
        raise StateUnusable(f"no peer kept a log of that mesh in {args.state}: give its folder with --state")
    if len({peer.mesh for peer in found}) > 1:
        meshes = ", ".join(sorted({peer.mesh for peer in found}))
        raise StateUnusable(f"there are logs of several meshes here, say which one: {meshes}")
    best = max(found, key=lambda peer: (peer.epoch, peer.beside.name == "0"))
    say(
        "this goes on without the voters that are gone: what only they knew is lost, and they join anew if they return"
    )
    if not args.yes and not _confirmed():
        raise StateUnusable("nothing was changed; --yes goes on without asking")
    say(recover(best, say))
    return 0


def _confirmed() -> bool:
    """Whether a person at the terminal says yes."""
    if not err.is_terminal:
        return False
    try:
        return input("type yes to go on: ").strip() == "yes"
    except EOFError:  # nobody is there who could
        return False


async def rename(args: argparse.Namespace) -> int:
    """Has one that runs take another name. Raises BadCommand for one that no peer may have, or where it is not clear
    whose.
    """
    if fault := name_fault(args.new):
        raise BadCommand(fault)
    done = await ask_to_rename(args.state, parse_link(args.link).mesh, args.new, args.called_now)
    out.print(f"{done.before} is called {args.new} from now on, {done.lasts}", markup=False)
    return 0


async def run_join(args: argparse.Namespace) -> int:
    """Lends this machine to a mesh until Ctrl-C."""
    invite = parse_link(args.link)
    tell = whisper if args.quiet else say
    async with AsyncExitStack() as stack:
        ctrl = stack.enter_context(interrupts())
        report = stack.enter_context(reporting(quiet=args.quiet))
        kept = stack.enter_context(kept_identity(args.state, invite.mesh))
        naming_it = naming(args.name, default_name(), kept)
        options = replace(peer_options(args, naming_it.name), disturbance=_disturbance(args.inject))
        joining = join(args.link, options, Store(args.store), compute=True, report=report, kept=kept)
        with ctrl.cancelling():
            loaded = await stack.enter_async_context(embedder_beside(args))
            mesh = await stack.enter_async_context(joining)
        called = names(mesh.view.state.members).get(mesh.me, naming_it.name)
        tell(f"joined as {called}, lends up to {bytes_text(args.memory.bytes)}; Ctrl-C leaves politely")
        follow(mesh, tell)
        await stack.enter_async_context(renamable(args.state, mesh.log.mesh, naming_it, mesh.rename))
        await stack.enter_async_context(beside(args, mesh, loaded, tell))
        await stack.enter_async_context(measured(args, mesh, tell))
        await either(ctrl.asked, mesh.ended)
        return ending(mesh, ctrl.asked, tell)


def _disturbance(file: Path | None) -> Disturbance | None:
    if file is None:
        return None
    from peer.validation.world.injection import read_injection

    return read_injection(file)


def ending(mesh: MeshMember, asked: asyncio.Event, tell: Callable[[str], None]) -> int:
    """Exit status 0 when asked to leave. Raises CannotServe when the mesh ended by itself."""
    if not asked.is_set():
        raise CannotServe(mesh.why_ended)
    tell("leaving")
    return 0


def show_link(mesh: MeshMember, *, qr: bool) -> None:
    """Prints the invite link on standard output, and as a QR code for phones where there is a terminal."""
    assert mesh.link is not None
    url = mesh.link.url()
    if qr and err.is_terminal:
        segno.make(url, micro=False).terminal(out=sys.stderr, compact=can_say(sys.stderr, HALF_BLOCKS))
    say("others join with this link; whoever has it can come in, so send it to people you trust")
    out.print(url, markup=False)


def follow(mesh: MeshMember, tell: Callable[[str], None], *, from_now: bool = False) -> None:
    """Says in a line what changes: who lends a machine, who holds what, and why there is no plan.

    With `from_now` what is so already is taken as known.
    """
    present: dict[str, str] = {}
    said = ""
    placed: dict[str, int] = {}  # where models are offered alone: the placement that was told
    loop = asyncio.get_running_loop()

    def no_plan(refused: str) -> None:
        nonlocal said
        state = mesh.view.state
        line = f"no plan: {named(refused, state.members)}"
        if state.serving() is None and state.refused == refused and line != said and not mesh.is_over():
            said = line
            tell(line)

    def look() -> None:
        nonlocal said
        if mesh.is_over():
            return
        state = mesh.view.state
        here = {
            peer: name
            for peer, name in names(state.members).items()
            if state.members[peer].status == "measured"
        }
        for peer in sorted(here.keys() - present.keys(), key=here.__getitem__):
            if peer != mesh.me and told:
                tell(f"{here[peer]} is here")
        for peer in sorted(present.keys() - here.keys(), key=present.__getitem__):
            if peer != mesh.me:
                tell(f"{present[peer]} left")
        present.clear()
        present.update(here)
        for name, offer in sorted(state.offers.items()) if state.model is None else ():
            if offer.version > placed.get(name, 0):
                placed[name] = offer.version
                if told:
                    tell(offer_line(name, offer_shown(state, name), names(state.members)))
        serving = state.serving()
        if serving is not None:
            key = f"plan {serving.version}"
            if key != said:
                said = key
                if told:
                    tell(f"{key}: {plan_line(state, serving)}")
        elif state.refused:
            loop.call_later(SETTLED_S, no_plan, state.refused)

    mesh.view.subscribe(look)
    follow_coordinator(mesh, tell)
    told = not from_now
    look()
    told = True


def follow_loading(mesh: MeshMember, tell: Callable[[str], None]) -> None:
    """Says that the mesh does not serve its model yet, where that is so, and when it does. Where no model answers in
    words nobody waits.
    """
    waits = False

    def look() -> None:
        nonlocal waits
        state = mesh.view.state
        loading = state.model is not None and state.serving() is None
        if loading != waits:
            waits = loading
            model = state.model.name if state.model else "the model"
            tell(f"{model} is being loaded: questions wait until it is" if loading else f"{model} is loaded")

    mesh.view.subscribe(look)
    look()


def follow_coordinator(mesh: MeshMember, tell: Callable[[str], None]) -> None:
    """Says at once when the coordinator is lost, before each try to find it, and when it is back."""

    def look() -> None:
        leader = mesh.view.leader
        called = (
            "this peer" if leader == mesh.me else names(mesh.view.state.members).get(leader or "", "somebody")
        )
        tell(str(mesh.away) if mesh.away is not None else f"{called} coordinates now")

    mesh.leader_watch.on_away(look)


def plan_line(state: MeshState, plan: PlanRecord) -> str:
    """Who holds what, in one line."""
    called = names(state.members)
    return ", ".join(holding_words(stage, called) for stage in plan.stages)
