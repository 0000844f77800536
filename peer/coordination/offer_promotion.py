"""Decides who runs the units of an offered model at once when those who did are gone: whoever stands by for them.

Pure; the same in web_peer/src/coordination/offer_promotion.ts.
"""

from __future__ import annotations

from dataclasses import replace

from peer.state.generated.commands import ModelOffer, ModelPlaced, RunStage
from peer.state.mesh_state import AWAY, MeshState


def promoted(state: MeshState) -> ModelPlaced | None:
    """A model whose primaries are gone for which others stand by: these run it at once. None where there is none."""
    for name, offer in sorted(state.offers.items()):
        stages = tuple(_taken_over(state, stage) for stage in offer.stages)
        heirs = [new.primary for new, old in zip(stages, offer.stages, strict=True) if new is not old]
        if heirs:
            why = tuple(f"{heir} has taken over what was lost." for heir in dict.fromkeys(heirs))
            version = next_version(state, offer)
            return ModelPlaced(name, version, stages, offer.latency_us, offer.rate_milli, why)
    return None


def next_version(state: MeshState, offer: ModelOffer) -> int:
    """Above all that any placement under this name had: the log only grows."""
    return max(state.index, offer.version) + 1


def stands(state: MeshState, peer: str) -> bool:
    """Whether a peer is here, lends, and has measured itself."""
    member = state.members.get(peer)
    return member is not None and member.compute and member.status not in (*AWAY, "joining")


def _taken_over(state: MeshState, stage: RunStage) -> RunStage:
    there = [peer for peer in stage.standbys if stands(state, peer)]
    if stands(state, stage.primary) or not there:
        return stage
    return replace(stage, primary=there[0], standbys=tuple(there[1:]))
