"""Writes session.json: what an asker does, event by event, which the TypeScript suite replays."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from tracing import beside, shown, shown_frame, written

from peer.errors import ContextOverflow
from peer.session.ask import STUCK_S
from peer.session.effects import Broken, Emit, Ended, FindRoute, OriginEffect, Reason, Send, Spare, Suspect
from peer.session.origin import (
    HOPE_S,
    MAX_REROUTES,
    PATIENCE_S,
    REROUTE_S,
    STALL_S,
    Ask,
    Heard,
    OriginSession,
    Phase,
    room_for,
)
from peer.session.position_spans import CHUNK_TOKENS
from peer.session.routes import Route
from peer.session.sampling import Sampling
from peer.wire.generated.frames import Feed, Finish, Here, Refuse, Token

PATH = beside(__file__, "session.json")
SEED = 20260711
TRACES = 24
OPS = 60
SESSION = bytes(range(16))
PEERS = ("p0", "p1", "p2", "p3", "asker")
SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0.8, top_p=0.95, seed=2**53 - 1),
    Sampling(repetition_penalty=1.1),
)


def asked(ask: Ask) -> dict[str, Any]:
    """Of one that is not steered: others are for Python alone."""
    return {
        name: value
        for name, value in shown(ask).items()
        if name not in ("steering", "sampled", "front", "front_kept", "rows")
    }


def effect(item: OriginEffect) -> dict[str, Any]:
    match item:
        case Send(peer, frame):
            return {"send": peer, "frame": shown_frame(frame)}
        case Spare(peer, frame):
            return {"spare": peer, "frame": shown_frame(frame)}
        case Emit(token, position):
            return {"emit": token, "position": position}
        case Ended(why):
            return {"ended": why}
        case Broken(text, reason):
            return {"broken": text, "reason": int(reason)}
        case FindRoute(gone, avoid, soon):
            return {"find_route": [sorted(gone), sorted(avoid)], "soon": soon}
        case Suspect(peer, why):
            return {"suspect": peer, "why": why}


class Trace:
    """A session, and what it was told and answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.core = OriginSession(SESSION, "asker")
        self.now = 0.0
        self.ops: list[dict[str, Any]] = []

    def note(self, op: dict[str, Any], effects: list[OriginEffect]) -> None:
        core = self.core
        due = core.deadline
        after = [
            *(core.phase.value, core.turn, core.start, len(core.tokens), core.reroutes),
            None if due == float("inf") else round(due * 1e6),
            [sorted(peers) for peers in core.without],
        ]
        self.ops.append({**op, "gives": [effect(item) for item in effects], "after": after})

    def begin(self, route: Route, ask: Ask) -> None:
        op = {"do": "begin", "now": self.now, "route": shown(route), "ask": asked(ask)}
        self.note(op, self.core.begin(self.now, route, ask))

    def adopt(self, route: Route, ask: Ask, ids: tuple[int, ...], heard: Heard | int) -> None:
        op = {
            "do": "adopt",
            "now": self.now,
            "route": shown(route),
            "ask": asked(ask),
            "ids": list(ids),
            "heard": shown(heard),
        }
        self.note(op, self.core.adopt(self.now, route, ask, ids, heard))
        self.note({"do": "under_way", "is": shown(self.core.under_way)}, [])

    def token(self, sender: str, frame: Token) -> None:
        self.note(self._frame("token", sender, frame), self.core.token(self.now, sender, frame))

    def refused(self, sender: str, frame: Refuse) -> None:
        self.note(self._frame("refused", sender, frame), self.core.refused(self.now, sender, frame))

    def feed(self, sender: str, frame: Feed) -> None:
        self.note(self._frame("feed", sender, frame), self.core.feed(self.now, sender, frame))

    def here(self, sender: str, frame: Here) -> None:
        self.note(self._frame("here", sender, frame), self.core.here(self.now, sender, frame))

    def hint(self, peer: str) -> None:
        self.note({"do": "hint", "now": self.now, "peer": peer}, self.core.hint(self.now, peer))

    def patience(self, peer: str, seconds: float) -> None:
        self.core.patience_s[peer] = seconds
        self.note({"do": "patience", "peer": peer, "seconds": seconds}, [])

    def peer_gone(self, peer: str) -> None:
        op = {"do": "peer_gone", "now": self.now, "peer": peer, "why": f"peer {peer} left"}
        self.note(op, self.core.peer_gone(self.now, peer, f"peer {peer} left"))

    def peer_back(self, peer: str) -> None:
        self.core.peer_back(peer)
        self.note({"do": "peer_back", "peer": peer}, [])

    def reroute(self, route: Route) -> None:
        op = {"do": "reroute", "now": self.now, "route": shown(route)}
        self.note(op, self.core.reroute(self.now, route))

    def hope(self, hopeful: bool) -> None:
        self.core.hope(hopeful)
        self.note({"do": "hope", "hopeful": hopeful}, [])

    def tick(self) -> None:
        self.note({"do": "tick", "now": self.now}, self.core.tick(self.now))

    def cancel(self) -> None:
        self.note({"do": "cancel"}, self.core.cancel())

    def release(self) -> None:
        self.note({"do": "release"}, self.core.release())

    def move(self, route: Route | None) -> None:
        op = {"do": "move", "now": self.now, "route": shown(route)}
        self.note(op, self.core.move(self.now, route))

    def second(self, sender: str, frame: Token | Refuse | Here | Feed) -> None:
        self.note(self._frame("second", sender, frame), self.core.second_frame(self.now, sender, frame))

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "session": SESSION.hex(), "me": "asker", "ops": self.ops}

    def _frame(self, do: str, sender: str, frame: Token | Refuse | Feed | Here) -> dict[str, Any]:
        return {"do": do, "now": self.now, "sender": sender, "frame": shown_frame(frame)}

    # --- shorter words for traces by hand

    def after(self, seconds: float) -> None:
        self.now += seconds

    def says(self, token: int, finish: Finish = Finish.MORE, gap_s: float = 0.125) -> None:
        """The tail's next token, after the usual gap."""
        self.after(gap_s)
        core = self.core
        self.token(core.route[-1], Token(SESSION, core.turn, len(core.tokens), token, int(finish)))

    def at(self, stage: int, received: int, computed: int, steps: int) -> None:
        """Stage `stage` says where it is."""
        core = self.core
        self.here(core.route[stage], Here(SESSION, core.turn, stage, received, computed, steps))

    def refuses(self, stage: int, reason: Reason, have: int = 0, message: str = "why") -> None:
        core = self.core
        frame = Refuse(SESSION, core.turn, stage, 0, have, int(reason), message)
        self.refused(core.route[stage], frame)


def route_of(*peers: str, plan: int = 1, shadows: tuple[tuple[int, str], ...] = ()) -> Route:
    return Route(plan, peers, shadows)


def ask_of(prompt: int | tuple[int, ...], tokens: int = 10, sampling: int = 0) -> Ask:
    ids = tuple(range(1, prompt + 1)) if isinstance(prompt, int) else prompt
    return Ask(ids, tokens, SAMPLINGS[sampling], (2,))


# --- by hand


def flapping() -> Trace:
    """A route that fails more often than a session bears."""
    t = Trace("a mesh that flaps")
    t.begin(route_of("p0", "p1"), ask_of(3))
    for at in range(MAX_REROUTES + 1):
        t.refuses(1, Reason.MISSING_POSITION)
        t.reroute(route_of("p0", "p1", plan=2 + at))
    return t


def unready() -> list[Trace]:
    """A stage that does not serve its place yet: more often than routes may fail, and for longer than is waited."""
    traces = []
    for token_at in (20, None):
        t = Trace(f"a stage that loads; it serves at try {token_at}")
        t.begin(route_of("p0", "p1"), ask_of(3))
        for at in range(2 * int(HOPE_S)):
            if at == token_at:
                t.says(11)
            t.refuses(1, (Reason.UNKNOWN_PLAN, Reason.UNKNOWN_SESSION)[at % 2])
            if t.core.phase is Phase.FAILED:
                break
            t.now = t.core.deadline
            t.tick()
            t.reroute(route_of("p0", "p1"))
        traces.append(t)
    alone = Trace("the only stage loses its neighbour: asked again soon")
    alone.begin(route_of("p0"), ask_of(3))
    alone.refuses(0, Reason.LOST_NEIGHBOUR)
    return [*traces, alone]


def hedged() -> Trace:
    t = Trace("a late token, a stage that is silent, and the standby in its place")
    with_shadow = route_of("p0", "p1", "p2", shadows=((0, "p3"), (1, "p3")))
    t.begin(with_shadow, ask_of(CHUNK_TOKENS + 3))
    t.patience("p1", 0.5)
    for token in range(5):
        t.says(token + 10)
    t.after(0.1)
    t.tick()  # not late yet
    t.now = t.core.deadline
    t.tick()  # WHERE to all
    t.at(0, 40, 40, 7)
    t.at(2, 39, 39, 7)
    t.after(PATIENCE_S)
    t.tick()  # p1 has more patience
    t.now = t.core.deadline
    t.tick()  # silent
    t.reroute(route_of("p0", "p1", "p2"))  # helps nothing
    t.reroute(route_of("p0", "p3", "p2"))
    t.feed("p0", Feed(SESSION, 2, 0, 38))
    t.feed("p3", Feed(SESSION, 2, 0, 38))  # no shadow of the first stage in this turn
    t.token("p2", Token(SESSION, 1, 40, 15, 0))  # of the earlier turn, and it is the next
    t.token("p2", Token(SESSION, 2, 40, 15, 0))  # twice
    t.token("p2", Token(SESSION, 2, 42, 17, 0))  # a gap
    t.says(16)
    t.here("p1", Here(SESSION, 1, 1, 40, 40, 9))  # the frozen peer is back
    t.says(2, Finish.END_TOKEN)
    return t


def silent_without_another() -> Trace:
    t = Trace("a stage that is silent, and nobody to take its place: the answer waits and goes on")
    t.begin(route_of("p0", "p1"), ask_of(3))
    t.says(11)
    t.after(1.0)
    t.tick()
    t.at(0, 4, 4, 2)
    t.after(PATIENCE_S)
    t.tick()
    t.after(PATIENCE_S)
    t.tick()
    t.now = t.core.deadline
    t.tick()
    t.at(1, 4, 4, 2)
    t.says(12)
    t.after(STALL_S)
    t.tick()
    return t


def stuck(name: str, received: int, computed: int) -> Trace:
    t = Trace(f"everybody answers and nothing moves: {name}")
    t.begin(route_of("p0", "p1"), ask_of(3))
    t.says(11)
    for _ in range(8):
        t.now = t.core.deadline
        t.tick()
        t.at(0, 4, 4, 2)
        t.at(1, received, computed, 2)
        if t.core.without[1]:
            break
        t.after(STUCK_S / 2)
    t.reroute(route_of("p0", "p2"))
    t.says(12)
    return t


def alone() -> Trace:
    t = Trace("whoever nobody can stand in for gets longer with every new start")
    t.begin(route_of("p0"), ask_of(3))
    starts = []
    while t.now < STALL_S - 10:
        t.now = t.core.deadline
        t.tick()
        if t.core.phase is Phase.REROUTING:
            starts.append(t.now)
            t.reroute(route_of("p0"))
        else:
            t.at(0, 3, 0, 0)
    gaps = [after - before for before, after in pairwise(starts)]
    assert len(starts) < MAX_REROUTES, starts
    assert gaps == sorted(gaps), starts
    t.says(11)
    return t


def busy() -> Trace:
    t = Trace("a stage that is busy with others is waited for; one that lost its input is begun again")
    t.begin(route_of("p0", "p1"), ask_of(3))
    for round_ in range(4):
        t.now = t.core.deadline
        t.tick()
        t.at(0, 3, 0, round_)
        t.at(1, 0, 0, 5)
        t.after(STUCK_S / 2)
    for _ in range(12):
        t.now = t.core.deadline
        t.tick()
        t.at(0, 3, 3, 9)
        t.at(1, 3, 3, 9)
        if t.core.phase is Phase.REROUTING:
            break
        t.after(STUCK_S / 2)
    t.reroute(route_of("p0", "p1"))
    t.says(11)
    return t


def talk() -> Trace:
    t = Trace("three answers of one session: spans, a branch, and a route that changes in between")
    t.begin(route_of("p0", "p1", shadows=((1, "p2"),)), ask_of(4, sampling=2))
    for token in (11, 12):
        t.says(token)
    t.says(13, Finish.LENGTH)
    said = tuple(t.core.tokens)
    t.begin(route_of("p0", "p1"), ask_of((*said, 21, 22), sampling=2))
    t.says(31)
    t.says(32)
    t.peer_gone("p1")
    t.token("p1", Token(SESSION, 2, 11, 33, 0))  # sampled before it went
    t.hope(True)
    t.after(HOPE_S / 2)
    t.tick()
    t.reroute(route_of("p0", "p2", plan=2))
    t.says(34)
    t.cancel()
    branch = (*said[:5], 41)  # the question is asked again in other words
    t.begin(route_of("p0", "p2", plan=2), ask_of(branch))
    t.says(51, Finish.LENGTH)
    t.begin(route_of("p0", "p2", plan=2), ask_of(tuple(t.core.tokens)))  # nothing new: the last one is sent
    t.release()
    return t


def adopted() -> list[Trace]:
    """Answers that another peer asked for."""
    t = Trace("an answer is adopted after two tokens of the second question: its stages keep what they hold")
    shadowed = route_of("p0", "p1", shadows=((0, "p2"),))
    t.adopt(shadowed, ask_of(9, sampling=2), (31, 32), Heard(2, 3, (4, 2, 3)))
    t.refuses(1, Reason.UNKNOWN_SESSION)  # the log has come no further there
    t.after(1.0)
    t.tick()
    t.reroute(shadowed)
    t.says(33)
    t.says(2, Finish.END_TOKEN)
    t.begin(shadowed, ask_of((*t.core.tokens, 41)))
    t.says(51)
    t.release()
    early = Trace("adopted before its first token")
    early.adopt(route_of("p0", "p1"), ask_of(3), (), Heard(1, 1, (3,)))
    early.says(11)
    anew = Trace("adopted by a peer that heard nothing but the log")
    anew.adopt(route_of("p0", "p1"), ask_of(3), (), 1000)
    anew.says(11)
    part = Trace("adopted by a peer that has tokens and does not know how the prompt was computed")
    part.adopt(route_of("p0", "p1"), ask_of(3), (11, 12), 1000)
    part.says(13)
    return [t, early, anew, part]


def losses() -> Trace:
    t = Trace("two losses during one recovery, a hint, and no route in time")
    t.begin(route_of("p0", "p1", shadows=((0, "p2"), (1, "p3"))), ask_of(3))
    t.says(11)
    t.hint("p3")  # not on the route
    t.hint("p1")
    t.hint("p1")  # asked already
    t.peer_gone("p1")
    t.reroute(route_of("p0", "p1"))
    t.reroute(route_of("p0", "p3"))
    t.peer_gone("p3")
    t.peer_gone("p0")
    t.tick()
    t.peer_back("p0")
    t.reroute(route_of("p0", "p2", plan=2))
    t.says(12)
    t.refuses(1, Reason.LEAVING)
    t.hope(False)
    t.after(REROUTE_S)
    t.tick()
    return t


def reasons() -> list[Trace]:
    """What each reason leads to, once and twice."""
    made = []
    for number in [*map(int, Reason), 99]:
        t = Trace(f"REFUSE of reason {number}, again, and from somebody else")
        t.begin(route_of("p0", "p1"), ask_of(3))
        t.refused("p9", Refuse(SESSION, 1, 1, 0, 0, number, "a stranger"))
        t.refused("p1", Refuse(SESSION, 0, 1, 0, 0, number, "an older turn"))
        t.refused("p1", Refuse(SESSION, 1, 1, 0, 0, number, ""))
        t.reroute(route_of("p0", "p1", plan=2))
        t.refused("p1", Refuse(SESSION, 2, 1, 4, 3, number, "again"))
        made.append(t)
    return made


# --- at random


def some_route(rng: random.Random) -> Route:
    peers = rng.sample(PEERS, rng.randint(1, 4))
    shadows = tuple(
        (stage, rng.choice([other for other in PEERS if other != peer]))
        for stage, peer in enumerate(peers)
        if rng.random() < 0.4
    )
    return Route(rng.randint(1, 3), tuple(peers), shadows)


def some_ask(rng: random.Random, core: OriginSession) -> Ask:
    """A new prompt, or one that goes on from what the session holds."""
    length = rng.choice((1, 2, 7, CHUNK_TOKENS, CHUNK_TOKENS + 1, 70))
    fresh = [rng.randrange(500) for _ in range(length)]
    before = core.tokens[: rng.randint(0, len(core.tokens))] if rng.random() < 0.6 else []
    return Ask((*before, *fresh), rng.randint(1, 30), rng.choice(SAMPLINGS), (2,)[: rng.randint(0, 1)])


def random_op(rng: random.Random, trace: Trace) -> None:
    core = trace.core
    trace.now += rng.choice((0.0, 0.125, 0.5, REROUTE_S, STALL_S) if rng.random() < 0.1 else (0.0, 0.125))
    tail = core.route[-1] if core.route else "p0"
    sender = tail if rng.random() < 0.85 else rng.choice(PEERS)
    turn = core.turn if rng.random() < 0.9 else max(0, core.turn - 1)
    roll = rng.random()
    if core.phase in (Phase.IDLE, Phase.DONE, Phase.FAILED) and roll < 0.7:
        trace.begin(route_of("p0", "p1") if rng.random() < 0.5 else some_route(rng), some_ask(rng, core))
    elif core.phase is Phase.REROUTING and roll < 0.5:
        trace.reroute(some_route(rng))
    elif roll < 0.45:
        position = len(core.tokens) if rng.random() < 0.9 else rng.randrange(100)
        finish = rng.choices(list(Finish), (16, 1, 1))[0]
        trace.token(sender, Token(SESSION, turn, position, rng.randrange(500), int(finish)))
    elif roll < 0.52:
        sender = rng.choice(core.route or PEERS) if rng.random() < 0.8 else rng.choice(PEERS)
        reason = rng.choice([*map(int, Reason), 0, 99])
        message = rng.choice(("", "has 3 positions"))
        stage, have = rng.randrange(3), rng.randrange(4)
        trace.refused(
            sender, Refuse(SESSION, turn, stage if stage < len(core.route) else 0, 5, have, reason, message)
        )
    elif roll < 0.57:
        trace.peer_gone(rng.choice(PEERS))
    elif roll < 0.60:
        trace.peer_back(rng.choice(PEERS))
    elif roll < 0.63:
        trace.hint(rng.choice(PEERS))
    elif roll < 0.67:
        trace.feed(
            rng.choice(PEERS), Feed(SESSION, turn, rng.choice((0, 0, 1)), rng.randrange(len(core.tokens) + 2))
        )
    elif roll < 0.78:
        stage = rng.randrange(max(len(core.route), 1) + 1)
        sender = core.route[stage] if stage < len(core.route) and rng.random() < 0.9 else rng.choice(PEERS)
        trace.here(sender, Here(SESSION, turn, stage, rng.randrange(3), rng.randrange(3), rng.randrange(2)))
    elif roll < 0.80:
        trace.patience(rng.choice(PEERS), rng.choice((0.08, 1.0)))
    elif roll < 0.93:
        if rng.random() < 0.6 and core.deadline < float("inf"):
            trace.now = max(trace.now, core.deadline)
        trace.tick()
    elif roll < 0.95:
        trace.reroute(some_route(rng))
    elif roll < 0.96:
        trace.hope(rng.random() < 0.5)
    elif roll < 0.985:
        trace.cancel()
    else:
        trace.release()


def traces() -> list[Trace]:
    made = [
        *(flapping(), *unready(), hedged(), silent_without_another(), alone(), busy(), talk(), losses()),
        stuck("the stage that has work is done without", 4, 3),
        stuck("the stage that does not get its input is done without", 3, 3),
        *reasons(),
        *adopted(),
    ]
    for number in range(TRACES):
        rng = random.Random(SEED + number)
        trace = Trace(f"random schedule of seed {SEED + number}")
        for _ in range(OPS):
            random_op(rng, trace)
        made.append(trace)
    return made


def rooms() -> list[dict[str, Any]]:
    rows = []
    for given in (
        (10, None, 100),
        (10, 90, 100),
        (10, 91, 100),
        (99, 1, 100),
        (100, 1, 100),
        (500, None, 100),
        (1, 0, 9),
    ):
        try:
            gives: Any = room_for(*given)
        except ContextOverflow as error:
            gives = str(error)
        rows.append({"given": list(given), "gives": gives})
    return rows


def text() -> str:
    about = (
        "Traces of OriginSession. gives: effects in order. after: phase, turn, start, number of tokens, reroutes, "
        "deadline in microseconds, peers it does without and rather does without. rooms: room_for(prompt tokens, max "
        "tokens, context): a number, or the words of ContextOverflow."
    )
    return written(about, {"rooms": rooms(), "traces": [trace.as_json() for trace in traces()]})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
