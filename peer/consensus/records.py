"""What a log holds: entries, configurations, snapshots, and the term and vote beside them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

MAX_UNCOMMITTED: Final = 4096  # entries that a leader lets wait for a majority

EntryKind = Literal["noop", "command", "config"]


@dataclass(frozen=True, slots=True)
class Server:
    """A member of the group. `incarnation` rises whenever its storage was lost or it comes back after a removal."""

    id: str
    incarnation: int
    voter: bool


@dataclass(frozen=True)
class Config:
    """The members of the group, ordered by id, each id once. The newest in a log holds as soon as it is there (4.1)."""

    servers: tuple[Server, ...] = ()

    @cached_property
    def voters(self) -> tuple[str, ...]:
        """The ids of those that vote, in order."""
        return tuple(server.id for server in self.servers if server.voter)

    @cached_property
    def by_id(self) -> dict[str, Server]:
        """The servers by their ids."""
        return {server.id: server for server in self.servers}

    def votes(self, peer: str, incarnation: int) -> bool:
        """Whether this incarnation of `peer` is a voter."""
        server = self.by_id.get(peer)
        return server is not None and server.voter and server.incarnation == incarnation


@dataclass(frozen=True, slots=True)
class Entry:
    """`data` of a "config" is that of `message_codec.config_bytes`; of a "noop" it is empty."""

    index: int
    term: int
    kind: EntryKind
    data: bytes


@dataclass(frozen=True, slots=True)
class HardState:
    """The current term, and whom this server voted for in it ("": nobody)."""

    term: int = 0
    vote: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state machine after `index`, whose entry had `term`, and the configuration that held then."""

    index: int
    term: int
    config: Config
    data: bytes


def founding(me: str, incarnation: int, data: bytes = b"", index: int = 1, term: int = 1) -> Snapshot:
    """Returns what a peer stores that begins a mesh, or a new group_epoch of one from its applied state.

    It alone votes. Boot it with HardState(term=term, vote="").
    """
    return Snapshot(index, term, Config((Server(me, incarnation, True),)), data)
