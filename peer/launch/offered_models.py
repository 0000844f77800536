"""Models of the store that a mesh is to run beside its own, as its log says them."""

from __future__ import annotations

from collections.abc import Sequence

from peer.errors import BadCommand
from peer.launch.stored_models import Kind, StoredModel
from peer.member.mesh_member import MeshMember
from peer.state.generated.commands import ModelOffered
from peer.state.member_commands import check_command
from peer.state.mesh_state import refusal
from planner.model.graph_manifest import GraphManifest, decode_graph_manifest
from planner.model.store import Store
from planner.types import WeightFormat


def offer_of_store(store: Store, name: str, called: str | None = None) -> ModelOffered:
    """The offer of a model, imported where the store does not have it, under its own name where it is not `called`
    otherwise. Raises ModelError, and BadCommand for a name that no offer may have.
    """
    model, manifest = graph_of_store(store, name)
    return offer_of(model, called or manifest.name)


def graph_of_store(store: Store, name: str) -> tuple[str, GraphManifest]:
    """The id and the manifest of a model, imported where the store does not have it. Raises ModelError, StoreError."""
    from peer.launch.model_import import find_or_import_graph  # importers, which status need not wait for

    model = find_or_import_graph(store, name)
    return model, decode_graph_manifest(store.manifest_bytes(model))


def served_of_store(
    store: Store, names: Sequence[str], weights: WeightFormat
) -> tuple[str | None, list[ModelOffered]]:
    """Of the models of a mesh, imported where the store does not have them, the id of the one that answers in words
    (None: none does), and the offers of the others. Raises as `offer_of_store`, and BadCommand for a second one that
    answers.
    """
    from peer.launch.model_import import find_or_import_any

    words: StoredModel | None = None
    offered: list[ModelOffered] = []
    for name in names:
        found = find_or_import_any(store, name, weights)
        if found.kind is not Kind.ANSWERS:
            offered.append(offer_of(found.model_id, found.name))
        elif words is None or words.model_id == found.model_id:
            words = found
        else:
            raise BadCommand(
                f"{words.name} and {found.name} both answer in words, and a mesh has one model that does: serve the "
                "other in a mesh of its own"
            )
    return words.model_id if words is not None else None, offered


async def offer_beside(mesh: MeshMember, wanted: ModelOffered) -> None:
    """Has the log say it, unless it does. Raises BadCommand for a name that is taken."""
    known = mesh.view.state.offers.get(wanted.name)
    if known is not None and known.model == wanted.model:
        return
    if why := refusal(mesh.view.state, wanted):
        raise BadCommand(why)
    await mesh.propose(wanted)


def offer_of(model: str, name: str) -> ModelOffered:
    """Raises BadCommand for a name that no offer may have."""
    wanted = ModelOffered(model, name)
    try:
        check_command(wanted)
    except BadCommand:
        raise BadCommand(
            f"the model calls itself {name!r:.80}, which is no name of an offer: give one of letters, digits and "
            "_.:+- with --name"
        ) from None
    return wanted
