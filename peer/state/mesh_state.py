"""What every member knows alike: one log of commands, applied by one function.

Pure. The coordinator appends commands; members receive them in order (ENTRY frames) or as a snapshot, and
`apply` builds the same `MeshState` everywhere. A state is never changed: what did not change is shared with the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, assert_never, cast

from peer.errors import BadCommand
from peer.limits import MAX_TEXT
from peer.state.conversations import Conversations, conversations_codec, converse
from peer.state.decoders import Decoders, deciding, decoders_codec, unheld, without_decoder
from peer.state.display_names import name_fault
from peer.state.failure_domains import Surroundings
from peer.state.fairness import Fairness, account_fairly, fairness_codec, settle
from peer.state.generated.commands import (
    MAX_ADDRESSES,
    MAX_LINKS,
    MAX_TRANSACTIONS,
    ConversationCommand,
    CutsFixed,
    DecoderCommand,
    FairnessCommand,
    LinkFacts,
    Member,
    MemberDraining,
    MemberJoined,
    MemberLeaving,
    MemberLeft,
    MemberMeasured,
    MemberPaused,
    MemberRenamed,
    MemberStatus,
    ModelChosen,
    ModelWithdrawn,
    OfferCommand,
    People,
    PeopleCommand,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanRefused,
    PlanStage,
    PlanWished,
    Protection,
    ProtectionChosen,
    SignalingListed,
    Skipped,
    Standby,
    StandbyReady,
    Transaction,
    TransactionBegun,
    TransactionEnded,
    UnitsHeld,
    WorkRecorded,
    address_pattern,
    link_facts_codec,
    member_codec,
    model_chosen_codec,
    people_codec,
    plan_record_codec,
    plan_wished_codec,
    protection_codec,
    standby_codec,
    transaction_codec,
)
from peer.state.member_commands import (
    Command,
    UnknownCommand,
    decode_command,
)
from peer.state.offers import Offers, offering, offers_codec, without
from peer.state.plan_alternatives import choice_records
from peer.state.plan_record import slice_of, team_fault, team_of
from peer.state.protection import STANDARD
from peer.state.roles import govern
from peer.state.upkeep import begun, bounded_skipped_codec, ended, seen, skip
from peer.state.work_ledger import Ledger, ledger_codec
from peer.wire.json_codec import checksum, dump, listed, load, maybe, record, table, text, uint
from planner.types import Holding, Link, PeerFacts, PeerProfile, Plan, Stage, UnitKind

AWAY: Final[frozenset[MemberStatus]] = frozenset({"paused", "leaving"})  # no session may use such a member
MICRO = 1_000_000
CONVICTED: Final = "two peers found that its results are wrong"
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
    people: People = field(default_factory=People)
    conversations: Conversations = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    standbys: Mapping[str, Standby] = field(default_factory=dict)
    transactions: tuple[Transaction, ...] = ()
    signaling: tuple[str, ...] = ()  # addresses where peers meet, the best first
    cuts: tuple[int, ...] | None = None  # borders of stages fixed by hand; None: the planner decides
    incarnations: Mapping[str, int] = field(default_factory=dict)  # the highest, also of peers that left
    skipped: Skipped = field(default_factory=Skipped)
    fairness: Fairness = field(default_factory=Fairness)
    wish: PlanWished | None = None  # None: the strategy `optimal`, by the model's objective
    offers: Offers = field(default_factory=dict)  # models that run beside `model`, by name
    decoders: Decoders = field(default_factory=dict)  # those of them that answer in words, by name

    def holds(self, peer: str, stage: PlanStage) -> bool:
        """Whether `peer` is here with what `stage` gives it: its slice, where it is of the stage's team, or else all of
        the units.
        """
        member = self.members.get(peer)
        if member is None or member.status in AWAY:
            return False
        part = slice_of(stage, peer)
        return (stage.first, stage.stop) in member.held if part is None else part in member.slices

    def ready_for(self, plan: PlanRecord) -> bool:
        """Whether every primary of `plan` holds its units, and every member of a team its slice; standbys may still
        load.
        """
        return all(self.holds(peer, stage) for stage in plan.stages for peer in team_of(stage))

    def serving(self) -> PlanRecord | None:
        """The active plan when all its primaries, and the helpers of teams, are here, else None."""
        return self.plan if self.plan is not None and self.ready_for(self.plan) else None


def apply(state: MeshState, command: Command) -> MeshState:
    """The state after `command`. One that has no effect, as about a member that is gone, changes only the index."""
    changed = _changed(state, command)
    return replace(state if isinstance(changed, str) else changed, index=state.index + 1)


def apply_entry(state: MeshState, data: bytes) -> MeshState:
    """The state after a committed entry, whatever its bytes are: what is no command is counted and skipped."""
    try:
        return apply(state, decode_command(data))
    except BadCommand:
        skipped = replace(state.skipped, broken=state.skipped.broken + 1)
        return replace(state, index=state.index + 1, skipped=skipped)


def refusal(state: MeshState, command: Command) -> str:
    """Why `command` would have no effect now, for people; "" when it has one. Asked before it is proposed."""
    changed = _changed(state, command)
    return changed if isinstance(changed, str) else ""


def _changed(state: MeshState, command: Command) -> MeshState | str:
    """The state with what `command` changes, or why it changes nothing."""
    if isinstance(command, ConversationCommand):
        conversations = converse(state.conversations, command)
        return (
            conversations if isinstance(conversations, str) else replace(state, conversations=conversations)
        )
    if isinstance(command, PeopleCommand):
        people = govern(state.people, command)
        return people if isinstance(people, str) else replace(state, people=people)
    if isinstance(command, FairnessCommand):
        settled = settle(state.ledger, state.fairness, command)
        return settled if isinstance(settled, str) else _settled(state, *settled)
    if isinstance(command, ModelWithdrawn) and command.name in state.decoders:
        return replace(state, decoders=without_decoder(state.decoders, command.name))
    own = (state.model.name,) if state.model is not None else ()
    if isinstance(command, OfferCommand):
        offers = offering(state.offers, (*own, *state.decoders), command)
        return offers if isinstance(offers, str) else replace(state, offers=offers)
    if isinstance(command, DecoderCommand):
        decoders = deciding(state.decoders, (*own, *state.offers), state.members, command)
        return decoders if isinstance(decoders, str) else replace(state, decoders=decoders)
    match command:
        case ModelChosen():
            return _chosen(state, command)
        case MemberJoined():
            return _joined(state, command)
        case MemberMeasured():
            return _measured(state, command)
        case PlanProposed():
            fault = team_fault(command.plan, state.members)
            if fault:
                return fault
            return replace(state, proposed=command.plan, last_version=command.plan.version, refused="")
        case UnitsHeld():
            return _with_member(state, command.peer, held=command.held, slices=command.slices)
        case PlanActivated():
            return _activated(state, command.version)
        case PlanRefused():
            return replace(state, proposed=None, refused=command.reason)
        case MemberDraining():
            return _lends_less(state, command, "draining", of=("measured", "draining"))
        case MemberPaused():
            return _lends_less(state, command, "paused", of=("joining", "measured", "draining", "paused"))
        case MemberRenamed():
            return name_fault(command.name) or _with_member(state, command.peer, name=command.name)
        case MemberLeaving():
            return _with_member(state, command.peer, status="leaving", reason="")
        case MemberLeft():
            return _left(state, command.peer)
        case ProtectionChosen():
            return replace(state, protection=command.protection)
        case WorkRecorded():
            counted = account_fairly(state.ledger, state.fairness, command)
            return counted if isinstance(counted, str) else _settled(state, *counted)
        case StandbyReady():
            return _ready(state, command)
        case TransactionBegun():
            transactions = begun(state.transactions, command)
            return (
                transactions if isinstance(transactions, str) else replace(state, transactions=transactions)
            )
        case TransactionEnded():
            transactions = ended(state.transactions, command)
            return (
                transactions if isinstance(transactions, str) else replace(state, transactions=transactions)
            )
        case SignalingListed():
            return replace(state, signaling=command.addresses)
        case CutsFixed():
            return replace(state, cuts=command.cuts)
        case PlanWished():
            return replace(state, wish=command)
        case UnknownCommand():
            return replace(state, skipped=skip(state.skipped, command.body))
        case _:
            assert_never(command)


def _chosen(state: MeshState, command: ModelChosen) -> MeshState:
    return replace(
        state,
        model=command,
        plan=None,
        proposed=None,
        refused="",
        standbys={},
        offers=without(state.offers, command.name),
        decoders=without_decoder(state.decoders, command.name),
    )


def _joined(state: MeshState, command: MemberJoined) -> MeshState | str:
    peer, incarnation = command.peer, command.incarnation
    known = state.incarnations.get(peer, 0)
    if incarnation < known:
        return f"incarnation {incarnation} of this peer is over: it has had {known}"
    joined = Member(
        peer,
        command.name,
        command.compute,
        "joining",
        headless=command.headless,
        durable=command.durable,
        incarnation=incarnation,
    )
    incarnations = seen(state.incarnations, peer, incarnation)
    members = {**state.members, peer: joined}
    return replace(state, members=members, incarnations=incarnations, decoders=unheld(state.decoders, peer))


def _with_member(state: MeshState, peer: str, **changes: Any) -> MeshState | str:
    member = state.members.get(peer)
    if member is None:
        return "there is no such member"
    return replace(state, members={**state.members, peer: replace(member, **changes)})


def _settled(state: MeshState, ledger: Ledger, fairness: Fairness) -> MeshState:
    """A convicted peer is paused, so that no plan and no session uses it; one that is pardoned lends again."""
    before, now = state.fairness.quarantined, fairness.quarantined
    members = dict(state.members)
    for peer in before.keys() ^ now.keys():
        member = members.get(peer)
        if member is None or not member.compute or member.status == "leaving":
            continue
        if peer in now:
            members[peer] = replace(member, status="paused", reason=CONVICTED)
        elif member.reason == CONVICTED:
            members[peer] = replace(member, status="measured" if member.profile else "joining", reason="")
    return replace(state, ledger=ledger, fairness=fairness, members=members)


def _lends_less(
    state: MeshState,
    command: MemberDraining | MemberPaused,
    status: MemberStatus,
    of: tuple[MemberStatus, ...],
) -> MeshState | str:
    member = state.members.get(command.peer)
    if member is None or not member.compute or member.status not in of:
        return "it lends nothing anyway"
    return _with_member(state, command.peer, status=status, reason=command.reason)


def _measured(state: MeshState, command: MemberMeasured) -> MeshState | str:
    member = state.members.get(command.peer)
    if member is None:
        return "there is no such member"
    fresh = {(link.src, link.dst): link for link in state.links}
    fresh.update({(link.src, link.dst): link for link in command.links if link.src != link.dst})
    links = tuple(fresh[key] for key in sorted(fresh))
    status: MemberStatus = "leaving" if member.status == "leaving" else "measured"
    if command.peer in state.fairness.quarantined and status == "measured":
        measured = replace(member, profile=command.profile, status="paused", reason=CONVICTED)
    else:
        measured = replace(member, profile=command.profile, status=status, reason="")
    return replace(state, members={**state.members, command.peer: measured}, links=links)


def _activated(state: MeshState, version: int) -> MeshState | str:
    if state.proposed is None or state.proposed.version != version:
        return "this plan is not the one that was proposed last"
    ready = {peer: standby for peer, standby in state.standbys.items() if standby.version == version}
    return replace(state, plan=state.proposed, proposed=None, refused="", standbys=ready)


def _left(state: MeshState, peer: str) -> MeshState:
    members = {each: member for each, member in state.members.items() if each != peer}
    standbys = {each: standby for each, standby in state.standbys.items() if each != peer}
    links = tuple(link for link in state.links if peer not in (link.src, link.dst))
    decoders = unheld(state.decoders, peer)
    return replace(state, members=members, links=links, standbys=standbys, decoders=decoders)


def _ready(state: MeshState, command: StandbyReady) -> MeshState | str:
    if command.peer not in state.members:
        return "there is no such member"
    if command.version not in {plan.version for plan in (state.plan, state.proposed) if plan is not None}:
        return "this plan is neither active nor proposed"
    standby = Standby(command.version, command.ready)
    return replace(state, standbys={**state.standbys, command.peer: standby})


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
        facts=_planner_facts(profile.surroundings, profile.arithmetic),
    )


def _planner_facts(said: Surroundings, arithmetic: str) -> PeerFacts:
    hazard = None if said.hazard_milli is None else said.hazard_milli / 1000
    return PeerFacts(hazard_per_h=hazard, domains=said.domains(), arithmetic=arithmetic)


def planner_link(link: LinkFacts) -> Link:
    """`link` in the planner's units."""
    return Link(
        link.src,
        link.dst,
        link.rtt_us / MICRO,
        float(max(1, link.bytes_per_s)),
        link.overhead_us / MICRO,
        relayed=link.relayed,
    )


def plan_record(plan: Plan, version: int) -> PlanRecord:
    """The planner's answer as a numbered record for the log."""
    return PlanRecord(
        version=version,
        stages=tuple(_plan_stage(stage) for stage in plan.stages),
        predicted_token_us=round(plan.decode_s * MICRO),
        predicted_rate_milli=round(plan.tokens_per_s * 1000),
        why=tuple(sentence[:MAX_TEXT] for sentence in plan.why),
        choices=choice_records(plan.choices),
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
        stage.helpers,
        stage.shares,
    )


# --- wire -------------------------------------------------------------------------------------------------

_state: Final = record(
    MeshState,
    {
        "term": uint,
        "index": uint,
        "model": maybe(model_chosen_codec),
        "members": table(member_codec),
        "links": listed(link_facts_codec, MAX_LINKS),
        "plan": maybe(plan_record_codec),
        "proposed": maybe(plan_record_codec),
        "last_version": uint,
        "refused": text,
        "protection": protection_codec,
        "people": people_codec,
        "conversations": conversations_codec,
        "ledger": ledger_codec,
        "standbys": table(standby_codec),
        "transactions": listed(transaction_codec, MAX_TRANSACTIONS),
        "signaling": listed(address_pattern, MAX_ADDRESSES),
        "cuts": maybe(listed(uint)),
        "incarnations": table(uint),
        "skipped": bounded_skipped_codec,
        "fairness": fairness_codec,
        "wish": maybe(plan_wished_codec),
        "offers": offers_codec,
        "decoders": decoders_codec,
    },
    since={"fairness": Fairness(), "wish": None, "offers": {}, "decoders": {}},
)


def encode_state(state: MeshState) -> bytes:
    """Canonical JSON of a whole state: a snapshot, as for a member that joins."""
    return dump(_state.encode(state))


def decode_state(data: bytes) -> MeshState:
    """The state in `data`. Raises BadCommand naming what was expected."""
    return _state.decode(load(data), "snapshot")


def state_digest(state: MeshState) -> str:
    """16 hex digits, the same for equal states in both languages."""
    return checksum(encode_state(state))
