"""What every member knows alike: one log of commands, applied by one function.

Pure. The coordinator appends commands; members receive them in order (ENTRY frames) or as a snapshot, and
`apply` builds the same `MeshState` everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, assert_never, cast

from peer.errors import BadCommand
from peer.mesh_commands import (
    COMMANDS,
    MAX_TEXT,
    Command,
    LinkFacts,
    Member,
    MemberDraining,
    MemberJoined,
    MemberLeaving,
    MemberLeft,
    MemberMeasured,
    MemberPaused,
    MemberStatus,
    ModelChosen,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanRefused,
    PlanStage,
    Profile,
    ProtectionChosen,
    UnitsHeld,
    build,
    decode_command,
    dump,
    encode_command,
    load,
    to_json,
)
from peer.protection import STANDARD, Protection
from planner.types import Holding, Link, PeerProfile, Plan, Stage, UnitKind

__all__ = [
    "AWAY",
    "COMMANDS",
    "MAX_TEXT",
    "MICRO",
    "Command",
    "LinkFacts",
    "Member",
    "MemberDraining",
    "MemberJoined",
    "MemberLeaving",
    "MemberLeft",
    "MemberMeasured",
    "MemberPaused",
    "MemberStatus",
    "MeshState",
    "ModelChosen",
    "PlanActivated",
    "PlanProposed",
    "PlanRecord",
    "PlanRefused",
    "PlanStage",
    "Profile",
    "Protection",
    "ProtectionChosen",
    "UnitsHeld",
    "apply",
    "decode_command",
    "decode_state",
    "encode_command",
    "encode_state",
    "plan_record",
    "planner_link",
    "planner_profile",
]

AWAY: Final[frozenset[MemberStatus]] = frozenset({"paused", "leaving"})  # no session may use such a member
MICRO = 1_000_000
_HOLDINGS: Mapping[str, Holding] = {
    "wasm": "wide",
    "webgpu": "packed",
}  # of tabs; processes map their weights


@dataclass(frozen=True, slots=True)
class MeshState:
    """The result of applying every command up to `index`. `proposed` is a plan whose peers still load."""

    term: int = 0
    index: int = 0
    model: ModelChosen | None = None
    members: Mapping[str, Member] = field(default_factory=dict)
    links: tuple[LinkFacts, ...] = ()
    plan: PlanRecord | None = None
    proposed: PlanRecord | None = None
    last_version: int = 0
    refused: str = ""  # why there is no plan, when there is none
    protection: Protection = STANDARD

    def ready_for(self, plan: PlanRecord) -> bool:
        """Whether every primary of `plan` holds its units; standbys may still load."""
        return all(
            (member := self.members.get(stage.primary)) is not None
            and member.status not in AWAY
            and (stage.first, stage.stop) in member.held
            for stage in plan.stages
        )

    def serving(self) -> PlanRecord | None:
        """The active plan when all its primaries are here, else None."""
        return self.plan if self.plan is not None and self.ready_for(self.plan) else None


def apply(state: MeshState, command: Command) -> MeshState:
    """The state after `command`. Commands about members that are gone change nothing but the index."""
    state = replace(state, index=state.index + 1)
    match command:
        case ModelChosen():
            return replace(state, model=command, plan=None, proposed=None, refused="")
        case MemberJoined():
            member = Member(command.peer, command.name, command.compute, "joining")
            return replace(state, members={**state.members, command.peer: member})
        case MemberMeasured():
            return _measured(state, command)
        case PlanProposed():
            return replace(state, proposed=command.plan, last_version=command.plan.version, refused="")
        case UnitsHeld():
            return _with_member(state, command.peer, held=command.held)
        case PlanActivated():
            if state.proposed is None or state.proposed.version != command.version:
                return state
            return replace(state, plan=state.proposed, proposed=None, refused="")
        case PlanRefused():
            return replace(state, proposed=None, refused=command.reason)
        case MemberDraining():
            return _lends_less(state, command, "draining", of=("measured", "draining"))
        case MemberPaused():
            return _lends_less(state, command, "paused", of=("joining", "measured", "draining", "paused"))
        case MemberLeaving():
            return _with_member(state, command.peer, status="leaving", reason="")
        case MemberLeft():
            members = {peer: member for peer, member in state.members.items() if peer != command.peer}
            links = tuple(link for link in state.links if command.peer not in (link.src, link.dst))
            return replace(state, members=members, links=links)
        case ProtectionChosen():
            return replace(state, protection=command.protection)
        case _:
            assert_never(command)


def _with_member(state: MeshState, peer: str, **changes: Any) -> MeshState:
    member = state.members.get(peer)
    if member is None:
        return state
    return replace(state, members={**state.members, peer: replace(member, **changes)})


def _lends_less(
    state: MeshState,
    command: MemberDraining | MemberPaused,
    status: MemberStatus,
    of: tuple[MemberStatus, ...],
) -> MeshState:
    member = state.members.get(command.peer)
    if member is None or not member.compute or member.status not in of:
        return state  # it lends nothing anyway
    return _with_member(state, command.peer, status=status, reason=command.reason)


def _measured(state: MeshState, command: MemberMeasured) -> MeshState:
    if command.peer not in state.members:
        return state
    fresh = {(link.src, link.dst): link for link in state.links}
    fresh.update({(link.src, link.dst): link for link in command.links if link.src != link.dst})
    links = tuple(fresh[key] for key in sorted(fresh))
    status = "leaving" if state.members[command.peer].status == "leaving" else "measured"
    member = _with_member(state, command.peer, profile=command.profile, status=status, reason="")
    return replace(member, links=links)


# --- to and from the planner ------------------------------------------------------------------------------


def planner_profile(member: Member) -> PeerProfile:
    """`member`'s profile in the planner's units. Raises BadCommand for a member that has not measured."""
    profile = member.profile
    if profile is None:
        raise BadCommand(f"peer {member.peer} has not measured itself yet")

    def seconds(table: Mapping[str, int]) -> dict[UnitKind, float]:
        return {cast(UnitKind, kind): ns / 1e9 for kind, ns in table.items()}

    return PeerProfile(
        peer=member.peer,
        memory_bytes=profile.memory_bytes,
        overhead_bytes=profile.overhead_bytes,
        decode_s=seconds(profile.decode_ns),
        prefill_s=seconds(profile.prefill_ns),
        step_s=profile.step_ns / 1e9,
        batch_s=seconds(profile.batch_ns),
        holding=_HOLDINGS.get(profile.provider, "mapped"),
    )


def planner_link(link: LinkFacts) -> Link:
    """`link` in the planner's units."""
    return Link(
        link.src, link.dst, link.rtt_us / MICRO, float(max(1, link.bytes_per_s)), link.overhead_us / MICRO
    )


def plan_record(plan: Plan, version: int) -> PlanRecord:
    """The planner's answer as a numbered record for the log."""
    return PlanRecord(
        version=version,
        stages=tuple(_plan_stage(stage) for stage in plan.stages),
        predicted_token_us=round(plan.decode_s * MICRO),
        predicted_rate_milli=round(plan.tokens_per_s * 1000),
        why=tuple(sentence[:MAX_TEXT] for sentence in plan.why),
    )


def _plan_stage(stage: Stage) -> PlanStage:
    return PlanStage(
        stage.first,
        stage.stop,
        stage.peer,
        stage.standbys,
        stage.weight_bytes,
        stage.kv_bytes,
        stage.overhead_bytes,
    )


# --- wire -------------------------------------------------------------------------------------------------


def encode_state(state: MeshState) -> bytes:
    """Canonical JSON of a whole state, for a member that joins."""
    return dump(to_json(state))


def decode_state(data: bytes) -> MeshState:
    """The state in `data`. Raises BadCommand naming what was expected."""
    return cast(MeshState, build(MeshState, load(data), "snapshot"))
