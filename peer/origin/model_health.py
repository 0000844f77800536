"""Which models of the mesh can answer or run as this peer sees it, and what the others wait for. Pure; Python alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from peer.session.routes import unserved
from peer.state.decoder_sight import seen_as
from peer.state.display_names import name_of, named, names
from peer.state.generated.commands import PlanStage
from peer.state.mesh_state import AWAY, MeshState
from peer.state.plan_record import team_of
from peer.state.readiness import why_not_ready

UNPLACED: Final = "the mesh has found no place for it yet"


@dataclass(frozen=True, slots=True)
class ModelHealth:
    """`model` is the id; `kind`: whether it answers in words or computes outputs of inputs; `why` it waits, "" where it
    does not.
    """

    name: str
    model: str
    kind: Literal["words", "arrays"]
    why: str


def healths(state: MeshState, lost: frozenset[str]) -> tuple[ModelHealth, ...]:
    """Of the mesh's own model, then of further ones that answer in words, then of the others; each by name. `lost`:
    members that this peer does not reach.
    """
    own = state.model
    found = [ModelHealth(own.name, own.model, "words", _why_silent(state, lost))] if own is not None else []
    for name, decoder in sorted(state.decoders.items()):
        found.append(ModelHealth(name, decoder.model, "words", _why_silent(seen_as(state, name), lost)))
    for name, offer in sorted(state.offers.items()):
        gone = [stage.primary for stage in offer.stages if not _there(state, stage.primary, lost)]
        why = _away(state, gone) if gone else ""
        if not offer.stages:
            why = named(offer.why[0], state.members) if offer.why else UNPLACED
        found.append(ModelHealth(name, offer.model, "arrays", why))
    return tuple(found)


def _why_silent(state: MeshState, lost: frozenset[str]) -> str:
    """Of the model that `state` has as its own."""
    serving = state.serving()
    if serving is None:
        plan = state.plan
        away = [] if plan is None else _absent(state, plan.stages, lost)
        # What the last planner run said, or that peers load, says more than who left the plan before.
        return (
            _away(state, away)
            if away and not state.refused and state.proposed is None
            else why_not_ready(state)
        )
    stages = unserved(state, serving, lost)
    return _away(state, [p for stage in stages for p in _absent(state, (stage,), lost) or [stage.primary]])


def _absent(state: MeshState, stages: Iterable[PlanStage], lost: frozenset[str]) -> list[str]:
    """Who of those that compute these stages is not there."""
    return [peer for stage in stages for peer in team_of(stage) if not _there(state, peer, lost)]


def _there(state: MeshState, peer: str, lost: frozenset[str]) -> bool:
    member = state.members.get(peer)
    return member is not None and member.status not in AWAY and peer not in lost


def _away(state: MeshState, peers: Iterable[str]) -> str:
    called = names(state.members)
    gone = ", ".join(name_of(peer, called) for peer in dict.fromkeys(peers))
    return f"not reached of its peers: {gone}" if gone else ""


def answers(found: Iterable[ModelHealth], asked: str | None, own: bool) -> bool | None:
    """Whether the model `asked`, a name or an id, can answer; None: there is none. Without one that is asked: the
    mesh's own, where there is one (`own`), else any.
    """
    each = list(found)
    if asked is not None:
        fitting = [health for health in each if asked in (health.name, health.model)]
        return any(not health.why for health in fitting) if fitting else None
    return any(not health.why for health in (each[:1] if own else each))
