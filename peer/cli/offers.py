"""`shoal offer`, `shoal withdraw`: which models a mesh runs beside its own."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from peer.cli.chat import asker
from peer.coordination.shared_weights import saved_by
from peer.errors import BadCommand, CannotServe, PeerError
from peer.launch.offered_models import Offered, Room, offers_of_store
from peer.launch.served_models import decoder_line, decoder_shown, offer_line, offer_shown
from peer.launch.terminal import interrupts, out
from peer.member.byte_sizes import bytes_text
from peer.member.mesh_member import MeshMember
from peer.model.fetcher import Fetcher
from peer.state.decoder_sight import seen_as
from peer.state.display_names import names
from peer.state.generated.commands import DecoderOffered, ModelWithdrawn
from peer.state.mesh_state import MeshState, refusal
from peer.state.proposal_rights import may_say
from peer.storage.peer_keys import OWNERS
from planner.errors import PlannerError
from planner.model.graph_manifest import GraphManifest
from planner.model.manifest import Manifest
from planner.model.store import MANIFEST_LIMIT_BYTES, Store
from signaling.invites import parse_link

KNOWN_S: Final = 30.0  # until this peer's own log has what was committed
MOST_WAIT_S: Final = 3600.0
OWNERS_ONLY: Final = (
    "only an owner offers and withdraws models: run this on the machine and with the --state of the founder, which "
    "serves with --keep"
)


async def offer(args: argparse.Namespace) -> int:
    """Imports the model where it is not in the store, and has the log say it; 1 where nobody can hold it now."""
    if not 0 <= args.wait <= MOST_WAIT_S:
        raise BadCommand(f"--wait: expected seconds from 0 to {MOST_WAIT_S:.0f}, got {args.wait:g}")
    store = Store(args.store)
    room = Room(args.context, args.sessions)
    wanted = await asyncio.to_thread(offers_of_store, store, args.model, args.weights, room, args.offered)
    fetcher = Fetcher(store, parse_link(args.link).server)
    args.state = args.state / OWNERS
    with interrupts() as ctrl:
        async with asker(args, ctrl) as mesh:
            with ctrl.cancelling():
                for each in wanted:
                    out.print(await give(mesh, each, fetcher, args.wait), markup=False)
                return 0


async def withdraw(args: argparse.Namespace) -> int:
    """Has the log say that a model is not offered any more."""
    args.state = args.state / OWNERS
    with interrupts() as ctrl:
        async with asker(args, ctrl) as mesh:
            with ctrl.cancelling():
                out.print(await take_back(mesh, ModelWithdrawn(args.offered)), markup=False)
                return 0


async def give(mesh: MeshMember, wanted: Offered, fetcher: Fetcher, wait_s: float) -> str:
    """For people: where it runs. Raises BadCommand for who may not, for a name that is taken, and for a model that the
    server of the mesh does not have; CannotServe where nobody can hold it now.
    """
    state, name = mesh.view.state, wanted.name
    if may_say(state, mesh.me, wanted):
        raise BadCommand(OWNERS_ONLY)
    known = state.decoders.get(name) or state.offers.get(name)
    if known is None or known.model != wanted.model:
        if why := refusal(state, wanted):
            raise BadCommand(why)
        await _is_at_server(fetcher, wanted)
        await mesh.propose(wanted)
    if not await mesh.view.until(lambda now: name in now.offers or name in now.decoders, KNOWN_S):
        raise CannotServe("the mesh took the offer, but this peer did not hear of it: look with shoal status")
    if isinstance(wanted, DecoderOffered):
        return await _given_in_words(mesh, name, wait_s)
    await mesh.view.until(lambda now: name not in now.offers or now.offers[name].version > 0, wait_s)
    state = mesh.view.state
    if name not in state.offers:
        raise CannotServe(f"{name} was withdrawn meanwhile")
    line = offer_line(name, offer_shown(state, name), names(state.members))
    if not state.offers[name].stages:
        raise CannotServe(f"{line}; it stays offered, and runs once there is room: shoal withdraw ends that")
    return line


async def _given_in_words(mesh: MeshMember, name: str, wait_s: float) -> str:
    """The same of a further model that answers in words: waits until its peers have loaded it."""

    def over(state: MeshState) -> bool:
        found = state.decoders.get(name)
        return found is None or bool(found.refused) or seen_as(state, name).serving() is not None

    await mesh.view.until(over, wait_s)
    state = mesh.view.state
    if name not in state.decoders:
        raise CannotServe(f"{name} was withdrawn meanwhile")
    shown = decoder_shown(state, name)
    line = decoder_line(shown, names(state.members))
    if not shown["stages"] or shown["refused"]:
        raise CannotServe(
            f"{line}; it stays offered, and answers once there is room: shoal withdraw ends that"
        )
    return line


async def take_back(mesh: MeshMember, wanted: ModelWithdrawn) -> str:
    """For people: what was withdrawn. Raises BadCommand for who may not, and for what is not offered."""
    state = mesh.view.state
    if may_say(state, mesh.me, wanted):
        raise BadCommand(OWNERS_ONLY)
    if why := refusal(state, wanted):
        have = ", ".join(sorted((*state.offers, *state.decoders))) or "none"
        raise BadCommand(f"{why}; offered: {have:.400}")
    await mesh.propose(wanted)
    if not await mesh.view.until(lambda now: wanted.name not in (*now.offers, *now.decoders), KNOWN_S):
        raise CannotServe("the mesh took it, but this peer did not hear of it: look with shoal status")
    return f"{wanted.name} is not offered any more"


async def _is_at_server(fetcher: Fetcher, wanted: Offered) -> None:
    """Raises BadCommand unless peers can fetch the model from the server of their mesh."""
    found = await fetcher.beside(wanted.model, "manifest.json", MANIFEST_LIMIT_BYTES)
    if found is None or hashlib.sha256(found).hexdigest() != wanted.model:
        raise BadCommand(
            f"the server of this mesh does not have the model {wanted.model[:12]}: run shoal import on its machine, "
            "with the --store of shoal serve there"
        )


# --- status -----------------------------------------------------------------------------------------------


async def saved_shown(mesh: MeshMember) -> dict[str, Any]:
    """What models save by weights that they share, in bytes, as plain data; `unknown` are models whose manifest
    cannot be had.
    """
    state = mesh.view.state
    models = sorted({offer.model for offer in state.offers.values()})
    found = await asyncio.gather(*map(mesh.graph_manifest, models), return_exceptions=True)
    manifests: dict[str, GraphManifest] = {}
    for model, each in zip(models, found, strict=True):
        if isinstance(each, GraphManifest):
            manifests[model] = each
        elif not isinstance(each, PeerError | PlannerError):
            raise each
    answering: dict[str, Manifest] = {}
    for name, decoder in state.decoders.items():
        with suppress(PeerError, PlannerError):
            answering[decoder.model] = await mesh.decoder_manifest(name)
    saved = await asyncio.to_thread(saved_by, state, mesh.manifest, answering, manifests)
    known = manifests.keys() | answering.keys()
    every = {name: offer.model for name, offer in state.offers.items()}
    every |= {name: decoder.model for name, decoder in state.decoders.items()}
    unknown = sorted(name for name, model in every.items() if model not in known)
    return {**asdict(saved), "unknown": unknown}


def saved_lines(shown: dict[str, Any]) -> list[str]:
    """The same for people; nothing where nothing is saved."""
    parts = [
        f"{bytes_text(shown[f'{how}_bytes'])} {how}"
        for how in ("stored", "sent", "loaded")
        if shown[f"{how}_bytes"]
    ]
    return [f"weights that models share save {', '.join(parts)}"] if parts else []
