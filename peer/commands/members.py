"""`shoal serve` and `shoal join`: this machine as a peer until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import os
import stat
import sys
from pathlib import Path

import segno

from peer.commands.models import find_or_import
from peer.commands.terminal import either, err, interrupts, out, reporting, say
from peer.errors import CannotServe, PeerError
from peer.joining import Founding, found, join
from peer.mesh import Mesh
from peer.mesh_state import MeshState, PlanRecord
from peer.options import MeshOptions, PeerOptions, bytes_text
from planner.store import Store
from signaling.invites import Role
from signaling.keys import SEED_BYTES, Identity, identity_from_seed
from signaling.server import ServerOptions


def peer_options(args: argparse.Namespace) -> PeerOptions:
    """The peer's part of the arguments."""
    return PeerOptions(args.name, args.memory, args.threads, args.provider, args.transport, tuple(args.bind))


def founding(args: argparse.Namespace, model_id: str) -> Founding:
    """The founder's part of the arguments."""
    state = args.state / "signaling" if args.keep else None
    return Founding(
        model_id=model_id,
        mesh=MeshOptions(args.context, args.sessions, args.objective, args.cuts),
        server=ServerOptions(
            host=args.host, port=args.port, allow_hosts=frozenset(args.allow_host), state_folder=state
        ),
        public_url=args.public_url,
        invite_expires_s=args.expires,
        invite_uses=args.uses,
        invite_role=Role(args.role),
    )


async def serve(args: argparse.Namespace) -> int:
    """Founds a mesh and serves it until Ctrl-C."""
    store = Store(args.store)
    model_id = await asyncio.to_thread(find_or_import, store, args.model, args.weights)
    key = mesh_key(args.state / "mesh.key") if args.keep else identity_from_seed(os.urandom(SEED_BYTES))
    with reporting() as report, interrupts() as asked:
        async with found(founding(args, model_id), peer_options(args), store, key, report) as mesh:
            show_link(mesh, qr=not args.no_qr)
            follow(mesh)
            await either(asked, mesh.ended)
            return ending(mesh, asked)


async def run_join(args: argparse.Namespace) -> int:
    """Lends this machine to a mesh until Ctrl-C."""
    store = Store(args.store)
    with reporting() as report, interrupts() as asked:
        async with join(args.link, peer_options(args), store, compute=True, report=report) as mesh:
            say(f"joined as {args.name}, {bytes_text(args.memory)} pledged; Ctrl-C leaves politely")
            follow(mesh)
            await either(asked, mesh.ended)
            return ending(mesh, asked)


def ending(mesh: Mesh, asked: asyncio.Event) -> int:
    """Exit status: 0 when asked to leave, 1 when the mesh ended by itself."""
    if asked.is_set():
        say("leaving")
        return 0
    raise CannotServe(mesh.why_ended)


def show_link(mesh: Mesh, *, qr: bool) -> None:
    """Prints the invite link on standard output, and as a QR code for phones where there is a terminal."""
    assert mesh.link is not None
    url = mesh.link.url()
    if qr and err.is_terminal:
        segno.make(url, micro=False).terminal(out=sys.stderr, compact=True)
    say("others join with the link below; whoever has it can join, so send it to people you trust")
    out.print(url, markup=False)


def follow(mesh: Mesh) -> None:
    """Says in a line when the plan or the members change."""
    seen: dict[str, object] = {"members": None, "plan": 0, "refused": ""}

    def look() -> None:
        state = mesh.node.state
        members = tuple(member.name for _, member in sorted(state.members.items()) if member.compute)
        if members != seen["members"]:
            seen["members"] = members
            say(f"peers: {', '.join(members)}")
        if state.plan is not None and state.plan.version != seen["plan"]:
            seen["plan"] = state.plan.version
            say(f"plan {state.plan.version}: {plan_line(state, state.plan)}")
        if state.refused and state.refused != seen["refused"]:
            say(f"no plan: {state.refused}")
        seen["refused"] = state.refused

    mesh.node.on_state.append(look)
    look()


def plan_line(state: MeshState, plan: PlanRecord) -> str:
    """Who holds what, in one line."""
    parts = []
    for stage in plan.stages:
        member = state.members.get(stage.primary)
        parts.append(f"{member.name if member else stage.primary[:8]} units {stage.first}-{stage.stop - 1}")
    return ", ".join(parts)


def mesh_key(path: Path) -> Identity:
    """The mesh key kept at `path`, made on first use, readable by its owner only."""
    try:
        seed = path.read_bytes()
        if len(seed) != SEED_BYTES:
            raise PeerError(
                f"{path} is not a mesh key ({SEED_BYTES} bytes expected, got {len(seed)}); move it away"
            )
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise PeerError(f"{path} can be read by others; run: chmod 600 {path}")
        return identity_from_seed(seed)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        seed = os.urandom(SEED_BYTES)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(seed)
        return identity_from_seed(seed)
