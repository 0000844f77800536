"""Writes pipeline.json: what a peer's stages do, event by event, which the TypeScript suite replays."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
from tracing import beside, shown, shown_frame, written

from peer.session.effects import FreeSlot, NotRan, PrefixWork, Ran, Reason, RunStep, Send, Spare, StageEffect
from peer.session.given_rows import shifted_ids
from peer.session.migration import next_id
from peer.session.sampling import Sampling
from peer.session.seat import FEED_AGAIN_S, LEFT_S
from peer.session.stage import (
    LEASE_S,
    MAX_STEP_POSITIONS,
    MAX_UNFIT,
    ORPHAN_S,
    StageCore,
    StageRules,
)
from peer.wire.generated.frames import Cancel, Feed, Frame, Open, Release, Role, Step, Token, Where
from peer.wire.tensors import Tensor, tensor_of

PATH = beside(__file__, "pipeline.json")
SEED = 20260712
TRACES = 24
OPS = 80
ME = "p1"
PEERS = ("p0", "p1", "p2", "p3", "asker", "other")
SESSIONS = tuple(bytes([number]) * 16 for number in (3, 1, 2))
ONE = SESSIONS[1]
Stage = tuple[tuple[str, ...], tuple[int, int]]
PLANS: dict[int, tuple[Stage, ...]] = {  # for each stage who may hold it, the primary first, and its units
    1: ((("p0",), (0, 2)), (("p1", "p3"), (2, 5)), (("p2", "p1"), (5, 8))),
    2: ((("p1", "p0"), (0, 4)), (("p2",), (4, 8))),
    3: ((("p0",), (0, 3)), (("p1",), (3, 8))),
    4: ((("p1",), (0, 8)),),
    5: ((("p0",), (0, 2)), (("p1",), (2, 6)), (("p2",), (6, 8))),
    6: ((("p1",), (0, 4)), (("p2",), (4, 5)), (("p1",), (5, 8))),
}
SLOTS = {(2, 5): 2, (0, 4): 2, (3, 8): 1, (0, 8): 2, (5, 8): 2}  # of plan 5 nothing is loaded
LOG_BYTES = (160, 400)  # for a session, and for all: 20 and 50 positions of two numbers
ACTIONS = {
    "open": 8,
    "step": 26,
    "token": 12,
    "ran": 40,
    "feed": 6,
    "where": 3,
    "cancel": 3,
    "release": 1.5,
    "peer_gone": 2,
    "congestion": 5,
    "drop": 1,
    "tick": 4,
    "leave": 0.6,
    "keep_only": 1,
}
SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0.8, top_p=0.95, seed=77),
    Sampling(repetition_penalty=1.2, presence_penalty=0.5),
)


def effect(item: StageEffect) -> dict[str, Any]:
    match item:
        case Send(peer, frame):
            return {"send": peer, "frame": shown_frame(frame)}
        case Spare(peer, frame):
            return {"spare": peer, "frame": shown_frame(frame)}
        case FreeSlot(run, session):
            return {"free_slot": list(run), "session": session.hex()}
        case PrefixWork(what, run, session, digest, count):
            work = {"session": session.hex(), "digest": digest.hex(), "count": count}
            return {"prefix_work": what, "run": list(run), **work}
        case RunStep():
            pick = None
            if item.finish is not None:
                sampling, position, history, generated = item.finish.args  # type: ignore[attr-defined]
                pick = [sampling.to_wire(), position, list(history), generated]
            return {
                "run_step": list(item.run),
                "session": item.session.hex(),
                "epoch": item.epoch,
                "position": item.position,
                "tokens": shown(item.tokens),
                "hidden": shown(item.hidden),
                "last": item.last,
                "pick": pick,
                "prompt": item.prompt,
                "most_rows": item.most_rows,
                "behind": item.behind,
                "shift": item.shift,
            }


class Trace:
    """A peer's stages, and what they were told and answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._authors: dict[str, str] = {}
        self._can_bring = False
        rules = StageRules(
            author_of=lambda session: self._authors.get(session.hex()), bring=lambda _: self._can_bring
        )
        self.core = StageCore(ME, *LOG_BYTES, rules)
        self._serve()
        self.now = 0.0
        self.ops: list[dict[str, Any]] = []
        self.running: list[RunStep] = []

    def note(self, do: str, effects: list[StageEffect], **given: Any) -> list[StageEffect]:
        self.running += [item for item in effects if isinstance(item, RunStep)]
        core = self.core
        after = [
            *(core.sessions(), core.active(), core.tokens_sampled, core.steps_run),
            *(core.lag(), core.log_bytes, core.replayed_bytes, core.taken_over),
            [f"{note.what} at {note.stage}: {note.session.hex()}" for note in core.notes()],
        ]
        gives = [effect(item) for item in effects]
        self.ops.append({"do": do, "now": self.now, **shown(given), "gives": gives, "after": after})
        return effects

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "ops": self.ops}

    def frame(self, sender: str, frame: Frame) -> list[StageEffect]:
        """`frame` comes from `sender`."""
        core, now = self.core, self.now
        match frame:
            case Open():
                do, effects = "open", core.open(now, sender, frame)
            case Step():
                do, effects = "step", core.step(now, sender, frame)
            case Token():
                do, effects = "token", core.token(now, sender, frame)
            case Feed():
                do, effects = "feed", core.feed(now, sender, frame)
            case Where():
                do, effects = "where", core.where(sender, frame)
            case Cancel():
                do, effects = "cancel", core.cancel(sender, frame)
            case Release():
                do, effects = "release", core.release(sender, frame)
            case _:
                raise AssertionError(f"{frame} is for no stage")
        return self.note(do, effects, sender=sender, frame=frame)

    def ran(self, picked: int, outputs: random.Random | None = None) -> None:
        """The step that was submitted first is done."""
        step = self.running.pop(0)
        count = _count(step)
        rows = [[(outputs.randint(-4, 4) / 4 if outputs else 0.5)] * 2 for _ in range(count)]
        token = picked if step.finish is not None else None
        hidden = np.array(rows, dtype=np.float32)
        result = Ran(step.run, step.session, step.epoch, step.position, count, hidden, token)
        self.note("ran", self.core.ran(self.now, result), result=result)

    def all_ran(self, *picked: int) -> None:
        """Everything that was submitted is done; `picked` are sampled in order."""
        tokens = list(picked)
        while self.running:
            step = self.running[0]
            self.ran(tokens.pop(0) if step.finish is not None and tokens else 9)

    def not_ran(self, have: int, reason: Reason) -> None:
        step = self.running.pop(0)
        result = NotRan(
            step.run, step.session, step.epoch, step.position, have, reason, f"has {have} positions"
        )
        given = {**shown(result), "reason": int(reason)}
        self.note("not_ran", self.core.not_ran(self.now, result), result=given)

    def peer_gone(self, peer: str) -> None:
        self.note("peer_gone", self.core.peer_gone(self.now, peer), peer=peer)

    def congestion(self, peer: str, full: bool) -> None:
        self.note("congestion", self.core.congestion(peer, full), peer=peer, full=full)

    def drop(self, run: tuple[int, int]) -> None:
        self.note("drop", self.core.drop(run), run=run)
        self._serve()
        self.note("serve", [])

    def tick(self) -> None:
        self.note("tick", self.core.tick(self.now))

    def leave(self) -> None:
        self.note("leave", self.core.leave())

    def come_back(self) -> None:
        self.core.come_back()
        self.note("come_back", [])

    def keep_only(self, held: bool) -> None:
        self.core.keep_logs(*LOG_BYTES, only=held)
        self.note("keep_only", [], held=held)

    def authors(self, **sessions: str) -> None:
        """Who asks which session, by the answers that run in the log."""
        self._authors = sessions
        self.note("authors", [], sessions=sessions)

    def brings(self, can: bool) -> None:
        """Whether caches of seats that warm can be copied."""
        self._can_bring = can
        self.note("brings", [], can=can)

    def brought(self, session: bytes, stage: int, count: int) -> None:
        effects = self.core.brought(self.now, (session, stage), count)
        self.note("brought", effects, session=session, stage=stage, count=count, copied=self.core.copied)

    def same_answer(self, session: bytes, run: tuple[int, int], origin: str = "") -> None:
        found = self.core.same_answer(session, run, origin)
        self.note("same_answer", [], session=session, run=run, origin=origin, found=found)

    def after(self, seconds: float) -> None:
        self.now += seconds

    def _serve(self) -> None:
        plans = {
            version: tuple((frozenset(peers), run) for peers, run in stages)
            for version, stages in PLANS.items()
        }
        self.core.serve(plans, SLOTS)


def _count(step: RunStep) -> int:
    array = step.tokens if step.tokens is not None else step.hidden
    assert array is not None
    return len(array)


# --- frames by hand: session ONE, asked by "asker"


def opened(stage: int, **change: Any) -> Open:
    """The first turn of a session over plan 1, for a prompt of 6 tokens."""
    made = Open(
        session=ONE,
        turn=1,
        plan=1,
        route=("p0", "p1", "p2"),
        stage=stage,
        origin="asker",
        start=0,
        prompt_tokens=6,
        max_tokens=9,
        sampling=tuple(Sampling().to_wire()),
        end_tokens=(7,),
        generated=0,
        role=int(Role.SERVE),
        answer=1,
        before=0,
        keep=0,
        spans=(6,),
        shadow_stages=(),
        shadows=(),
        history=(),
    )
    return replace(made, **change)


def ids(position: int, *tokens: int, turn: int = 1) -> Step:
    """Tokens for a first stage."""
    return Step(ONE, turn, 0, position, len(tokens), 1, tensor_of(np.array(tokens, dtype=np.int32)))


def moved(position: int, shift: int, *tokens: int) -> Step:
    """The same whose places are other ones."""
    return Step(ONE, 1, 0, position, len(tokens), 1, shifted_ids(tokens, shift))


def states(position: int, count: int, stage: int = 1, turn: int = 1) -> Step:
    """Activations for a later stage: the position is in them."""
    rows = [[position + at, stage] for at in range(count)]
    return Step(ONE, turn, stage, position, count, 1, tensor_of(np.array(rows, dtype=np.float32)))


def given_again() -> Trace:
    t = Trace("steps twice, in another order, overlapping, and with a gap that is asked for")
    t.frame("p0", opened(1))
    t.frame("p0", states(2, 2))  # a gap
    t.frame("p0", states(2, 2))  # twice
    t.after(FEED_AGAIN_S / 2)
    t.tick()
    t.after(FEED_AGAIN_S)
    t.tick()  # asked again
    t.frame("p0", states(0, 3))  # over what waits
    t.frame("p0", states(4, 2))
    t.frame("p0", states(1, 5))  # all known
    t.frame("p2", states(6, 1))  # not the neighbour
    t.frame("p0", states(6, 1, turn=2))  # not the turn
    t.all_ran()
    t.frame("p0", states(5, 4))  # the part from 6 on is new
    t.all_ran()
    t.frame("p0", states(9, MAX_STEP_POSITIONS + 1))
    return t


def fed() -> Trace:
    t = Trace("FEED out of the log, and beyond it by computing again")
    t.frame("p0", opened(1, prompt_tokens=24, spans=(24,), shadow_stages=(2, 1), shadows=("p3", "p3")))
    for position in range(0, 24, 8):
        t.frame("p0", states(position, 8))
    t.all_ran()
    t.frame("p0", states(24, 1))
    t.all_ran()
    t.frame("p2", Feed(ONE, 1, 2, 23))
    t.frame("p2", Feed(ONE, 1, 2, 25))  # nothing there yet
    t.frame("p3", Feed(ONE, 1, 2, 24))  # a shadow
    t.frame("p3", Feed(ONE, 1, 2, 0))  # older than the log: a shadow makes nobody compute
    t.frame("p0", Feed(ONE, 1, 2, 0))  # not the next stage
    t.frame("p2", Feed(ONE, 2, 2, 20))  # another turn
    t.frame("p2", Feed(ONE, 1, 0, 0))  # for the asker
    t.frame("p2", Feed(ONE, 1, 2, 3))  # older than the log
    t.frame("p2", Feed(ONE, 1, 2, 3))  # asked upstream already
    t.frame("p0", states(3, 22))
    t.all_ran()
    return t


def shadowed() -> Trace:
    t = Trace("a shadow computes behind, is asked to serve, and asks for what it lacks")
    shadow = opened(2, role=int(Role.SHADOW), shadow_stages=(2,), shadows=("p1",))
    t.frame("p0", shadow)  # not from the stage before it
    t.frame("p1", shadow)
    t.frame("p1", states(0, 6, stage=2))
    t.frame("p1", states(6, 1, stage=2))
    t.ran(9)
    t.frame("p1", states(9, 1, stage=2))  # two were dropped on the way
    t.all_ran()
    t.frame("asker", Cancel(ONE, 1, 9, "goes on elsewhere"))  # it catches up at its leisure
    serving = opened(
        2,
        turn=2,
        route=("p0", "p1", "p1"),
        start=9,
        prompt_tokens=10,
        max_tokens=5,
        generated=4,
        spans=(6, 4),
    )
    t.frame("p1", serving)
    t.frame("p1", states(7, 1, stage=2, turn=2))
    t.frame("p1", states(8, 1, stage=2, turn=2))
    t.frame("p1", states(9, 1, stage=2, turn=2))
    t.all_ran(5)
    t.frame("p1", states(10, 1, stage=2, turn=2))
    t.all_ran(7)
    return t


def log_only() -> Trace:
    t = Trace("a shadow that only keeps its inputs computes them when it has to serve")
    t.keep_only(True)
    t.frame("p1", opened(2, role=int(Role.SHADOW), shadow_stages=(2,), shadows=("p1",)))
    t.frame("p1", states(0, 6, stage=2))
    t.frame("p1", states(6, 1, stage=2))
    t.frame(
        "p1", opened(2, turn=2, route=("p0", "p1", "p1"), start=7, prompt_tokens=8, generated=2, spans=(6, 2))
    )
    t.frame("p1", states(7, 1, stage=2, turn=2))
    t.all_ran(5)
    return t


def resumed() -> Trace:
    t = Trace("a stage in the middle goes on in another turn with another tail, which asks for everything")
    t.frame("p0", opened(1, shadow_stages=(2,), shadows=("p3",)))
    t.frame("p0", states(0, 6))
    t.all_ran()
    t.frame("p0", states(6, 1))
    t.peer_gone("p2")
    t.all_ran()  # computed, and passed on to nobody
    t.frame(
        "p0", opened(1, turn=2, route=("p0", "p1", "p1"), start=6, prompt_tokens=7, spans=(6, 1), generated=1)
    )
    t.frame("p1", Feed(ONE, 2, 2, 0))
    t.frame("p1", Feed(ONE, 1, 2, 0))  # of the turn before
    t.frame("p0", states(7, 1, turn=2))
    t.all_ran()
    t.frame("p0", opened(1, turn=2))  # overtaken
    t.frame("asker", Where(ONE, 2, 1))
    t.frame("p0", Where(ONE, 1, 1))
    t.frame("other", Where(SESSIONS[0], 1, 1))
    return t


def promoted_tail() -> Trace:
    t = Trace("a tail that was lost after sampling: the other one samples again from the same positions")
    penalties = tuple(SAMPLINGS[2].to_wire())
    change: dict[str, Any] = {"plan": 3, "route": ("p0", "p1"), "sampling": penalties}
    t.frame("p0", opened(1, **change, history=(1, 2, 3, 4, 5, 6)))
    t.frame("p0", states(0, 6))
    t.all_ran(8)
    t.frame("p0", states(6, 1))
    t.frame("p0", states(7, 1))  # its history needs the token before
    t.all_ran(5, 4)
    # The asker has 8 and nothing more: what was sampled is told again
    known: dict[str, Any] = {"start": 6, "prompt_tokens": 7, "generated": 1, "max_tokens": 8, "spans": (6, 1)}
    t.frame("p0", opened(1, turn=2, **change, **known, history=(1, 2, 3, 4, 5, 6, 8)))
    t.frame("p0", states(8, 1, turn=2))
    t.all_ran(3)
    # and here it has a token that this tail never sampled
    known = {"start": 9, "prompt_tokens": 10, "generated": 4, "max_tokens": 5, "spans": (6, 4)}
    t.frame("p0", opened(1, turn=3, **change, **known, history=(1, 2, 3, 4, 5, 6, 8, 5, 4, 2)))
    t.frame("p0", states(8, 2, turn=3))
    t.all_ran(7)
    t.frame("asker", Cancel(ONE, 3, 11, "end"))
    return t


def conversation() -> Trace:
    t = Trace("answers of one session on a first stage: what is kept, a branch, one that was missed")
    change: dict[str, Any] = {"plan": 2, "route": ("p1", "p2")}
    t.frame("asker", opened(0, **change))
    t.frame("asker", ids(0, 1, 2, 3, 4, 5, 6))
    t.all_ran()
    t.frame("p2", Token(ONE, 1, 6, 11, 0))
    t.all_ran()
    t.frame("p2", Token(ONE, 1, 7, 7, 1))
    t.frame("asker", Cancel(ONE, 1, 8, "end"))
    second: dict[str, Any] = {"turn": 2, "answer": 2, "before": 1, "keep": 7, "start": 7, "prompt_tokens": 10}
    t.frame("asker", opened(0, **change, **second, spans=(6, 1, 3)))
    t.frame("asker", ids(7, 7, 8, 9, turn=2))
    t.all_ran()
    t.frame("asker", Cancel(ONE, 2, 10, "stopped"))
    branch: dict[str, Any] = {"turn": 3, "answer": 3, "before": 2, "keep": 4, "start": 4, "prompt_tokens": 5}
    t.frame("asker", opened(0, **change, **branch, spans=(5,)))
    t.frame("asker", ids(4, 9, turn=3))
    t.all_ran()
    missed: dict[str, Any] = {"turn": 6, "answer": 5, "before": 4, "keep": 5, "start": 5, "prompt_tokens": 6}
    t.frame("asker", opened(0, **change, **missed))  # the answer of turn 4 went elsewhere
    t.frame("asker", ids(5, 9, turn=6))
    t.frame("asker", ids(0, 1, 2, 3, 4, 9, turn=6))
    t.all_ran()
    t.frame("asker", Release(ONE))
    t.frame("asker", opened(0, turn=7, answer=7, **change))  # it was on its way when RELEASE passed it
    return t


def two_places() -> Trace:
    t = Trace("two places of one route on one peer")
    change: dict[str, Any] = {"plan": 6, "route": ("p1", "p2", "p1")}
    t.frame("asker", opened(0, **change))
    t.frame("asker", ids(0, 1, 2, 3, 4, 5, 6))
    t.frame("p2", opened(2, **change))
    t.all_ran()
    t.frame("p2", states(0, 6, stage=2))
    t.all_ran(8)
    t.frame("p1", Token(ONE, 1, 6, 8, 0))
    t.all_ran()
    t.frame("asker", Where(ONE, 1, 0))
    t.frame("asker", Where(ONE, 1, 2))
    t.drop((5, 8))
    t.frame("asker", Cancel(ONE, 1, 0, "failed"))
    return t


def own_ends() -> Trace:
    t = Trace("an asker that keeps its ends: states in, states back, nothing drawn here")
    told: dict[str, Any] = {"plan": 4, "route": ("p1",), "sampling": (), "end_tokens": ()}
    t.frame("asker", opened(0, **(told | {"end_tokens": (7,)})))  # it tells tokens after all
    t.frame("asker", opened(0, **told, history=(1, 2)))
    t.frame("asker", opened(0, **told))
    t.frame("asker", states(0, 4, stage=0))
    t.all_ran()
    t.frame("asker", states(4, 2, stage=0))
    t.all_ran()
    t.frame("p1", Token(ONE, 1, 6, 3, 0))  # nobody draws one here
    t.frame("asker", states(6, 1, stage=0))
    t.frame("asker", states(7, 1, stage=0))
    t.all_ran()
    # it knows one token less than was computed: that position is computed again
    again: dict[str, Any] = {"turn": 2, "start": 6, "prompt_tokens": 7, "generated": 1, "spans": (6, 1)}
    t.frame("asker", opened(0, **told, **again))
    t.frame("asker", states(6, 1, stage=0, turn=2))
    t.all_ran()
    t.frame("asker", ids(7, 3, turn=2))  # tokens were not expected
    return t


def own_ends_of_many() -> Trace:
    t = Trace("an asker that keeps its ends, over three stages")
    t.frame("p0", opened(1, sampling=(), end_tokens=(), shadow_stages=(2,), shadows=("p3",)))
    t.frame("p0", states(0, 6))
    t.all_ran()
    t.frame(
        "p1", opened(2, session=SESSIONS[0], plan=1, route=("p0", "p1", "p1"), sampling=(), end_tokens=())
    )
    t.frame("p1", replace(states(0, 6, stage=2), session=SESSIONS[0]))
    t.all_ran()
    return t


def shifted() -> Trace:
    t = Trace("ids whose places differ from their positions, and tokens that are drawn behind them")
    told: dict[str, Any] = {"plan": 4, "route": ("p1",)}
    t.frame("asker", opened(0, **told))
    t.frame("asker", ids(0, 3, 4))
    t.frame("asker", states(2, 2, stage=0))
    t.frame("asker", moved(4, -1, 5, 6))
    t.frame("asker", ids(0, 3, 4))  # again, of an earlier position
    t.all_ran(8)
    t.frame("p1", Token(ONE, 1, 6, 8, 0))
    t.all_ran(9)
    t.frame("asker", opened(0, **told, turn=2, answer=2, before=1, keep=4, start=4))
    t.frame("asker", ids(4, 5, 6, turn=2))  # other places now
    t.all_ran(8)
    t.frame("p1", Token(ONE, 2, 6, 8, 0))
    t.frame("asker", opened(0, **told, turn=3, answer=3))
    odd = np.array([[5, -1], [6, -2]], np.int32)
    t.frame("asker", Step(ONE, 3, 0, 0, 2, 1, tensor_of(odd)))
    return t


def moved_here() -> Trace:
    t = Trace("an answer moves to a seat beside its own: what is cached is copied, what follows is computed")
    t.brings(True)
    t.frame("p0", opened(1))
    t.frame("p0", states(0, 6))
    t.all_ran()
    t.frame("p0", states(6, 1))
    t.all_ran()
    moved = next_id(ONE)
    t.same_answer(moved, (2, 5))
    t.same_answer(moved, (2, 5), "asker")
    t.same_answer(moved, (2, 5), "other")
    t.same_answer(moved, (5, 8))  # other units
    t.same_answer(ONE, (2, 5))  # itself
    t.same_answer(SESSIONS[0], (2, 5))  # another answer
    warms: dict[str, Any] = {"max_tokens": 0, "prompt_tokens": 16, "spans": (6, 10), "before": 1}
    warms |= {"shadow_stages": (0, 1, 2), "shadows": ("p0", "p1", "p2")}
    t.frame("p0", opened(1, session=moved, **warms))
    t.frame("p0", replace(states(0, 6), session=moved))  # waits for the copy
    t.after(2 * FEED_AGAIN_S)
    t.tick()
    t.frame("p0", states(7, 1))  # the answer goes on
    t.all_ran()
    t.same_answer(moved, (2, 5))
    t.brought(moved, 1, 7)
    t.brought(moved, 1, 7)  # nobody waits for it
    t.frame("p0", replace(states(6, 2), session=moved))  # nobody waits for its turn either
    t.all_ran()
    t.frame("p2", replace(Feed(ONE, 1, 2, 7), session=moved))
    t.frame("p2", replace(Feed(ONE, 1, 2, 3), session=moved))  # the log begins behind the copy
    t.frame("p0", replace(states(3, 5), session=moved))
    t.all_ran()
    t.frame("asker", Release(ONE))
    t.same_answer(next_id(moved), (2, 5))  # it only warms
    again = next_id(moved)
    t.frame("p0", opened(1, session=again, **warms))
    t.frame("p0", replace(states(0, 6), session=again))
    t.brought(again, 1, 0)  # nothing could be copied
    t.all_ran()
    t.frame("asker", Release(moved))
    t.brings(False)
    t.frame("p0", opened(1, session=next_id(again), **warms))
    t.frame("p0", replace(states(0, 6), session=next_id(again)))
    t.all_ran()
    first: dict[str, Any] = {"plan": 2, "route": ("p1", "p2")}
    t.brings(True)
    t.frame("asker", opened(0, **first))
    t.frame("asker", ids(0, 1, 2, 3, 4, 5, 6))
    t.all_ran()
    t.frame("asker", opened(0, session=moved, **first, **warms, start=4))
    t.brought(moved, 0, 3)  # less than the asker sends unasked
    return t


def orphans() -> Trace:
    t = Trace("an asker that vanished: its sessions wait, go first, and end with their lease")
    for number, session in enumerate(SESSIONS[:2]):
        t.frame("p0", opened(1, session=session, origin=("asker", "other")[number]))
    t.frame("p0", states(0, 6))
    t.peer_gone("other")
    t.all_ran()
    t.frame("p0", states(6, 1))
    t.frame("p0", opened(1, session=SESSIONS[2]))  # takes the place of the orphan
    t.after(LEFT_S + 1)
    t.frame("p0", opened(1, session=ONE))  # takes the place of one that was left
    t.peer_gone("asker")
    t.after(ORPHAN_S)
    t.tick()
    t.after(1.0)
    t.tick()
    t.frame("p0", opened(1, session=ONE, turn=2, answer=2))
    t.after(LEASE_S + 1)
    t.tick()
    return t


def missing() -> Trace:
    t = Trace("a runtime that lost positions: they are asked for, a few times")
    t.frame("p0", opened(1))
    t.frame("p0", states(0, 6))
    t.all_ran()
    for _ in range(MAX_UNFIT + 1):
        t.frame("p0", states(6, 1))
        t.not_ran(2, Reason.MISSING_POSITION)
        t.frame("p0", states(2, 4))
        t.running = t.running[-1:]
    t.frame("p0", opened(1, turn=2, start=5, spans=(6,)))
    t.frame("p0", states(2, 4, turn=2))
    t.not_ran(0, Reason.NOT_FINITE_OUTPUT)
    t.frame("p1", opened(2, session=SESSIONS[0], role=int(Role.SHADOW), shadow_stages=(2,), shadows=("p1",)))
    return t


def adopted() -> Trace:
    t = Trace(
        "an asker that vanished in mid-answer: whoever the log names goes on with what is cached, nobody else"
    )
    change: dict[str, Any] = {"plan": 3, "route": ("p0", "p1")}
    t.frame("p0", opened(1, **change))
    t.frame("p0", states(0, 6))
    t.all_ran(8)
    t.frame("p0", states(6, 1))
    t.all_ran(5)
    known: dict[str, Any] = {"start": 6, "prompt_tokens": 7, "generated": 1, "max_tokens": 8, "spans": (6, 1)}
    next_turn = opened(1, turn=65, origin="other", **change, **known)
    t.frame("p0", next_turn)  # no answer runs in that session
    t.authors(**{ONE.hex(): "asker"})
    t.frame("p0", next_turn)  # the log has come no further here
    t.peer_gone("asker")
    t.frame("p0", next_turn)
    t.authors(**{ONE.hex(): "other"})
    t.frame("p0", opened(1, turn=65, origin="p2", **change, **known))  # an answer that another adopted
    t.frame("p0", next_turn)  # taken: the tail says again what the adopter has not heard
    t.frame("asker", Cancel(ONE, 66, 0, "it is back"))  # no more its own
    t.frame("p0", opened(1, turn=66, **change, **known))
    t.peer_gone("asker")
    t.frame("p0", states(7, 1, turn=65))
    t.all_ran(4)
    t.authors()
    t.frame("p0", states(8, 1, turn=65))  # the answer has ended in the log: the session is the adopter's
    t.all_ran(7)
    t.frame("p0", opened(1, turn=70, **change, **known))
    return t


def adopted_unheard() -> Trace:
    t = Trace("adopted by a peer that heard nothing of the session: it is computed anew")
    t.authors(**{ONE.hex(): "other"})
    change: dict[str, Any] = {"plan": 3, "route": ("p0", "p1")}
    t.frame("p0", opened(1, **change))
    t.frame("p0", states(0, 6))
    t.all_ran(8)
    t.frame("p0", opened(1, turn=1000, answer=1000, origin="other", **change))
    t.frame("p0", states(0, 6, turn=1000))
    t.all_ran(8)
    return t


def too_late() -> Trace:
    t = Trace("an OPEN that comes after CANCEL takes no seat; one that leaves refuses")
    t.frame("asker", Cancel(ONE, 2, 0, "failed"))
    t.frame("p0", opened(1))
    t.frame("p0", opened(1, turn=2))
    t.frame("p0", opened(1, turn=3))
    t.frame("other", Cancel(ONE, 3, 0, "not mine"))
    t.frame("other", Release(ONE))
    t.congestion("p2", True)
    t.frame("p0", states(0, 6, turn=3))
    t.congestion("p2", False)
    t.all_ran()
    t.frame("p0", opened(1, session=SESSIONS[0], origin="other"))
    t.leave()
    t.frame("p0", opened(1, turn=4))
    t.come_back()
    t.frame("p0", opened(1, turn=5))
    t.frame("p0", opened(1, turn=6, origin="other"))
    t.frame("p0", replace(opened(1, turn=7), spans=(5,)))
    t.frame("p0", replace(opened(1, turn=7), answer=8))
    return t


# --- at random


def some_open(rng: random.Random, session: bytes, before: Open | None, again: int) -> tuple[str, Open]:
    """A first turn, a resuming one, or the next answer."""
    turn = (before.turn if before else 0) + again
    version = before.plan if before and rng.random() < 0.6 else rng.choice(list(PLANS))
    stages = PLANS[version]
    places = [place for place, (peers, _) in enumerate(stages) if ME in peers]
    stage = rng.choice(places)
    route = [rng.choice(peers) if rng.random() < 0.3 else peers[0] for peers, _ in stages]
    shadows = [(place, rng.choice(("p3", "p2"))) for place in range(len(route)) if rng.random() < 0.3]
    role = int(Role.SHADOW) if rng.random() < 0.25 else int(Role.SERVE)
    if role:
        shadows.append((stage, ME))
    else:
        route[stage] = ME
    sampling = tuple(rng.choice(SAMPLINGS).to_wire())
    prompt = rng.randint(1, 40)
    generated, answer, earlier, keep = 0, turn, 0, 0
    if before is not None and rng.random() < 0.7:
        if rng.random() < 0.6:  # it goes on
            answer, earlier, keep = before.answer, before.before, before.keep
            generated = rng.randint(0, 4)
            prompt = before.prompt_tokens + generated
        else:
            earlier, keep = before.answer, rng.randint(0, before.prompt_tokens)
            prompt = keep + rng.randint(1, 20)
    spans = (prompt - generated, generated) if generated else (prompt,)
    if rng.random() < 0.3:
        spans = (prompt // 2, 0, prompt - prompt // 2)
    history = tuple(rng.randrange(50) for _ in range(prompt)) if sampling[4:7] != (1000000, 0, 0) else ()
    origin = before.origin if before and rng.random() < 0.9 else rng.choice(("asker", "other"))
    spoiled = rng.random()
    if spoiled < 0.02:
        version = 9
    elif spoiled < 0.04:
        route = route[:-1]
    elif spoiled < 0.06:
        stage = min(stage + 1, 63)
    elif spoiled < 0.08:
        sampling = sampling[:5]
    elif spoiled < 0.10:
        route = []
    elif spoiled < 0.12:
        spans = (prompt + 1,)
    elif spoiled < 0.13:
        answer = turn + 1
    sender = route[stage - 1] if 0 < stage <= len(route) else origin
    frame = Open(
        session=session,
        turn=turn,
        plan=version,
        route=tuple(route),
        stage=stage,
        origin=origin,
        start=rng.choice((prompt - 1, max(min(keep, prompt - 1), 0))),
        prompt_tokens=prompt,
        max_tokens=rng.randint(1, 6),
        sampling=sampling,
        end_tokens=(7,)[: rng.randint(0, 1)],
        generated=generated,
        role=role,
        answer=answer,
        before=earlier,
        keep=keep,
        spans=spans,
        shadow_stages=tuple(place for place, _ in shadows),
        shadows=tuple(peer for _, peer in shadows),
        history=history,
    )
    return (rng.choice(PEERS) if rng.random() < 0.05 else sender), frame


def tensor(rng: random.Random, count: int, *, tokens: bool) -> Tensor:
    if tokens:
        return tensor_of(np.array([rng.randrange(50) for _ in range(count)], dtype=np.int32))
    return tensor_of(np.array([[rng.randint(-4, 4) / 4] * 2 for _ in range(count)], dtype=np.float32))


def some_step(rng: random.Random, trace: Trace, opening: Open) -> None:
    """Mostly what comes next."""
    session, turn, stage = opening.session, opening.turn, opening.stage
    count = rng.randint(1, 6)
    sender = opening.route[stage - 1] if stage else opening.origin
    sender = rng.choice(PEERS) if rng.random() < 0.05 else sender
    takes_tokens = (stage == 0) != (rng.random() < 0.02)
    seat = trace.core._seats.get((session, stage))
    position = seat.received if seat is not None and rng.random() < 0.8 else rng.randrange(40)
    turn = turn if rng.random() < 0.95 else turn + 1
    last = rng.randint(0, 1)
    step = Step(session, turn, stage, position, count, last, tensor(rng, count, tokens=takes_tokens))
    trace.frame(sender, step)


def random_op(rng: random.Random, trace: Trace, opened_: dict[bytes, Open]) -> None:
    trace.now += rng.choice((0.0, 1.0, LEFT_S, LEASE_S)) if rng.random() < 0.05 else 0.125
    session = rng.choice(SESSIONS)
    opening = opened_.get(session)
    turn = opening.turn if opening else 0
    action = rng.choices(list(ACTIONS), list(ACTIONS.values()))[0]
    if opening is None or action == "open":
        sender, frame = some_open(rng, session, opening, rng.choice((1, 1, 1, 1, 2, 0)))
        trace.frame(sender, frame)
        seat = trace.core._seats.get((session, frame.stage))
        if seat is not None and seat.opening is frame:
            opened_[session] = frame
    elif action == "step" or (action == "ran" and not trace.running):
        some_step(rng, trace, opening)
    elif action == "token":
        sender = opening.route[-1] if opening.route and rng.random() < 0.9 else rng.choice(PEERS)
        seat = trace.core._seats.get((session, 0))
        position = seat.received if seat is not None and rng.random() < 0.8 else rng.randrange(60)
        trace.frame(sender, Token(session, turn, position, rng.randrange(50), rng.choice((0, 0, 0, 0, 1, 2))))
    elif action == "ran" and rng.random() < 0.08:
        reason = rng.choice((Reason.MISSING_POSITION, Reason.FAILED, Reason.NOT_FINITE_OUTPUT))
        trace.not_ran(rng.choice((0, 3, 9)), reason)
    elif action == "ran":
        trace.ran(rng.choice((7, 8, 9, 10)), rng)
    elif action == "feed":
        stage = opening.stage + 1 if rng.random() < 0.9 else rng.randrange(3)
        downstream = opening.route[stage] if stage < len(opening.route) else "p2"
        sender = downstream if rng.random() < 0.7 else rng.choice(PEERS)
        trace.frame(sender, Feed(session, turn, stage, rng.randrange(40)))
    elif action == "where":
        trace.frame(rng.choice(PEERS), Where(session, turn, opening.stage))
    elif action == "cancel":
        sender = opening.origin if rng.random() < 0.9 else rng.choice(PEERS)
        before = turn - rng.choice((0, 0, 0, 1))
        trace.frame(sender, Cancel(session, max(before, 0), rng.choice((0, 9)), "cancelled"))
    elif action == "release":
        sender = opening.origin if rng.random() < 0.6 else rng.choice(PEERS)
        trace.frame(sender, Release(session))
    elif action == "peer_gone":
        trace.peer_gone(rng.choice(PEERS))
    elif action == "congestion":
        trace.congestion("p2", rng.random() < 0.4)
    elif action == "drop":
        trace.drop(rng.choice(list(SLOTS)))
    elif action == "tick":
        trace.tick()
    elif action == "keep_only":
        trace.keep_only(rng.random() < 0.3)
    else:
        trace.leave()
        trace.come_back()


def traces() -> list[Trace]:
    made = [
        *(given_again(), fed(), shadowed(), log_only(), resumed(), promoted_tail(), conversation()),
        *(adopted(), adopted_unheard(), own_ends(), own_ends_of_many()),
        *(two_places(), orphans(), missing(), too_late(), moved_here()),
        shifted(),
    ]
    for number in range(TRACES):
        rng = random.Random(SEED + number)
        trace = Trace(f"random schedule of seed {SEED + number}")
        known: dict[bytes, Open] = {}
        for _ in range(OPS):
            random_op(rng, trace, known)
        made.append(trace)
    return made


def text() -> str:
    about = (
        "Traces of StageCore on peer p1, which serves `plans` (version; peers and units [first, stop) of each stage) "
        "with `slots` (units, slots) and logs of `log_bytes` (per session, in total). gives: effects in order. pick: "
        "sampling settings, position, history, generated. after: sessions, active sessions, tokens sampled, steps "
        "run, lag of shadows, bytes logged, bytes replayed, sessions taken over, notes for the transaction log."
    )
    plans = [
        [version, [[list(peers), list(run)] for peers, run in stages]] for version, stages in PLANS.items()
    ]
    slots = [[list(run), count] for run, count in SLOTS.items()]
    rows = {"plans": plans, "slots": slots, "log_bytes": LOG_BYTES, "traces": [t.as_json() for t in traces()]}
    return written(about, rows)


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
