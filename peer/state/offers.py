"""Decides which models a mesh runs beside its own, under which names, and where their units run.

Pure; the same in web_peer/src/state/offers.ts. What these units are stands in the manifest of each model, which the
log does not have: it says runs of units [first, stop) and who holds them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, assert_never

from peer.state.generated.commands import (
    MAX_MODELS,
    ModelOffer,
    ModelOffered,
    ModelPlaced,
    ModelWithdrawn,
    OfferCommand,
    RunStage,
    model_offer_codec,
)
from peer.wire.json_codec import Codec, table

Offers = Mapping[str, ModelOffer]  # by name


def offering(offers: Offers, taken: Collection[str], command: OfferCommand) -> Offers | str:
    """The offers after `command`, or why it changes nothing. `taken`: the names of models that answer in words."""
    match command:
        case ModelOffered(model, name):
            if name in taken or name in offers:
                return f"a model of this mesh is called {name} already: offer it under another name"
            if len(offers) >= MAX_MODELS:
                return f"{MAX_MODELS} models are offered, which is the most; withdraw one"
            return {**offers, name: ModelOffer(model)}
        case ModelWithdrawn(name):
            if name not in offers:
                return f"no model is offered under the name {name}"
            return without(offers, name)
        case ModelPlaced(name, version, stages):
            offer = offers.get(name)
            if offer is None:
                return f"no model is offered under the name {name}"
            if version <= offer.version:
                return f"placement {version} of {name} is not newer than {offer.version}"
            if not _in_order(stages):
                return "expected stages that hold units from 0 on, each once, in order"
            placed = replace(
                offer,
                version=version,
                stages=stages,
                latency_us=command.latency_us,
                rate_milli=command.rate_milli,
                why=command.why,
            )
            return {**offers, name: placed}
        case _:
            assert_never(command)


def without(offers: Offers, name: str) -> Offers:
    """The offers but that of this name."""
    if name not in offers:
        return offers
    return {each: offer for each, offer in offers.items() if each != name}


def _in_order(stages: tuple[RunStage, ...]) -> bool:
    borders = (0, *(stage.stop for stage in stages))
    return all(
        stage.first == first and stage.stop > first for first, stage in zip(borders, stages, strict=False)
    )


# --- wire -------------------------------------------------------------------------------------------------

offers_codec: Final[Codec[Offers]] = table(model_offer_codec, MAX_MODELS)
