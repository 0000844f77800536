"""Answers whose asker keeps embedding, head and sampling: the same tokens, and none of them in what leaves it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from peer.session.effects import NotRan, Ran, Reason, RunStep, Send
from peer.session.evidence import Floats
from peer.session.origin import Ask, OriginSession, Phase
from peer.session.pinned_ends import Drawing, handed_back, not_usable, pinned, state_in
from peer.session.sampling import Sampling
from peer.state.generated.commands import PlanRecord
from peer.state.plan_record import route_of
from peer.wire.generated.frames import Frame, Open, Refuse, Step, Token
from peer.wire.tensors import Dtype, Tensor, tensor_of
from tests.peer.session.moving_world import WAYS, Moving, answers
from tests.peer.session.toy_mesh import (
    GREEDY,
    UNITS,
    VOCAB,
    ToyRuntime,
    World,
    as_route,
    asks,
    expected,
    favourite,
    opening,
    plan_of,
)

CHOOSY = Sampling(repetition_penalty=1.3, presence_penalty=0.4)


class ToyEnds:
    """The toy's embedding and head: a state is (token, units passed), behind the last unit (favourite, UNITS)."""

    width = 2

    def embed(self, tokens: Sequence[int]) -> Tensor:
        return tensor_of(np.array([(token, 0) for token in tokens], dtype=np.float32))

    def draw(self, drawing: Drawing, state: Floats, tell: Callable[[Token | None], None]) -> None:
        logits = np.zeros(VOCAB, dtype=np.float32)
        logits[int(state[0, 0])] = 5.0
        tell(drawing.token(logits))


class Tail(ToyRuntime):
    """Hands on what its head's favourite would be."""

    def step(self, step: RunStep) -> Ran | NotRan:
        assert step.finish is None, "a stage drew a token"
        result = super().step(step)
        if isinstance(result, Ran) and self.run[1] == UNITS and result.hidden is not None:
            have = self.cache[step.session]
            count = len(result.hidden)
            made = [favourite(have[: len(have) - count + at + 1]) for at in range(count)]
            return replace(result, hidden=np.array([(token, UNITS) for token in made], dtype=np.float32))
        return result


class Pinned(Moving):
    """A world in which askers keep their ends, and all that is sent is kept."""

    def __init__(self, seed: int, plans: list[PlanRecord]) -> None:
        super().__init__(seed, plans)
        self.runtimes = {key: Tail(key[1]) for key in self.runtimes}
        self.sent: list[Frame] = []

    def ask(self, session: bytes, origin: str, plan: PlanRecord, ask: Ask) -> None:
        self.origins.setdefault(session, OriginSession(session, origin, ToyEnds()))
        super().ask(session, origin, plan, ask)

    def send(self, src: str, dst: str, frame: Frame) -> None:
        self.sent.append(frame)
        super().send(src, dst, frame)

    def deliver(self, src: str, dst: str, item: object) -> None:
        super().deliver(src, dst, item)
        if isinstance(item, Step) and not {src, dst} & self.gone:
            for core in list(self.origins.values()):
                if core.me == dst and item.session in (core.session, core.second):
                    self.draw(core, src, item)

    def draw(self, core: OriginSession, src: str, frame: Step) -> None:
        drawing, state = core.drawing(src, frame), state_in(frame, ToyEnds.width)
        if isinstance(drawing, Token):
            super().deliver(src, core.me, drawing)
        elif drawing is not None and state is not None:
            ToyEnds().draw(drawing, state, lambda token: super(Pinned, self).deliver(src, core.me, token))


@pytest.mark.parametrize("seed", range(16))
def test_the_tokens_are_the_same_and_no_frame_has_any(seed: int) -> None:
    rng = random.Random(seed)
    cuts = sorted(rng.sample(range(1, UNITS), rng.randint(0, 3)))
    plan = plan_of(1, cuts, [f"p{i}" for i in range(len(cuts) + 1)])
    world = Pinned(seed, [plan])
    jobs = {
        bytes([i]) * 16: replace(ask, sampling=rng.choice([GREEDY, CHOOSY]))
        for i, ask in enumerate(asks(rng, 5))
    }
    for i, (session, ask) in enumerate(jobs.items()):
        world.ask(session, rng.choice(["asker", "p0", route_of(plan)[-1]]) if i else "asker", plan, ask)
    world.run()
    usual = World(seed, [plan])
    for session, ask in jobs.items():
        usual.ask(session, "asker", plan, ask)
    usual.run()
    assert world.emitted == usual.emitted
    assert world.outcome == usual.outcome
    assert all(core.active() == 0 for core in world.cores.values())
    for frame in world.sent:
        assert not isinstance(frame, Token)
        if isinstance(frame, Open):
            assert (frame.sampling, frame.end_tokens, frame.history) == ((), (), ())
        if isinstance(frame, Step):
            assert frame.tensor.dtype is Dtype.FLOAT32


@pytest.mark.parametrize("seed", range(8))
def test_a_lost_stage_is_replaced_and_the_answer_goes_on(seed: int) -> None:
    first, second = plan_of(1, [3], ["p0", "p1"]), plan_of(2, [3], ["p0", "spare"])
    world = Pinned(seed, [first, second])
    session, prompt = b"m" * 16, list(range(seed + 1))
    world.ask(session, "asker", first, Ask(tuple(prompt), 40, GREEDY, ()))
    world.run(stop_after=20 + seed * 7)
    world.gone.add("p1")
    core = world.origins[session]
    world.from_stage("p0", world.cores["p0"].peer_gone(world.now, "p1"))
    world.from_origin(core, core.peer_gone(world.now, "p1", "peer p1 left"))
    world.from_origin(core, core.reroute(world.now, as_route(second)))
    world.run()
    assert world.emitted[session] == expected(prompt, 40)
    assert core.route == ("p0", "spare")


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_moves_to_another_plan(way: str) -> None:
    old, new = WAYS[way]
    world = Pinned(11, [old, new])
    prompts = answers(world, old, 3, 120)
    for core in list(world.origins.values()):
        world.go(world.now + world.random.uniform(0.1, 0.6))
        world.from_origin(core, core.move(world.now, as_route(new)))
    world.go(1e3)
    assert len(world.first) == 3, "all of them moved"
    for session, core in world.origins.items():
        assert world.outcome[session] == "length"
        assert world.emitted[session] == expected(prompts[world.first[session]], 120)
        assert core.route == route_of(new)
    assert not any(isinstance(frame, Token) for frame in world.sent)


def test_a_stage_takes_states_and_says_nothing_to_the_first() -> None:
    plan = plan_of(1, [], ["p0"])
    core = World(1, [plan]).cores["p0"]
    frame = pinned(opening(b"x" * 16, route_of(plan), 0))
    assert core.open(0.0, "asker", frame) == []
    ids = Step(b"x" * 16, 1, 0, 0, 1, 1, tensor_of(np.zeros(1, dtype=np.int32)))
    assert core.token(0.0, "p0", Token(b"x" * 16, 1, 0, 3, 0)) == []
    (refused,) = core.step(0.0, "asker", ids)
    assert isinstance(refused, Send)
    assert isinstance(refused.frame, Refuse)
    assert refused.frame.reason == Reason.BAD_STEP


@pytest.mark.parametrize("change", [{"end_tokens": (2,)}, {"history": (1, 2)}])
def test_an_open_that_says_tokens_after_all_is_refused(change: dict[str, tuple[int, ...]]) -> None:
    plan = plan_of(1, [], ["p0"])
    core = World(1, [plan]).cores["p0"]
    frame = replace(pinned(opening(b"x" * 16, route_of(plan), 0)), **change)  # type: ignore[arg-type]
    (refused,) = core.open(0.0, "asker", frame)
    assert isinstance(refused, Send)
    assert isinstance(refused.frame, Refuse)
    assert core.sessions() == 0


def test_a_state_that_is_none_is_a_fault_of_the_last_stage() -> None:
    core = OriginSession(b"x" * 16, "asker", ToyEnds())
    core.begin(0.0, as_route(plan_of(1, [4], ["p0", "p1"])), Ask((1, 2), 5, GREEDY, ()))

    def back(values: object, stage: int = 2) -> Step:
        return Step(b"x" * 16, 1, stage, 1, 1, 1, tensor_of(np.array(values)))

    good = back(np.ones((1, 2), np.float32))
    assert isinstance(core.drawing("p1", good), Drawing)
    assert core.drawing("p0", good) is None, "not the last stage"
    assert core.drawing("p1", back(np.ones((1, 2), np.float32), stage=1)) is None, "a step for another place"
    assert core.drawing("p1", replace(good, position=5)) is None, "a position that nobody can have computed"
    wrong = (np.ones((1, 3), np.float32), np.full((1, 2), np.nan, np.float32), np.ones((1, 2), np.int32))
    for values in wrong:
        assert state_in(back(values), 2) is None
    effects = core.refused(0.0, "p1", not_usable(good))
    assert core.phase is Phase.REROUTING
    assert effects


def test_only_what_the_next_token_is_drawn_from_goes_back() -> None:
    from peer.session.activation_log import ActivationLog
    from peer.session.seat import Seat

    seat = Seat(pinned(opening(b"x" * 16, ("p0",), 0, prompt=8)), (0, UNITS), GREEDY, ActivationLog(99), 0.0)
    states = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert handed_back(seat, Ran((0, UNITS), b"x" * 16, 0, 0, 4, states, None)) == []
    (sent,) = handed_back(seat, Ran((0, UNITS), b"x" * 16, 0, 4, 4, states, None))
    assert isinstance(sent.frame, Step)
    assert (sent.peer, sent.frame.stage, sent.frame.position, sent.frame.count) == ("asker", 1, 7, 1)
    assert sent.frame.tensor.array().tolist() == [[6.0, 7.0]]
