"""What simulated runs found wrong in the cores once, as short traces."""

from __future__ import annotations

import numpy as np
import pytest

from peer.session.effects import Ran, RunStep
from peer.session.sampling import Sampling
from peer.session.stage import StageCore
from peer.wire.generated.frames import Cancel, Open, Release, Role, Step
from peer.wire.tensors import tensor_of

SESSION = b"s" * 16
RUN = (3, 6)


def opening(turn: int, sampling: Sampling, **change: object) -> Open:
    values: dict[str, object] = {
        "session": SESSION,
        "turn": turn,
        "plan": 1,
        "route": ("p0", "p1"),
        "stage": 1,
        "origin": "asker",
        "start": 0,
        "prompt_tokens": 1,
        "max_tokens": 9,
        "sampling": tuple(sampling.to_wire()),
        "end_tokens": (),
        "generated": 0,
        "role": Role.SERVE,
        "answer": turn,
        "before": 0,
        "keep": 0,
        "spans": (1,),
        "shadow_stages": (),
        "shadows": (),
        "history": (5,),
    }
    return Open(**{**values, **change})  # type: ignore[arg-type]


def stage() -> StageCore:
    core = StageCore("p1")
    core.serve({1: ((frozenset({"p0"}), (0, 3)), (frozenset({"p1"}), RUN))}, {RUN: 4})
    return core


@pytest.mark.parametrize("end", [Release(SESSION), Cancel(SESSION, 2, 0, ""), Cancel(SESSION, 2, 7, "")])
def test_an_open_that_comes_after_the_end_takes_no_seat(end: Release | Cancel) -> None:
    """A peer that was frozen passes it on when it thaws, or frames to shadows wait for company."""
    core = stage()
    if isinstance(end, Release):
        core.release("asker", end)
    else:
        core.cancel("asker", end)
    assert core.open(0.0, "p0", opening(2, Sampling())) == []
    assert core.sessions() == 0
    core.open(0.0, "p0", opening(3, Sampling()))
    assert core.sessions() == (0 if isinstance(end, Release) else 1), "RELEASE is for good, CANCEL ends turns"


def test_nobody_else_can_end_a_session_before_it_begins() -> None:
    core = stage()
    core.release("stranger", Release(SESSION))
    core.open(0.0, "p0", opening(1, Sampling()))
    assert core.sessions() == 1


@pytest.mark.parametrize(("penalty", "submitted"), [(1.0, 2), (1.3, 1)])
def test_with_penalties_a_tail_knows_the_token_before_it_draws_the_next(
    penalty: float, submitted: int
) -> None:
    """A tail that takes over is sent positions of the answer that it has not sampled itself."""
    core = stage()
    core.open(0.0, "p0", opening(1, Sampling(repetition_penalty=penalty)))
    effects = []
    for position in range(3):
        hidden = tensor_of(np.zeros((1, 2), np.float32))
        effects += core.step(0.0, "p0", Step(SESSION, 1, 1, position, 1, 1, hidden))
    steps = [effect for effect in effects if isinstance(effect, RunStep)]
    assert [step.position for step in steps] == list(range(submitted))
    first = steps[0]
    effects = core.ran(0.0, Ran(RUN, SESSION, first.epoch, 0, 1, None, 7))
    assert any(isinstance(effect, RunStep) and effect.position == submitted for effect in effects)
