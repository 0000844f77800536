"""Runs a schedule to its end, then heals everything and demands that the group works again within a few elections."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from peer.consensus.events import AddLearner, ChangeConfig
from tests.consensus.sim.faults import Faults
from tests.consensus.sim.member import AnyCore, Member
from tests.consensus.sim.schedule import Schedule
from tests.consensus.sim.storage import Wrong, config_text
from tests.consensus.sim.world import Record, Report, Say, World

ELECTIONS = 12  # longest elections until everything works again, where few split the votes
PROBE_MS = 50
ANSWER_ELECTIONS = 4  # until a question is answered one way or the other
CALM_ELECTIONS = 2
SETTLE_ELECTIONS = 2  # a clock that went back just before all healed may still bring about one


def run_schedule(
    schedule: Schedule,
    say: Say | None = None,
    record: Record | None = None,
    make_core: Callable[[str], AnyCore] | None = None,
) -> Report:
    """One run. Its report names the first thing that was wrong."""
    report = Report(schedule.seed)
    try:
        world = World(schedule, say, record, make_core)
        report = world.report
        Faults(world).plan()
        world.run_until(schedule.ends_ms)
        Healing(world).run()
    except Wrong as wrong:
        report.problem = str(wrong)
    return report


class Healing:
    """From when everything healed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._last: int | None = None  # the last proposal, by its number
        self._goal: tuple[int, int] | None = None  # index and term of what everybody must apply
        self._taken_in: int | None = None
        self._reads: dict[str, int] = {}  # by server: the number of the last read

    def run(self) -> None:
        world, timing = self._world, self._world.schedule.timing
        self._heal()
        begun = world.now
        elections = ELECTIONS
        while True:
            world.run_until(world.now + PROBE_MS)
            missing = self._probe()
            if not missing:
                break
            if world.now > begun + elections * timing.election_max_ms:
                if self._hopeless():
                    world.report.hopeless = True
                    return
                if elections == self._most_elections():
                    raise Wrong(f"{elections} elections after everything healed, {missing}")
                elections = self._most_elections()
            self._answered()
        world.report.healed_ms = world.now - begun
        if world.schedule.calm:
            self._calm()

    def _most_elections(self) -> int:
        """More where election timeouts differ by less than it takes one candidate to keep the others from asking.

        That is a pre-vote there and back, a write of the term, and a vote there. Candidates of one election split the
        votes then, and how often they do is luck.
        """
        timing, pace = self._world.schedule.timing, self._world.pace
        differ_ms = timing.election_max_ms - timing.election_min_ms
        asking_ms = 3 * (pace.delay_ms + pace.jitter_ms) + pace.disk_ms + pace.disk_jitter_ms
        return ELECTIONS * max(1, math.ceil(asking_ms / differ_ms))

    def _heal(self) -> None:
        world = self._world
        world.tell("everything heals")
        world.blocked.clear()
        world.held.clear()
        world.slow.clear()
        world.traps.clear()
        world.cut_at_commit.clear()
        world.hurry = 0
        world.storm_until = 0
        world.pace = replace(
            world.pace, loss=0.0, duplicates=0.0, late=0.0, jitter_ms=min(20, world.pace.jitter_ms)
        )
        for member in world.members.values():
            member.slow_until = member.coarse_until = 0
            if member.core is None:
                world.boot(member)
            elif member.paused_until > world.now:
                world.pause_ends(member)

    def _probe(self) -> str:
        """What is still missing; empty when nothing is. Asks for it, too."""
        leader = self._world.leader()
        if leader is None:
            return "there is no leader"
        return self._lives(leader) or self._commit(leader) or self._everybody(leader)

    def _lives(self, leader: Member) -> str:
        """Who lost its storage is taken in again, as a person or a policy would do."""
        world = self._world
        for server in leader.config().servers:
            member = world.members[server.id]
            if member.incarnation > server.incarnation:
                if self._taken_in not in world.open:
                    change = AddLearner(member.id, member.incarnation)
                    self._taken_in = world.ask(leader, "entry", partial(ChangeConfig, change))
                return f"{member.id} is in the configuration by an older life"
        return ""

    def _commit(self, leader: Member) -> str:
        """A command is taken and committed."""
        world, seen = self._world, self._world.invariants
        name = f"{leader.id}, leader of {config_text(leader.config())}"
        if self._goal is not None:
            index, term = self._goal
            if index <= seen.committed and seen.committed_terms[index] == term:
                return ""
            if index > seen.committed and term == leader.term:
                return f"entry {index} is not committed by {name}"
            self._goal = self._last = None
        if self._last is not None and self._last in world.accepted:
            self._goal = world.accepted[self._last]
        elif self._last not in world.open:
            self._last = world.propose(leader)
        return f"no command is taken by {name}"

    def _everybody(self, leader: Member) -> str:
        """All members have applied the command, and can read it."""
        world, missing = self._world, ""
        index = self._goal[0] if self._goal is not None else 0
        for server in leader.config().servers:
            member = world.members[server.id]
            asked = self._reads.get(member.id)
            if member.machine.index < index:
                return f"{member.id} has applied {member.machine.index} of {index}"
            if asked is None or asked not in world.read_done:
                missing = f"{member.id} cannot read"
                if asked not in world.open:
                    self._reads[member.id] = world.read(member)
        if not missing and not leader.config().votes(leader.id, leader.incarnation):
            return f"{leader.id} leads on and is no voter"
        return missing

    def _answered(self) -> None:
        """No question stays without an answer."""
        world = self._world
        patience = ANSWER_ELECTIONS * world.schedule.timing.election_max_ms
        for ctx, asked in world.open.items():
            if asked.what == "entry" and asked.asked_ms < world.now:
                raise Wrong(f"{asked.member} says nothing to {ctx}")
            if asked.what == "read" and asked.asked_ms < world.now - patience:
                member = world.members[asked.member]
                if member.paused_until <= world.now:
                    raise Wrong(f"{asked.member} does not answer the read {ctx}")

    def _hopeless(self) -> bool:
        """Too few voters are left with what they stored, or the configuration went on without the most of them."""
        world = self._world
        for member in world.members.values():
            for _, _, config in member.configs[-1:]:
                voters = [server for server in config.servers if server.voter]
                intact = [s for s in voters if world.members[s.id].incarnation == s.incarnation]
                if 2 * len(intact) <= len(voters):
                    return True
        return False

    def _calm(self) -> None:
        """With nothing going wrong nothing happens but heartbeats."""
        world = self._world
        period = world.schedule.timing.election_max_ms
        world.run_until(world.now + SETTLE_ELECTIONS * period)
        leader = world.leader()
        if leader is None:
            raise Wrong(f"{SETTLE_ELECTIONS} elections after everything worked, there is no leader")
        before = (leader.id, leader.term, leader.log.last)
        world.installs = 0
        world.run_until(world.now + CALM_ELECTIONS * period)
        now = world.leader()
        if now is None or (now.id, now.term, now.log.last) != before:
            after = "none" if now is None else f"{now.id} in term {now.term} at {now.log.last}"
            raise Wrong(f"in calm, the leader {before[0]} in term {before[1]} at {before[2]} became {after}")
        if world.installs:
            raise Wrong(f"in calm, {world.installs} pieces of snapshots are sent")
        self._who_leads_is_known(now)

    def _who_leads_is_known(self, leader: Member) -> None:
        for server in leader.config().servers:
            member = self._world.members[server.id]
            if (member.term, member.leader) != (leader.term, leader.id):
                raise Wrong(
                    f"in calm, {member.id} in term {member.term} takes {member.leader!r} for the leader"
                )
