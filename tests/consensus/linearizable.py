"""Decides whether what clients saw of a replicated state could have been one state that changed at single moments.

The search of Wing and Gong ("Testing and verifying concurrent objects", 1993) with the memory of Lowe ("Testing for
linearizability", 2017): an order of the operations that no operation contradicts by what it saw, or by having ended
before another one began. Each key is a register and searched alone, since a history is linearizable when that of each
key is. An operation that got no answer may have happened at any later moment, or never.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, assert_never

MOST_STATES: Final = 2_000_000  # of the search for one key
UNSEEN: Final = "(a value that nobody saw)"
_NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Read:
    """`value`: what came back; None where the key had none."""

    value: Hashable


@dataclass(frozen=True, slots=True)
class Write:
    value: Hashable


@dataclass(frozen=True, slots=True)
class Swap:
    """Writes `value` if the key has `expected`; `swapped` is the answer (None: there was none)."""

    expected: Hashable
    value: Hashable
    swapped: bool | None


@dataclass(frozen=True, slots=True)
class Operation:
    """`called` and `ended` are numbers of events, or any integers that rise with them; no `ended`: no answer came."""

    key: str
    action: Read | Write | Swap
    called: int
    ended: int | None
    client: str = ""


@dataclass(frozen=True, slots=True)
class Linearizable:
    states: int  # searched, of all keys


@dataclass(frozen=True, slots=True)
class Violation:
    """No order explains `key`. The longest that could be found is `order`; none of `stuck` can come next."""

    key: str
    order: tuple[Operation, ...]
    value: Hashable
    stuck: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Undecided:
    """The search for `key` was given up after so many states."""

    key: str
    states: int


def check(
    history: Iterable[Operation], most_states: int = MOST_STATES
) -> Linearizable | Violation | Undecided:
    """Whether `history` is linearizable; keys are looked at in sorted order."""
    keys: dict[str, list[Operation]] = {}
    for operation in history:
        keys.setdefault(operation.key, []).append(operation)
    states = 0
    for key in sorted(keys):
        verdict = _check_key(key, keys[key], most_states)
        if not isinstance(verdict, Linearizable):
            return verdict
        states += verdict.states
    return Linearizable(states)


@dataclass(frozen=True, slots=True)
class _Call:
    operation: Operation
    action: Read | Write | Swap  # as it was, but with one value for all that nobody ever saw: they are alike
    called: int
    ended: float


@dataclass(frozen=True, slots=True)
class _Standing:
    """Where the search is: answered calls below `low` and in `ahead` are done, and `used` of the unanswered."""

    low: int
    ahead: frozenset[int]
    used: frozenset[int]
    value: Hashable
    unseen: bool = (
        False  # an unanswered call came last: without somebody who sees it, it may as well be left out
    )


def _check_key(
    key: str, operations: list[Operation], most_states: int
) -> Linearizable | Violation | Undecided:
    calls = sorted(_calls(operations), key=lambda call: call.called)
    answered = [call for call in calls if call.ended < _NEVER]
    unanswered = [call for call in calls if call.ended == _NEVER and not isinstance(call.action, Read)]
    standing = _Standing(0, frozenset(), frozenset(), None)
    seen = {standing}
    path: list[tuple[Operation, Iterator[tuple[Operation, _Standing]]]] = []
    longest: tuple[tuple[Operation, ...], _Standing] = ((), standing)
    steps = _next(standing, answered, unanswered)
    while standing.low < len(answered):
        step = next((each for each in steps if each[1] not in seen), None)
        if step is None and not path:
            order, last = longest
            stuck = tuple(answered[place].operation for place in _candidates(last, answered))
            return Violation(key, order, last.value, stuck)
        if step is None:
            _, steps = path.pop()
            continue
        if len(seen) >= most_states:
            return Undecided(key, len(seen))
        operation, standing = step
        seen.add(standing)
        path.append((operation, steps))
        if len(path) > len(longest[0]):
            longest = (tuple(each for each, _ in path), standing)
        steps = _next(standing, answered, unanswered)
    return Linearizable(len(seen))


def _calls(operations: list[Operation]) -> Iterator[_Call]:
    reads = {each.action.value for each in operations if isinstance(each.action, Read)}
    seen = reads | {each.action.expected for each in operations if isinstance(each.action, Swap)}
    for each in operations:
        action = each.action
        if not isinstance(action, Read) and action.value not in seen:
            action = replace(action, value=UNSEEN)
        yield _Call(each, action, each.called, _NEVER if each.ended is None else each.ended)


def _candidates(standing: _Standing, answered: list[_Call]) -> list[int]:
    """Answered calls that may come next: those called before any that is not done has ended."""
    found = []
    border = _NEVER
    for place in range(standing.low, len(answered)):
        call = answered[place]
        if call.called > border:
            break
        if place not in standing.ahead:
            found.append(place)
            border = min(border, call.ended)
    return found


def _next(
    standing: _Standing, answered: list[_Call], unanswered: list[_Call]
) -> Iterator[tuple[Operation, _Standing]]:
    """Each operation that may come next and agrees with the value, and where the search is then."""
    candidates = _candidates(standing, answered)
    steps = []
    for place in candidates:
        call = answered[place]
        agrees, value = _done(call.action, standing.value)
        if not agrees or (standing.unseen and isinstance(call.action, Write)):
            continue
        low, ahead = standing.low, standing.ahead | {place}
        while low in ahead:
            ahead -= {low}
            low += 1
        step = call.operation, _Standing(low, ahead, standing.used, value)
        if value == standing.value and not isinstance(call.action, Write):
            yield step  # what may come now and changes nothing can come now in every order: no other has to be tried
            return
        steps.append(step)
    yield from steps
    border = min((answered[place].ended for place in candidates), default=_NEVER)
    possible = [
        place for place, call in enumerate(unanswered) if place not in standing.used and call.called <= border
    ]
    observers = [answered[place].action for place in candidates]
    observers += [unanswered[place].action for place in possible]
    tried = set()
    for place in possible:
        call = unanswered[place]
        _, value = _done(call.action, standing.value)
        if (
            call.action in tried
            or value == standing.value
            or (standing.unseen and isinstance(call.action, Write))
        ):
            continue
        tried.add(call.action)  # the first of those alike is as good as any
        if any(_sees(action, value) for action in observers):
            used = standing.used | {place}
            yield call.operation, _Standing(standing.low, standing.ahead, used, value, unseen=True)


def _sees(action: Read | Write | Swap, value: Hashable) -> bool:
    """Whether `action` can come right after an unanswered one that left `value`, and could not come without it."""
    if isinstance(action, Swap) and action.swapped is None:
        return value == action.expected
    return not isinstance(action, Write) and _done(action, value)[0]


def _done(action: Read | Write | Swap, value: Hashable) -> tuple[bool, Hashable]:
    """Whether `action` can have happened at `value`, and the value after it."""
    match action:
        case Read(seen):
            return seen == value, value
        case Write(written):
            return True, written
        case Swap(expected, written, swapped):
            happens = value == expected
            return swapped in (None, happens), written if happens else value
        case _:
            assert_never(action)
