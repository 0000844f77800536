"""What a further model that answers in words is planned with: what other models leave of each peer, and how fast it is.

Pure. The mesh's own model comes first. What is planned for a further one is planned as for that, with the memory that
all others leave; times are those that peers measured of units of the mesh's own model, by the work of each unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from peer.state.decoder_sight import seen_as
from peer.state.generated.commands import (
    DecoderActivated,
    DecoderCommand,
    DecoderPlanned,
    DecoderRefused,
    Member,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanRefused,
    Profile,
)
from peer.state.member_commands import Command
from peer.state.mesh_state import MeshState, planner_profile
from peer.state.plan_record import team_of
from peer.state.version_negotiation import DECODERS, SHARES
from planner.cost.graph_peers import flops_per_s
from planner.model.manifest import Manifest
from planner.model.same_units import loaded_parts, unit_contents
from planner.types import Holding, SharedRun, Unit

FIRST_VERSION: Final = 2**19  # of their plans, which no plan of the mesh's own model reaches
VERSIONS: Final = 2**18  # by the length of the log, so that another offer of a name begins with others
NANO: Final = 1e9
OWN: Final = ""  # the mesh's own model; no further one is called so


@dataclass(frozen=True, slots=True)
class Weights:
    """The units of a model that answers in words, each with a text that units of equal content share."""

    units: tuple[Unit, ...]
    contents: tuple[str, ...]

    def parts(self, first: int, stop: int, holding: Holding) -> dict[str, int]:
        """The parts of a stage that equal ones of other models are loaded with: bytes in memory, by content. A tab has
        a stage as a whole.
        """
        kinds = [unit.kind for unit in self.units]
        runs = loaded_parts(kinds, first, stop) if holding == "mapped" else ((first, stop),)
        return {
            " ".join(self.contents[start:end]): sum(
                unit.held_bytes(holding) for unit in self.units[start:end]
            )
            for start, end in runs
        }


def weights_of(manifest: Manifest) -> Weights:
    """Those of a manifest."""
    return Weights(manifest.planner_units(), unit_contents(manifest))


@dataclass(frozen=True, slots=True)
class Sharing:
    """What is known of weights that several models have. `models`: by the name of a further one, OWN for the mesh's
    own; `speaks(peer)`: its version of the protocol.
    """

    models: Mapping[str, Weights] = field(default_factory=dict)
    speaks: Callable[[str], int] = lambda _: 0

    def holding(self, state: MeshState, peer: str) -> Holding | None:
        """How a peer keeps weights, where it loads equal ones of several models once; else None."""
        member = state.members.get(peer)
        if member is None or member.profile is None or self.speaks(peer) < SHARES:
            return None
        return planner_profile(member).holding


ALONE: Final = Sharing()  # every model for itself


def planned_with(
    state: MeshState,
    name: str,
    units: Sequence[Unit],
    own: Sequence[Unit],
    speaks: Callable[[str], int],
    sharing: Sharing = ALONE,
) -> MeshState:
    """The state as the planner of that further model takes it. `units` are its own, `own` those that the members
    measured themselves with; `speaks(peer)`: its version of the protocol; `sharing`: as in `taken_bytes`.
    """
    seen = seen_as(state, name)
    taken = taken_bytes(state, name, sharing)
    members: dict[str, Member] = {}
    for peer, member in seen.members.items():
        profile = member.profile
        if profile is None or speaks(peer) < DECODERS:
            members[peer] = replace(member, compute=False)
        else:
            left = max(0, profile.memory_bytes - taken.get(peer, 0))
            members[peer] = replace(
                member, profile=replace(_paced(member, profile, units, own), memory_bytes=left)
            )
    version = seen.last_version or FIRST_VERSION + state.index % VERSIONS
    return replace(seen, members=members, last_version=version)


def taken_bytes(state: MeshState, without: str = "", sharing: Sharing = ALONE) -> dict[str, int]:
    """What each peer holds, or is to hold, of all models but the further one that is called `without`. What equal
    parts take on a peer that loads them once, as far as `sharing` knows, counts once.
    """
    found: dict[str, int] = {}
    for _, plans in _plans(state, without):
        for peer, size in plan_bytes(plans).items():
            found[peer] = found.get(peer, 0) + size
    for peer, parts in _parts(state, without, sharing).items():
        once = {key: size for (_, key), size in parts.items()}
        found[peer] -= sum(parts.values()) - sum(once.values())
    places = {
        (offer.model, stage.first, stage.stop, peer): stage.bytes
        for offer in state.offers.values()
        for stage in offer.stages
        for peer in (stage.primary, *stage.standbys)
    }
    for (*_, peer), size in places.items():
        found[peer] = found.get(peer, 0) + size
    return found


def shared_runs(state: MeshState, name: str, sharing: Sharing) -> tuple[SharedRun, ...]:
    """Where stages of that further model are loaded with equal ones of other models; () where they are nowhere."""
    weights, decoder = sharing.models.get(name), state.decoders.get(name)
    if weights is None or decoder is None:
        return ()
    loaded = _parts(state, name, sharing)
    mine = _runs((decoder.plan, decoder.proposed))
    wanted = {run for other, plans in _plans(state, name) if other in sharing.models for run in _runs(plans)}
    found: list[SharedRun] = []
    for peer, first, stop in sorted(wanted | mine):
        if stop <= len(weights.units) and (holding := sharing.holding(state, peer)) is not None:
            keys = {key for _, key in loaded.get(peer, ())}
            parts = weights.parts(first, stop, holding)
            size = sum(size for key, size in parts.items() if key in keys)
            found.append(SharedRun(peer, first, stop, size))
    return tuple(found) if any(each.bytes for each in found) else ()


def _plans(state: MeshState, without: str) -> list[tuple[str, tuple[PlanRecord | None, ...]]]:
    """The plans of each model that answers in words, the mesh's own first."""
    further = [
        (name, () if decoder.refused else (decoder.plan, decoder.proposed))
        for name, decoder in state.decoders.items()
        if name != without
    ]
    return [(OWN, (state.plan, state.proposed)), *further]


def _parts(state: MeshState, without: str, sharing: Sharing) -> dict[str, dict[tuple[str, str], int]]:
    """By peer: bytes of what it loads of models that are known, by the name of the model and by content."""
    found: dict[str, dict[tuple[str, str], int]] = {}
    for name, plans in _plans(state, without):
        weights = sharing.models.get(name)
        for peer, first, stop in () if weights is None else sorted(_runs(plans)):
            holding = sharing.holding(state, peer)
            if weights is not None and holding is not None and stop <= len(weights.units):
                for key, size in weights.parts(first, stop, holding).items():
                    found.setdefault(peer, {})[name, key] = size
    return found


def _runs(plans: Collection[PlanRecord | None]) -> set[tuple[str, int, int]]:
    """(peer, first, stop) of what these plans give peers; not of stages that a team computes, each peer a slice."""
    return {
        (peer, stage.first, stage.stop)
        for plan in plans
        if plan is not None
        for stage in plan.stages
        if not stage.helpers
        for peer in (stage.primary, *stage.standbys)
    }


def plan_bytes(plans: Collection[PlanRecord | None]) -> dict[str, int]:
    """What each peer needs for these plans of one model; what two of them give a peer counts once."""
    held: dict[tuple[str, int, int], int] = {}
    for plan in plans:
        for stage in plan.stages if plan is not None else ():
            for peer in (*team_of(stage), *stage.standbys):
                run = (peer, stage.first, stage.stop)
                held[run] = max(held.get(run, 0), stage.weight_bytes + stage.kv_bytes)
    found: dict[str, int] = {}
    for (peer, _, _), size in held.items():
        found[peer] = found.get(peer, 0) + size
    return found


def _paced(member: Member, profile: Profile, units: Sequence[Unit], own: Sequence[Unit]) -> Profile:
    """The same with the times of these units. A kind that both models have takes as much longer as there is more to
    compute; of others it is known by how fast the peer is on the whole.
    """
    wanted, measured = _flops(units), _flops(own)
    # Decoders run on what was measured, a GPU of a tab too, unlike models of graphs.
    rate = flops_per_s(planner_profile(member), "", {kind: _nearest(f) for kind, f in measured.items()})

    def times(table: Mapping[str, int]) -> dict[str, int]:
        found: dict[str, int] = {}
        for kind, flops in wanted.items():
            if kind in table and kind in measured:
                more = flops / measured[kind] if flops and measured[kind] else 1.0
                found[kind] = _nearest(table[kind] * more)
            elif table:
                found[kind] = _nearest(flops / rate * NANO)
        return found

    return replace(
        profile,
        decode_ns=times(profile.decode_ns),
        prefill_ns=times(profile.prefill_ns),
        batch_ns=times(profile.batch_ns),
    )


def _nearest(value: float) -> int:
    """The nearest whole number, the upper one of two: as a tab that leads has it."""
    return math.floor(value + 0.5)


def _flops(units: Sequence[Unit]) -> dict[str, float]:
    """Of a token in a unit of each kind, on the average."""
    every: dict[str, list[int]] = {}
    for unit in units:
        every.setdefault(unit.kind, []).append(unit.flops_per_token)
    return {kind: sum(flops) / len(flops) for kind, flops in every.items()}


def said_of(name: str, command: Command) -> DecoderCommand:
    """What a coordinator decides of its model, as the log takes it of the further model of that name. Raises TypeError
    for what is not about plans.
    """
    match command:
        case PlanProposed(plan):
            return DecoderPlanned(name, plan)
        case PlanActivated(version):
            return DecoderActivated(name, version)
        case PlanRefused(reason):
            return DecoderRefused(name, reason)
        case _:
            raise TypeError(f"expected a decision about plans, got {type(command).__name__}")
