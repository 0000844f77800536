"""Which peer computes which units of a run, and which values therefore go where. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from peer.errors import BadCommand
from planner.model.graph_manifest import GraphManifest


@dataclass(frozen=True, slots=True)
class FlowStage:
    """Units [first, stop) on `peer`."""

    first: int
    stop: int
    peer: str


@dataclass(frozen=True, slots=True)
class FlowRoute:
    """What a run's stages take and give; values are places in the manifest's values.

    `needs`, `gives`: by stage, in the order of `stages`. `takers`: by value, the peers that need it and do not make it,
    the origin for outputs among them.
    """

    origin: str
    stages: tuple[FlowStage, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    needs: tuple[tuple[int, ...], ...]
    gives: tuple[tuple[int, ...], ...]
    takers: Mapping[int, tuple[str, ...]]
    makers: Mapping[int, str]  # by value: who makes it; the origin for inputs

    @property
    def peers(self) -> tuple[str, ...]:
        """Who computes, each once, in the order of their first stages."""
        return tuple(dict.fromkeys(stage.peer for stage in self.stages))


def flow_route(manifest: GraphManifest, stages: Sequence[FlowStage], origin: str) -> FlowRoute:
    """The route over `stages`, which are all units once and in order. Raises BadCommand."""
    at = 0
    for stage in stages:
        if stage.first != at or stage.stop <= at:
            raise BadCommand(
                f"expected stages that follow one another, got units {stage.first} to {stage.stop} at {at}"
            )
        at = stage.stop
    if at != len(manifest.units):
        raise BadCommand(f"expected stages for all {len(manifest.units)} units, got {at}")
    places = {value.name: place for place, value in enumerate(manifest.values)}
    needs = tuple(tuple(places[name] for name in manifest.needed(s.first, s.stop)) for s in stages)
    gives = tuple(tuple(places[name] for name in manifest.given(s.first, s.stop)) for s in stages)
    inputs, outputs = (tuple(places[name] for name in names) for names in (manifest.inputs, manifest.outputs))
    makers = dict.fromkeys(inputs, origin)
    for stage, made in zip(stages, gives, strict=True):
        makers |= dict.fromkeys(made, stage.peer)
    takers: dict[int, dict[str, None]] = {}
    for stage, taken in zip(stages, needs, strict=True):
        for value in taken:
            takers.setdefault(value, {})[stage.peer] = None
    for value in outputs:
        takers.setdefault(value, {})[origin] = None
    return FlowRoute(
        origin,
        tuple(stages),
        inputs,
        outputs,
        needs,
        gives,
        {value: tuple(peers) for value, peers in takers.items()},
        makers,
    )
