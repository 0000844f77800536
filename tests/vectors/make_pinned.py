"""Writes pinned.json: what an asker does that keeps embedding, head and sampling, event by event."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from make_session import SESSION, Trace, ask_of, route_of
from tracing import beside, shown, shown_frame, written

from peer.session.effects import Reason
from peer.session.evidence import Floats
from peer.session.origin import OriginSession
from peer.session.pinned_ends import Drawing, not_usable, state_in
from peer.session.position_spans import CHUNK_TOKENS
from peer.wire.generated.frames import Here, Step, Token
from peer.wire.tensors import Tensor, tensor_of

PATH = beside(__file__, "pinned.json")
SEED = 20261128
TRACES = 8
WIDTH = 2


class Ends:
    """Row (token, 1) for each token; whoever draws is told what to draw."""

    width = WIDTH

    def embed(self, tokens: Sequence[int]) -> Tensor:
        return tensor_of(np.array([(token, 1) for token in tokens], dtype=np.float32))

    def draw(self, drawing: Drawing, state: Floats, tell: Callable[[Token | None], None]) -> None:
        raise AssertionError("the trace draws")


class Pinned(Trace):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.core = OriginSession(SESSION, "asker", Ends())

    def back(self, sender: str, frame: Step) -> Drawing | None:
        """The last stage hands a state back."""
        found = self.core.drawing(sender, frame)
        state = state_in(frame, WIDTH)
        told: Any = None
        if isinstance(found, Token):
            told = {"token": shown_frame(found)}
        elif found is not None:
            sampling, position, history, generated = found.draw.args  # type: ignore[attr-defined]
            pick = [sampling.to_wire(), position, list(history), generated]
            told = {"draw": pick, "end_tokens": list(found.end_tokens), "is_last": found.is_last}
        op = {"do": "back", "sender": sender, "frame": shown_frame(frame), "told": told}
        op["state"] = None if state is None else shown(state)
        op["not_usable"] = shown_frame(not_usable(frame))
        self.note(op, [])
        return found if isinstance(found, Drawing) else None

    def state(self, position: int | None = None, **other: Any) -> Step:
        core = self.core
        at = len(core.tokens) - 1 if position is None else position
        values = other.pop("values", np.ones((1, WIDTH), dtype=np.float32))
        turn, stage = other.pop("turn", core.turn), other.pop("stage", len(core.route))
        return Step(other.pop("session", core.session), turn, stage, at, 1, 1, tensor_of(values))

    def draws(self, token: int) -> None:
        """The next token."""
        self.after(0.125)
        sender = self.core.route[-1]
        drawing = self.back(sender, self.state())
        assert drawing is not None
        logits = np.full(64, -9.0, dtype=np.float32)
        logits[token] = 9.0
        self.token(sender, drawing.token(logits))


def answers() -> Pinned:
    t = Pinned("two answers of one session, a route that changes, and states that are nobody's business")
    shadowed = route_of("p0", "p1", shadows=((0, "p2"),))
    t.begin(shadowed, ask_of(CHUNK_TOKENS + 3, sampling=2))
    for token in (11, 12):
        t.draws(token)
    t.back("p1", t.state(CHUNK_TOKENS + 3))  # again: there is a token behind it
    t.back("p0", t.state())  # not the last stage
    t.back("p1", t.state(stage=1))
    t.back("p1", t.state(turn=9))
    t.back("p1", t.state(99))
    for wrong in (
        np.ones((1, 3), np.float32),
        np.full((1, WIDTH), np.nan, np.float32),
        np.ones((1, WIDTH), np.int32),
    ):
        t.back("p1", t.state(values=wrong))
    t.refused("p1", not_usable(t.state()))
    t.reroute(route_of("p0", "p3", plan=2))
    t.draws(13)
    t.draws(2)  # an end token
    t.begin(route_of("p0", "p3", plan=2), ask_of((*t.core.tokens, 21, 22), tokens=2))
    t.draws(14)
    t.refuses(0, Reason.UNKNOWN_SESSION)
    t.back("p3", t.state())  # of the turn before: nothing is sent on while there is no route
    t.reroute(route_of("p0", "p3", plan=3))
    t.draws(15)  # as many as were asked for
    t.release()
    return t


def moved() -> Pinned:
    t = Pinned("an answer moves: states of both sessions are drawn from")
    t.begin(route_of("p0", "p1"), ask_of(CHUNK_TOKENS + 3, tokens=30, sampling=2))
    t.draws(11)
    t.move(route_of("p0", "p2", plan=2, shadows=((0, "p3"),)))
    t.draws(12)
    second, turn = t.core.second, t.core.turn + 1
    assert second is not None
    t.draws(13)
    known = len(t.core.tokens) - 1
    for stage, peer in enumerate(("p0", "p2")):
        t.second(peer, Here(second, turn, stage, known, known, 1))
    t.back("p2", t.state(known, session=second, turn=turn))  # it warms: nobody was asked
    there = {"session": second, "turn": turn + 1}
    t.back("p1", t.state(**there))  # not its last stage
    t.back("p2", t.state(known - 1, **there))  # there is a token behind it
    drawing = t.back("p2", t.state(**there))
    assert drawing is not None
    logits = np.full(64, -9.0, dtype=np.float32)
    logits[14] = 9.0
    frame = drawing.token(logits)
    t.draws(14)  # the first session is faster
    t.second("p2", frame)
    t.draws(15)
    t.release()
    return t


def schedule(seed: int) -> Pinned:
    rng = random.Random(seed)
    t = Pinned(f"random schedule of seed {seed}")
    t.begin(
        route_of("p0", "p1"), ask_of(rng.randint(1, 70), tokens=rng.randint(1, 9), sampling=rng.randrange(3))
    )
    for _ in range(24):
        roll = rng.random()
        running = t.core.phase.value in ("prefill", "decode")
        if not running and t.core.phase.value != "rerouting":
            more = tuple(rng.randrange(3, 60) for _ in range(rng.randint(1, 40)))
            t.begin(route_of("p0", "p1"), ask_of((*t.core.tokens, *more), tokens=rng.randint(1, 9)))
        elif t.core.phase.value == "rerouting" or roll < 0.1:
            t.reroute(route_of("p0", rng.choice(("p1", "p2")), plan=rng.randint(1, 3)))
        elif roll < 0.75:
            t.draws(rng.choice((2, *range(3, 30))))
        elif roll < 0.85:
            t.back(t.core.route[-1], t.state(max(0, len(t.core.tokens) - rng.randint(0, 3))))
        elif roll < 0.92:
            t.refuses(1, rng.choice((Reason.UNKNOWN_SESSION, Reason.MISSING_POSITION)))
        else:
            t.cancel()
    return t


def text() -> str:
    about = (
        "Traces of OriginSession with ends, as in session.json; each token is a row (token, 1). back: a state that a "
        "last stage hands back; told: what follows from it, a token or how one is drawn; state: its row, if it is one."
    )
    made = [answers(), moved(), *(schedule(SEED + number) for number in range(TRACES))]
    return written(about, {"traces": [trace.as_json() for trace in made]})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
