"""The shape of calls of a model, so that a result depends on its own row only, on kernels that add up in another order
for another number of rows or positions.

Pure. Which shape holds on a machine is proven by `peer.runtime.arithmetic`: some kernels multiply a single row in
another order than several (4-bit weights on AVX2), some the last positions of a prompt that fill no group of four
(attention on SSE).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Final

MOST_ROWS: Final = 16  # of one call: larger batches take several calls, for what was not proven does not run
ATTENTION_ROWS: Final = (
    32  # tokens that attention works on at a time: a single one left over is computed otherwise
)
ENDS: Final = (1, 2, 4, 8, 16)  # multiples that a call of a prompt may have to end at


@dataclass(frozen=True, slots=True)
class RowShape:
    """How many rows a call has: from `least` to `most`, in multiples of `multiple`, which divides both or is 1."""

    least: int = 1
    multiple: int = 1
    most: int = MOST_ROWS

    def filled(self, count: int) -> int:
        """The rows of a call for `count` of them, at most `most`: what is missing is company, computed for nobody."""
        return max(self.least, -(-count // self.multiple) * self.multiple)

    def parts(self, count: int) -> list[int]:
        """The rows of each call for `count` rows, about equally many."""
        calls = -(-count // self.most)
        sizes, rest = divmod(count, calls) if calls else (0, 0)
        return [sizes + (call < rest) for call in range(calls)]

    def spans(self, span: range, rows: int) -> list[tuple[range, range]]:
        """`span` of the rows of an array of `rows` rows, call by call: the rows that are wanted, and all of the call.

        Company comes from the rows behind; where the array ends, from those before. `rows` is at least `least`.
        """
        found, start = [], span.start
        for count in self.parts(len(span)):
            whole = self.filled(count)
            first = max(min(start, rows - whole), 0)
            found.append((range(start, start + count), range(first, first + whole)))
            start += count
        return found

    @property
    def text(self) -> str:
        """Short: "1", "2", "2x2" (at least two, in twos), "1-1" (one at a time)."""
        multiple = f"x{self.multiple}" if self.multiple > 1 else ""
        return f"{self.least}{multiple}" + (f"-{self.most}" if self.most < self.least + 1 else "")


ALONE: Final = RowShape(1, 1, 1)  # holds on every kernel: no row has company
# The cheapest first, seen from one session and from eight.
ROW_SHAPES: Final = (
    RowShape(),
    RowShape(least=2),
    RowShape(least=2, multiple=2),
    RowShape(least=4),
    RowShape(least=4, multiple=4),
    RowShape(least=8, multiple=8),
    RowShape(least=16, multiple=16),
)


@dataclass(frozen=True, slots=True)
class Form:
    """How units are called.

    `ends`: a call of a prompt ends at a multiple of so many positions, what lies behind the prompt being company; 0:
    tokens of a prompt are computed one at a time, as sampled ones are. `plain`: packed weights are multiplied with
    activations that are not rounded. `fused`: onnxruntime may join operators of neighbouring units.
    """

    body: RowShape = RowShape()
    head: RowShape = RowShape()
    ends: int = ENDS[0]
    plain: bool = False
    fused: bool = True

    @property
    def text(self) -> str:
        """As it stands in the class of a peer's arithmetic: "rows-1" is the fastest."""
        return "".join(
            (
                f"rows-{self.body.text}",
                f"-head-{self.head.text}" if self.head != self.body else "",
                f"-ends-{self.ends}" if self.ends != ENDS[0] else "",
                "-plain" if self.plain else "",
                "" if self.fused else "-unfused",
            )
        )

    @property
    def spare_tokens(self) -> int:
        """Positions beyond the last one that a call may write to."""
        return max(2 * self.ends - 1, 1)

    def filled_tokens(self, start: int, count: int) -> int:
        """The tokens of a call of a prompt for `count` of them from position `start` on: never a single one for itself,
        also not behind the last ATTENTION_ROWS.
        """
        return filled_tokens(start, count, self.ends or 1)


def filled_tokens(start: int, count: int, ends: int) -> int:
    """As Form.filled_tokens, for a form with these `ends`."""
    filled = count + -(start + count) % ends
    return filled + ends if filled % ATTENTION_ROWS == 1 else filled


FASTEST: Final = Form()  # where nothing was proven, as in a peer that only asks


def row_shape(mark: Callable[[int], Hashable | None], most: int) -> RowShape | None:
    """The cheapest shape of at most `most` rows in which every row is as alone; None where only ALONE holds.

    `mark(size)` stands for the bits of the same rows computed `size` at a time, 1 to `most`; None where they depend on
    the place of a row in its call.
    """
    for each in ROW_SHAPES:
        shape = replace(each, most=most)
        if shape.least > most:
            continue
        marks = {mark(shape.filled(count)) for count in range(1, most + 1)}
        if len(marks) == 1 and None not in marks:
            return shape
    return None
