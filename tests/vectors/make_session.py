"""Writes session.json: what an asker does, event by event, which the TypeScript suite replays."""

from __future__ import annotations

import random
from typing import Any

from tracing import beside, shown, shown_frame, written

from peer.errors import ContextOverflow
from peer.frames import Finish, Refuse, Token
from peer.mesh_state import PlanRecord, PlanStage
from peer.sampling import Sampling
from peer.session import (
    CHUNK_TOKENS,
    REROUTE_S,
    STALL_S,
    Ask,
    Broken,
    Emit,
    Ended,
    FindRoute,
    OriginEffect,
    OriginSession,
    Phase,
    Reason,
    Send,
    room_for,
)

PATH = beside(__file__, "session.json")
SEED = 20260711
TRACES = 24
OPS = 40
SESSION = bytes(range(16))
PEERS = ("p0", "p1", "p2", "p3", "asker")
SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0.8, top_p=0.95, seed=2**53 - 1),
    Sampling(repetition_penalty=1.1),
)


def effect(item: OriginEffect) -> dict[str, Any]:
    match item:
        case Send(peer, frame):
            return {"send": peer, "frame": shown_frame(frame)}
        case Emit(token, position):
            return {"emit": token, "position": position}
        case Ended(why):
            return {"ended": why}
        case Broken(text, reason):
            return {"broken": text, "reason": int(reason)}
        case FindRoute(without, soon):
            return {"find_route": sorted(without), "soon": soon}


class Trace:
    """A session, and what it was told and answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.core = OriginSession(SESSION, "asker")
        self.now = 0.0
        self.ops: list[dict[str, Any]] = []

    def note(self, op: dict[str, Any], effects: list[OriginEffect]) -> None:
        core = self.core
        after = [core.phase.value, core.turn, core.start, len(core.tokens)]
        self.ops.append({**op, "gives": [effect(item) for item in effects], "after": after})

    def begin(self, plan: PlanRecord, ask: Ask) -> None:
        op = {"do": "begin", "now": self.now, "plan": shown(plan), "ask": shown(ask)}
        self.note(op, self.core.begin(self.now, plan, ask))

    def token(self, sender: str, frame: Token) -> None:
        op = {"do": "token", "now": self.now, "sender": sender, "frame": shown_frame(frame)}
        self.note(op, self.core.token(self.now, sender, frame))

    def refused(self, sender: str, frame: Refuse) -> None:
        op = {"do": "refused", "now": self.now, "sender": sender, "frame": shown_frame(frame)}
        self.note(op, self.core.refused(self.now, sender, frame))

    def peer_gone(self, peer: str) -> None:
        op = {"do": "peer_gone", "now": self.now, "peer": peer, "why": f"peer {peer} left"}
        self.note(op, self.core.peer_gone(self.now, peer, f"peer {peer} left"))

    def reroute(self, plan: PlanRecord) -> None:
        op = {"do": "reroute", "now": self.now, "plan": shown(plan)}
        self.note(op, self.core.reroute(self.now, plan))

    def tick(self) -> None:
        self.note({"do": "tick", "now": self.now}, self.core.tick(self.now))

    def cancel(self) -> None:
        self.note({"do": "cancel"}, self.core.cancel())

    def release(self) -> None:
        self.note({"do": "release"}, self.core.release())

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "session": SESSION.hex(), "me": "asker", "ops": self.ops}


def plan_of(version: int, peers: list[str]) -> PlanRecord:
    stages = tuple(PlanStage(at * 2, at * 2 + 2, peer) for at, peer in enumerate(peers))
    return PlanRecord(version, stages, 1000, 2000, ("because",))


def some_plan(rng: random.Random) -> PlanRecord:
    return plan_of(rng.randint(1, 3), rng.sample(PEERS, rng.randint(1, 4)))


def some_ask(rng: random.Random, core: OriginSession) -> Ask:
    """A new prompt, or one that goes on from what the session holds."""
    length = rng.choice((1, 2, 7, CHUNK_TOKENS, CHUNK_TOKENS + 1, 70))
    fresh = [rng.randrange(500) for _ in range(length)]
    before = core.tokens[: rng.randint(0, len(core.tokens))] if rng.random() < 0.6 else []
    return Ask((*before, *fresh), rng.randint(1, 30), rng.choice(SAMPLINGS), (2,)[: rng.randint(0, 1)])


def random_op(rng: random.Random, trace: Trace) -> None:
    core = trace.core
    trace.now += rng.choice((0.0, 0.125, 0.5, REROUTE_S, STALL_S) if rng.random() < 0.2 else (0.0, 0.125))
    tail = core.route[-1] if core.route else "p0"
    sender = tail if rng.random() < 0.85 else rng.choice(PEERS)
    turn = core.turn if rng.random() < 0.9 else max(0, core.turn - 1)
    roll = rng.random()
    if core.phase in (Phase.IDLE, Phase.DONE, Phase.FAILED) and roll < 0.7:
        trace.begin(plan_of(1, ["p0", "p1"]) if rng.random() < 0.5 else some_plan(rng), some_ask(rng, core))
    elif core.phase is Phase.REROUTING and roll < 0.6:
        trace.reroute(some_plan(rng))
    elif roll < 0.6:
        position = len(core.tokens) if rng.random() < 0.9 else rng.randrange(100)
        finish = rng.choices(list(Finish), (12, 1, 1))[0]
        trace.token(sender, Token(SESSION, turn, position, rng.randrange(500), int(finish)))
    elif roll < 0.75:
        sender = rng.choice(core.route or PEERS) if rng.random() < 0.8 else rng.choice(PEERS)
        reason = rng.choice([*map(int, Reason), 0, 99])
        message = rng.choice(("", "has 3 positions"))
        trace.refused(sender, Refuse(SESSION, turn, 0, 5, 3, reason, message))
    elif roll < 0.85:
        trace.peer_gone(rng.choice(PEERS))
    elif roll < 0.93:
        trace.tick()
    elif roll < 0.97:
        trace.cancel()
    else:
        trace.release()


def flapping() -> Trace:
    """A route that fails more often than a session bears."""
    trace = Trace("a mesh that flaps")
    trace.begin(plan_of(1, ["p0", "p1"]), Ask((1, 2, 3), 10, Sampling(), ()))
    for at in range(10):
        trace.refused(
            "p1", Refuse(SESSION, trace.core.turn, 1, 0, 0, int(Reason.UNKNOWN_SESSION), "unknown session")
        )
        trace.reroute(plan_of(2 + at, ["p0", "p1"]))
    return trace


def traces() -> list[Trace]:
    made = [flapping()]
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
        "Traces of OriginSession. gives: effects in order. after: phase, turn, start, number of tokens. "
        "rooms: room_for(prompt tokens, max tokens, context): a number, or the words of ContextOverflow."
    )
    return written(about, {"rooms": rooms(), "traces": [trace.as_json() for trace in traces()]})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
