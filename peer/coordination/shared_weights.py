"""What the models of a mesh save by weights that they share, as every member can reckon it from the log. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from peer.coordination.decoder_planning import OWN
from peer.state.generated.commands import PlanStage
from peer.state.mesh_state import MeshState, planner_profile
from peer.state.plan_record import whole_holders
from planner.model.blob_ref import BlobRef
from planner.model.graph_manifest import GraphManifest
from planner.model.manifest import Manifest
from planner.model.same_units import HeldUnits, Saved, loaded_parts, same_units, saved, unit_contents
from planner.types import Holding


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
                parts = _held(name, decoder, stage, _holding(state, peer))
                peers.setdefault(peer, []).extend(parts)
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


def _holding(state: MeshState, peer: str) -> Holding:
    member = state.members.get(peer)
    return "mapped" if member is None or member.profile is None else planner_profile(member).holding


def _held(name: str, manifest: Manifest, stage: PlanStage, holding: Holding) -> list[HeldUnits]:
    """The parts of a stage of a decoder, of which a process loads equal ones once, and a tab stages as a whole."""
    units, contents = manifest.planner_units(), unit_contents(manifest)
    whole, kinds = ((stage.first, stage.stop),), [unit.kind for unit in units]
    shared = loaded_parts(kinds, stage.first, stage.stop) if holding == "mapped" else whole
    borders = sorted({stage.first, stage.stop, *(border for part in shared for border in part)})
    found: list[HeldUnits] = []
    for part in pairwise(borders):
        key = "".join(contents[slice(*part)]) if part in shared else ""
        size = sum(unit.held_bytes(holding) for unit in units[slice(*part)])
        found.append(HeldUnits(name, manifest.blobs(*part), key, size))
    return found
