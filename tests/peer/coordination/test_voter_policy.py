"""Who votes and who leads: tables of situations, and from any situation a way to rest that never risks the majority."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pytest

from peer.consensus.events import AddLearner, Config, Demote, Promote, Remove, Server
from peer.coordination.voter_policy import (
    FLAP_WINDOW_MS,
    PATIENCE,
    Candidate,
    HandOver,
    Move,
    Sight,
    Situation,
    Watch,
    next_move,
    wanted_voters,
)

NOW = 10_000_000
SEED = 20261128
HERE = Sight(True, 0, False, None, False)
WORLDS = 180


def sight(
    away_ms: int | None = None, here_ms: int = NOW, hidden_ms: int | None = None, **more: bool
) -> Sight:
    since = NOW - (here_ms if away_ms is None else away_ms)
    hidden = None if hidden_ms is None else NOW - hidden_ms
    return Sight(away_ms is None, since, hidden_ms is not None, hidden, more.get("flapping", False))


def peer(name: str, seen: Sight = HERE, **more: object) -> Candidate:
    """`h...` has no window, `b...` is a browser, `m...` one that keeps nothing; digits tell who was here first."""
    found = Candidate(name, 1, name[0] == "h", name[0] != "m", True, int(name[1:] or 0), False, True, seen)
    return replace(found, **more)  # type: ignore[arg-type]


def situation(voters: str, *members: Candidate, learners: str | None = None, leader: str = "") -> Situation:
    """The first of `voters` leads. `learners` None: every other member."""
    votes = voters.split()
    names = {*votes, *([each.id for each in members] if learners is None else learners.split())}
    known = {each.id for each in members}
    others = (peer(name) for name in votes if name not in known)
    config = Config(tuple(Server(name, 1, name in votes) for name in sorted(names)))
    return Situation(NOW, leader or votes[0], config, (*members, *others), True)


AWAY, GONE = PATIENCE.lost_ms, PATIENCE.gone_ms
HIDDEN = PATIENCE.ailing_ms


@pytest.mark.parametrize(
    ("now", "wanted"),
    [
        (situation("h1"), "h1"),
        (situation("h1", peer("h2")), "h1"),
        (situation("b1", peer("b2")), "b1"),
        (situation("b1", peer("h2")), "h2"),
        (situation("h1", peer("h2"), peer("h3")), "h1 h2 h3"),
        (situation("h1", peer("h2"), peer("h3"), peer("h4")), "h1 h2 h3"),
        (situation("h1", *(peer(f"h{n}") for n in range(2, 9))), "h1 h2 h3 h4 h5"),
        (situation("h9", *(peer(f"h{n}") for n in range(1, 9))), "h1 h2 h3 h4 h9"),
        # browsers only where there are fewer than three without a window
        (situation("h1", peer("h2"), peer("h3"), peer("b4"), peer("b5")), "h1 h2 h3"),
        (situation("h1", peer("h2"), peer("b3"), peer("b4"), peer("b5")), "b3 h1 h2"),
        (situation("h1", peer("b2"), peer("b3"), peer("b4"), peer("b5")), "b2 b3 b4 b5 h1"),
        (situation("b1", peer("b2"), peer("b3"), peer("b4")), "b1 b2 b3"),
        (situation("b1", peer("b2"), peer("b3"), peer("h4"), peer("h5")), "b1 h4 h5"),
        (situation("b1 b2 b3", peer("h4"), peer("h5"), peer("h6")), "h4 h5 h6"),
        # browsers that keep nothing come last, but before nobody
        (situation("b1", peer("m2"), peer("b3"), peer("b4")), "b1 b3 b4"),
        (situation("b1", peer("m2"), peer("b3")), "b1 b3 m2"),
        (situation("m1", peer("m2"), peer("m3")), "m1 m2 m3"),
        # not yet here long enough, or not caught up, or only asking
        (situation("h1", peer("h2", sight(here_ms=4_999)), peer("h3")), "h1"),
        (situation("h1", peer("h2", sight(here_ms=5_000)), peer("h3")), "h1 h2 h3"),
        (situation("h1", peer("b2", sight(here_ms=29_999)), peer("h3")), "h1"),
        (situation("h1", peer("b2", sight(here_ms=30_000)), peer("h3")), "b2 h1 h3"),
        (situation("h1", peer("h2", caught_up=False), peer("h3")), "h1"),
        (situation("h1", peer("h2", may_vote=False), peer("h3")), "h1"),
        (situation("h1", peer("h2", incarnation=2), peer("h3")), "h1"),
        (situation("h1", peer("h2"), peer("h3"), learners="h3"), "h1"),
        # those who vote stay, until the contrary has lasted
        (situation("b7 b8 b9", peer("b1"), peer("b2")), "b1 b2 b7 b8 b9"),
        (situation("b7 b8 b9", peer("b1")), "b7 b8 b9"),
        (situation("b1 b2 b3", peer("b3", sight(hidden_ms=HIDDEN - 1)), peer("b4")), "b1 b2 b3"),
        (situation("b1 b2 b3", peer("b3", sight(hidden_ms=HIDDEN)), peer("b4")), "b1 b2 b4"),
        (situation("b1 b2 b3", peer("b3", sight(flapping=True)), peer("b4")), "b1 b2 b4"),
        (situation("b1 b2 b3", peer("b3", sight(away_ms=AWAY - 1)), peer("b4")), "b1 b2 b3"),
        (situation("b1 b2 b3", peer("b3", sight(away_ms=AWAY)), peer("b4")), "b1 b2 b4"),
        (situation("b1 b2 b3", peer("b3", leaving=True), peer("b4")), "b1 b2 b4"),
        (situation("h1 h2 h3", peer("h3", sight(away_ms=AWAY)), peer("b4")), "b4 h1 h2"),
        # where a process leads, a browser that is away loses its vote at once
        (situation("h1 b2 b3", peer("b3", sight(away_ms=0))), "h1"),
        (situation("h1 b2 b3", peer("b3", sight(away_ms=0)), peer("b4")), "b2 b4 h1"),
        (situation("h1 h2 b3", peer("h2", sight(away_ms=0))), "b3 h1 h2"),
        (situation("h1 h2 b3", peer("b3", sight(away_ms=0))), "b3 h1 h2"),
        (situation("h1 h2 b3", peer("h2", sight(away_ms=0)), peer("b3", sight(away_ms=0))), "h1"),
        (situation("b1 b2 h3", peer("b2", sight(away_ms=0))), "b1 b2 h3"),
        # with nobody in its place it stays: a voter in the background is better than none
        (situation("b1 b2 b3", peer("b3", sight(hidden_ms=HIDDEN))), "b1 b2 b3"),
        (situation("b1 b2 b3", *(peer(f"b{n}", sight(hidden_ms=HIDDEN)) for n in (1, 2, 3))), "b1 b2 b3"),
        (situation("h1 h2 b3", peer("b3", sight(flapping=True))), "b3 h1 h2"),
        (situation("b1 b2 b3", peer("b3", sight(away_ms=GONE - 1))), "b1 b2 b3"),
        (situation("b1 b2 b3", peer("b3", sight(away_ms=GONE))), "b1"),
        (situation("b1 b2 b3", peer("b3", leaving=True)), "b1"),
        # a browser that was hidden a moment ago is not well yet
        (
            situation("b1", peer("b2"), peer("b3", Sight(True, 0, False, NOW - 59_999, False)), peer("b4")),
            "b1 b2 b4",
        ),
        (
            situation("b1", peer("b2"), peer("b3", Sight(True, 0, False, NOW - 60_000, False)), peer("b4")),
            "b1 b2 b3",
        ),
        (situation("b2 b1"), "b2"),
    ],
)
def test_who_should_vote(now: Situation, wanted: str) -> None:
    assert " ".join(wanted_voters(now)) == wanted
    shuffled = list(now.candidates)
    random.Random(SEED).shuffle(shuffled)
    assert wanted_voters(replace(now, candidates=tuple(shuffled))) == tuple(wanted.split())


@pytest.mark.parametrize(
    ("now", "do"),
    [
        (situation("h1"), None),
        (situation("h1", peer("h2")), None),
        (situation("h1 h2 h3"), None),
        # members and learners
        (situation("h1", peer("h2"), learners=""), AddLearner("h2", 1)),
        (situation("h1", peer("b2"), peer("h3"), learners=""), AddLearner("h3", 1)),
        (situation("h1", peer("h2", leaving=True), learners=""), None),
        (situation("h1", peer("h2", sight(away_ms=0)), learners=""), None),
        (situation("h1", peer("b2"), peer("b3"), learners="b2 b3 b9"), Remove("b9")),
        (situation("h1", peer("h2", incarnation=2)), AddLearner("h2", 2)),
        (situation("h1", peer("h2", incarnation=0)), Remove("h2")),
        (situation("h1 h2 h3", peer("h3", incarnation=2)), AddLearner("h3", 2)),
        # growing: only when the odd number can be reached
        (situation("h1", peer("h2"), peer("h3")), Promote("h2")),
        (situation("h1 h2", peer("h3")), Promote("h3")),
        (situation("h1 h2"), Demote("h2")),
        (situation("h1 h2 h3 h4", peer("h5")), Promote("h5")),
        (situation("h1 h2 h3 h4"), Demote("h4")),
        # replacing: who is there goes after the successor votes, who is dead before; five at most
        (situation("b1 b2 b3", peer("b3", sight(hidden_ms=HIDDEN)), peer("b4")), Promote("b4")),
        (situation("b1 b2 b3 b4", peer("b3", sight(hidden_ms=HIDDEN))), Demote("b3")),
        (situation("b1 b2 b3", peer("b3", sight(away_ms=AWAY)), peer("b4")), Demote("b3")),
        (situation("h1 h2 h3 h4 b5", peer("h6")), Demote("b5")),
        # never so that the change could lose the majority
        (situation("h1 h2 h3", peer("h2", sight(away_ms=GONE)), peer("h3", sight(away_ms=GONE))), None),
        (situation("h1 h2 h3", peer("h2", sight(away_ms=0)), peer("h3", leaving=True)), Demote("h2")),
        (situation("h1 h2 h3", peer("h2", caught_up=False), peer("h3", sight(away_ms=GONE))), None),
        (situation("h1 h2", peer("h2", caught_up=False), peer("h3"), learners="h3"), Promote("h3")),
        (
            situation(
                "h1 h2 h3", peer("h3", sight(away_ms=0)), peer("h2", caught_up=False), peer("h4"), learners=""
            ),
            None,
        ),
        (situation("h1 h2 h3", peer("h3", leaving=True)), Demote("h3")),
        (situation("h1 h2 h3", peer("h2", caught_up=False), peer("h3", leaving=True)), Demote("h2")),
        # a process and two browsers that are closed one after the other
        (situation("h1 b2 b3", peer("b2", sight(away_ms=0))), Demote("b2")),
        (situation("h1 b3", peer("b2", sight(away_ms=0))), Demote("b3")),
        (situation("h1", peer("b2", sight(away_ms=0)), peer("b3", sight(away_ms=0))), None),
        # half of an even number is away
        (situation("h1 h2", peer("h2", sight(away_ms=0)), peer("h3")), Demote("h2")),
        (
            situation("h1 h2 h3 h4", peer("h2", sight(away_ms=0)), peer("h4", sight(away_ms=0)), peer("h5")),
            Demote("h4"),
        ),
        # leading
        (situation("b1", peer("h2")), Promote("h2")),
        (situation("b1 h2"), HandOver("h2")),
        (situation("b1 b2 b3"), None),
        (situation("h1 h2 b3"), None),
        (situation("b3 h1 h2"), HandOver("h1")),
        (situation("b3 h1 h2", peer("h1", sight(here_ms=4_999)), peer("h2", caught_up=False)), None),
        (situation("b1 b2 b3", peer("b1", sight(hidden_ms=HIDDEN))), HandOver("b2")),
        (situation("b1 b2 b3", peer("b1", sight(hidden_ms=HIDDEN - 1))), None),
        (
            situation("b1 b2 b3", peer("b1", leaving=True), peer("b2", sight(hidden_ms=HIDDEN))),
            HandOver("b3"),
        ),
        (situation("b1", peer("b1", leaving=True), peer("b2", sight(here_ms=0))), Promote("b2")),
        (situation("b1", peer("b1", leaving=True), peer("b2", caught_up=False)), None),
        (situation("b1", peer("b1", leaving=True)), None),
        (situation("b1 b2", peer("b1", leaving=True)), HandOver("b2")),
        (situation("b1 h2", peer("b1", leaving=True), peer("h2", sight(away_ms=0))), Demote("h2")),
        # not now
        (replace(situation("h1", peer("h2"), learners=""), settled=False), None),
        (replace(situation("b3 h1 h2"), handed_over_ms=NOW - 9_999), None),
        (replace(situation("b3 h1 h2"), handed_over_ms=NOW - 10_000), HandOver("h1")),
        (replace(situation("h1 h2 h3"), leader="h9"), None),
        (situation("h1", peer("h9"), leader="h9"), None),
    ],
)
def test_the_next_change(now: Situation, do: object) -> None:
    move = next_move(now)
    assert (move.do if move is not None else None) == do
    if move is not None:
        assert move.why


# --- properties


class World:
    """A mesh that does what it is told, if its majority can; what is seen of its members changes at random."""

    def __init__(self, rng: random.Random, size: int) -> None:
        self.rng = rng
        self.now_ms = 0
        self.watch = Watch()
        self.members = {name: self.member(name) for name in (f"p{n}" for n in range(size))}
        self.connected = dict.fromkeys(self.members, True)
        self.ailing = dict.fromkeys(self.members, False)
        self.leader = "p0"
        self.config = Config((Server("p0", 1, True),))
        self.moves: list[Move] = []

    def member(self, name: str) -> Candidate:
        rng = self.rng
        return Candidate(
            name,
            1,
            rng.random() < self.rng.choice((0.1, 0.5, 0.9)),
            rng.random() < 0.8,
            rng.random() < 0.9 or name == "p0",
            rng.randrange(100),
            False,
            True,
            HERE,
        )

    def situation(self) -> Situation:
        for name in self.members:
            self.watch.see(self.now_ms, name, name == self.leader or self.connected[name], self.ailing[name])
        self.watch.keep(self.members.__contains__)
        seen = tuple(
            replace(member, sight=self.watch.sight(self.now_ms, name))
            for name, member in self.members.items()
        )
        return Situation(self.now_ms, self.leader, self.config, seen, True)

    def alive(self, config: Config) -> int:
        return sum(
            server.voter
            and (member := self.members.get(server.id)) is not None
            and member.incarnation == server.incarnation
            and (server.id == self.leader or (self.connected[server.id] and member.caught_up))
            for server in config.servers
        )

    def has_majority(self, config: Config) -> bool:
        return 2 * self.alive(config) > len(config.voters)

    def step(self) -> Move | None:
        """What is decided now, checked and done."""
        move = next_move(self.situation())
        if move is None:
            return None
        self.moves.append(move)
        if isinstance(move.do, HandOver):
            assert move.do.to in self.config.voters
            assert self.connected[move.do.to]
            assert self.members[move.do.to].caught_up
            self.lead(move.do.to)
            return move
        changed = changed_by(self.config, move)
        assert self.has_majority(changed), (move, self.config)
        assert len(changed.voters) <= 5
        assert self.leader in changed.voters
        assert len(set(changed.voters) ^ set(self.config.voters)) <= 1
        self.config = changed
        return move

    def lead(self, name: str) -> None:
        """A new leader sees everything for the first time."""
        self.leader = name
        self.watch = Watch()

    def elect(self) -> None:
        able = [
            name
            for name in self.config.voters
            if name in self.members
            and self.connected[name]
            and self.config.votes(name, self.members[name].incarnation)
        ]
        if 2 * len(able) > len(self.config.voters):
            self.lead(self.rng.choice(able))

    def happen(self) -> None:
        """One thing changes. The leader itself stays connected, unless it dies and another is elected."""
        rng, name = self.rng, self.rng.choice(sorted(self.members))
        self.now_ms += rng.choice((0, 10, 1_000, 4_000, 20_000, 40_000, 90_000, 700_000))
        member = self.members[name]
        match rng.randrange(9):
            case 0 | 1:
                if name != self.leader:
                    self.connected[name] = not self.connected[name]
            case 2 | 3:
                self.ailing[name] = not self.ailing[name]
            case 4:
                if name != self.leader:
                    self.members[name] = replace(
                        member, incarnation=member.incarnation + rng.choice((1, 1, -1))
                    )
            case 5:
                if name != self.leader:
                    self.members[name] = replace(member, caught_up=not member.caught_up)
            case 6:
                self.members[name] = replace(member, leaving=not member.leaving)
            case 7:
                if name != self.leader and len(self.members) > 1:
                    for table in (self.members, self.connected, self.ailing):
                        del table[name]
                else:
                    fresh = f"p{rng.randrange(100, 200)}"
                    self.members.setdefault(fresh, self.member(fresh))
                    self.connected.setdefault(fresh, True)
                    self.ailing.setdefault(fresh, False)
            case _:
                self.connected[self.leader] = False
                old = self.leader
                self.elect()
                if self.leader == old:
                    self.connected[old] = True
        if not self.has_majority(self.config):
            self.heal()

    def heal(self) -> None:
        """A leader without a majority decides nothing: voters come back until it has one, or half."""
        for server in self.config.servers:
            half = 2 * self.alive(self.config) == len(self.config.voters)
            if self.has_majority(self.config) or (half and self.rng.random() < 0.5):
                return
            if server.voter and server.id in self.members:
                self.connected[server.id] = True
                member = self.members[server.id]
                self.members[server.id] = replace(member, caught_up=True, incarnation=server.incarnation)


def changed_by(config: Config, move: Move) -> Config:
    """As the core does it."""
    servers = dict(config.by_id)
    match move.do:
        case AddLearner(name, incarnation):
            assert name not in servers or servers[name].incarnation < incarnation
            servers[name] = Server(name, incarnation, False)
        case Promote(name):
            assert not servers[name].voter
            servers[name] = replace(servers[name], voter=True)
        case Demote(name):
            assert servers[name].voter
            servers[name] = replace(servers[name], voter=False)
        case Remove(name):
            del servers[name]
        case HandOver():
            raise AssertionError
    return Config(tuple(servers[name] for name in sorted(servers)))


def rest(world: World) -> list[Move]:
    """Nothing happens but time: all that is done until nothing more is."""
    done: list[Move] = []
    quiet = 0
    while quiet < 12:
        move = world.step()
        if move is not None:
            done.append(move)
            assert len(done) <= 4 * len(world.members) + 30, [each.do for each in done]
            quiet = 0
        else:
            quiet += 1
            world.now_ms += 60_000
    return done


@pytest.mark.parametrize("seed", range(6))
def test_from_any_situation_it_comes_to_rest_at_the_wanted_set(seed: int) -> None:
    rested = moves = 0
    for number in range(WORLDS // 6):
        rng = random.Random(SEED + 1000 * seed + number)
        world = World(rng, rng.choice((1, 2, 3, 3, 4, 5, 6, 9)))
        for _ in range(30):
            for _ in range(rng.randrange(4)):
                world.step()
            world.happen()
        rest(world)
        moves += len(world.moves)
        if not world.has_majority(world.config):
            continue  # the even rule could not help: more than half is away
        now = world.situation()
        stuck = any(
            server.voter and not world.members[server.id].caught_up
            for server in world.config.servers
            if server.id in world.members and world.connected[server.id]
        )
        if stuck or world.members[world.leader].leaving:
            continue  # waits for a slow voter; or nobody is left to take over
        rested += 1
        assert set(world.config.voters) == set(wanted_voters(now)), (seed, number)
        assert len(world.config.voters) % 2 == 1
        leads = world.members[world.leader]
        assert leads.headless or not any(
            world.members[name].headless
            and world.connected[name]
            and not now_flapping(now, name)
            and not world.ailing[name]
            for name in world.config.voters
        )
        learners = {server.id for server in world.config.servers}
        for name, member in world.members.items():
            if world.connected[name] and not member.leaving:
                assert name in learners
                assert world.config.by_id[name].incarnation == member.incarnation
    assert rested > WORLDS // 6 // 2
    assert moves > 5 * WORLDS // 6


def now_flapping(now: Situation, name: str) -> bool:
    return next(each.sight.flapping for each in now.candidates if each.id == name)


def small_worlds() -> Iterator[Situation]:
    """Every mesh of three, whatever each of them is, and whoever votes."""
    states: Sequence[Sight] = (
        HERE,
        sight(away_ms=0),
        sight(away_ms=AWAY),
        sight(away_ms=GONE),
        sight(hidden_ms=HIDDEN),
    )
    for kinds in itertools.product("hb", repeat=3):
        for sights in itertools.product(states, repeat=2):
            for votes in itertools.product((False, True), repeat=2):
                names = [f"{kind}{number}" for number, kind in enumerate(kinds)]
                voters = [names[0], *(name for name, vote in zip(names[1:], votes, strict=True) if vote)]
                members = [peer(name, seen) for name, seen in zip(names, (HERE, *sights), strict=True)]
                yield situation(" ".join(voters), *members)


def test_every_mesh_of_three_comes_to_rest_where_it_should() -> None:
    count = 0
    for now in small_worlds():
        here = [each.id for each in now.candidates if each.sight.connected]
        alive = set(here) & set(now.config.voters)
        seen = set[tuple[str, Config]]()
        while (move := next_move(now)) is not None:
            assert (now.leader, now.config) not in seen, "the same once more"
            seen.add((now.leader, now.config))
            count += 1
            if isinstance(move.do, HandOver):
                now = replace(now, leader=move.do.to)
                assert move.do.to in here
                continue
            now = replace(now, config=changed_by(now.config, move))
            alive = set(here) & set(now.config.voters)
            assert 2 * len(alive) > len(now.config.voters)
        if 2 * len(alive) > len(now.config.voters):
            assert now.config.voters == tuple(sorted(wanted_voters(now)))
            assert len(now.config.voters) in (1, 3)
        else:
            assert len(now.config.voters) == 3
    assert count > 300


def flicker(world: World, names: Iterable[str], period_ms: int, rounds: int) -> int:
    """How many changes it makes that these are hidden, or away, every other period."""
    before = len(world.moves)
    for number in range(rounds):
        for name in names:
            world.ailing[name] = number % 2 == 0
        for _ in range(4):
            world.now_ms += period_ms // 4
            while world.step() is not None:
                pass
    return len(world.moves) - before


def test_what_comes_and_goes_faster_than_patience_changes_nothing() -> None:
    world = World(random.Random(SEED), 6)
    world.members = {
        name: replace(member, headless=False, durable=True, may_vote=True)
        for name, member in world.members.items()
    }
    rest(world)
    assert len(world.config.voters) == 5
    assert flicker(world, ["p1", "p2"], PATIENCE.ailing_ms - 1, 40) == 0
    outsider = next(name for name in world.members if name not in world.config.voters)
    assert flicker(world, [outsider], PATIENCE.ailing_ms - 1, 40) == 0
    assert flicker(world, ["p1"], 4 * PATIENCE.calm_ms, 8) <= 3 * 8


def test_a_connection_that_breaks_over_and_over_is_flapping_until_it_held_for_long() -> None:
    watch = Watch()
    now = 0
    for _ in range(3):
        watch.see(now, "a", True, False)
        now += 1_000
        assert not watch.sight(now, "a").flapping
        watch.see(now, "a", False, False)
    assert watch.sight(now, "a") == Sight(False, now, False, None, True)
    watch.see(now + 500, "a", True, True)
    assert watch.sight(now + 500, "a") == Sight(True, now + 500, True, now + 500, True)
    assert watch.sight(1_000 + FLAP_WINDOW_MS - 1, "a").flapping
    assert not watch.sight(1_000 + FLAP_WINDOW_MS, "a").flapping
    watch.keep(lambda name: name != "a")
    assert watch.sight(7, "a") == Sight(False, 7, False, None, False)
