"""What a helper refuses of its lead, before it allocates or computes anything."""

from __future__ import annotations

import re
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, cast

import numpy as np
import pytest

from peer.runtime.forms import FASTEST
from peer.runtime.kv_slots import Move, Shape
from peer.runtime.teams.helper_worker import HelperWorker
from peer.runtime.teams.mailbox import Mailbox
from peer.runtime.teams.member_execution import Channel
from peer.wire.generated.frames import TeamKeep, TeamRows, TeamStep, TeamWork
from peer.wire.tensors import Dtype, Tensor, tensor_of

SESSION = bytes(16)
HIDDEN, SLOTS, CONTEXT = 4, 2, 64
WAIT_S = 60


class Execution:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.did: SimpleQueue[tuple[Any, ...]] = SimpleQueue()

    def __getattr__(self, name: str) -> Callable[..., None]:
        def noted(*args: Any) -> None:
            self.did.put((name, *(arg for arg in args if not isinstance(arg, Channel | np.ndarray))))

        return noted


def helper() -> tuple[HelperWorker, Execution, SimpleQueue[str]]:
    execution, ended = Execution(), SimpleQueue[str]()
    channel = Channel(SESSION, 1, 2, lambda _, __: None, Mailbox())
    worker = HelperWorker(cast(Any, execution), channel, FASTEST, HIDDEN, SLOTS, CONTEXT, ended.put)
    return worker, execution, ended


def rows(call: int, what: int, *numbers: int) -> TeamRows:
    return TeamRows(SESSION, call, what, numbers)


def step(call: int, work: TeamWork, row: int, lengths: tuple[int, ...], count: int = 1) -> TeamStep:
    tensor = tensor_of(np.zeros((count, HIDDEN), np.float32))
    return TeamStep(SESSION, call, int(work), row, count, lengths, tensor)


GROWN = rows(1, TeamKeep.GROW, 2, 32)


def test_a_helper_does_what_its_lead_says_in_order() -> None:
    worker, execution, _ = helper()
    frames = [
        GROWN,
        step(2, TeamWork.PROMPT, 1, (0,), 5),
        step(3, TeamWork.DECODE, 0, (0, 5), 2),
        rows(4, TeamKeep.MOVE, 1, 0, 5),
        rows(5, TeamKeep.LET_GO, 1),
        step(6, TeamWork.HEAD, 0, ()),
    ]
    for frame in frames:
        worker.take(frame)
    did = [execution.did.get(timeout=WAIT_S) for _ in frames]
    assert [each[0] for each in did] == ["grow", "prompt", "decode", "move", "let_go", "head_call"]
    assert did[0] == ("grow", Shape(2, 32), [])
    assert did[2][2:] == (range(2), [0, 5])
    assert did[3] == ("move", Move(1, 0, 5))
    worker.close("it is over")
    assert execution.did.get(timeout=WAIT_S) == ("grow", Shape(0, 0), ())


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (rows(3, TeamKeep.LET_GO, 1), "call 2 of the team expected, got 3"),
        (rows(2, TeamKeep.GROW, SLOTS + 999, 32), "rows of"),
        (rows(2, TeamKeep.GROW, 2, CONTEXT + 2), "at most 2 rows of 65 positions expected"),
        (rows(2, TeamKeep.GROW, 1, 32), "rows of"),
        (rows(2, TeamKeep.GROW, 2, 16), "rows of"),
        (rows(2, TeamKeep.GROW, 2, 64, 33), "at most 32 kept positions"),
        (rows(2, TeamKeep.MOVE, 0, 2, 5), "rows inside 2"),
        (rows(2, TeamKeep.MOVE, 0, 1, 33), "rows inside 2"),
        (rows(2, TeamKeep.MOVE, 0, 1), "numbers that fit"),
        (rows(2, TeamKeep.LET_GO), "numbers that fit"),
        (step(2, TeamWork.DECODE, 1, (0, 0), 2), "rows and positions inside"),
        (step(2, TeamWork.DECODE, 0, (0,), 2), "rows and positions inside"),
        (step(2, TeamWork.DECODE, 0, (32,)), "rows and positions inside"),
        (step(2, TeamWork.PROMPT, 0, (30,), 3), "rows and positions inside"),
        (step(2, TeamWork.PROMPT, 0, (), 3), "rows and positions inside"),
        (
            TeamStep(SESSION, 2, 1, 0, 1, (0,), Tensor(Dtype.FLOAT32, (1, HIDDEN + 1), bytes(20))),
            r"float32 of shape \(1, 4\) expected",
        ),
        (
            TeamStep(SESSION, 2, 1, 0, 1, (0,), Tensor(Dtype.INT32, (1, HIDDEN), bytes(16))),
            r"float32 of shape \(1, 4\) expected",
        ),
    ],
)
def test_what_breaks_the_rules_ends_the_team_before_anything_is_done(
    frame: TeamRows | TeamStep, why: str
) -> None:
    worker, execution, ended = helper()
    worker.take(GROWN)
    worker.take(frame)
    assert re.search(why, ended.get(timeout=WAIT_S))
    worker.close("it is over")
    assert [execution.did.get(timeout=WAIT_S)[1] for _ in range(2)] == [Shape(2, 32), Shape(0, 0)]
    assert execution.did.empty()
