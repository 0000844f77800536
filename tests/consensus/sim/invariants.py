"""Says at once when something that must hold does not, from what the cores are told and what they want done.

Nothing here looks inside a core: logs, votes and commits are followed through Persist, Send and Apply. What is
checked, with the sections of Ongaro's thesis: one leader per term and one vote per server and term (3.4), entries that
are the same wherever index and term are (3.5), leaders that only append (3.5), commits by a majority that has the
entry on its disks and only of the leader's own term (3.6), leaders that have everything committed (3.6.3), the same
history applied everywhere (3.6.3), changes of one voter at a time (4.1), votes asked for before terms rise (9.6),
leaders that lead no longer than they hear a majority (6.2), and reads that see all that was answered before (6.4).
"""

from __future__ import annotations

from peer.consensus.events import Apply, Persist, ReadReady, Restore, Role, StoreSnapshot
from peer.consensus.messages import Append, AppendReply, Install, Message, PreVoteReply, TimeoutNow, VoteReply
from peer.consensus.records import Config, Entry
from tests.consensus.sim.member import Member, config_of
from tests.consensus.sim.schedule import Timing
from tests.consensus.sim.storage import Wrong, config_text

Life = tuple[str, int]  # id and incarnation


class Invariants:
    """Everything that was ever seen in one run. Each method raises Wrong."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._leaders: dict[int, Life] = {}
        self._votes: dict[tuple[str, int, int], str] = {}  # id, incarnation, term: for whom
        self._granted: dict[tuple[int, str], set[str]] = {}
        self._would_grant: dict[tuple[int, str], set[str]] = {}
        self._entries: dict[
            tuple[int, int], tuple[int, Entry]
        ] = {}  # index, term: the term before it, and it
        self._stored: dict[tuple[int, int], set[Life]] = {}
        self._covered: dict[Life, int] = {}  # by a durable snapshot
        self.committed = 0
        self._commits: list[tuple[int, int]] = []  # each rise of it, and the term of the leader that counted
        self.committed_terms: dict[int, int] = {}
        self.states: dict[int, int] = {}  # index: the checksum of the history up to it
        self.applied = 0  # the highest anywhere: a client can have heard of it

    # --- at the start

    def founded(self, index: int, term: int, value: int) -> None:
        """The snapshot that all of the first voters have."""
        self.committed = self.applied = index
        self.committed_terms[index] = term
        self.states[index] = value

    # --- what a core wants

    def persist(self, member: Member, effect: Persist) -> None:
        """Before it is written to the log of `member`."""
        term, vote = member.issued
        if effect.term < term:
            raise Wrong(f"{member.id} goes back from term {term} to {effect.term}")
        if effect.term == term and vote and effect.vote != vote:
            raise Wrong(f"{member.id} forgets in term {term} that it voted for {vote}")
        member.issued = (effect.term, effect.vote)
        leads = member.role == "leader" and member.term == effect.term
        if effect.truncate_from:
            self._dropped(member, effect.truncate_from, "truncates")
            if leads:
                raise Wrong(f"{member.id} leads term {member.term} and drops entries of its own log")
        log = member.log
        before = member.term_at((effect.truncate_from or log.last + 1) - 1)
        log.write(effect.truncate_from, effect.entries)
        if effect.truncate_from:
            member.recheck = True
            while member.configs and member.configs[-1][0] >= effect.truncate_from:
                member.configs.pop()
        for entry in effect.entries:
            if entry.term < before or entry.term > effect.term:
                raise Wrong(
                    f"{member.id} in term {effect.term} writes an entry of {entry.term} after {before}"
                )
            known = self._entries.setdefault((entry.index, entry.term), (before, entry))
            if known[0] != before:
                raise Wrong(f"entry {entry.index} of term {entry.term} follows both {known[0]} and {before}")
            if known[1] != entry:
                raise Wrong(f"entry {entry.index} of term {entry.term} is not the same everywhere")
            if leads and self.committed_terms.get(entry.index, entry.term + 1) <= entry.term:
                raise Wrong(f"leader {member.id} writes {entry.index}, committed up to {self.committed}")
            if entry.kind == "config":
                self._config(member, entry)
            before = entry.term

    def stores(self, member: Member, effect: StoreSnapshot) -> None:
        """Before the log of `member` is cut."""
        snapshot = effect.snapshot
        if snapshot.index > self.committed:
            raise Wrong(f"{member.id} keeps a snapshot at {snapshot.index}, committed up to {self.committed}")
        if snapshot.index < member.snapshot_at[0]:
            raise Wrong(
                f"{member.id} goes back to a snapshot at {snapshot.index} from {member.snapshot_at[0]}"
            )
        if self.committed_terms.get(snapshot.index, snapshot.term) != snapshot.term:
            raise Wrong(f"{member.id} says that entry {snapshot.index} has term {snapshot.term}")
        state = self.states.get(snapshot.index)
        if state is not None and snapshot.data != b"%d:%d" % (snapshot.index, state):
            raise Wrong(
                f"the snapshot of {member.id} at {snapshot.index} holds {snapshot.data!r}, not {state}"
            )
        if effect.first > snapshot.index + 1:
            raise Wrong(
                f"{member.id} keeps entries from {effect.first} on after a snapshot at {snapshot.index}"
            )
        self._dropped(member, max(effect.last, snapshot.index) + 1, "cuts away")
        member.log.cut(effect.first, effect.last)
        member.snapshot_at = (snapshot.index, snapshot.term)
        after = member.log.at(snapshot.index + 1)
        if after is not None and self._entries[after.index, after.term][0] != snapshot.term:
            raise Wrong(f"{member.id} keeps entry {after.index} after a snapshot that it does not follow")
        later = [found for found in member.configs if snapshot.index < found[0] <= effect.last]
        member.configs = [(snapshot.index, snapshot.term, snapshot.config), *later]
        member.recheck = True

    def sends(self, member: Member, to: str, message: Message) -> None:
        """Before it leaves `member`."""
        body = message.body
        if isinstance(body, Append):
            if member.role == "leader" and message.term == member.term:
                self.claims(member, body.commit)
                if (
                    body.entries
                    and body.entries[-1].index > self.committed
                    and to not in member.config().voters
                ):
                    raise Wrong(f"{member.id} sends the learner {to} entries that are not committed")
        elif isinstance(body, AppendReply):
            if body.ok and message.term > member.disk.term:
                raise Wrong(f"{member.id} follows in term {message.term}, which it has not stored")
            if body.ok and message.term == member.disk.term:
                self._acknowledges(member, body.index)
        elif isinstance(body, VoteReply):
            if body.granted:
                if self._votes.get((member.id, member.incarnation, message.term)) != to:
                    raise Wrong(
                        f"{member.id} grants {to} a vote in term {message.term} that it has not stored"
                    )
                self._granted.setdefault((message.term, to), set()).add(member.id)
        elif isinstance(body, PreVoteReply) and body.granted:
            self._would_grant.setdefault((body.campaign_term, to), set()).add(member.id)

    def became(self, member: Member, effect: Role, clock: int) -> None:
        """At `clock` of its own, before `member.role` and the like change."""
        if effect.term < member.term:
            raise Wrong(f"{member.id} goes back from term {member.term} to {effect.term}")
        if effect.role == "candidate" and (member.role != "candidate" or member.term != effect.term):
            if not member.told_to_campaign:
                would = self._would_grant.get((effect.term, member.id), set()) | {member.id}
                if not _majority(member.config(), would):
                    raise Wrong(f"{member.id} campaigns in term {effect.term} and was not told that it may")
            member.told_to_campaign = False
        if effect.role == "leader" and (member.role != "leader" or member.term != effect.term):
            self._elected(member, effect.term, clock)
        elif effect.role == "leader" and member.led[0] != effect.term:
            raise Wrong(f"{member.id} leads term {effect.term} after term {member.led[0]}")
        if effect.leader and effect.leader != self._leaders.get(effect.term, (effect.leader,))[0]:
            raise Wrong(f"{member.id} takes {effect.leader} for the leader of term {effect.term}")

    def claims(self, member: Member, commit: int) -> None:
        """The leader `member` says that everything up to `commit` is committed."""
        if commit <= self.committed:
            return
        term = member.led[0]
        if member.term_at(commit) != term:
            raise Wrong(
                f"{member.id} commits {commit} of term {member.term_at(commit)} by counting in term {term}"
            )
        if not self._counted(member, commit):
            have = self._stored.get((commit, term), set())
            raise Wrong(f"{member.id} commits {commit} of term {term}, which only {_lives(have)} have stored")
        for index in range(self.committed + 1, commit + 1):
            self.committed_terms[index] = member.term_at(index)
        self.committed = commit
        self._commits.append((commit, term))

    def applies(self, member: Member, effect: Apply) -> None:
        """Takes the entries into the state machine of `member`."""
        machine = member.machine
        last = effect.entries[-1].index
        if last > self.committed:
            if not member.led[0]:
                raise Wrong(f"{member.id} applies {last}, committed up to {self.committed}")
            self.claims(member, last)
        for entry in effect.entries:
            if entry.index != machine.index + 1:
                raise Wrong(f"{member.id} applies {entry.index} after {machine.index}")
            if self.committed_terms.get(entry.index, entry.term) != entry.term:
                raise Wrong(
                    f"{member.id} applies {entry.index} of term {entry.term}, "
                    f"committed is that of term {self.committed_terms[entry.index]}"
                )
            if member.disk.log.at(entry.index) != entry:
                raise Wrong(f"{member.id} applies {entry.index}, which is not on its disk")
            machine.take(entry)
            if self.states.setdefault(entry.index, machine.value) != machine.value:
                raise Wrong(f"{member.id} applies another entry {entry.index} than others did")
        self._has_applied(member)

    def restores(self, member: Member, effect: Restore) -> None:
        """The state machine of `member` was replaced."""
        snapshot, machine = effect.snapshot, member.machine
        if snapshot.index < machine.index:
            raise Wrong(f"{member.id} goes back to a snapshot at {snapshot.index} from {machine.index}")
        kept = member.disk.snapshot
        if kept is None or kept.index < snapshot.index:
            raise Wrong(f"{member.id} restores a snapshot at {snapshot.index} that it has not stored")
        member.machine = type(machine).of(snapshot.data)
        if self.states.get(snapshot.index, member.machine.value) != member.machine.value:
            raise Wrong(f"{member.id} restores another history up to {snapshot.index}")
        self._has_applied(member)

    def read(self, member: Member, effect: ReadReady, floor: int) -> None:
        """`floor`: what a client can have known to be applied when it asked."""
        if effect.index < floor:
            raise Wrong(f"{member.id} reads at {effect.index} what was applied up to {floor} before")
        if effect.index > self.committed:
            raise Wrong(f"{member.id} reads at {effect.index}, committed up to {self.committed}")
        if member.said_applied < effect.index:
            raise Wrong(f"{member.id} reads at {effect.index} and has applied {member.said_applied}")

    # --- what happens to a core

    def durable(self, member: Member, effect: Persist | StoreSnapshot) -> None:
        """`effect` of `member` was written."""
        life, disk = (member.id, member.incarnation), member.disk
        if disk.vote:
            self._vote(member, disk.term, disk.vote)
        if isinstance(effect, Persist):
            for entry in effect.entries:
                self._stored.setdefault((entry.index, entry.term), set()).add(life)
        elif disk.snapshot is not None:
            self._covered[life] = max(disk.snapshot.index, self._covered.get(life, 0))

    def hears(self, member: Member, message: Message, clock: int) -> None:
        """Before `message` comes to `member`, whose clock says `clock`."""
        if message.term < member.term:
            return
        kind = type(message.body)
        if member.role == "leader" and message.term == member.term:
            if kind is Append or kind is Install:
                raise Wrong(f"{message.sender} and {member.id} both lead term {message.term}")
            member.heard[message.sender] = clock
        elif kind is TimeoutNow:
            member.told_to_campaign = True

    def ticked(self, member: Member, clock: int) -> None:
        """After the clock of `member` came to `clock`: who still leads has heard a majority lately."""
        if member.role != "leader":
            return
        before, member.ticked_at = member.ticked_at, clock
        if clock - before > self._timing.election_min_ms:
            member.resumed_at = clock  # it stood still, and asks anew who follows it
        if clock - member.resumed_at <= 2 * self._timing.heartbeat_ms:
            return
        lately = clock - self._timing.election_max_ms - 2 * self._timing.heartbeat_ms - 1
        near = {peer for peer, at in member.heard.items() if at >= lately} | {member.id}
        if not _majority(member.config(), near):
            raise Wrong(f"{member.id} leads term {member.term} and has heard no majority for an election")

    # --- inside

    def _acknowledges(self, member: Member, index: int) -> None:
        disk = member.disk
        log = disk.log
        last = log.first + len(log.entries) - 1
        if index > last and (disk.snapshot is None or index > disk.snapshot.index):
            raise Wrong(f"{member.id} acknowledges {index} and has stored {last}")
        if log.first <= index <= last:
            entry = member.log.at(index)
            if entry is not None and entry != log.entries[index - log.first]:
                raise Wrong(f"{member.id} acknowledges {index} and has stored another")

    def _vote(self, member: Member, term: int, candidate: str) -> None:
        if self._votes.setdefault((member.id, member.incarnation, term), candidate) != candidate:
            other = self._votes[member.id, member.incarnation, term]
            raise Wrong(f"{member.id} votes for {other} and {candidate} in term {term}")

    def _elected(self, member: Member, term: int, clock: int) -> None:
        life = (member.id, member.incarnation)
        if self._leaders.setdefault(term, life) != life:
            raise Wrong(f"{self._leaders[term][0]} and {member.id} both lead term {term}")
        disk = member.disk
        if (disk.term, disk.vote) != (term, member.id):
            raise Wrong(f"{member.id} leads term {term} by a vote of its own that it has not stored")
        for_it = self._granted.get((term, member.id), set()) | {member.id}
        config = member.config()
        if not _majority(config, for_it):
            raise Wrong(f"{member.id} leads term {term} with votes of {' '.join(sorted(for_it))} only")
        before = member.configs[-2][2] if len(member.configs) > 1 else config
        if not config.votes(member.id, member.incarnation) and not before.votes(
            member.id, member.incarnation
        ):
            raise Wrong(f"{member.id} leads term {term} and is no voter of {config_text(config)}")
        self._has_committed(member, term)
        old = member.log.last
        while member.term_at(old) == term:  # what it writes as the leader may stand before Role
            old -= 1
        member.led, member.leading = (term, old), [(0, config)]
        member.heard = dict.fromkeys(config.voters, clock)

    def _has_committed(self, member: Member, term: int) -> None:
        """Whoever leads `term` has all that was committed in terms before."""
        for index, by in reversed(self._commits):
            if by < term:
                if index > member.snapshot_at[0] and member.term_at(index) != self.committed_terms[index]:
                    raise Wrong(f"{member.id} leads term {term} without entry {index}, which is committed")
                return

    def _dropped(self, member: Member, first: int, how: str) -> None:
        """Entries from `first` on go away: none of them may be committed."""
        if first <= self.committed and first > member.snapshot_at[0]:
            entry = member.log.at(first)
            if entry is not None and self.committed_terms.get(first) == entry.term:
                raise Wrong(f"{member.id} {how} entry {first} of term {entry.term}, which is committed")

    def _config(self, member: Member, entry: Entry) -> None:
        config = config_of(entry)
        if member.configs:
            index, _, before = member.configs[-1]
            old, new = _voting(before), _voting(config)
            if len(old ^ new) > 1:
                raise Wrong(f"{member.id} changes {config_text(before)} to {config_text(config)} at once")
            if member.role == "leader" and entry.term == member.term:
                if not self._can_know(member, index):
                    raise Wrong(
                        f"{member.id} changes members at {entry.index}, the change at {index} is pending"
                    )
                if not self._can_know(member, member.led[1] + 1):
                    raise Wrong(
                        f"{member.id} changes members in term {entry.term}, nothing of it is committed"
                    )
        member.configs.append((entry.index, entry.term, config))
        member.recheck = True
        if member.role == "leader":
            member.leading.append((entry.index, config))

    def _can_know(self, member: Member, index: int) -> bool:
        """Whether the leader `member` may take `index` for committed."""
        if index <= self.committed:
            return True
        term = member.led[0]
        ahead = range(index, member.log.last + 1)
        return any(member.term_at(later) == term and self._counted(member, later) for later in ahead)

    def _counted(self, member: Member, index: int) -> bool:
        """Whether the leader `member` has a majority for `index`: by the newest configuration, or by the one before
        while the newest comes after `index`, as that may have been committed before it was there."""
        for at, config in reversed(member.leading):
            if self._backed(config, index, member.led[0]):
                return True
            if at <= index:
                break
        return False

    def _backed(self, config: Config, index: int, term: int) -> bool:
        have = self._stored.get((index, term), set())
        voters = [server for server in config.servers if server.voter]
        count = 0
        for server in voters:
            life = (server.id, server.incarnation)
            if life in have or self._covered.get(life, 0) >= index:
                count += 1
        return 2 * count > len(voters)

    def _has_applied(self, member: Member) -> None:
        member.applied_ever = max(member.applied_ever, member.machine.index)
        self.applied = max(self.applied, member.machine.index)


def _majority(config: Config, peers: set[str]) -> bool:
    voters = config.voters
    return 2 * sum(voter in peers for voter in voters) > len(voters)


def _voting(config: Config) -> frozenset[str]:
    return frozenset(config.voters)


def _lives(lives: set[Life]) -> str:
    return " ".join(sorted(f"{name}{life}" for name, life in lives)) or "none"
