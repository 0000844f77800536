"""The messages between Raft servers; message_codec has their bytes. Pure.

Every message carries its sender, the incarnations of sender and receiver, mesh and epoch, and the sender's
term. Generated from schema/consensus.toml by `make generate`: change that, not this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from peer.consensus.records import Config, Entry


@dataclass(frozen=True, slots=True)
class PreVote:
    """Pre-vote for `campaign_term` (9.6); Message.term is the term that the sender is really in."""

    campaign_term: int
    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class PreVoteReply:
    """The answer to a PreVote."""

    campaign_term: int  # of the question: the answer counts even where the sender's own term is lower
    granted: bool


@dataclass(frozen=True, slots=True)
class Vote:
    """RequestVote (3.4). `transfer`: the leader asked for this election itself (3.10), so voters answer
    although they have one.
    """

    last_index: int
    last_term: int
    transfer: bool


@dataclass(frozen=True, slots=True)
class VoteReply:
    """The answer to a Vote."""

    granted: bool


@dataclass(frozen=True, slots=True)
class Append:
    """AppendEntries (3.5); without entries a heartbeat, which checks `prev` all the same.

    `seq` rises with every message that this leader sends in its term; answers repeat it, but for the refusal
    of an older term, which is numbered 0.
    """

    seq: int
    prev_index: int
    prev_term: int
    commit: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class AppendReply:
    """ok: everything up to `index` agrees with the leader and is durable. Else: `index` is the refused
    `prev_index`, and no entry after `hint_index` can agree; `hint_term` is the term of the entry there.
    """

    seq: int
    ok: bool
    index: int
    hint_index: int
    hint_term: int


@dataclass(frozen=True, slots=True)
class Install:
    """InstallSnapshot (5): one chunk. One without data at offset 0 asks how much is there already."""

    seq: int
    index: int
    snapshot_term: int
    config: Config
    total: int  # bytes
    crc: int  # CRC-32 of all bytes
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class InstallReply:
    """`offset` bytes of the snapshot (index, snapshot_term) are here. At its end comes an AppendReply, once stored."""

    seq: int
    index: int
    snapshot_term: int
    offset: int


@dataclass(frozen=True, slots=True)
class TimeoutNow:
    """The receiver is to campaign at once (3.10)."""


@dataclass(frozen=True, slots=True)
class ReadIndex:
    """A member other than the leader asks for a read index (6.4)."""

    read: int


@dataclass(frozen=True, slots=True)
class ReadIndexReply:
    """The answer to a ReadIndex."""

    read: int
    ok: bool
    index: int


Body = (
    PreVote
    | PreVoteReply
    | Vote
    | VoteReply
    | Append
    | AppendReply
    | Install
    | InstallReply
    | TimeoutNow
    | ReadIndex
    | ReadIndexReply
)


@dataclass(frozen=True, slots=True)
class Message:
    """A message with its envelope."""

    mesh_id: str
    group_epoch: int
    sender: str
    sender_incarnation: int
    to_incarnation: int
    term: int
    body: Body


# Name, key on the wire and type of each field.
HEAD_FIELDS: Final = (
    ("mesh_id", "m", "id"),
    ("group_epoch", "g", "uint"),
    ("sender", "s", "id"),
    ("sender_incarnation", "i", "uint"),
    ("to_incarnation", "o", "uint"),
    ("term", "t", "uint"),
)
# The kind "k" on the wire is the place here.
BODY_FIELDS: Final[tuple[tuple[type[Any], tuple[tuple[str, str, str], ...]], ...]] = (
    (
        PreVote,
        (
            ("campaign_term", "c", "uint"),
            ("last_index", "l", "uint"),
            ("last_term", "r", "uint"),
        ),
    ),
    (
        PreVoteReply,
        (
            ("campaign_term", "c", "uint"),
            ("granted", "y", "flag"),
        ),
    ),
    (
        Vote,
        (
            ("last_index", "l", "uint"),
            ("last_term", "r", "uint"),
            ("transfer", "f", "flag"),
        ),
    ),
    (VoteReply, (("granted", "y", "flag"),)),
    (
        Append,
        (
            ("seq", "q", "uint"),
            ("prev_index", "p", "uint"),
            ("prev_term", "r", "uint"),
            ("commit", "c", "uint"),
            ("entries", "e", "entries"),
        ),
    ),
    (
        AppendReply,
        (
            ("seq", "q", "uint"),
            ("ok", "y", "flag"),
            ("index", "x", "uint"),
            ("hint_index", "h", "uint"),
            ("hint_term", "r", "uint"),
        ),
    ),
    (
        Install,
        (
            ("seq", "q", "uint"),
            ("index", "x", "uint"),
            ("snapshot_term", "r", "uint"),
            ("config", "c", "config"),
            ("total", "n", "uint"),
            ("crc", "z", "uint"),
            ("offset", "f", "uint"),
            ("data", "d", "data"),
        ),
    ),
    (
        InstallReply,
        (
            ("seq", "q", "uint"),
            ("index", "x", "uint"),
            ("snapshot_term", "r", "uint"),
            ("offset", "f", "uint"),
        ),
    ),
    (TimeoutNow, ()),
    (ReadIndex, (("read", "n", "uint"),)),
    (
        ReadIndexReply,
        (
            ("read", "n", "uint"),
            ("ok", "y", "flag"),
            ("index", "x", "uint"),
        ),
    ),
)
