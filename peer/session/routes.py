"""Decides which peers one session uses: for each stage of a plan the primary or a standby, and who shadows it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from peer.state.generated.commands import PlanRecord, PlanStage
from peer.state.mesh_state import AWAY, MeshState

Order = Callable[[Sequence[str]], list[str]]  # candidates, the primary first, into the order of preference


@dataclass(frozen=True, slots=True)
class Route:
    """The peer at each stage, in pipeline order, and (stage, peer) of those that stand by for this session."""

    plan: int
    peers: tuple[str, ...]
    shadows: tuple[tuple[int, str], ...] = field(default=())


def choose(
    state: MeshState,
    plan: PlanRecord,
    gone: frozenset[str] = frozenset(),
    *,
    avoid: frozenset[str] = frozenset(),
    order: Order = list,
    standbys: bool = True,
    shadows: bool = True,
    loading: bool = False,
) -> Route | None:
    """The route over `plan` without peers that are `gone`; None when a stage has no other holder.

    Peers in `avoid` are used only where nobody else can; `order` (circuit breakers) decides among the others.
    `standbys` False: primaries only. `shadows`: one standby for each stage is named, one that nobody avoids first.
    `loading`: of a stage that nobody holds by the log, a standby that is to hold it is asked: it may hold it by now.
    """
    peers: list[str] = []
    spare: list[tuple[int, str]] = []
    for place, stage in enumerate(plan.stages):
        able = [peer for peer in holders(state, stage, gone) if peer not in gone]
        if loading and not able:
            able = [peer for peer in _standbys_here(state, stage) if peer not in gone]
        if not standbys:
            able = [peer for peer in able if peer == stage.primary]
        if not able:
            return None
        ranked = sorted(order(able), key=lambda peer: peer in avoid)  # stable
        peers.append(ranked[0])
        others = [peer for peer in holders(state, stage, gone) if peer != ranked[0]]
        if shadows and others:
            spare.append((place, min(others, key=lambda peer: (peer in gone, peer in avoid))))
    return Route(plan.version, tuple(peers), tuple(spare))


def holders(state: MeshState, stage: PlanStage, gone: frozenset[str] = frozenset()) -> list[str]:
    """The members that can serve `stage` now: its primary, if it is here, and the standbys that are ready. The lead of
    a team serves where all its helpers hold their slices and none of them is `gone`.
    """
    helped = gone.isdisjoint(stage.helpers) and all(state.holds(peer, stage) for peer in stage.helpers)
    return [
        peer
        for peer in dict.fromkeys((stage.primary, *stage.standbys))
        if state.holds(peer, stage) and (helped or peer != stage.primary)
    ]


def unserved(state: MeshState, plan: PlanRecord, gone: frozenset[str] = frozenset()) -> tuple[PlanStage, ...]:
    """The stages of `plan` that nobody can serve now without peers that are `gone`."""
    return tuple(stage for stage in plan.stages if gone.issuperset(holders(state, stage, gone)))


def standby_expected(state: MeshState, plan: PlanRecord) -> bool:
    """Whether each stage of `plan` that nobody can serve has a standby here, which then still loads it."""
    return all(_standbys_here(state, stage) for stage in unserved(state, plan))


def _standbys_here(state: MeshState, stage: PlanStage) -> list[str]:
    """Whether they hold it yet or not."""
    return [
        peer
        for peer in stage.standbys
        if (member := state.members.get(peer)) is not None and member.status not in AWAY
    ]


def placed(plan: PlanRecord | None, peers: Sequence[str]) -> tuple[tuple[int, int, str], ...]:
    """Which units of `plan` are computed where on a route over `peers`; empty when the plan is not known."""
    stages = plan.stages if plan is not None else ()
    return tuple((stage.first, stage.stop, peer) for stage, peer in zip(stages, peers, strict=False))
