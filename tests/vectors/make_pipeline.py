"""Writes pipeline.json: what a peer's stages do, event by event, which the TypeScript suite replays."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from tracing import beside, shown, shown_frame, written

from peer.frames import Cancel, Open, Refuse, Release, Step, Token
from peer.pipeline import LEASE_S, FreeSlot, NotRan, Ran, RunStep, StageCore, StageEffect
from peer.sampling import Sampling
from peer.session import Reason, Send
from peer.tensors import Tensor, tensor_of

PATH = beside(__file__, "pipeline.json")
SEED = 20260712
TRACES = 24
OPS = 60
ME = "p1"
PEERS = ("p0", "p1", "p2", "asker", "other")
SESSIONS = tuple(bytes([number]) * 16 for number in (3, 1, 2))
PLANS: dict[int, tuple[tuple[str, tuple[int, int]], ...]] = {
    1: (("p0", (0, 2)), ("p1", (2, 5)), ("p2", (5, 8))),
    2: (("p1", (0, 4)), ("p2", (4, 8))),
    3: (("p0", (0, 3)), ("p1", (3, 8))),
    4: (("p1", (0, 8)),),
    5: (("p0", (0, 2)), ("p1", (2, 6)), ("p2", (6, 8))),
}
SLOTS = {(2, 5): 2, (0, 4): 2, (3, 8): 1, (0, 8): 2}  # of plan 5 nothing is loaded
ACTIONS = {
    "open": 10,
    "step": 26,
    "token": 14,
    "ran": 36,
    "cancel": 3,
    "release": 2,
    "peer_gone": 2,
    "congestion": 5,
    "drop": 1,
    "tick": 2,
    "leave": 0.6,
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
        case FreeSlot(run, session):
            return {"free_slot": list(run), "session": session.hex()}
        case RunStep():
            pick = None
            if item.finish is not None:
                sampling, position, history, generated = item.finish.args  # type: ignore[attr-defined]
                pick = [sampling.to_wire(), position, list(history), generated]
            return {
                "run_step": list(item.run),
                "session": item.session.hex(),
                "turn": item.turn,
                "position": item.position,
                "tokens": shown(item.tokens),
                "hidden": shown(item.hidden),
                "last": item.last,
                "pick": pick,
                "prompt": item.prompt,
                "most_rows": item.most_rows,
            }


class Trace:
    """A peer's stages, and what they were told and answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.core = StageCore(ME)
        self.core.serve(PLANS, SLOTS)
        self.now = 0.0
        self.ops: list[dict[str, Any]] = []
        self.running: list[RunStep] = []

    def note(self, do: str, effects: list[StageEffect], **given: Any) -> None:
        self.running += [item for item in effects if isinstance(item, RunStep)]
        core = self.core
        after = [core.sessions(), core.active(), core.tokens_sampled, core.steps_run]
        gives = [effect(item) for item in effects]
        self.ops.append({"do": do, "now": self.now, **shown(given), "gives": gives, "after": after})

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "ops": self.ops}


def some_open(rng: random.Random, session: bytes, turn: int) -> tuple[str, Open]:
    version = rng.choice(list(PLANS))
    route = tuple(peer for peer, _ in PLANS[version])
    stage = route.index(ME)
    sampling = tuple(rng.choice(SAMPLINGS).to_wire())
    history = (
        tuple(rng.randrange(50) for _ in range(rng.randint(1, 6))) if sampling[4:7] != (1000000, 0, 0) else ()
    )
    origin = rng.choice(("asker", "asker", "other"))
    spoiled = rng.random()
    if spoiled < 0.03:
        version = 9
    elif spoiled < 0.06:
        route = route[:-1]
    elif spoiled < 0.09:
        stage = min(stage + 1, 63)
    elif spoiled < 0.12:
        sampling = sampling[:5]
    elif spoiled < 0.14:
        route = ()
    sender = route[stage - 1] if 0 < stage <= len(route) else origin
    frame = Open(
        session,
        turn,
        version,
        route,
        stage,
        origin,
        0,
        rng.randint(1, 40),
        rng.randint(1, 4),
        sampling,
        (7,)[: rng.randint(0, 1)],
        rng.randint(0, min(2, len(history))),
        history,
    )
    return (rng.choice(PEERS) if rng.random() < 0.05 else sender), frame


def tensor(rng: random.Random, count: int, *, tokens: bool) -> Tensor:
    if tokens:
        return tensor_of(np.array([rng.randrange(50) for _ in range(count)], dtype=np.int32))
    return tensor_of(np.array([[rng.randint(-4, 4) / 4] * 2 for _ in range(count)], dtype=np.float32))


def random_op(rng: random.Random, trace: Trace, opened: dict[bytes, Open]) -> None:
    core = trace.core
    trace.now += rng.choice((0.0, 0.125, 0.25, LEASE_S)) if rng.random() < 0.05 else 0.125
    session = rng.choice(SESSIONS)
    opening = opened.get(session)
    turn = opening.turn if opening else 0
    now = trace.now
    action = rng.choices(list(ACTIONS), list(ACTIONS.values()))[0]
    if opening is None or action == "open":
        sender, frame = some_open(rng, session, turn + rng.choice((1, 1, 1, 1, 0)))
        effects = core.open(now, sender, frame)
        trace.note("open", effects, sender=sender, frame=frame)
        if not any(isinstance(item, Send) and isinstance(item.frame, Refuse) for item in effects):
            opened[session] = frame
    elif action == "step" or (action == "ran" and not trace.running):
        count = rng.randint(1, 4)
        sender = opening.route[opening.stage - 1] if opening.stage else opening.origin
        sender = rng.choice(PEERS) if rng.random() < 0.05 else sender
        takes_tokens = (opening.stage == 0) != (rng.random() < 0.03)
        step = Step(
            session,
            turn if rng.random() < 0.95 else turn + 1,
            opening.plan,
            rng.randrange(40),
            count,
            rng.randint(0, 1),
            tensor(rng, count, tokens=takes_tokens),
        )
        trace.note("step", core.step(now, sender, step), sender=sender, frame=step)
    elif action == "token":
        sender = opening.route[-1] if opening.route and rng.random() < 0.9 else rng.choice(PEERS)
        token = Token(session, turn, rng.randrange(60), rng.randrange(50), rng.choice((0, 0, 0, 1, 2)))
        trace.note("token", core.token(now, sender, token), sender=sender, frame=token)
    elif action == "ran":
        step_ = trace.running.pop(0)
        array = step_.tokens if step_.tokens is not None else step_.hidden
        assert array is not None
        count = len(array)
        if rng.random() < 0.08:
            reason = rng.choice((Reason.MISSING_POSITION, Reason.FAILED, Reason.NOT_FINITE_OUTPUT))
            refused = NotRan(step_.session, step_.turn, step_.position, 3, reason, "has 3 positions")
            given = {"result": {**shown(refused), "reason": int(reason)}}
            trace.note("not_ran", core.not_ran(refused), **given)
        else:
            hidden = np.array([[rng.randint(-4, 4) / 4] * 2 for _ in range(count)], dtype=np.float32)
            picked = rng.choice((7, 8, 9)) if step_.finish is not None else None
            ran = Ran(step_.session, step_.turn, step_.position, count, hidden, picked)
            trace.note("ran", core.ran(now, ran), result=ran)
    elif action == "cancel":
        sender = opening.origin if rng.random() < 0.9 else rng.choice(PEERS)
        cancel = Cancel(session, turn - rng.choice((0, 0, 0, 1)), rng.choice((0, 9)), "cancelled")
        trace.note("cancel", core.cancel(sender, cancel), sender=sender, frame=cancel)
    elif action == "release":
        sender = opening.origin if rng.random() < 0.8 else rng.choice(PEERS)
        trace.note("release", core.release(sender, Release(session)), sender=sender, frame=Release(session))
    elif action == "peer_gone":
        peer = rng.choice(PEERS)
        trace.note("peer_gone", core.peer_gone(peer), peer=peer)
    elif action == "congestion":
        full = rng.random() < 0.4
        trace.note("congestion", core.congestion("p2", full), peer="p2", full=full)
    elif action == "drop":
        run = rng.choice(list(SLOTS))
        trace.note("drop", core.drop(run), run=run)
        core.serve(PLANS, SLOTS)
        trace.note("serve", [])
    elif action == "tick":
        trace.note("tick", core.tick(now))
    else:
        trace.note("leave", core.leave())
        if rng.random() < 0.5:
            core.come_back()
            trace.note("come_back", [])


def traces() -> list[Trace]:
    made = []
    for number in range(TRACES):
        rng = random.Random(SEED + number)
        trace = Trace(f"random schedule of seed {SEED + number}")
        opened: dict[bytes, Open] = {}
        for _ in range(OPS):
            random_op(rng, trace, opened)
        made.append(trace)
    return made


def text() -> str:
    about = (
        "Traces of StageCore on peer p1, which serves `plans` (version; peer and units [first, stop) of each stage) "
        "with `slots` (units, slots). gives: effects in order. pick: sampling settings, position, history, generated. "
        "after: sessions, active sessions, tokens sampled, steps run."
    )
    plans = [[version, [[peer, list(run)] for peer, run in stages]] for version, stages in PLANS.items()]
    slots = [[list(run), count] for run, count in SLOTS.items()]
    return written(about, {"plans": plans, "slots": slots, "traces": [trace.as_json() for trace in traces()]})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
