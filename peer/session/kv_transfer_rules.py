"""Decides what of a cache goes from whom to whom when an answer moves: which places of the old route hold which units,
what `kv_copy` asks, and what is believed of its answer. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from peer.errors import BadCommand
from peer.session.seat import Run_
from peer.state.generated.commands import PlanRecord
from peer.state.mesh_state import MeshState
from peer.state.plan_record import team_of
from peer.wire.generated.requests import KvCopyAnswer, KvCopyRequest
from planner.model.manifest import KvPair, Manifest

REMEMBERED_PLANS: Final = 8  # an answer may still go over one that was replaced


@dataclass(frozen=True, slots=True)
class Source:
    """Somebody who holds `run` caches what is wanted of `units`, which lie inside."""

    peer: str
    run: Run_
    units: Run_


@dataclass(frozen=True, slots=True)
class Wish:
    """What a `kv_copy` asks for."""

    session: bytes
    run: Run_
    units: Run_


@dataclass(frozen=True, slots=True)
class Told:
    """How many positions the other one caches, and the hash of what it gives, b"" where that is nothing."""

    have: int
    sha256: bytes


def remembered(plans: Sequence[PlanRecord], state: MeshState) -> list[PlanRecord]:
    """The plans that answers go over, with the newest ones of `state`."""
    known = {plan.version: plan for plan in plans}
    known |= {plan.version: plan for plan in (state.plan, state.proposed) if plan is not None}
    return [known[version] for version in sorted(known)[-REMEMBERED_PLANS:]]


def sources_of(plan: PlanRecord | None, peers: Sequence[str], run: Run_) -> list[Source] | None:
    """Who caches what of units `run`, of the places of `plan` that `peers` hold. None where that is not its route, or
    where it is not whole.
    """
    if plan is None or len(plan.stages) != len(peers):
        return None
    parts = (
        (peer, stage, (max(stage.first, run[0]), min(stage.stop, run[1])))
        for peer, stage in zip(peers, plan.stages, strict=True)
    )
    found = [
        Source(peer, (stage.first, stage.stop), units) for peer, stage, units in parts if units[0] < units[1]
    ]
    covered = sum(source.units[1] - source.units[0] for source in found)
    return found if covered == run[1] - run[0] else None


def first_given(manifest: Manifest, pair: KvPair, have: int) -> int:
    """Where a copy of `have` positions begins in the arrays of a pair: those with a window give no older ones."""
    window = manifest.window
    return 0 if window is None or pair.window is None else window.first_kept(have)


def pairs_of(manifest: Manifest, units: Run_) -> list[KvPair]:
    """The pairs of key and value arrays that `units` keep, in order."""
    return [pair for unit in manifest.units[slice(*units)] for pair in unit.kv]


def copy_shapes(manifest: Manifest, units: Run_, have: int) -> dict[str, tuple[int, int, int]]:
    """By array, the shape of what is given of `have` positions: (heads, positions, head_size)."""
    return {
        name: (pair.heads, have - first_given(manifest, pair, have), pair.head_size)
        for pair in pairs_of(manifest, units)
        for name in pair.names
    }


def places_taken(
    manifest: Manifest, parts: Sequence[tuple[Run_, int]]
) -> tuple[int, dict[str, slice]] | None:
    """How many positions can be taken of copies of units that have so many, and by array which of its rows these are.
    None where nothing can: windows of one copy begin behind what those of another need.
    """
    count = min(have for _, have in parts)
    firsts = [
        (pair, first_given(manifest, pair, have), have)
        for units, have in parts
        for pair in pairs_of(manifest, units)
    ]
    window, begin = manifest.window, max((first for _, first, _ in firsts), default=0)
    if not count or (window is not None and not window.holds(begin, count)):
        return None
    return count, {
        name: slice(begin - first if pair.window is not None else 0, count - first)
        for pair, first, _ in firsts
        for name in pair.names
    }


def wish_request(wish: Wish) -> KvCopyRequest:
    """Returns the request `kv_copy`."""
    return KvCopyRequest(wish.session.hex(), *wish.units, *wish.run)


def wish_of(said: KvCopyRequest, peer: str, state: MeshState) -> Wish:
    """What `peer` asks for. Raises BadCommand: it gets nothing but of units that a plan of `state` gives it."""
    units, run = (said.first, said.stop), (said.from_, said.to)
    inside = run[0] <= units[0] < units[1] <= run[1]
    given = (
        stage.first <= units[0] and units[1] <= stage.stop and peer in (*team_of(stage), *stage.standbys)
        for plan in (state.plan, state.proposed)
        for stage in (plan.stages if plan is not None else ())
    )
    if not inside or not any(given):
        raise BadCommand("kv_copy: expected units that a plan gives the peer that asks")
    return Wish(bytes.fromhex(said.session), run, units)


def told_of(answer: KvCopyAnswer, most: int) -> Told:
    """`most`: positions that the session may have. Raises BadCommand."""
    if answer.have > most:
        raise BadCommand(f"have: expected at most {most} cached positions, got {answer.have}")
    return Told(answer.have, bytes.fromhex(answer.sha256))
