"""A team: several peers that compute a stage together, and the form of calls that holds at all of them. Pure.

The first member is the lead, which has the stage's place in routes; the others are helpers. Shares say about how large
the slices are that members have of each unit, in relation to one another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from peer.limits import MAX_TEAM
from peer.runtime.forms import ALONE, ENDS, MOST_ROWS, Form, RowShape
from peer.wire.generated.requests import CallForm


@dataclass(frozen=True, slots=True)
class Team:
    """Of units [first, stop), with a share for each member. Raises ValueError for shares that make no team."""

    first: int
    stop: int
    shares: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 2 <= len(self.shares) <= MAX_TEAM or min(self.shares) < 0 or not self.shares[0]:
            raise ValueError(
                f"shares of 2 to {MAX_TEAM} members, that of the lead above 0, expected, got {list(self.shares)}"
            )

    @property
    def run(self) -> tuple[int, int]:
        """The units that it computes, [first, stop)."""
        return self.first, self.stop


def form_words(form: Form) -> CallForm:
    """The form as members tell it one another."""
    body, head = form.body, form.head
    return CallForm((body.least, body.multiple, body.most), (head.least, head.multiple, head.most), form.ends)


def told_form(told: CallForm) -> Form:
    """The form that another member told. Raises ValueError for one that no machine needs."""
    if told.ends not in (0, *ENDS):
        raise ValueError(f"ends of {(0, *ENDS)} expected, got {told.ends}")
    return Form(body=_told_shape(told.body), head=_told_shape(told.head), ends=told.ends)


def _told_shape(told: Sequence[int]) -> RowShape:
    least, multiple, most = told
    if not 1 <= multiple <= MOST_ROWS or not 1 <= least <= most <= MOST_ROWS or least % multiple:
        raise ValueError(f"rows of a call from 1 to {MOST_ROWS} expected, got {list(told)}")
    return RowShape(least, multiple, most)


def joint_form(forms: Sequence[Form]) -> Form:
    """Calls that keep the promise of equal bits at every member: `forms` are what each was proven to need."""
    return replace(
        forms[0],
        body=_joint_shape([form.body for form in forms]),
        head=_joint_shape([form.head for form in forms]),
        ends=math.lcm(*(form.ends for form in forms)) if all(form.ends for form in forms) else 0,
    )


def _joint_shape(shapes: Sequence[RowShape]) -> RowShape:
    """Sizes of calls that each of `shapes` has, too; a row alone where there are none."""
    multiple = math.lcm(*(shape.multiple for shape in shapes))
    least = -(-max(shape.least for shape in shapes) // multiple) * multiple
    most = min(shape.most for shape in shapes) // multiple * multiple
    return RowShape(least, multiple, most) if least <= most else ALONE
