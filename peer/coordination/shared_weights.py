"""What the models of a mesh save by weights that they share, as every member can reckon it from the log. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from peer.state.generated.commands import PlanStage
from peer.state.mesh_state import MeshState
from peer.state.plan_record import whole_holders
from planner.cost.graph_peers import IN_TABS
from planner.model.blob_ref import BlobRef
from planner.model.graph_manifest import GraphManifest
from planner.model.manifest import Manifest, ManifestUnit
from planner.model.same_units import HeldUnits, Saved, same_units, saved

OWN: Final = ""  # the mesh's own model; no offer is called so


def saved_by(
    state: MeshState,
    own: Manifest | None,
    further: Mapping[str, Manifest],
    manifests: Mapping[str, GraphManifest],
) -> Saved:
    """`further` and `manifests` by id of a further model that answers in words and of an offered one; what has none
    there is left out, as is a stage that its manifest does not have.
    """
    models: dict[str, Sequence[BlobRef]] = {}
    peers: dict[str, list[HeldUnits]] = {}
    plans = [(OWN, own, state.plan)]
    plans += [(name, further.get(each.model), each.plan) for name, each in sorted(state.decoders.items())]
    for name, decoder, plan in plans:
        if decoder is None:
            continue
        models[name] = decoder.blobs(0, len(decoder.units))
        for stage in plan.stages if plan is not None else ():
            if stage.stop > len(decoder.units):
                continue
            for peer in whole_holders(stage):
                in_tab = _computes_in_tab(state, peer)
                peers.setdefault(peer, []).extend(_held(name, decoder, stage, in_tab=in_tab))
    for name, offer in sorted(state.offers.items()):
        manifest = manifests.get(offer.model)
        if manifest is None:
            continue
        models[name] = manifest.blobs(0, len(manifest.units))
        for run in offer.stages:
            if run.stop > len(manifest.units):
                continue
            held = HeldUnits(
                name,
                manifest.blobs(run.first, run.stop),
                same_units(manifest, run.first, run.stop),
                sum(unit.resident_bytes for unit in manifest.units[run.first : run.stop]),
            )
            for peer in (run.primary, *run.standbys):
                peers.setdefault(peer, []).append(held)
    return saved(models, peers.values())


def _computes_in_tab(state: MeshState, peer: str) -> bool:
    member = state.members.get(peer)
    return member is not None and member.profile is not None and member.profile.provider in IN_TABS


def _held(name: str, manifest: Manifest, stage: PlanStage, *, in_tab: bool) -> list[HeldUnits]:
    """The parts of a stage of a decoder, of which a process loads equal ones once: all units between the ends, and the
    head. Rows of an embedding are read where they lie. A tab loads each stage for itself.
    """
    units = manifest.units
    body = stage.first + (units[stage.first].kind == "embed")
    head = max(body, stage.stop - (units[stage.stop - 1].kind == "head"))
    found: list[HeldUnits] = []
    for first, stop in ((stage.first, body), (body, head), (head, stage.stop)):
        if first < stop:
            key = "" if in_tab or first < body else _same(manifest, units[first:stop])
            size = sum(unit.resident_bytes for unit in units[first:stop])
            found.append(HeldUnits(name, manifest.blobs(first, stop), key, size))
    return found


def _same(manifest: Manifest, units: Sequence[ManifestUnit]) -> str:
    """The same text for units whose graphs and weights a process makes equal sessions of."""
    parts = [(unit.graph.sha256, unit.blob.sha256, unit.tensors, unit.kv) for unit in units]
    shape = (manifest.weights, manifest.hidden, manifest.vocab, manifest.window, len(manifest.rotary))
    return hashlib.sha256(repr((shape, parts)).encode()).hexdigest()
