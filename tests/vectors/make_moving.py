"""Writes moving.json: how an answer moves to another plan's route, event by event; the TypeScript suite replays it."""

from __future__ import annotations

import random
from typing import Any

from make_session import PEERS, SAMPLINGS, SESSION, Trace, ask_of, route_of, some_ask, some_route
from tracing import beside, written

from peer.session.effects import OriginEffect, Reason
from peer.session.migration import (
    FAR_TOKENS,
    LONG_S,
    LOOK_S,
    MAX_PUSHES,
    MAX_TRIES,
    NEAR_TOKENS,
    RACE_WITHIN_S,
    TRY_AGAIN_S,
    WARM_WITHIN_S,
    next_id,
)
from peer.session.origin import Ask, Phase
from peer.wire.generated.frames import Feed, Finish, Here, Refuse, Token

PATH = beside(__file__, "moving.json")
SEED = 20261128
TRACES = 10
OPS = 90
PROMPT = 40


class Moving(Trace):
    """A session whose answers move."""

    def note(self, op: dict[str, Any], effects: list[OriginEffect]) -> None:
        super().note(op, effects)
        second = self.core.second
        self.ops[-1]["ids"] = [self.core.session.hex(), second.hex() if second is not None else None]

    # --- shorter words

    @property
    def opened(self) -> tuple[bytes, int, tuple[str, ...]]:
        """The second session, its turn and its route."""
        move = self.core._move
        assert move is not None
        return move.session, move.turn, move.route.peers

    def says(self, token: int, finish: Finish = Finish.MORE, gap_s: float = 0.125) -> None:
        self.after(gap_s)
        core = self.core
        self.token(core.route[-1], Token(core.session, core.turn, len(core.tokens), token, int(finish)))

    def has(self, stage: int, computed: int) -> None:
        """Stage `stage` of the second session says how far it is."""
        session, turn, peers = self.opened
        self.second(peers[stage], Here(session, turn, stage, computed, computed, 1))

    def races(self, position: int, token: int = 99) -> None:
        """The tail of the second session samples."""
        session, turn, peers = self.opened
        self.second(peers[-1], Token(session, turn, position, token, 0))

    def look(self) -> None:
        self.now: int = max(self.now, self.core.deadline)
        self.tick()

    def warm(self, lacks: int = NEAR_TOKENS) -> None:
        """All places have computed all but the last `lacks` tokens that are known to be."""
        for stage in range(len(self.opened[2])):
            self.has(stage, len(self.core.tokens) - 1 - lacks)


def begun(name: str, tokens: int = 60, sampling: int = 0) -> Moving:
    t = Moving(name)
    t.begin(route_of("p0", "p1", shadows=((0, "p3"),)), ask_of(PROMPT, tokens, sampling))
    for token in range(3):
        t.says(50 + token)
    return t


NEXT = route_of("p0", "p2", plan=2, shadows=((0, "p1"), (1, "p3")))


def moved(sampling: int) -> Moving:
    t = begun(
        f"an answer moves, and its next question is asked where it moved to: sampling {sampling}",
        60,
        sampling,
    )
    t.move(NEXT)
    t.says(60)
    t.look()  # WHERE
    session, turn, peers = t.opened
    t.second(peers[0], Feed(session, turn, 0, 7))
    t.second(peers[1], Feed(session, turn, 0, 7))  # not the first stage
    t.second(peers[0], Feed(session, turn, 1, 7))
    t.says(61)
    t.second("p9", Here(session, turn, 1, 44, 44, 1))
    t.second(peers[1], Here(session, turn + 1, 1, 44, 44, 1))
    t.has(0, 30)
    t.has(1, 44)
    t.warm()
    t.says(62)  # both sample
    t.races(len(t.core.tokens) - 1, 62)
    t.says(63, gap_s=0.0625)
    t.token(t.core.route[-1], Token(SESSION, 1, len(t.core.tokens), 64, 0))  # of the first session, late
    t.says(2, Finish.END_TOKEN)
    t.begin(NEXT, ask_of((*t.core.tokens, 5, 6)))
    t.says(71)
    t.release()
    return t


def back_and_forth() -> Moving:
    t = begun("an answer moves five times")
    for plan in range(2, 7):
        t.move(route_of("p0", "p2" if plan % 2 else "p1", plan=plan))
        t.says(60)
        t.says(61)
        t.warm(lacks=0)
        t.races(len(t.core.tokens))
    t.cancel()
    return t


def pushed() -> Moving:
    t = begun("its token is too far behind, again and again: it waits for what it lacks")
    t.move(NEXT)
    t.says(60)
    t.warm()
    for _ in range(MAX_PUSHES + 1):
        behind = len(t.core.tokens)
        for token in range(3):
            t.says(61 + token)
        t.races(behind)
        if t.core.second is None:
            break
    assert t.core.session == next_id(SESSION)
    t.says(90)
    return t


def slow() -> Moving:
    t = begun("a busy machine lets it come no nearer", tokens=200)
    t.move(NEXT)
    t.says(60)
    t.warm(lacks=FAR_TOKENS)
    t.after(LONG_S)
    t.warm(lacks=FAR_TOKENS)
    t.races(len(t.core.tokens) - 1)
    return t


def given_up() -> list[Moving]:
    made = []
    refused = begun("the new route refuses: as many tries as there are, each in a session of its own")
    refused.move(NEXT)
    for _ in range(MAX_TRIES):
        refused.says(60)
        session, turn, peers = refused.opened
        refused.second("p9", Refuse(session, turn, 1, 0, 0, int(Reason.FAILED), "a stranger"))
        refused.second(peers[1], Refuse(session, turn, 1, 0, 0, int(Reason.NO_SLOT), "full"))
        refused.says(61)  # too early to try again
        refused.after(TRY_AGAIN_S)
    refused.says(62)
    made.append(refused)
    late = begun("the new route takes too long", tokens=300)
    late.move(NEXT)
    late.says(60)
    late.after(WARM_WITHIN_S)
    late.tick()
    made.append(late)
    raced = begun("no token comes in time")
    raced.move(NEXT)
    raced.says(60)
    raced.warm()
    raced.says(61)
    raced.after(RACE_WITHIN_S)
    raced.says(62, gap_s=0.0)
    raced.tick()
    made.append(raced)
    lost = begun("a peer of the new route is lost")
    lost.move(NEXT)
    lost.says(60)
    lost.peer_gone("p2")
    lost.after(TRY_AGAIN_S)
    lost.says(61)
    made.append(lost)
    for name in ("end", "cancel", "release", "failed", "another plan", "stays"):
        t = begun(f"the move is over: {name}")
        t.move(NEXT)
        t.says(60)
        match name:
            case "end":
                t.says(2, Finish.END_TOKEN)
            case "cancel":
                t.cancel()
            case "release":
                t.release()
            case "failed":
                t.refused("p1", Refuse(SESSION, 1, 1, 0, 0, int(Reason.BAD_STEP), "why"))
            case "another plan":
                t.move(route_of("p2", plan=3))
                t.says(61)
            case _:
                t.move(None)
                t.says(61)
        made.append(t)
    return made


def losses() -> list[Moving]:
    made = []
    for name, route in (("the one it moves to", NEXT), ("another", route_of("p3", "p2", plan=2))):
        t = begun(f"a stage of the old route is lost while it moves, and the route after it is {name}")
        t.move(NEXT)
        t.says(60)
        t.says(61)
        t.peer_gone("p1")
        t.after(LOOK_S)
        t.tick()
        t.reroute(route)
        t.says(62)
        made.append(t)
    waits = begun("the route is looked for before the move began")
    waits.peer_gone("p1")
    waits.move(NEXT)
    waits.token("p1", Token(SESSION, 1, len(waits.core.tokens), 60, 0))  # no move while it is without a route
    waits.reroute(NEXT)
    waits.says(61)
    made.append(waits)
    short = begun("too few tokens are left", tokens=6)
    short.move(NEXT)
    short.says(60)
    short.says(61)
    made.append(short)
    return made


# --- at random


def random_op(rng: random.Random, t: Moving) -> None:
    core = t.core
    t.now += rng.choice((0.0, 0.125, 2.0, 6.0) if rng.random() < 0.1 else (0.0, 0.0625))
    roll, move = rng.random(), core._move
    if core.phase in (Phase.IDLE, Phase.DONE, Phase.FAILED):
        ask = some_ask(rng, core)
        t.begin(some_route(rng), Ask(ask.prompt, 80, rng.choice(SAMPLINGS), ()))
    elif core.phase is Phase.REROUTING and roll < 0.5:
        t.reroute(move.route if move is not None and rng.random() < 0.5 else some_route(rng))
    elif roll < 0.3:
        turn = core.turn if rng.random() < 0.9 else max(0, core.turn - 1)
        finish = rng.choices(list(Finish), (40, 1, 1))[0]
        t.token(core.route[-1], Token(core.session, turn, len(core.tokens), rng.randrange(500), int(finish)))
    elif roll < (0.45 if move is None else 0.32):
        t.move(some_route(rng) if rng.random() < 0.9 else None)
    elif move is not None and roll < 0.8:
        peers = move.route.peers
        stage = rng.randrange(len(peers))
        sender = peers[stage] if rng.random() < 0.9 else rng.choice(PEERS)
        turn = move.turn if rng.random() < 0.9 else max(0, move.turn - 1)
        known = len(core.tokens)
        what = rng.random()
        if what < 0.6:
            at = max(0, known - rng.randrange(8))
            t.second(sender, Here(move.session, turn, stage, at, at, 0))
        elif what < 0.85:
            at = max(0, known - rng.randrange(4))
            t.second(peers[-1], Token(move.session, turn, at, rng.randrange(500), 0))
        elif what < 0.95:
            t.second(peers[0], Feed(move.session, turn, 0, rng.randrange(known + 1)))
        else:
            t.second(sender, Refuse(move.session, turn, stage, 0, 0, rng.choice([*map(int, Reason)]), "why"))
    elif roll < 0.86:
        t.look() if rng.random() < 0.5 and core.deadline < float("inf") else t.tick()
    elif roll < 0.88:
        t.peer_gone(rng.choice(PEERS))
    elif roll < 0.94:
        t.peer_back(rng.choice(PEERS))
    elif roll < 0.96:
        stage = rng.randrange(len(core.route))
        reason = rng.choice((Reason.NO_SLOT, Reason.UNKNOWN_PLAN, Reason.LEAVING, Reason.FAILED))
        t.refused(core.route[stage], Refuse(core.session, core.turn, stage, 0, 0, int(reason), ""))
    elif roll < 0.98:
        t.reroute(move.route if move is not None else some_route(rng))
    elif roll < 0.99:
        t.cancel()
    else:
        t.release()


def traces() -> list[Moving]:
    made = [moved(0), moved(2), back_and_forth(), pushed(), slow(), *given_up(), *losses()]
    for number in range(TRACES):
        rng = random.Random(SEED + number)
        t = Moving(f"random schedule of seed {SEED + number}")
        for _ in range(OPS):
            random_op(rng, t)
        made.append(t)
    taken = sum(t.core.session != SESSION for t in made)
    assert taken > len(made) // 3, f"only {taken} of {len(made)} answers have moved"
    return made


def text() -> str:
    about = (
        "Traces of OriginSession whose answers move, as in session.json. ids: the session's id, and that of the one "
        "which computes on the next route. next: ids and what follows them."
    )
    ids = [SESSION, bytes(12) + b"\xff" * 4, bytes(12) + b"\0\0\0\xff"]
    following = [{"given": each.hex(), "gives": next_id(each).hex()} for each in ids]
    return written(about, {"next": following, "traces": [trace.as_json() for trace in traces()]})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
