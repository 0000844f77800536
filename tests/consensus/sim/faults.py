"""Does what a schedule's actions say: finds out who is meant, and makes it happen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from peer.consensus.events import (
    AddLearner,
    ChangeConfig,
    Compact,
    Demote,
    Promote,
    Remove,
    Tick,
    Transfer,
    Unreachable,
)
from tests.consensus.sim.member import Member
from tests.consensus.sim.schedule import Action
from tests.consensus.sim.storage import Disk, StateMachine
from tests.consensus.sim.world import World

DELAYED_MS = 70  # for so long a link is slow


class Faults:
    """The actions of one run. Whoever an action finds is remembered, so that later ones can mean the same server."""

    def __init__(self, world: World) -> None:
        self._world = world
        first = min(world.members)
        self._old_leader = self._last = first
        self.kinds: dict[str, Callable[[Member, Member, Action], object]] = {
            "propose": lambda who, _, action: self._ask(who, "propose"),
            "read": lambda who, _, action: self._ask(who, "read"),
            "crash": lambda who, _, action: world.crash(who, action.lasts_ms, action.number),
            "crash_at_write": self._trap,
            "cut_at_commit": self._cut_at_commit,
            "hurry": self._hurry,
            "isolate": lambda who, _, action: self._isolate(who, None, action.lasts_ms),
            "cut": lambda who, other, action: self._block(who.id, other.id, action.lasts_ms),
            "cut_from": lambda who, _, action: self._one_way(who, True, world.blocked, action.lasts_ms),
            "cut_to": lambda who, _, action: self._one_way(who, False, world.blocked, action.lasts_ms),
            "cut_but_one": self._cut_but_one,
            "bridge": self._bridge,
            "stall": self._stall,
            "stall_from": lambda who, _, action: self._one_way(who, True, world.held, action.lasts_ms),
            "stall_to": lambda who, _, action: self._one_way(who, False, world.held, action.lasts_ms),
            "delay_between": self._delay_between,
            "pause": lambda who, _, action: world.pause(who, action.lasts_ms),
            "slow_disk": self._slow_disk,
            "coarse": self._coarse,
            "jump": self._jump,
            "compact": self._compact,
            "transfer": self._transfer,
            "add": lambda who, where, action: self._add(who, where),
            "promote": lambda who, where, action: self._change(where, Promote(who.id)),
            "demote": lambda who, where, action: self._change(where, Demote(who.id)),
            "remove": lambda who, where, action: self._change(where, Remove(who.id)),
            "wipe": lambda who, _, action: self.wipe(who),
            "restart_all": self._restart_all,
            "unreachable": self._unreachable,
            "storm": self._storm,
        }

    def plan(self) -> None:
        """Puts all actions of the schedule on the clock."""
        for action in self._world.schedule.actions:
            self._world.at(action.at_ms, self._do, action)

    def _do(self, action: Action) -> None:
        world = self._world
        who = self._find(action.who, action.number)
        other = self._find(action.other or "leader", action.number + 1)
        if who is None:
            return
        if other is None or (other is who and action.other):
            other = who
        if action.who == "leader" and action.kind not in ("propose", "read", "add", "compact"):
            self._old_leader = who.id
        elif action.who not in ("leader", "old_leader", "last") and action.kind not in ("propose", "read"):
            self._last = who.id
        if action.kind == "transfer":
            self._last = other.id
        world.tell(f"{action.kind} {who.id} {other.id} {action.lasts_ms or ''}")
        self.kinds[action.kind](who, other, action)

    def _find(self, who: str, number: int) -> Member | None:
        members, config = self._world.members, self._world.view()
        leader = self._world.leader()
        match who:
            case "leader":
                return leader or self._nth([m.id for m in members.values() if m.core is not None], number)
            case "old_leader":
                return members[self._old_leader]
            case "last":
                return members[self._last]
            case "follower":
                lead = leader.id if leader is not None else ""
                return self._nth([voter for voter in config.voters if voter != lead], number)
            case "voter":
                return self._nth(list(config.voters), number)
            case "learner":
                return self._nth([server.id for server in config.servers if not server.voter], number)
            case "outside":
                return self._nth([name for name in members if name not in config.by_id], number)
            case "any":
                return self._nth(list(members), number)
            case _:
                return members.get(who)

    def _nth(self, names: list[str], number: int) -> Member | None:
        return self._world.members[sorted(names)[number % len(names)]] if names else None

    # --- asking

    def _ask(self, who: Member, what: str) -> None:
        if who.core is not None:
            self._world.request(who, what)

    def _change(self, where: Member, change: Promote | Demote | Remove | AddLearner) -> None:
        if where.live(self._world.now):
            self._world.note(type(change).__name__)
            self._world.ask(where, "entry", partial(ChangeConfig, change))

    def _transfer(self, who: Member, to: Member, action: Action) -> None:
        if who.live(self._world.now) and to is not who:
            self._world.note("transfer")
            self._world.ask(who, "transfer", partial(Transfer, to.id))

    def _add(self, who: Member, where: Member) -> None:
        """Takes `who` in. One that was a member once begins anew, with nothing, as another incarnation."""
        config = where.config()
        known = config.by_id.get(who.id)
        if known is None and not who.disk.empty() and not self.wipe(who):
            return
        if who.core is None and who.disk.empty():
            self._world.boot(who)
        if known is None or known.incarnation < who.incarnation:
            self._change(where, AddLearner(who.id, who.incarnation))

    # --- storage

    def wipe(self, who: Member) -> bool:
        """Its storage is lost and it begins anew, if the others can do without it."""
        world = self._world
        if not self._others_suffice(who):
            return False
        world.note("wipe")
        world.tell(f"{who.id} loses its storage")
        if who.core is not None:
            world.stop(who)
        who.disk = Disk()
        who.incarnation += 1
        who.applied_ever = 0
        world.boot(who)
        return True

    def _others_suffice(self, who: Member) -> bool:
        """In every configuration that somebody may go by, most voters still have what they stored."""
        members = self._world.members
        for member in members.values():
            logs = [*member.configs]
            if member.core is None:
                logs = []
                if member.disk.snapshot is not None:
                    logs.append((0, 0, member.disk.snapshot.config))
                copy = Member(member.id, disk=member.disk)
                copy.reborn()
                logs += copy.configs
            for _, _, config in logs:
                voters = [server for server in config.servers if server.voter]
                intact = [s for s in voters if s.id != who.id and members[s.id].incarnation == s.incarnation]
                if config.by_id.get(who.id) is not None and 2 * len(intact) <= len(voters):
                    return False
        return True

    def _compact(self, who: Member, _: Member, action: Action) -> None:
        """A copy of the state is taken now and handed over somewhat later."""
        world = self._world
        if not who.live(world.now) or who.said_applied != who.machine.index or who.machine.index == 0:
            return
        copy = StateMachine(who.machine.index, who.machine.value)
        wait = action.lasts_ms or (0, 0, 40, 400)[action.number % 4]
        world.note("compact")
        world.at(world.now + wait, self._compacted, who, who.boots, copy)

    def _compacted(self, who: Member, boots: int, copy: StateMachine) -> None:
        if who.boots == boots and who.live(self._world.now):
            self._world.step(who, Compact(copy.index, copy.data()))

    def _trap(self, who: Member, _: Member, action: Action) -> None:
        self._world.traps[who.id] = (action.lasts_ms, action.number)

    def _cut_at_commit(self, who: Member, _: Member, action: Action) -> None:
        self._world.cut_at_commit[who.id] = action.lasts_ms

    def _hurry(self, who: Member, _: Member, action: Action) -> None:
        self._world.hurry = max(1, action.number)

    def _slow_disk(self, who: Member, _: Member, action: Action) -> None:
        who.slow_until = self._world.now + action.lasts_ms

    def _restart_all(self, who: Member, _: Member, action: Action) -> None:
        for member in self._world.members.values():
            self._world.crash(member, action.lasts_ms, action.number * 7)

    # --- links

    def _block(self, one: str, other: str, lasts_ms: int) -> None:
        if one != other:
            self._world.blocked[one, other] = self._world.now + lasts_ms

    def _isolate(self, who: Member, but: Member | None, lasts_ms: int) -> None:
        for other in self._world.members:
            if but is None or other != but.id:
                self._block(who.id, other, lasts_ms)
                self._block(other, who.id, lasts_ms)

    def _one_way(self, who: Member, out: bool, links: dict[tuple[str, str], int], lasts_ms: int) -> None:
        for other in self._world.members:
            if other != who.id:
                links[(who.id, other) if out else (other, who.id)] = self._world.now + lasts_ms

    def _stall(self, who: Member, _: Member, action: Action) -> None:
        self._one_way(who, True, self._world.held, action.lasts_ms)
        self._one_way(who, False, self._world.held, action.lasts_ms)

    def _delay_between(self, who: Member, other: Member, action: Action) -> None:
        """What `who` sends to `other` in the next moments comes much later."""
        self._world.slow[who.id, other.id] = (self._world.now + DELAYED_MS, action.lasts_ms)
        self._last = other.id

    def _cut_but_one(self, who: Member, _: Member, action: Action) -> None:
        others = [voter for voter in self._world.view().voters if voter != who.id]
        kept = self._nth(others, action.number)
        if kept is not None:
            self._last = kept.id
        self._isolate(who, kept, action.lasts_ms)

    def _bridge(self, who: Member, _: Member, action: Action) -> None:
        """Two halves that see each other only through `who`."""
        others = sorted(name for name in self._world.members if name != who.id)
        left = {name for place, name in enumerate(others) if (action.number >> place) % 2}
        for one in others:
            for other in others:
                if (one in left) != (other in left):
                    self._block(one, other, action.lasts_ms)

    def _storm(self, who: Member, _: Member, action: Action) -> None:
        self._world.storm_until = self._world.now + action.lasts_ms

    def _unreachable(self, who: Member, other: Member, action: Action) -> None:
        if who.live(self._world.now) and other is not who:
            who.hinted.add(other.id)
            self._world.step(who, Unreachable(other.id))

    # --- time

    def _coarse(self, who: Member, _: Member, action: Action) -> None:
        who.coarse_until = self._world.now + action.lasts_ms

    def _jump(self, who: Member, _: Member, action: Action) -> None:
        back = action.number % 5 == 4
        who.clock_ms += -action.lasts_ms // 2 if back else action.lasts_ms
        who.wake_at = -1
        if who.core is not None:
            self._world.at(self._world.now, self._wake_after_jump, who, who.boots)

    def _wake_after_jump(self, who: Member, boots: int) -> None:
        if who.boots == boots and who.live(self._world.now):
            self._world.step(who, Tick())
