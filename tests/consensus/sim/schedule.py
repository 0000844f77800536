"""Decides, from a seed alone, what one simulated run is made of: the servers, their pace, and what happens when.

A schedule is a few stories, each a short list of actions that together lead to a situation which is rare by chance (a
leader cut off with an entry of its own, a snapshot under way when the leader changes), and some actions at random.
Actions name servers by role; who that is comes out when the action happens. Stories know nothing of defects.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Action:
    """At `at_ms`, `kind` happens to `who` (and `other`), for `lasts_ms`; `number` chooses among several."""

    at_ms: int
    kind: str
    who: str = "any"
    other: str = ""
    lasts_ms: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Pace:
    """Times in milliseconds, chances from 0 to 1."""

    delay_ms: int
    jitter_ms: int
    loss: float
    duplicates: float
    late: float  # chance of a message to come very late
    late_ms: int
    disk_ms: int
    disk_jitter_ms: int
    apply_ms: int


@dataclass(frozen=True, slots=True)
class Timing:
    """What the cores are set to."""

    heartbeat_ms: int
    election_min_ms: int
    election_max_ms: int
    max_append_bytes: int
    snapshot_chunk_bytes: int
    max_inflight: int
    keep_tail: int


@dataclass(frozen=True, slots=True)
class Schedule:
    seed: int
    voters: tuple[str, ...]  # at first
    learners: tuple[str, ...]  # at first
    spares: tuple[str, ...]  # servers that no configuration names yet
    timing: Timing
    pace: Pace
    actions: tuple[Action, ...]
    ends_ms: int  # then everything heals
    wire: bool  # every message goes through its bytes
    calm: bool  # after healing, a while in which nothing may happen
    one_sync: bool  # writes that wait for the disk become durable together
    late: str = ""  # a first voter that has nothing yet, and does not know that it is one


NAMES = ("a", "b", "c", "d", "e", "f", "g", "h")
Story = Callable[[random.Random, int], list[Action]]


def make_schedule(seed: int) -> Schedule:
    """The same for the same seed, whatever the machine."""
    rng = random.Random(seed)
    voters = rng.choice((1, 2, 3, 3, 3, 3, 3, 3, 4, 5, 5))
    learners = rng.choice((0, 0, 0, 1))
    spares = rng.choice((0, 1, 1, 2))
    election = rng.choice((1500, 1500, 1500, 2500))
    timing = Timing(
        heartbeat_ms=rng.choice((250, 500, 700, 700)),
        election_min_ms=election,
        election_max_ms=election * 2 if rng.random() < 0.7 else election + 200,
        max_append_bytes=rng.choice((24, 200, 1 << 16)),
        snapshot_chunk_bytes=rng.choice((16, 16, 40, 1 << 15)),
        max_inflight=rng.choice((1, 2, 4)),
        keep_tail=rng.choice((0, 0, 1, 3)),
    )
    rough = rng.random()
    pace = Pace(
        delay_ms=rng.choice((1, 10, 40)),
        jitter_ms=rng.choice((0, 5, 40, 300)),
        loss=0.0 if rough < 0.5 else rng.choice((0.02, 0.1, 0.25)),
        duplicates=0.0 if rough < 0.3 else rng.choice((0.02, 0.1, 0.3)),
        late=0.0 if rough < 0.4 else rng.choice((0.02, 0.1)),
        late_ms=rng.choice((400, 2500, 8000)),
        disk_ms=rng.choice((0, 1, 5, 60)),
        disk_jitter_ms=rng.choice((0, 10, 200)),
        apply_ms=rng.choice((0, 0, 0, 5, 400)),
    )
    at = election + rng.randrange(500, 2100)
    actions: list[Action] = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        story = rng.choice(STORIES)(rng, at)
        actions += story
        at = max([action.at_ms + action.lasts_ms for action in story] + [at]) + rng.randrange(100, 2000)
    for _ in range(rng.choice((0, 1, 2, 4))):
        actions.append(_noise(rng, rng.randrange(0, at)))
    for _ in range(rng.choice((1, 2, 4))):
        actions.append(Action(rng.randrange(500, at), "propose", rng.choice(("leader", "any"))))
    actions.sort(key=lambda action: action.at_ms)
    late = rng.random() < 0.15 and voters > 2
    return Schedule(
        seed,
        NAMES[:voters],
        NAMES[voters : voters + learners],
        NAMES[voters + learners : voters + learners + spares],
        timing,
        pace,
        tuple(actions),
        at,
        wire=rng.random() < 0.02,
        calm=rng.random() < 0.12,
        one_sync=rng.random() < 0.3,
        late=NAMES[rng.randrange(voters)] if late else "",
    )


def _noise(rng: random.Random, at: int) -> Action:
    kind = rng.choice(NOISE)
    lasts = rng.choice((200, 900, 2000, 4500))
    return Action(at, kind, rng.choice(WHO), rng.choice(WHO), lasts, rng.randrange(1000))


WHO = ("leader", "leader", "follower", "follower", "voter", "any", "any", "learner", "outside")
NOISE = (
    *("propose",) * 4,
    *("read",) * 3,
    *("crash",) * 4,
    *("crash_at_write",) * 4,
    *("isolate",) * 4,
    *("cut",) * 3,
    *("bridge",) * 2,
    *("stall",) * 2,
    *("pause",) * 3,
    *("slow_disk",) * 2,
    *("jump",) * 2,
    *("coarse",) * 2,
    *("compact",) * 4,
    *("transfer",) * 2,
    *("add",) * 3,
    *("promote",) * 3,
    *("demote",) * 1,
    *("remove",) * 2,
    *("wipe",) * 1,
    *("restart_all",) * 2,
    *("unreachable",) * 2,
    *("storm",) * 1,
)


def _some(rng: random.Random, at: int, kind: str, who: str, most: int) -> list[Action]:
    return [Action(at + 15 * index, kind, who) for index in range(rng.randint(1, most))]


def deposed(rng: random.Random, at: int) -> list[Action]:
    """A leader is cut off with entries of its own; the others go on without it, then it comes back."""
    lasts = rng.choice((2500, 3000, 4500, 7000))
    cut = Action(at, "isolate", "leader", "", lasts)
    if rng.random() < 0.3:
        cut = Action(at - 200, "cut_at_commit", "leader", "", lasts)
    actions = [cut, *_some(rng, at - 200, "propose", "leader", 2), Action(at, "hurry", "any", "", 0, 1)]
    actions += _some(rng, at + 5, "propose", "old_leader", 5)
    if rng.random() < 0.5:
        actions.append(Action(at + rng.choice((10, lasts - 600)), "read", "old_leader"))
    for _ in range(rng.choice((0, 1, 3))):
        actions.append(Action(at + rng.randrange(1000, lasts), "propose", "leader"))
    if rng.random() < 0.5:
        actions.append(Action(at + lasts - rng.choice((500, 50)), "compact", "leader"))
    if rng.random() < 0.4:
        actions.append(
            Action(at + lasts + rng.choice((20, 100, 400)), "crash", "any", "", 500, rng.randrange(9))
        )
    return actions


def dethroned_twice(rng: random.Random, at: int) -> list[Action]:
    """Leader after leader is lost soon after it was elected, each with an entry that few have."""
    actions = []
    for turn in range(rng.randint(2, 4)):
        begin = at + turn * 2600
        actions.append(Action(begin, "cut_but_one", "leader", "", 2200, rng.randrange(9)))
        actions += _some(rng, begin + 5, "propose", "leader", 2)
        actions.append(
            Action(begin + rng.choice((100, 300)), "crash", "old_leader", "", rng.choice((900, 2500)))
        )
    return actions


def late_voters(rng: random.Random, at: int) -> list[Action]:
    """An election under way when voters crash with what they have not written, and come back at once."""
    actions = []
    for turn in range(rng.randint(1, 3)):
        begin = at + turn * 2000
        actions.append(Action(begin, "crash", "leader", "", rng.choice((1500, 4000))))
        actions.append(Action(begin, "slow_disk", "voter", "", 2500, rng.randrange(9)))
        actions.append(Action(begin + 5, "unreachable", "voter", "old_leader", 0, rng.randrange(9)))
        actions.append(Action(begin + 6, "unreachable", "voter", "old_leader", 0, rng.randrange(9)))
        for _ in range(rng.randint(1, 3)):
            actions.append(
                Action(begin + 10, "crash_at_write", "voter", "", rng.choice((5, 50)), rng.randrange(99))
            )
    return actions


def everyone_restarts(rng: random.Random, at: int) -> list[Action]:
    """All servers lose power together, with entries that are not everywhere yet."""
    actions = [*_some(rng, at - 60, "propose", "leader", 3)]
    if rng.random() < 0.5:
        actions.append(Action(at - 300, "compact", "any", "", 0, rng.randrange(9)))
    if rng.random() < 0.5:
        actions.append(Action(at - 2500, "isolate", "leader", "", 2400))
    actions.append(Action(at, "restart_all", "any", "", rng.choice((10, 200, 1000)), rng.randrange(2)))
    if rng.random() < 0.5:
        actions.append(Action(at + 300, "isolate", "follower", "", 2500, rng.randrange(9)))
        actions.append(Action(at + 2600, "propose", "leader"))
    return actions


def left_behind(rng: random.Random, at: int) -> list[Action]:
    """A follower misses so much that it needs the snapshot; something happens while that is on its way."""
    lasts = rng.choice((1200, 2500, 5000))
    number = rng.randrange(9)
    kind = rng.choice(("isolate", "isolate", "crash", "pause"))
    actions = [Action(at, kind, "follower", "", lasts, number)]
    if rng.random() < 0.4:
        later = lasts + rng.choice((60, 150, 400, 900))
        actions.append(Action(at - 10, "compact", "follower", "", later, number))
    actions += _some(rng, at + 100, "propose", "leader", 6)
    actions.append(Action(at + lasts - 300, "compact", "leader"))
    meanwhile = at + lasts + rng.choice((20, 60, 150, 400))
    for _ in range(rng.choice((1, 1, 2, 3))):
        what = rng.choice(
            (
                "crash",
                "crash_at_write",
                "isolate",
                "cut",
                "compact",
                "propose",
                "transfer",
                "pause",
                "stall",
                "slow_disk",
            )
        )
        whom = rng.choice(("leader", "last", "last", "follower"))
        wait = rng.choice((100, 500, 2500))
        actions.append(Action(meanwhile, what, whom, "last", wait, number))
        meanwhile += rng.choice((5, 80, 400))
    return actions


def changes(rng: random.Random, at: int) -> list[Action]:
    """The members change, one after the other and too fast, while the leader is lost."""
    actions = []
    for _ in range(rng.randint(2, 5)):
        kind = rng.choice(("add", "add", "promote", "promote", "promote", "remove", "demote"))
        whom = {"add": "outside", "promote": "learner"}.get(kind, rng.choice(("follower", "leader", "voter")))
        actions.append(Action(at, kind, whom, "", 0, rng.randrange(9)))
        if rng.random() < 0.3:
            actions.append(
                Action(at + rng.choice((0, 5, 30)), rng.choice(("isolate", "crash")), "leader", "", 2500)
            )
        if rng.random() < 0.2:
            actions.append(Action(at + 1, "propose", "leader"))
        at += rng.choice((1, 30, 300, 1500))
    return actions


def cut_off_change(rng: random.Random, at: int) -> list[Action]:
    """A leader that is cut off changes the members, and so does the next one."""
    lasts = rng.choice((3000, 6000))
    actions = [Action(at - 900, "add", "outside", "", 0, rng.randrange(9))] if rng.random() < 0.6 else []
    cut = rng.choice(("isolate", "cut_but_one", "cut_but_one"))
    actions.append(Action(at, cut, "leader", "", lasts, rng.randrange(9)))
    first = rng.choice(("promote", "remove", "remove", "demote", "add"))
    whom = {"add": "outside", "promote": "learner"}.get(first, rng.choice(("follower", "old_leader")))
    actions.append(Action(at + 5, first, whom, "old_leader", 0, rng.randrange(9)))
    actions += _some(rng, at + 20, "propose", "old_leader", 2)
    second = rng.choice(("promote", "remove", "remove", "add"))
    for wait in (rng.randrange(1500, 2900), rng.randrange(1500, 2900)):
        whom = {"add": "outside", "promote": "learner"}.get(second, "follower")
        actions.append(Action(at + wait, second, whom, "", 0, rng.randrange(9)))
        actions.append(Action(at + wait + 60, "propose", "leader"))
    if rng.random() < 0.4:
        actions.append(Action(at + rng.randrange(800, 2900), "crash", "leader", "", rng.choice((100, 2500))))
    return actions


def leader_leaves(rng: random.Random, at: int) -> list[Action]:
    """A leader is removed, alone or while something else goes on."""
    actions = [*_some(rng, at - 20, "propose", "leader", 2), Action(at, "remove", "leader")]
    if rng.random() < 0.5:
        kind = rng.choice(("slow_disk", "isolate", "stall"))
        actions.append(Action(at - 5, kind, "follower", "", rng.choice((300, 1200)), rng.randrange(9)))
    if rng.random() < 0.4:
        actions.append(Action(at + rng.choice((0, 5, 30)), "isolate", "leader", "", 2500))
    actions += _some(rng, at + 3, rng.choice(("propose", "read", "add")), "leader", 2)
    return actions


def second_life(rng: random.Random, at: int) -> list[Action]:
    """A server loses its storage and is taken in again under its old id, while messages of its first life are late."""
    number = rng.randrange(9)
    actions = [*_some(rng, at - 400, "propose", "leader", 3)]
    if rng.random() < 0.5:
        actions.append(Action(at - 300, "stall", "follower", "", rng.choice((1500, 4000)), number))
        actions.append(Action(at - 200, "propose", "leader"))
    actions.append(Action(at - 30, "wipe", "follower", "", 0, number))
    actions.append(Action(at, "remove", "last", "leader"))
    again = at + rng.choice((300, 700, 1500))
    actions.append(Action(again, "add", "last", "leader"))
    actions.append(Action(again + 20, "propose", "leader"))
    actions.append(Action(again + rng.choice((200, 700)), "promote", "last", "leader"))
    actions.append(Action(again + 1000, rng.choice(("propose", "remove", "promote")), "last", "leader"))
    return actions


def reads(rng: random.Random, at: int) -> list[Action]:
    """Reads at a leader that may be none any more, or has only just become one."""
    actions = [*_some(rng, at - 300, "propose", "leader", 2), Action(at - 1, "hurry", "any", "", 0, 2)]
    kind = rng.choice(("pause", "isolate", "cut_from", "cut_to", "transfer", "crash", "cut_at_commit"))
    lasts = rng.choice((2000, 2600, 3500, 5000))
    actions.append(Action(at, kind, "leader", "follower", lasts, rng.randrange(9)))
    if kind == "cut_at_commit":
        actions.append(Action(at + 1, "propose", "old_leader"))
    if kind == "cut_from" and rng.random() < 0.7:
        actions.append(Action(at - 1, "stall_to", "leader", "", rng.choice((1900, 2300, 2700))))
        actions.append(Action(at - 40, "propose", "leader"))
    for _ in range(rng.randint(1, 3)):
        actions.append(Action(at + rng.randrange(0, lasts + 200), "read", "old_leader"))
    for wait in (lasts // 2, lasts - 200, lasts - 50):
        actions.append(Action(at + wait, "propose", "leader"))
    if kind == "pause":
        actions += [Action(at - 5, "read", "old_leader"), Action(at + lasts - 1, "read", "old_leader")]
    return actions


def handover(rng: random.Random, at: int) -> list[Action]:
    """Leadership is handed over, and one of the two ends is lost meanwhile."""
    number = rng.randrange(9)
    actions = [Action(at, "transfer", "leader", "follower", 0, number)]
    if rng.random() < 0.7:
        kind = rng.choice(("isolate", "crash", "pause", "isolate"))
        whom = rng.choice(("last", "leader"))
        when = at + rng.choice((-300, -5, 1, 5, 20))
        actions.append(Action(when, kind, whom, "", rng.choice((600, 2500, 4000)), number))
    actions += _some(rng, at + 2, rng.choice(("propose", "read", "transfer")), "old_leader", 2)
    actions.append(Action(at + rng.randrange(2000, 4000), "propose", "leader"))
    return sorted(actions, key=lambda action: action.at_ms)


def bridges(rng: random.Random, at: int) -> list[Action]:
    """Servers that see each other only through some others."""
    lasts = rng.choice((4000, 9000))
    kind = rng.choice(("bridge", "cut_to", "cut_from", "cut_but_one"))
    actions = [Action(at, kind, rng.choice(("leader", "follower")), "follower", lasts, rng.randrange(99))]
    actions += [
        Action(at + rng.randrange(0, lasts), "propose", "any", "", 0, rng.randrange(9)) for _ in range(2)
    ]
    return actions


def long_pause(rng: random.Random, at: int) -> list[Action]:
    """Processes that stop for a while and clocks that jump."""
    actions = []
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(("pause", "pause", "jump", "stall"))
        who = rng.choice(("leader", "follower", "voter"))
        actions.append(Action(at, kind, who, "", rng.choice((600, 2000, 5000)), rng.randrange(9)))
        actions.append(Action(at + rng.randrange(0, 4000), "propose", "leader"))
        actions.append(Action(at + rng.randrange(0, 4000), "read", "any", "", 0, rng.randrange(9)))
        at += rng.randrange(200, 3000)
    return actions


def rewritten(rng: random.Random, at: int) -> list[Action]:
    """A follower's entries are written over by another leader's while acknowledgements are late."""
    actions = [Action(at, "cut_but_one", "leader", "", 2600, rng.randrange(9))]
    actions += _some(rng, at + 3, "propose", "old_leader", 3)
    actions.append(Action(at + 100, "stall_from", "last", "", rng.choice((2500, 4000, 6000)), 0))
    actions.append(Action(at + rng.choice((110, 300)), "isolate", "old_leader", "", 2600))
    actions += [Action(at + rng.randrange(1500, 5000), "propose", "leader") for _ in range(3)]
    return actions


def overtaken(rng: random.Random, at: int) -> list[Action]:
    """A follower gets entries late, when its leader has given up on them and sends a snapshot instead."""
    number, later = rng.randrange(9), rng.choice((300, 700))
    return [
        Action(at - 1, "delay_between", "leader", "follower", later, number - 1),
        *(Action(at + 4 * turn, "propose", "leader") for turn in range(4)),
        Action(at + 55, "cut", "old_leader", "last", 80),
        Action(at + 56, "unreachable", "old_leader", "last"),
        Action(at + rng.choice((85, 105, 130, 200)), "compact", "old_leader"),
        Action(at + later - 50, "cut", "last", "old_leader", rng.choice((200, 400))),
    ]


def wide_log(rng: random.Random, at: int) -> list[Action]:
    """A quick writer, slow disks and snapshots at any moment."""
    actions = []
    for _ in range(rng.randint(2, 4)):
        actions += _some(rng, at, "propose", "leader", 4)
        actions.append(Action(at + rng.randrange(0, 200), "compact", "any", "", 0, rng.randrange(9)))
        kind = rng.choice(("slow_disk", "crash", "crash_at_write", "crash_at_write", "isolate"))
        actions.append(
            Action(at + rng.randrange(0, 60), kind, "any", "", rng.choice((30, 300, 1500)), rng.randrange(9))
        )
        at += rng.randrange(50, 1200)
    return actions


STORIES: tuple[Story, ...] = (
    deposed,
    deposed,
    dethroned_twice,
    dethroned_twice,
    late_voters,
    late_voters,
    everyone_restarts,
    left_behind,
    left_behind,
    left_behind,
    changes,
    changes,
    cut_off_change,
    cut_off_change,
    leader_leaves,
    leader_leaves,
    second_life,
    second_life,
    reads,
    reads,
    handover,
    bridges,
    long_pause,
    rewritten,
    overtaken,
    overtaken,
    wide_log,
)
