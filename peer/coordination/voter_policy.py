"""Decides who votes in the consensus group and who leads it: from what the leader sees, the next single change.

Pure; web_peer/src/coordination/voter_policy.ts is its twin, tests/vectors/voting.json holds them equal. Every member
learns the log; up to five of them vote.

How many vote: 5, 3 or 1. An even number loses its majority as soon as the next lower odd one does, and has one voter
more that can be lost: 2 is worse than 1, 4 than 3. So an even number is only ever passed through, on the way to an odd
one whose last voter is there already. A mesh of two has one voter: the other one may go without harm.

Who votes: peers without a window first, five or three of them. Only where there are fewer than three, browsers that
were here long enough and keep what they store: one beside two such peers, which are a majority by themselves, else up
to five in all. Who is hidden, low on battery, flapping, without durable storage or away for a while comes after all
who are well, and votes only where else fewer than three would: a voter in the background is better than a mesh that
nobody can save. Among equals those stay who vote, the leader above all, then who was here first.

Where a process leads and no other process that votes is here, a browser that is away loses its vote at once: mostly it
was closed, and the next one may be within the second. A process and two browsers, which go one after the other, would
be one voter of three without that.

What makes a change pay: it leads to a set that ranks higher by facts that have lasted (`Patience`); what is stays,
until the contrary has lasted. Any other voter that is away is replaced after `lost_ms`, when another can take its
place; with no other it keeps its seat until `gone_ms`, since its return can save a mesh that loses one more. Of two
ways the one with more voters to spare is taken: a voter that is there goes after its successor votes, a dead one
before. A change whose own configuration has no majority of connected, caught-up voters is not proposed. An even
configuration of which just half is connected shrinks at once: that needs nobody who is away, and gives a majority
back.

Leadership goes from a browser to a peer without a window, from who is not well to who is, from who shall not vote to
who shall, and before a polite leave to the best that is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from peer.consensus.events import AddLearner, Change, Config, Demote, Promote, Remove, Server

MAX_VOTERS: Final = 5
ENOUGH: Final = 3  # voters, so that any one of them may vanish


@dataclass(frozen=True, slots=True)
class Patience:
    """How long things last before they count, in ms. Short in tests, never zero in a real mesh."""

    settle_ms: int = 5_000  # a peer without a window is connected so long before it may vote
    long_ms: int = 30_000  # a browser
    lost_ms: int = (
        60_000  # a voter is away so long before another takes its place: a restart, a reload, a nap
    )
    gone_ms: int = 600_000  # and so long before it loses its seat although there is no other
    ailing_ms: int = 30_000  # a voter is hidden or low on battery so long before it matters
    calm_ms: int = 60_000  # and others are well again for so long
    again_ms: int = 10_000  # after a hand-over that failed


PATIENCE: Final = Patience()
FLAPS: Final = 3  # so many losses within the window below are flapping
FLAP_WINDOW_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class Sight:
    """What the leader sees of a peer. A peer is ailing while its tab is hidden or its battery low."""

    connected: bool
    connected_ms: int  # since when that is so
    ailing: bool
    ailing_ms: int | None  # since when that is so; None: it was never ailing
    flapping: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member of the mesh."""

    id: str
    incarnation: int  # of its present life, the newest that is known
    headless: bool  # no window that somebody can close
    durable: bool  # keeps what it stores over a restart
    may_vote: bool  # false for who only asks, and for who wishes not to
    seniority: int  # index of the entry by which it joined
    leaving: bool  # it said that it goes
    caught_up: bool  # has nearly all of the log
    sight: Sight


@dataclass(frozen=True, slots=True)
class Situation:
    """What the leader knows. `settled`: it has committed an entry of its term, and the last change of configuration."""

    now_ms: int
    leader: str
    config: Config
    candidates: tuple[Candidate, ...]  # every member, the leader too
    settled: bool
    handed_over_ms: int | None = None  # when it last tried to hand over leadership


@dataclass(frozen=True, slots=True)
class HandOver:
    """Leadership goes to `to`."""

    to: str


@dataclass(frozen=True, slots=True)
class Move:
    """What to do next, and why, for logs and people."""

    do: Change | HandOver
    why: str


def next_move(situation: Situation, patience: Patience = PATIENCE) -> Move | None:
    """The next single change; None: everything is as it should be, or has to wait. Asked again after every change."""
    view = _View(situation, patience)
    if not situation.settled or not {situation.leader} <= view.members.keys() & set(view.voters):
        return None
    rules = (_shrink, _leave, _follow_members, _approach, _hand_over)
    return next((move for rule in rules if (move := rule(view)) is not None), None)


def wanted_voters(situation: Situation, patience: Patience = PATIENCE) -> tuple[str, ...]:
    """Who should vote by what is known now, in the order of their ids."""
    return tuple(sorted(_View(situation, patience).wanted))


# --- how members stand


class _Tier(IntEnum):
    WELL = 0
    WEAK = 1
    AWAY = 2  # a voter that may come back


class _View:
    """A situation with what follows from it."""

    def __init__(self, situation: Situation, patience: Patience) -> None:
        self.now_ms = situation.now_ms
        self.leader = situation.leader
        self.servers = situation.config.servers
        self.voters = situation.config.voters
        self.members = {member.id: member for member in sorted(situation.candidates, key=lambda m: m.id)}
        self.patience = patience
        tried = situation.handed_over_ms
        self.may_hand_over = tried is None or self.now_ms - tried >= patience.again_ms
        self._lives = {
            server.id: server.voter
            for server in self.servers
            if (member := self.members.get(server.id)) is not None
            and member.incarnation == server.incarnation
        }
        self.alive = frozenset(peer for peer in self.voters if self.ready(peer))
        self.tiers = {peer: tier for peer in self.members if (tier := self._tier(peer)) is not None}
        self.wanted = self._wanted()

    def here(self, peer: str) -> bool:
        """The leader, or a connected member in the life that the configuration names."""
        return peer == self.leader or (peer in self._lives and self.members[peer].sight.connected)

    def ready(self, peer: str) -> bool:
        """Can acknowledge the next entry."""
        return peer == self.leader or (self.here(peer) and self.members[peer].caught_up)

    def spare(self, change: Change) -> int:
        """How many more may be lost once `change` holds; below 0: it could not even be committed."""
        voters = set(self.voters)
        match change:
            case Promote(peer):
                voters.add(peer)
            case Demote(peer) | Remove(peer) | AddLearner(peer):
                voters.discard(peer)
        return sum(self.ready(peer) for peer in voters) - (len(voters) // 2 + 1)

    def rank(self, peer: str) -> tuple[int, bool, bool, bool, bool, int, str]:
        """The lower, the rather it votes."""
        member = self.members[peer]
        return (
            self.tiers.get(peer, len(_Tier)),
            not member.headless,
            not member.durable,
            peer not in self.voters,
            peer != self.leader,
            member.seniority,
            peer,
        )

    def settled_in(self, peer: str) -> bool:
        member = self.members[peer]
        long = self.patience.settle_ms if member.headless else self.patience.long_ms
        return peer == self.leader or (
            member.sight.connected and self.now_ms - member.sight.connected_ms >= long
        )

    def _tier(self, peer: str) -> _Tier | None:
        """None: it should not vote, whoever else there is."""
        member, sight = self.members[peer], self.members[peer].sight
        votes = peer == self.leader or self._lives.get(peer)
        if votes is None or member.leaving or not member.may_vote:
            return None
        weak = sight.flapping or not (member.headless or member.durable)
        if not votes:
            calm = sight.ailing_ms is None or self.now_ms - sight.ailing_ms >= self.patience.calm_ms
            if not member.caught_up or not self.settled_in(peer):
                return None
            return _Tier.WEAK if weak or sight.ailing or not calm else _Tier.WELL
        away_ms = 0 if self.here(peer) else self.now_ms - sight.connected_ms
        if not self.here(peer) and not member.headless and self._lone_process_leads():
            return None
        if away_ms >= self.patience.lost_ms:
            return _Tier.AWAY if away_ms < self.patience.gone_ms else None
        ailing = sight.ailing and self.now_ms - (sight.ailing_ms or 0) >= self.patience.ailing_ms
        return _Tier.WEAK if weak or ailing else _Tier.WELL

    def _lone_process_leads(self) -> bool:
        processes = {peer for peer in self.voters if peer in self.members and self.members[peer].headless}
        return self.leader in processes and not any(self.here(peer) for peer in processes - {self.leader})

    def _wanted(self) -> frozenset[str]:
        pool = sorted(self.tiers, key=self.rank)
        well = [peer for peer in pool if self.tiers[peer] is _Tier.WELL]
        headless = [peer for peer in well if self.members[peer].headless]
        if len(headless) >= ENOUGH:
            return _first_odd(headless, MAX_VOTERS)
        if len(well) >= ENOUGH:
            return _first_odd(well, ENOUGH if len(headless) == ENOUGH - 1 else MAX_VOTERS)
        return _first_odd(pool, ENOUGH) if pool else frozenset(self.voters)


def _first_odd(peers: Sequence[str], most: int) -> frozenset[str]:
    count = min(len(peers), most)
    return frozenset(peers[: count if count % 2 else count - 1])


# --- the rules, the most urgent first


def _shrink(view: _View) -> Move | None:
    """Half of an even configuration is away: without one of those the other half is a majority."""
    if len(view.voters) != 2 * len(view.alive):
        return None
    away = [peer for peer in view.voters if not view.here(peer)]
    if not away:
        return None
    peer = away[-1]
    change = Demote(peer) if peer in view.members else Remove(peer)
    return Move(
        change, f"half of {len(view.voters)} voters is away: without {peer} the others are a majority"
    )


def _leave(view: _View) -> Move | None:
    """The leader goes: to the best voter, and where there is none, the best learner votes first."""
    leader = view.members.get(view.leader)
    if leader is None or not leader.leaving:
        return None
    others = sorted(
        (
            peer
            for peer, member in view.members.items()
            if peer != view.leader and not member.leaving and member.may_vote and view.ready(peer)
        ),
        key=view.rank,
    )
    voters = [peer for peer in others if peer in view.voters]
    if voters:
        return Move(HandOver(voters[0]), "the leader leaves")
    for peer in others:
        if view.spare(Promote(peer)) >= 0:
            return Move(Promote(peer), "the leader leaves, and nobody else votes")
    return None


def _follow_members(view: _View) -> Move | None:
    """Who left goes, who came learns, and who lost its storage learns anew in its present life; voters first."""
    known = {server.id for server in view.servers}
    came = (member for member in view.members.values() if member.id not in known and _learns(member))
    lives = (
        _other_life(view, server)
        for server in sorted(view.servers, key=lambda server: not server.voter)
        if server.id != view.leader
    )
    steps: list[tuple[Change, str]] = [step for step in lives if step is not None]
    for member in sorted(came, key=lambda member: (not member.headless, member.seniority, member.id)):
        steps.append((AddLearner(member.id, member.incarnation), f"{member.id} came"))
    return next((Move(change, why) for change, why in steps if view.spare(change) >= 0), None)


def _other_life(view: _View, server: Server) -> tuple[Change, str] | None:
    peer, member = server.id, view.members.get(server.id)
    if member is None:
        return Remove(peer), f"{peer} is no member any more"
    if member.incarnation < server.incarnation:  # its clock was set back
        return Remove(peer), f"{peer} came back in another life"
    if member.incarnation > server.incarnation and _learns(member):
        return AddLearner(peer, member.incarnation), f"{peer} lost what it had stored"
    return None


def _learns(member: Candidate) -> bool:
    return member.sight.connected and not member.leaving


def _approach(view: _View) -> Move | None:
    """One step from those who vote to those who should; of two steps the one that leaves more to spare."""
    come = sorted(view.wanted - set(view.voters), key=view.rank)
    go = sorted(
        (peer for peer in view.members if peer in view.voters and peer not in {view.leader, *view.wanted}),
        key=view.rank,
        reverse=True,
    )
    steps: list[tuple[Change, str]] = [
        (Demote(peer), f"{peer} {_failing(view, peer)}")
        for peer in sorted(go, key=lambda peer: peer in view.alive)
    ]
    if len(view.voters) < MAX_VOTERS:
        steps += [(Promote(peer), f"{peer} can vote") for peer in come]
    best, best_spare = None, -1
    for change, why in steps:
        spare = view.spare(change)
        if spare > best_spare:
            best, best_spare = Move(change, why), spare
    return best


def _failing(view: _View, peer: str) -> str:
    member = view.members.get(peer)
    if member is None or not view.here(peer):
        return "is away"
    if member.leaving:
        return "leaves"
    tier = view.tiers.get(peer)
    if tier is None:
        return "does not vote"
    return "is hidden, low on battery or flapping" if tier is _Tier.WEAK else "is not needed to vote"


def _hand_over(view: _View) -> Move | None:
    """To the best voter, where it is better by more than a shade, or the leader should not vote."""
    if not view.may_hand_over:
        return None
    others = [
        peer
        for peer in view.voters
        if peer != view.leader and peer in view.wanted and view.ready(peer) and view.settled_in(peer)
    ]
    if not others:
        return None
    best = min(others, key=view.rank)
    if view.leader not in view.wanted:
        return Move(HandOver(best), f"{view.leader} should not vote")
    if view.rank(best)[:2] < view.rank(view.leader)[:2]:
        reason = "has no window" if view.members[best].headless else "is well"
        return Move(HandOver(best), f"{best} {reason}")
    return None


# --- what is seen of members


class Watch:
    """Tells since when things are so. A new leader begins with a new one: patience begins anew with it."""

    def __init__(self) -> None:
        self._seen: dict[str, Sight] = {}
        self._losses: dict[str, list[int]] = {}  # the last FLAPS

    def see(self, now_ms: int, peer: str, connected: bool, ailing: bool) -> None:
        """How `peer` is now; to be said of every member whenever that changes, and before each decision."""
        before = self._seen.get(peer)
        if before is None:
            self._seen[peer] = Sight(connected, now_ms, ailing, now_ms if ailing else None, False)
            return
        if before.connected and not connected:
            self._losses[peer] = [*self._losses.get(peer, []), now_ms][-FLAPS:]
        self._seen[peer] = Sight(
            connected,
            now_ms if connected is not before.connected else before.connected_ms,
            ailing,
            now_ms if ailing is not before.ailing else before.ailing_ms,
            False,
        )

    def sight(self, now_ms: int, peer: str) -> Sight:
        """Of a peer that was never seen: not connected, since now."""
        seen = self._seen.get(peer, Sight(False, now_ms, False, None, False))
        recent = [at for at in self._losses.get(peer, []) if now_ms - at < FLAP_WINDOW_MS]
        flapping = len(recent) >= FLAPS
        return Sight(seen.connected, seen.connected_ms, seen.ailing, seen.ailing_ms, flapping)

    def keep(self, known: Callable[[str], bool]) -> None:
        """Forgets those who left."""
        for peer in [peer for peer in self._seen if not known(peer)]:
            del self._seen[peer]
            self._losses.pop(peer, None)
