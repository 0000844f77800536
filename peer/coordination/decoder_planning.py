"""What a further model that answers in words is planned with: what other models leave of each peer, and how fast it is.

Pure. The mesh's own model comes first. What is planned for a further one is planned as for that, with the memory that
all others leave; times are those that peers measured of units of the mesh's own model, by the work of each unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
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
from peer.state.version_negotiation import DECODERS
from planner.cost.graph_peers import flops_per_s
from planner.types import Unit

FIRST_VERSION: Final = 2**19  # of their plans, which no plan of the mesh's own model reaches
VERSIONS: Final = 2**18  # by the length of the log, so that another offer of a name begins with others
NANO: Final = 1e9


def planned_with(
    state: MeshState, name: str, units: Sequence[Unit], own: Sequence[Unit], speaks: Callable[[str], int]
) -> MeshState:
    """The state as the planner of that further model takes it. `units` are its own, `own` those that the members
    measured themselves with; `speaks(peer)`: its version of the protocol.
    """
    seen = seen_as(state, name)
    taken = taken_bytes(state, name)
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


def taken_bytes(state: MeshState, without: str = "") -> dict[str, int]:
    """What each peer holds, or is to hold, of all models but the further one that is called `without`."""
    found = plan_bytes((state.plan, state.proposed))
    for name, decoder in state.decoders.items():
        if name != without:
            for peer, size in plan_bytes(() if decoder.refused else (decoder.plan, decoder.proposed)).items():
                found[peer] = found.get(peer, 0) + size
    for offer in state.offers.values():
        for stage in offer.stages:
            for peer in (stage.primary, *stage.standbys):
                found[peer] = found.get(peer, 0) + stage.bytes
    return found


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
