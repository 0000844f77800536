"""Models of the store that a mesh is to run beside its own, as its log says them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from peer.errors import BadCommand
from peer.launch.stored_models import Kind, StoredModel
from peer.member.mesh_member import MeshMember
from peer.state.generated.commands import DecoderOffered, ModelOffered, Objective
from peer.state.member_commands import check_command
from peer.state.mesh_state import refusal
from planner.model.graph_manifest import GraphManifest, decode_graph_manifest
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from planner.types import WeightFormat

CONTEXT: Final = 2048  # tokens promised to each session unless told otherwise, or the model's if that is less

MAX_NAME: Final = 64
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.:+-]")

AnOffer = TypeVar("AnOffer", ModelOffered, DecoderOffered)


Offered = ModelOffered | DecoderOffered


@dataclass(frozen=True, slots=True)
class Room:
    """What a mesh promises of a model that answers in words. `context` None: CONTEXT tokens; never more than the model
    was trained for.
    """

    context: int | None = None
    sessions: int = 1
    objective: Objective = "latency"


def offers_of_store(
    store: Store, name: str, weights: WeightFormat, room: Room, called: str | None = None
) -> list[Offered]:
    """The offers of a model and of its encoder, where it has one, imported where the store does not have it, under its
    own name where it is not `called` otherwise. Raises ModelError, and BadCommand for a name that no offer may have.
    """
    from peer.launch.model_import import find_or_import_any  # importers, which status need not wait for

    return _offers(store, find_or_import_any(store, name, weights), room, called)


def graph_of_store(store: Store, name: str) -> tuple[str, GraphManifest]:
    """The id and the manifest of a model, imported where the store does not have it. Raises ModelError, StoreError."""
    from peer.launch.model_import import find_or_import_graph

    model = find_or_import_graph(store, name)
    return model, decode_graph_manifest(store.manifest_bytes(model))


def served_of_store(
    store: Store, names: Sequence[str], weights: WeightFormat, room: Room
) -> tuple[str | None, list[Offered]]:
    """Of the models of a mesh, imported where the store does not have them, the id of the first one that answers in
    words (None: none does), and the offers of the others. Raises as `offers_of_store`.
    """
    from peer.launch.model_import import find_or_import_any

    own: StoredModel | None = None
    offered: list[Offered] = []
    for name in names:
        found = find_or_import_any(store, name, weights)
        if found.kind is Kind.ANSWERS and own is None:
            own = found
        elif own is None or found.model_id != own.model_id:
            offered += _offers(store, found, room, None)
    if own is not None and own.beside and all(each.model != own.beside for each in offered):
        offered.append(_beside(store, own, own.name))
    return own.model_id if own is not None else None, offered


def _beside(store: Store, found: StoredModel, called: str) -> ModelOffered:
    """The offer of what makes rows for a model: of an encoder, under the name of the model `called` so; of what it sees
    with, under its own as far as an offer may have it.
    """
    if decode_manifest(store.manifest_bytes(found.model_id)).sight is None:
        return offer_of(found.beside, f"{called}.encoder")
    name = decode_graph_manifest(store.manifest_bytes(found.beside)).name
    return offer_of(found.beside, _NOT_IN_NAMES.sub("-", name)[-MAX_NAME:].lstrip("-._:+") or "sight")


def _offers(store: Store, found: StoredModel, room: Room, called: str | None) -> list[Offered]:
    if found.kind not in (Kind.ANSWERS, Kind.SPEECH):
        return [offer_of(found.model_id, called or found.name)]
    manifest = decode_manifest(store.manifest_bytes(found.model_id))
    context = min(room.context or CONTEXT, manifest.context)
    if manifest.speech is not None or manifest.source is not None:
        context = manifest.context  # its rows take their room, whatever was said of conversations
    parts: list[Offered] = [_beside(store, found, called or manifest.name)] if found.beside else []
    wanted = DecoderOffered(
        called or manifest.name,
        found.model_id,
        len(manifest.units),
        context,
        room.sessions,
        room.objective,
    )
    return [*parts, _checked(wanted)]


async def offer_beside(mesh: MeshMember, wanted: Offered) -> None:
    """Has the log say it, unless it does. Raises BadCommand for a name that is taken."""
    state = mesh.view.state
    known = state.decoders.get(wanted.name) or state.offers.get(wanted.name)
    if known is not None and known.model == wanted.model:
        return
    if why := refusal(mesh.view.state, wanted):
        raise BadCommand(why)
    await mesh.propose(wanted)


def offer_of(model: str, name: str) -> ModelOffered:
    """Raises BadCommand for a name that no offer may have."""
    return _checked(ModelOffered(model, name))


def _checked(wanted: AnOffer) -> AnOffer:
    try:
        check_command(wanted)
    except BadCommand:
        raise BadCommand(
            f"the model calls itself {wanted.name!r:.80}, which is no name of an offer: give one of letters, digits "
            "and _.:+- with --name"
        ) from None
    return wanted
