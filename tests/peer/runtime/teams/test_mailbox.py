"""Parts of other members: each is taken once, none is waited for too long, and nobody fills the memory with them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from peer.errors import BadCommand, TeamBroken
from peer.runtime.teams.mailbox import MOST_BYTES, Mailbox
from peer.wire.generated.frames import TeamPart
from peer.wire.tensors import Dtype, Tensor, tensor_of

SESSION = bytes(16)


def part(member: int, call: int, unit: int, rows: int = 1, width: int = 2) -> TeamPart:
    array = np.full((rows, width), member + call, np.float32)
    return TeamPart(SESSION, call, unit, member, rows, tensor_of(array))


def test_a_part_is_taken_once_and_in_any_order() -> None:
    box = Mailbox(patience_s=0.0)
    box.put(part(2, 1, 5))
    box.put(part(1, 1, 5))
    assert box.take(1, 1, 5, (1, 2)).tolist() == [[2, 2]]
    assert box.take(2, 1, 5, (1, 2)).tolist() == [[3, 3]]
    with pytest.raises(TeamBroken, match="member 1 of the team is silent"):
        box.take(1, 1, 5, (1, 2))


def test_whoever_waits_hears_of_the_end_and_tells_whom_it_waits_for() -> None:
    waited_for: list[int] = []
    late = threading.Event()

    def tell(member: int) -> None:
        waited_for.append(member)
        late.set()

    box = Mailbox(late=tell)
    said: list[str] = []

    def wait() -> None:
        try:
            box.take(3, 1, 5, (1, 2))
        except TeamBroken as error:
            said.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert late.wait(60)
    box.end("member 3 was lost")
    box.end("and something else later")
    waiting.join(60)
    assert said == ["member 3 was lost"]
    assert set(waited_for) == {3}
    assert box.broken == "member 3 was lost"


def test_a_part_of_another_shape_breaks_the_team() -> None:
    box = Mailbox()
    box.put(part(1, 1, 5, rows=2))
    with pytest.raises(TeamBroken, match=r"shape \(1, 2\) expected from member 1, got \(2, 2\)"):
        box.take(1, 1, 5, (1, 2))


@pytest.mark.parametrize(
    "tensor",
    [Tensor(Dtype.INT32, (1, 1), bytes(4)), Tensor(Dtype.FLOAT32, (1,), bytes(4))],
)
def test_what_is_no_part_is_refused(tensor: Tensor) -> None:
    with pytest.raises(BadCommand, match=r"float32 \(rows, width\) expected"):
        Mailbox().put(TeamPart(SESSION, 1, 5, 1, 1, tensor))


def test_a_part_that_comes_twice_and_parts_that_fill_the_memory_are_refused() -> None:
    box = Mailbox()
    box.put(part(1, 1, 5))
    with pytest.raises(BadCommand, match="one part of call 1 and unit 5 expected"):
        box.put(part(1, 1, 5))
    rows, width = 1 << 9, 1 << 12
    large = part(1, 0, 0, rows, width)
    for unit in range(MOST_BYTES // large.tensor.array().nbytes - 1):
        box.put(TeamPart(SESSION, 2, unit, 1, rows, large.tensor))
    with pytest.raises(BadCommand, match="no more than"):
        box.put(TeamPart(SESSION, 3, 0, 1, rows, large.tensor))
    box.take(1, 2, 0, (rows, width))
    box.put(TeamPart(SESSION, 3, 0, 1, rows, large.tensor))
    box.put(TeamPart(SESSION, 3, 0, 2, rows, large.tensor))  # another member has room of its own
