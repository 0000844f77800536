"""Commands of the log and the values in them (docs/protocol.md, chapter Mesh state). Pure.

Generated from schema/commands.toml by `make generate`: change that, not this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from peer.limits import MAX_SAMPLING
from peer.state.failure_domains import UNKNOWN, Surroundings, surroundings_codec
from peer.wire.json_codec import (
    Codec,
    flag,
    integer,
    listed,
    matching,
    maybe,
    one_of,
    prose,
    record,
    span,
    table,
    text,
    uint,
)

MAX_LINKS: Final = 65536  # of a snapshot: between any two of 256 members
MAX_INVITES: Final = 1024
MAX_CONVERSATIONS: Final = 256
MAX_PARTICIPANTS: Final = 256
MAX_MESSAGES: Final = 16384  # of one conversation
MAX_MESSAGE_BYTES: Final = 65536  # of UTF-8
MAX_CONVERSATION_BYTES: Final = 16 * 2**20  # texts of the messages of one conversation
MAX_ALL_BYTES: Final = 64 * 2**20  # of all conversations: bounds what a snapshot brings
MAX_OFFERS: Final = 64  # links into one conversation
MAX_BARRED: Final = 256  # beyond that the first one put out is forgotten
MAX_ENTRIES: Final = 256  # of a batch of work
MAX_FINDINGS: Final = 256  # the newest: two peers that find the same step wrong do so within seconds
MAX_QUARANTINED: Final = 1024
MAX_SERVED: Final = 8  # the last sessions of a peer, which are marked when it is convicted
MAX_WORDS: Final = 8  # findings that convict a peer
ALLOWANCE_MILLI: Final = 2000 * 1000  # what anybody may ask for before it must contribute: 2000 tokens
CHECKS_PPM: Final = 20 * 1000
MAX_TRANSACTIONS: Final = 512  # remembered; the oldest that are over go first
MAX_ADDRESSES: Final = 16
MAX_KEPT: Final = 64  # commands of a newer version
MAX_KEPT_BYTES: Final = 65536  # of all of them
MAX_COMPONENTS: Final = 64
MAX_HELPERS: Final = 8  # of a stage that a team computes, beside its lead
MAX_SHARE: Final = 1000  # of one member of a team
MAX_CHOICES: Final = 16  # that a plan is shown among
MAX_MODELS: Final = 16  # offered beside the one that the mesh was begun for
MAX_DECODERS: Final = 8  # that answer in words beside the one that the mesh was begun for
MAX_RUN_STAGES: Final = 256  # of an offered model: as many as an entry of the log holds with their standbys
MAX_RUN_STANDBYS: Final = 8  # of one stage of an offered model

MemberStatus = Literal["joining", "measured", "draining", "paused", "leaving"]
Objective = Literal["latency", "throughput"]
Shadow = Literal["off", "log", "shadow"]
RepairStrategy = Literal["simple", "progressive", "parallel", "coordinated"]
Role = Literal["owner", "member", "viewer"]
Given = Literal["member", "viewer"]
Form = Literal["to-model", "to-people", "answer"]
Progress = Literal["running", "done", "stopped", "failed"]
Ended = Literal["done", "stopped", "failed"]
Policy = Literal["open", "fair", "off"]
OperationKind = Literal["load", "unload", "migrate", "open", "take-over", "close"]
Outcome = Literal["begun", "committed", "rolled-back"]
Ending = Literal["committed", "rolled-back"]
PlanStrategy = Literal["optimal", "layer", "attention-ffn", "pipeline", "component", "hybrid", "tensor"]
Goal = Literal["latency", "throughput", "memory", "balanced"]


# --- values -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Profile:
    """Measured memory and speed of one peer, in bytes and microseconds (nanoseconds where stated)."""

    memory_bytes: int
    overhead_bytes: int
    decode_ns: Mapping[str, int]  # one unit of a kind, one decode token
    prefill_ns: Mapping[str, int]  # one unit of a kind, one prompt token
    batch_ns: Mapping[str, int]  # one more row in a decode batch
    step_ns: int
    provider: str
    threads: int
    surroundings: Surroundings = UNKNOWN
    arithmetic: str = ""  # two peers compute equal bits where both say the same; "": unknown


@dataclass(frozen=True, slots=True)
class HeldSlice:
    """The part of units [first, stop) that the member at `place` of a team computes: `shares` say how they are cut."""

    first: int
    stop: int
    place: int  # 0: the lead; else that of the helper, from 1 on
    shares: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """One peer of the mesh. `compute` is false for a peer that only asks."""

    peer: str
    name: str
    compute: bool
    status: MemberStatus
    profile: Profile | None = None
    held: tuple[tuple[int, int], ...] = ()  # runs of units [first, stop) that are loaded and can serve
    reason: str = ""  # why it drains or is paused, for people
    headless: bool = False  # no tab: nobody closes it by accident
    durable: bool = False  # what it stores outlives a crash, so it may vote
    incarnation: int = 0  # counts the times that it lost what it had stored
    slices: tuple[HeldSlice, ...] = ()  # loaded parts of units that a team computes


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """Measured path from `src` to `dst`."""

    src: str
    dst: str
    rtt_us: int
    bytes_per_s: int
    overhead_us: int
    relayed: bool | None = None  # through a relay or a third peer; None: unknown


@dataclass(frozen=True, slots=True)
class Protection:
    """What all peers of a mesh keep to. The default is the level `standard`."""

    redundancy_milli: int = 1500  # copies of stages in thousandths: 1500 is half of them doubled
    spare: bool = True  # peers that would lie idle stand by as well, beyond that
    shadow: Shadow = "log"  # standbys get nothing; keep inputs; compute behind as well
    strategy: RepairStrategy = "progressive"
    transactions: bool = True  # operations of a peer are logged, and undone after a restart
    priority: tuple[str, ...] = ()  # units whose stages are repaired first
    together: bool = True  # stages that do not wait for one another are repaired at the same time
    log_session_bytes: int = 32 * 2**20  # activation log of one session on one stage
    log_total_bytes: int = 256 * 2**20  # of all sessions of a peer


@dataclass(frozen=True, slots=True)
class Invite:
    """A link that somebody was given. `proof`: the signed grant as JSON, or empty."""

    role: Role
    expires_unix: int  # seconds; 0: never
    uses: int  # 0: unlimited
    by: str
    when_ms: int
    proof: str


@dataclass(frozen=True, slots=True)
class Revocation:
    """An invite with which nobody comes in any more. `proof`: the signed revocation as JSON, or empty."""

    by: str
    when_ms: int
    proof: str


@dataclass(frozen=True, slots=True)
class People:
    """Roles by peer, also of peers that are not here; invites and revocations by the invite's public key."""

    roles: Mapping[str, Role] = field(default_factory=dict)
    invites: Mapping[str, Invite] = field(default_factory=dict)
    revocations: Mapping[str, Revocation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Participant:
    """Somebody who takes part in a conversation."""

    name: str
    colour: str
    role: Role


@dataclass(frozen=True, slots=True)
class Message:
    """One message. Another with the same parent is another branch: an edited question, or an answer made again."""

    id: str
    parent: str  # "": it begins the conversation
    author: str  # of an answer: the peer that asks the model
    form: Form
    text: str
    when_ms: int
    state: Progress
    tokens: int  # of an answer, so far
    reason: str  # why an answer failed, for people
    session: str  # of an answer, with the model and the settings that whoever adopts it needs
    model: str
    sampling: tuple[int, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Offer:
    """A link that lets into one conversation."""

    role: Given
    by: str
    when_ms: int


@dataclass(frozen=True, slots=True)
class Entry:
    """`by_invite`: nobody comes in by themselves. `barred`: who was put out, the first one first."""

    by_invite: bool = False
    offers: Mapping[str, Offer] = field(default_factory=dict)  # by public key
    barred: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """`peer` computed positions of a session through units, for `asker`. The price is in thousandths of a credit."""

    session: str
    started_ms: int  # of the session, the same in all of its entries
    peer: str
    asker: str
    positions: tuple[int, int]
    units: tuple[int, int]
    milli: int


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A peer that was convicted: when, by whose words, what it lost, and the sessions that it computed last."""

    when_ms: int
    by: tuple[str, ...]
    lost_milli: int
    sessions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChoiceRecord:
    """A plan that was looked at; `token_us` 0: it cannot run, and has no figures."""

    name: str  # "PEER FIRST-STOP > PEER FIRST-STOP", or words
    token_us: int  # of one answer
    prefill_us: int  # of one token of a prompt
    rate_milli: int  # thousandths of tokens per second, all promised sessions together
    memory_bytes: int  # on the peer that it fills most
    chosen: bool
    best: bool  # none beats it in both time and rate
    knee: bool
    why_not: str  # in numbers, for people


@dataclass(frozen=True, slots=True)
class PlanStage:
    """Units [first, stop) on `primary`; `standbys` hold them too. With `helpers` they are computed by a team,
    whose lead is `primary`: each member holds its slice alone, and `weight_bytes` and the others are of the
    member with most.
    """

    first: int
    stop: int
    primary: str
    standbys: tuple[str, ...] = ()
    weight_bytes: int = 0
    kv_bytes: int = 0
    overhead_bytes: int = 0
    helpers: tuple[str, ...] = ()  # in the order of the team, after the lead
    shares: tuple[int, ...] = ()  # of each member, the lead first


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan numbered by a version that only rises."""

    version: int
    stages: tuple[PlanStage, ...]
    predicted_token_us: int
    predicted_rate_milli: int  # thousandths of tokens per second, all promised sessions together
    why: tuple[str, ...] = ()
    choices: tuple[ChoiceRecord, ...] = ()  # this plan among others, as it was chosen; for people only


@dataclass(frozen=True, slots=True)
class Standby:
    """Runs of units that a peer can take over at once, for the plan of this version."""

    version: int
    ready: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Transaction:
    """An operation of a peer on a run of units or on a session."""

    id: str
    peer: str
    operation: OperationKind
    units: tuple[int, int] | None
    session: str
    to: str  # the peer that units migrate to
    when_ms: int
    state: Outcome = "begun"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Commands of a newer version: how many, and the last ones as they came. `broken`: entries that are no commands."""

    count: int = 0
    broken: int = 0
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Units [first, stop) under one name. `prefers`: the id or the name of the peer that is to hold them; "": any."""

    name: str
    first: int
    stop: int
    prefers: str


@dataclass(frozen=True, slots=True)
class RunStage:
    """Units [first, stop) of an offered model on `primary`; `standbys` hold them too."""

    first: int
    stop: int
    primary: str
    standbys: tuple[str, ...] = ()
    bytes: int = 0  # that it takes on each of its peers: weights, and room for one run


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """A model that is offered beside the mesh's own, and where it runs. Without stages it runs nowhere; `why`
    says why.
    """

    model: str
    version: int = 0  # of its placement; 0: not placed yet
    stages: tuple[RunStage, ...] = ()  # in the order of the units
    latency_us: int = 0  # predicted, of one run
    rate_milli: int = 0  # predicted, thousandths of runs per second in a stream
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decoder:
    """A further model that answers in words, with what the log says of the mesh's own: what is promised, and
    its plans.
    """

    model: str
    units: int
    context: int
    sessions: int
    objective: Objective
    plan: PlanRecord | None = None
    proposed: PlanRecord | None = None  # a plan whose peers still load
    refused: str = ""  # why there is no plan, when there is none
    held: Mapping[str, tuple[tuple[int, int], ...]] = field(
        default_factory=dict
    )  # runs of its units that are loaded, by peer


# --- commands ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelChosen:
    """The mesh serves this model store entry, with this promise of room."""

    model: str
    name: str
    units: int
    context: int
    sessions: int
    objective: Objective


@dataclass(frozen=True, slots=True)
class MemberJoined:
    """`incarnation` must not be below the highest that the log ever had for this peer."""

    peer: str
    name: str
    compute: bool
    headless: bool = False
    durable: bool = False
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class MemberMeasured:
    """What `peer` measured: its profile, and its links to others."""

    peer: str
    profile: Profile
    links: tuple[LinkFacts, ...]


@dataclass(frozen=True, slots=True)
class PlanProposed:
    """A plan that becomes active once its peers have loaded their units."""

    plan: PlanRecord


@dataclass(frozen=True, slots=True)
class UnitsHeld:
    """The runs of units that `peer` has loaded, and its slices of those that teams compute."""

    peer: str
    held: tuple[tuple[int, int], ...]
    slices: tuple[HeldSlice, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanActivated:
    """The plan that was proposed serves from now on."""

    version: int


@dataclass(frozen=True, slots=True)
class PlanRefused:
    """No plan exists for the members there are; `reason` says what is missing."""

    reason: str


@dataclass(frozen=True, slots=True)
class MemberDraining:
    """`peer` serves on, but only while nobody else can, until it measures again. `reason` is for people."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class MemberPaused:
    """`peer` stays, but lends nothing until it measures again: its tab is frozen, say. `reason` is for people."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class MemberRenamed:
    """`peer` is called `name` from now on."""

    peer: str
    name: str


@dataclass(frozen=True, slots=True)
class MemberLeaving:
    """A polite leave has begun: no new session may use this peer."""

    peer: str


@dataclass(frozen=True, slots=True)
class MemberLeft:
    """`peer` is no member any more."""

    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class ProtectionChosen:
    """How answers are protected from now on."""

    protection: Protection


@dataclass(frozen=True, slots=True)
class RoleGiven:
    """`peer` has this role in the mesh from now on."""

    peer: str
    role: Role


@dataclass(frozen=True, slots=True)
class RoleTaken:
    """`peer` has no role of its own any more."""

    peer: str


@dataclass(frozen=True, slots=True)
class InviteRecorded:
    """A link into the mesh was given to somebody; `key` is its public key."""

    key: str
    role: Role
    expires_unix: int
    uses: int
    by: str
    when_ms: int
    proof: str


@dataclass(frozen=True, slots=True)
class InviteRevoked:
    """Nobody comes into the mesh with that link any more."""

    key: str
    by: str
    when_ms: int
    proof: str


@dataclass(frozen=True, slots=True)
class ConversationStarted:
    """`peer` becomes its owner."""

    conversation: str
    title: str
    model: str
    system: str
    sampling: tuple[int, ...]
    when_ms: int
    peer: str
    name: str
    colour: str


@dataclass(frozen=True, slots=True)
class ConversationChanged:
    """The conversation has another title, model, system prompt and settings from now on."""

    conversation: str
    title: str
    model: str
    system: str
    sampling: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConversationRemoved:
    """The conversation is gone with all its messages."""

    conversation: str


@dataclass(frozen=True, slots=True)
class ParticipantSet:
    """`peer` comes in, or has another name, colour or role from now on."""

    conversation: str
    peer: str
    name: str
    colour: str
    role: Role


@dataclass(frozen=True, slots=True)
class ParticipantLeft:
    """`peer` takes part no more, by its own wish."""

    conversation: str
    peer: str


@dataclass(frozen=True, slots=True)
class MessageAdded:
    """An answer is running from here on; other messages are done."""

    conversation: str
    id: str
    parent: str
    author: str
    form: Form
    text: str
    when_ms: int
    session: str
    model: str
    sampling: tuple[int, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class MessageExtended:
    """`text` follows what a running answer has: it had `after` tokens and has `tokens` now."""

    conversation: str
    id: str
    after: int
    tokens: int
    text: str


@dataclass(frozen=True, slots=True)
class MessageEnded:
    """`text`: all of the answer, or None for what is there."""

    conversation: str
    id: str
    state: Ended
    tokens: int
    text: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class AnswerAdopted:
    """`author` makes an answer go on that `before` asked for: of several peers that try, the first one does."""

    conversation: str
    id: str
    before: str
    author: str
    session: str


@dataclass(frozen=True, slots=True)
class EntryChosen:
    """Whether only who is invited comes into the conversation."""

    conversation: str
    by_invite: bool


@dataclass(frozen=True, slots=True)
class EntryOffered:
    """There is a link into the conversation; `key` is its public key."""

    conversation: str
    key: str
    role: Given
    by: str
    when_ms: int


@dataclass(frozen=True, slots=True)
class EntryWithdrawn:
    """Nobody comes in with that link any more; who came with it stays."""

    conversation: str
    key: str


@dataclass(frozen=True, slots=True)
class ParticipantInvited:
    """`peer` comes in with what the link gives. `proof`: its signature by the link's key."""

    conversation: str
    key: str
    peer: str
    name: str
    colour: str
    proof: str


@dataclass(frozen=True, slots=True)
class ParticipantPutOut:
    """`peer` takes part no more and does not come back, unless an owner sets its role."""

    conversation: str
    peer: str


@dataclass(frozen=True, slots=True)
class WorkRecorded:
    """A batch: each entry counts or does not, whatever the others do."""

    entries: tuple[Work, ...]


@dataclass(frozen=True, slots=True)
class FairnessChosen:
    """`open`: balances order who waits; `fair`: who owes too much may not ask; `off`: nothing is counted."""

    policy: Policy
    allowance_milli: int
    checks_ppm: int  # millionths of steps that askers have checked


@dataclass(frozen=True, slots=True)
class CheckFailed:
    """`by` computed `position` of a session through `units` itself, and found another result than `peer` gave."""

    session: str
    position: int
    units: tuple[int, int]
    peer: str
    by: str
    when_ms: int


@dataclass(frozen=True, slots=True)
class PeerPardoned:
    """An owner lets a convicted peer compute again; what it lost stays lost."""

    peer: str


@dataclass(frozen=True, slots=True)
class StandbyReady:
    """`peer` can take these runs of units of the plan of this version over at once."""

    peer: str
    version: int
    ready: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TransactionBegun:
    """`peer` has begun an operation on a run of units or on a session."""

    id: str
    peer: str
    operation: OperationKind
    units: tuple[int, int] | None
    session: str
    to: str
    when_ms: int


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """An operation that was begun is over."""

    id: str
    state: Ending
    reason: str


@dataclass(frozen=True, slots=True)
class SignalingListed:
    """Where peers meet from now on, the best first."""

    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CutsFixed:
    """The borders of stages, fixed by hand; None: the planner decides."""

    cuts: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class PlanWished:
    """How plans are made from now on. `components` cover all units, in order; of the strategy `component` only."""

    strategy: PlanStrategy
    goal: Goal
    components: tuple[Group, ...] = ()
    min_tensor_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ModelOffered:
    """The mesh runs this model, too, under a name that no other model of the mesh has."""

    model: str
    name: str


@dataclass(frozen=True, slots=True)
class ModelWithdrawn:
    """The mesh runs that model no more."""

    name: str


@dataclass(frozen=True, slots=True)
class ModelPlaced:
    """Where an offered model runs from now on. Without stages: nowhere, and `why` says what is missing."""

    name: str
    version: int
    stages: tuple[RunStage, ...]
    latency_us: int
    rate_milli: int
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DecoderOffered:
    """The mesh answers with this model, too, under a name that no other model of the mesh has, with this
    promise of room.
    """

    name: str
    model: str
    units: int
    context: int
    sessions: int
    objective: Objective


@dataclass(frozen=True, slots=True)
class DecoderPlanned:
    """PlanProposed of that model."""

    name: str
    plan: PlanRecord


@dataclass(frozen=True, slots=True)
class DecoderActivated:
    """PlanActivated of that model."""

    name: str
    version: int


@dataclass(frozen=True, slots=True)
class DecoderRefused:
    """PlanRefused of that model."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class DecoderHeld:
    """UnitsHeld of that model."""

    name: str
    peer: str
    held: tuple[tuple[int, int], ...]


MemberCommand = (
    ModelChosen
    | MemberJoined
    | MemberMeasured
    | PlanProposed
    | UnitsHeld
    | PlanActivated
    | PlanRefused
    | MemberDraining
    | MemberPaused
    | MemberRenamed
    | MemberLeaving
    | MemberLeft
    | ProtectionChosen
)
PeopleCommand = RoleGiven | RoleTaken | InviteRecorded | InviteRevoked
ConversationCommand = (
    ConversationStarted
    | ConversationChanged
    | ConversationRemoved
    | ParticipantSet
    | ParticipantLeft
    | MessageAdded
    | MessageExtended
    | MessageEnded
    | AnswerAdopted
    | EntryChosen
    | EntryOffered
    | EntryWithdrawn
    | ParticipantInvited
    | ParticipantPutOut
)
EntryCommand = EntryChosen | EntryOffered | EntryWithdrawn | ParticipantInvited | ParticipantPutOut
LedgerCommand = WorkRecorded
FairnessCommand = FairnessChosen | CheckFailed | PeerPardoned
UpkeepCommand = StandbyReady | TransactionBegun | TransactionEnded | SignalingListed | CutsFixed | PlanWished
OfferCommand = ModelOffered | ModelWithdrawn | ModelPlaced
DecoderCommand = DecoderOffered | DecoderPlanned | DecoderActivated | DecoderRefused | DecoderHeld
KnownCommand = (
    ModelChosen
    | MemberJoined
    | MemberMeasured
    | PlanProposed
    | UnitsHeld
    | PlanActivated
    | PlanRefused
    | MemberDraining
    | MemberPaused
    | MemberRenamed
    | MemberLeaving
    | MemberLeft
    | ProtectionChosen
    | RoleGiven
    | RoleTaken
    | InviteRecorded
    | InviteRevoked
    | ConversationStarted
    | ConversationChanged
    | ConversationRemoved
    | ParticipantSet
    | ParticipantLeft
    | MessageAdded
    | MessageExtended
    | MessageEnded
    | AnswerAdopted
    | EntryChosen
    | EntryOffered
    | EntryWithdrawn
    | ParticipantInvited
    | ParticipantPutOut
    | WorkRecorded
    | FairnessChosen
    | CheckFailed
    | PeerPardoned
    | StandbyReady
    | TransactionBegun
    | TransactionEnded
    | SignalingListed
    | CutsFixed
    | PlanWished
    | ModelOffered
    | ModelWithdrawn
    | ModelPlaced
    | DecoderOffered
    | DecoderPlanned
    | DecoderActivated
    | DecoderRefused
    | DecoderHeld
)


# --- on the wire ------------------------------------------------------------------------------------------

id_pattern: Final = matching("[0-9A-Za-z_.:-]{1,64}", "an id of 1 to 64 letters, digits and _.:-")
parent_pattern: Final = matching("[0-9A-Za-z_.:-]{0,64}", "the id of a message, or nothing")
session_pattern: Final = matching("[0-9a-f]{32}", "a session of 16 bytes in hex")
maybe_session_pattern: Final = matching("([0-9a-f]{32})?", "a session of 16 bytes in hex, or nothing")
colour_pattern: Final = matching("#[0-9a-f]{6}", "a colour such as #3366cc")
invite_key_pattern: Final = matching("A[Q-Za-f][0-9A-Za-z_-]{42}", "the public key of an invite")
proof_pattern: Final = matching("[0-9A-Za-z_-]{86}", "a signature of 64 bytes")
address_pattern: Final = matching(
    "https?://[0-9A-Za-z_.:/~%\\[\\]-]{1,256}", "an address such as https://host:8443"
)
model_id_pattern: Final = matching("[0-9a-f]{64}", "the id of a model: 64 digits of SHA-256 in hex")
model_name_pattern: Final = matching(
    "[0-9A-Za-z][0-9A-Za-z_.:+-]{0,63}",
    "a name of 1 to 64 letters, digits and _.:+-, a letter or digit first",
)
arithmetic_pattern: Final = matching(
    "[a-z0-9_.+/-]{0,96}", "nothing or at most 96 characters of a to z, 0 to 9 and _.+/-"
)
member_status_codec: Final[Codec[MemberStatus]] = one_of(
    "joining", "measured", "draining", "paused", "leaving"
)
objective_codec: Final[Codec[Objective]] = one_of("latency", "throughput")
shadow_codec: Final[Codec[Shadow]] = one_of("off", "log", "shadow")
repair_strategy_codec: Final[Codec[RepairStrategy]] = one_of(
    "simple", "progressive", "parallel", "coordinated"
)
role_codec: Final[Codec[Role]] = one_of("owner", "member", "viewer")
given_codec: Final[Codec[Given]] = one_of("member", "viewer")
form_codec: Final[Codec[Form]] = one_of("to-model", "to-people", "answer")
progress_codec: Final[Codec[Progress]] = one_of("running", "done", "stopped", "failed")
ended_codec: Final[Codec[Ended]] = one_of("done", "stopped", "failed")
policy_codec: Final[Codec[Policy]] = one_of("open", "fair", "off")
operation_kind_codec: Final[Codec[OperationKind]] = one_of(
    "load", "unload", "migrate", "open", "take-over", "close"
)
outcome_codec: Final[Codec[Outcome]] = one_of("begun", "committed", "rolled-back")
ending_codec: Final[Codec[Ending]] = one_of("committed", "rolled-back")
plan_strategy_codec: Final[Codec[PlanStrategy]] = one_of(
    "optimal", "layer", "attention-ffn", "pipeline", "component", "hybrid", "tensor"
)
goal_codec: Final[Codec[Goal]] = one_of("latency", "throughput", "memory", "balanced")
profile_codec: Final = record(
    Profile,
    {
        "memory_bytes": uint,
        "overhead_bytes": uint,
        "decode_ns": table(uint),
        "prefill_ns": table(uint),
        "batch_ns": table(uint),
        "step_ns": uint,
        "provider": text,
        "threads": uint,
        "surroundings": surroundings_codec,
        "arithmetic": arithmetic_pattern,
    },
    since={
        "surroundings": UNKNOWN,
        "arithmetic": "",
    },
)
held_slice_codec: Final = record(
    HeldSlice, {"first": uint, "stop": uint, "place": uint, "shares": listed(uint, MAX_HELPERS + 1)}
)
member_codec: Final = record(
    Member,
    {
        "peer": text,
        "name": text,
        "compute": flag,
        "status": member_status_codec,
        "profile": maybe(profile_codec),
        "held": listed(span),
        "reason": text,
        "headless": flag,
        "durable": flag,
        "incarnation": uint,
        "slices": listed(held_slice_codec),
    },
    since={
        "headless": False,
        "durable": False,
        "incarnation": 0,
        "slices": (),
    },
    omit={"slices"},
)
link_facts_codec: Final = record(
    LinkFacts,
    {
        "src": text,
        "dst": text,
        "rtt_us": uint,
        "bytes_per_s": uint,
        "overhead_us": uint,
        "relayed": maybe(flag),
    },
    since={
        "relayed": None,
    },
)
protection_codec: Final = record(
    Protection,
    {
        "redundancy_milli": uint,
        "spare": flag,
        "shadow": shadow_codec,
        "strategy": repair_strategy_codec,
        "transactions": flag,
        "priority": listed(text),
        "together": flag,
        "log_session_bytes": uint,
        "log_total_bytes": uint,
    },
)
invite_codec: Final = record(
    Invite,
    {"role": role_codec, "expires_unix": uint, "uses": uint, "by": text, "when_ms": uint, "proof": text},
)
revocation_codec: Final = record(Revocation, {"by": text, "when_ms": uint, "proof": text})
people_codec: Final = record(
    People,
    {
        "roles": table(role_codec),
        "invites": table(invite_codec, MAX_INVITES),
        "revocations": table(revocation_codec),
    },
)
participant_codec: Final = record(Participant, {"name": text, "colour": colour_pattern, "role": role_codec})
message_codec: Final = record(
    Message,
    {
        "id": id_pattern,
        "parent": parent_pattern,
        "author": text,
        "form": form_codec,
        "text": prose(MAX_MESSAGE_BYTES),
        "when_ms": uint,
        "state": progress_codec,
        "tokens": uint,
        "reason": text,
        "session": maybe_session_pattern,
        "model": text,
        "sampling": listed(integer, MAX_SAMPLING),
        "max_tokens": uint,
    },
)
offer_codec: Final = record(Offer, {"role": given_codec, "by": text, "when_ms": uint})
entry_codec: Final = record(
    Entry, {"by_invite": flag, "offers": table(offer_codec, MAX_OFFERS), "barred": listed(text, MAX_BARRED)}
)
work_codec: Final = record(
    Work,
    {
        "session": session_pattern,
        "started_ms": uint,
        "peer": text,
        "asker": text,
        "positions": span,
        "units": span,
        "milli": uint,
    },
)
quarantine_codec: Final = record(
    Quarantine,
    {
        "when_ms": uint,
        "by": listed(text, MAX_WORDS),
        "lost_milli": uint,
        "sessions": listed(session_pattern, MAX_SERVED),
    },
)
choice_record_codec: Final = record(
    ChoiceRecord,
    {
        "name": text,
        "token_us": uint,
        "prefill_us": uint,
        "rate_milli": uint,
        "memory_bytes": uint,
        "chosen": flag,
        "best": flag,
        "knee": flag,
        "why_not": text,
    },
)
plan_stage_codec: Final = record(
    PlanStage,
    {
        "first": uint,
        "stop": uint,
        "primary": text,
        "standbys": listed(text),
        "weight_bytes": uint,
        "kv_bytes": uint,
        "overhead_bytes": uint,
        "helpers": listed(text, MAX_HELPERS),
        "shares": listed(uint, MAX_HELPERS + 1),
    },
    since={
        "helpers": (),
        "shares": (),
    },
    omit={"helpers", "shares"},
)
plan_record_codec: Final = record(
    PlanRecord,
    {
        "version": uint,
        "stages": listed(plan_stage_codec),
        "predicted_token_us": uint,
        "predicted_rate_milli": uint,
        "why": listed(text),
        "choices": listed(choice_record_codec, MAX_CHOICES),
    },
    since={
        "choices": (),
    },
)
standby_codec: Final = record(Standby, {"version": uint, "ready": listed(span)})
transaction_codec: Final = record(
    Transaction,
    {
        "id": id_pattern,
        "peer": text,
        "operation": operation_kind_codec,
        "units": maybe(span),
        "session": maybe_session_pattern,
        "to": text,
        "when_ms": uint,
        "state": outcome_codec,
        "reason": text,
    },
)
skipped_codec: Final = record(
    Skipped, {"count": uint, "broken": uint, "kept": listed(prose(MAX_KEPT_BYTES), MAX_KEPT)}
)
group_codec: Final = record(Group, {"name": text, "first": uint, "stop": uint, "prefers": text})
run_stage_codec: Final = record(
    RunStage,
    {"first": uint, "stop": uint, "primary": text, "standbys": listed(text, MAX_RUN_STANDBYS), "bytes": uint},
)
model_offer_codec: Final = record(
    ModelOffer,
    {
        "model": model_id_pattern,
        "version": uint,
        "stages": listed(run_stage_codec, MAX_RUN_STAGES),
        "latency_us": uint,
        "rate_milli": uint,
        "why": listed(text),
    },
)
decoder_codec: Final = record(
    Decoder,
    {
        "model": model_id_pattern,
        "units": uint,
        "context": uint,
        "sessions": uint,
        "objective": objective_codec,
        "plan": maybe(plan_record_codec),
        "proposed": maybe(plan_record_codec),
        "refused": text,
        "held": table(listed(span)),
    },
)
model_chosen_codec: Final = record(
    ModelChosen,
    {
        "model": text,
        "name": text,
        "units": uint,
        "context": uint,
        "sessions": uint,
        "objective": objective_codec,
    },
)
member_joined_codec: Final = record(
    MemberJoined,
    {"peer": text, "name": text, "compute": flag, "headless": flag, "durable": flag, "incarnation": uint},
    since={
        "headless": False,
        "durable": False,
        "incarnation": 0,
    },
)
member_measured_codec: Final = record(
    MemberMeasured, {"peer": text, "profile": profile_codec, "links": listed(link_facts_codec)}
)
plan_proposed_codec: Final = record(PlanProposed, {"plan": plan_record_codec})
units_held_codec: Final = record(
    UnitsHeld,
    {"peer": text, "held": listed(span), "slices": listed(held_slice_codec)},
    since={
        "slices": (),
    },
    omit={"slices"},
)
plan_activated_codec: Final = record(PlanActivated, {"version": uint})
plan_refused_codec: Final = record(PlanRefused, {"reason": text})
member_draining_codec: Final = record(MemberDraining, {"peer": text, "reason": text})
member_paused_codec: Final = record(MemberPaused, {"peer": text, "reason": text})
member_renamed_codec: Final = record(MemberRenamed, {"peer": text, "name": text})
member_leaving_codec: Final = record(MemberLeaving, {"peer": text})
member_left_codec: Final = record(MemberLeft, {"peer": text, "reason": text})
protection_chosen_codec: Final = record(ProtectionChosen, {"protection": protection_codec})
role_given_codec: Final = record(RoleGiven, {"peer": text, "role": role_codec})
role_taken_codec: Final = record(RoleTaken, {"peer": text})
invite_recorded_codec: Final = record(
    InviteRecorded,
    {
        "key": invite_key_pattern,
        "role": role_codec,
        "expires_unix": uint,
        "uses": uint,
        "by": text,
        "when_ms": uint,
        "proof": text,
    },
)
invite_revoked_codec: Final = record(
    InviteRevoked, {"key": invite_key_pattern, "by": text, "when_ms": uint, "proof": text}
)
conversation_started_codec: Final = record(
    ConversationStarted,
    {
        "conversation": id_pattern,
        "title": text,
        "model": text,
        "system": prose(MAX_MESSAGE_BYTES),
        "sampling": listed(integer, MAX_SAMPLING),
        "when_ms": uint,
        "peer": text,
        "name": text,
        "colour": colour_pattern,
    },
)
conversation_changed_codec: Final = record(
    ConversationChanged,
    {
        "conversation": id_pattern,
        "title": text,
        "model": text,
        "system": prose(MAX_MESSAGE_BYTES),
        "sampling": listed(integer, MAX_SAMPLING),
    },
)
conversation_removed_codec: Final = record(ConversationRemoved, {"conversation": id_pattern})
participant_set_codec: Final = record(
    ParticipantSet,
    {"conversation": id_pattern, "peer": text, "name": text, "colour": colour_pattern, "role": role_codec},
)
participant_left_codec: Final = record(ParticipantLeft, {"conversation": id_pattern, "peer": text})
message_added_codec: Final = record(
    MessageAdded,
    {
        "conversation": id_pattern,
        "id": id_pattern,
        "parent": parent_pattern,
        "author": text,
        "form": form_codec,
        "text": prose(MAX_MESSAGE_BYTES),
        "when_ms": uint,
        "session": maybe_session_pattern,
        "model": text,
        "sampling": listed(integer, MAX_SAMPLING),
        "max_tokens": uint,
    },
)
message_extended_codec: Final = record(
    MessageExtended,
    {
        "conversation": id_pattern,
        "id": id_pattern,
        "after": uint,
        "tokens": uint,
        "text": prose(MAX_MESSAGE_BYTES),
    },
)
message_ended_codec: Final = record(
    MessageEnded,
    {
        "conversation": id_pattern,
        "id": id_pattern,
        "state": ended_codec,
        "tokens": uint,
        "text": maybe(prose(MAX_MESSAGE_BYTES)),
        "reason": text,
    },
)
answer_adopted_codec: Final = record(
    AnswerAdopted,
    {
        "conversation": id_pattern,
        "id": id_pattern,
        "before": text,
        "author": text,
        "session": session_pattern,
    },
)
entry_chosen_codec: Final = record(EntryChosen, {"conversation": id_pattern, "by_invite": flag})
entry_offered_codec: Final = record(
    EntryOffered,
    {"conversation": id_pattern, "key": invite_key_pattern, "role": given_codec, "by": text, "when_ms": uint},
)
entry_withdrawn_codec: Final = record(EntryWithdrawn, {"conversation": id_pattern, "key": invite_key_pattern})
participant_invited_codec: Final = record(
    ParticipantInvited,
    {
        "conversation": id_pattern,
        "key": invite_key_pattern,
        "peer": text,
        "name": text,
        "colour": colour_pattern,
        "proof": proof_pattern,
    },
)
participant_put_out_codec: Final = record(ParticipantPutOut, {"conversation": id_pattern, "peer": text})
work_recorded_codec: Final = record(WorkRecorded, {"entries": listed(work_codec, MAX_ENTRIES)})
fairness_chosen_codec: Final = record(
    FairnessChosen, {"policy": policy_codec, "allowance_milli": uint, "checks_ppm": uint}
)
check_failed_codec: Final = record(
    CheckFailed,
    {"session": session_pattern, "position": uint, "units": span, "peer": text, "by": text, "when_ms": uint},
)
peer_pardoned_codec: Final = record(PeerPardoned, {"peer": text})
standby_ready_codec: Final = record(StandbyReady, {"peer": text, "version": uint, "ready": listed(span)})
transaction_begun_codec: Final = record(
    TransactionBegun,
    {
        "id": id_pattern,
        "peer": text,
        "operation": operation_kind_codec,
        "units": maybe(span),
        "session": maybe_session_pattern,
        "to": text,
        "when_ms": uint,
    },
)
transaction_ended_codec: Final = record(
    TransactionEnded, {"id": id_pattern, "state": ending_codec, "reason": text}
)
signaling_listed_codec: Final = record(SignalingListed, {"addresses": listed(address_pattern, MAX_ADDRESSES)})
cuts_fixed_codec: Final = record(CutsFixed, {"cuts": maybe(listed(uint))})
plan_wished_codec: Final = record(
    PlanWished,
    {
        "strategy": plan_strategy_codec,
        "goal": goal_codec,
        "components": listed(group_codec, MAX_COMPONENTS),
        "min_tensor_bytes": uint,
    },
    since={
        "min_tensor_bytes": 0,
    },
    omit={"min_tensor_bytes"},
)
model_offered_codec: Final = record(ModelOffered, {"model": model_id_pattern, "name": model_name_pattern})
model_withdrawn_codec: Final = record(ModelWithdrawn, {"name": model_name_pattern})
model_placed_codec: Final = record(
    ModelPlaced,
    {
        "name": model_name_pattern,
        "version": uint,
        "stages": listed(run_stage_codec, MAX_RUN_STAGES),
        "latency_us": uint,
        "rate_milli": uint,
        "why": listed(text),
    },
)
decoder_offered_codec: Final = record(
    DecoderOffered,
    {
        "name": model_name_pattern,
        "model": model_id_pattern,
        "units": uint,
        "context": uint,
        "sessions": uint,
        "objective": objective_codec,
    },
)
decoder_planned_codec: Final = record(DecoderPlanned, {"name": model_name_pattern, "plan": plan_record_codec})
decoder_activated_codec: Final = record(DecoderActivated, {"name": model_name_pattern, "version": uint})
decoder_refused_codec: Final = record(DecoderRefused, {"name": model_name_pattern, "reason": text})
decoder_held_codec: Final = record(
    DecoderHeld, {"name": model_name_pattern, "peer": text, "held": listed(span)}
)
CODECS: Final[Mapping[type[Any], Codec[Any]]] = {
    ModelChosen: model_chosen_codec,
    MemberJoined: member_joined_codec,
    MemberMeasured: member_measured_codec,
    PlanProposed: plan_proposed_codec,
    UnitsHeld: units_held_codec,
    PlanActivated: plan_activated_codec,
    PlanRefused: plan_refused_codec,
    MemberDraining: member_draining_codec,
    MemberPaused: member_paused_codec,
    MemberRenamed: member_renamed_codec,
    MemberLeaving: member_leaving_codec,
    MemberLeft: member_left_codec,
    ProtectionChosen: protection_chosen_codec,
    RoleGiven: role_given_codec,
    RoleTaken: role_taken_codec,
    InviteRecorded: invite_recorded_codec,
    InviteRevoked: invite_revoked_codec,
    ConversationStarted: conversation_started_codec,
    ConversationChanged: conversation_changed_codec,
    ConversationRemoved: conversation_removed_codec,
    ParticipantSet: participant_set_codec,
    ParticipantLeft: participant_left_codec,
    MessageAdded: message_added_codec,
    MessageExtended: message_extended_codec,
    MessageEnded: message_ended_codec,
    AnswerAdopted: answer_adopted_codec,
    EntryChosen: entry_chosen_codec,
    EntryOffered: entry_offered_codec,
    EntryWithdrawn: entry_withdrawn_codec,
    ParticipantInvited: participant_invited_codec,
    ParticipantPutOut: participant_put_out_codec,
    WorkRecorded: work_recorded_codec,
    FairnessChosen: fairness_chosen_codec,
    CheckFailed: check_failed_codec,
    PeerPardoned: peer_pardoned_codec,
    StandbyReady: standby_ready_codec,
    TransactionBegun: transaction_begun_codec,
    TransactionEnded: transaction_ended_codec,
    SignalingListed: signaling_listed_codec,
    CutsFixed: cuts_fixed_codec,
    PlanWished: plan_wished_codec,
    ModelOffered: model_offered_codec,
    ModelWithdrawn: model_withdrawn_codec,
    ModelPlaced: model_placed_codec,
    DecoderOffered: decoder_offered_codec,
    DecoderPlanned: decoder_planned_codec,
    DecoderActivated: decoder_activated_codec,
    DecoderRefused: decoder_refused_codec,
    DecoderHeld: decoder_held_codec,
}

# The version of the protocol that brought a command, where that is above the lowest one.
SINCE: Final[Mapping[type[Any], int]] = {
    MemberRenamed: 5,
    EntryChosen: 4,
    EntryOffered: 4,
    EntryWithdrawn: 4,
    ParticipantInvited: 4,
    ParticipantPutOut: 4,
    ModelOffered: 5,
    ModelWithdrawn: 5,
    ModelPlaced: 5,
    DecoderOffered: 6,
    DecoderPlanned: 6,
    DecoderActivated: 6,
    DecoderRefused: 6,
    DecoderHeld: 6,
}

# Who may propose a command: the leader, an owner, a member that is there to stay (headless), the
# member that the named field names, or as the rules of conversations and operations have it.
PROPOSED_BY: Final[Mapping[type[Any], str]] = {
    ModelChosen: "leader",
    MemberJoined: "leader",
    MemberMeasured: "leader",
    PlanProposed: "leader",
    UnitsHeld: "leader",
    PlanActivated: "leader",
    PlanRefused: "leader",
    MemberDraining: "leader",
    MemberPaused: "leader",
    MemberRenamed: "peer",
    MemberLeaving: "leader",
    MemberLeft: "leader",
    ProtectionChosen: "owner",
    RoleGiven: "owner",
    RoleTaken: "owner",
    InviteRecorded: "owner",
    InviteRevoked: "owner",
    ConversationStarted: "rules",
    ConversationChanged: "rules",
    ConversationRemoved: "rules",
    ParticipantSet: "rules",
    ParticipantLeft: "rules",
    MessageAdded: "rules",
    MessageExtended: "rules",
    MessageEnded: "rules",
    AnswerAdopted: "rules",
    EntryChosen: "rules",
    EntryOffered: "rules",
    EntryWithdrawn: "rules",
    ParticipantInvited: "rules",
    ParticipantPutOut: "rules",
    WorkRecorded: "leader",
    FairnessChosen: "owner",
    CheckFailed: "by",
    PeerPardoned: "owner",
    StandbyReady: "peer",
    TransactionBegun: "peer",
    TransactionEnded: "rules",
    SignalingListed: "headless",
    CutsFixed: "owner",
    PlanWished: "owner",
    ModelOffered: "owner",
    ModelWithdrawn: "owner",
    ModelPlaced: "leader",
    DecoderOffered: "owner",
    DecoderPlanned: "leader",
    DecoderActivated: "leader",
    DecoderRefused: "leader",
    DecoderHeld: "leader",
}
