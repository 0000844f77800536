"""What the models of a mesh save by weights that they share, as every member can reckon it from the log. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from peer.state.mesh_state import MeshState
from planner.model.blob_ref import BlobRef
from planner.model.graph_manifest import GraphManifest
from planner.model.manifest import Manifest
from planner.model.same_units import HeldUnits, Saved, same_units, saved

OWN: Final = ""  # the mesh's own model; no offer is called so


def saved_by(state: MeshState, own: Manifest | None, manifests: Mapping[str, GraphManifest]) -> Saved:
    """`manifests` by id of an offered model; an offer without one there is left out, as is a stage that its manifest
    does not have.
    """
    models: dict[str, Sequence[BlobRef]] = {}
    peers: dict[str, list[HeldUnits]] = {}
    if own is not None:
        models[OWN] = own.blobs(0, len(own.units))
        for stage in state.plan.stages if state.plan is not None else ():
            held = HeldUnits(OWN, own.blobs(stage.first, stage.stop), "", stage.weight_bytes)
            for peer in (stage.primary, *stage.standbys):
                peers.setdefault(peer, []).append(held)
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
