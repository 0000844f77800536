"""Decides in which order lost stages are repaired: before those that need their output, priority units first.

Pure. A wave holds what is repaired at the same time. A stage needs the one before it: what a stage further back
sent lies in the activation log of the stage between, which is still there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

Run = tuple[int, int]


def chained(lost: Iterable[int]) -> dict[int, frozenset[int]]:
    """What each lost stage of a pipeline waits for: the stage before it, if that is lost, too."""
    places = frozenset(lost)
    return {place: frozenset({place - 1} & places) for place in places}


def waves(
    needs: Mapping[int, Collection[int]], priority: Collection[int] = (), *, together: bool
) -> tuple[tuple[int, ...], ...]:
    """The lost stages (keys of `needs`, with the lost stages each waits for) in the order of their repair.

    A priority stage pulls forward what it waits for. With `together` a wave has all that waits for nobody, in that
    order; without, one stage. Raises ValueError when stages wait for each other in a circle.
    """
    urgent = _with_causes(needs, priority)
    left, done, found = (
        sorted(needs, key=lambda at: (at not in urgent, at)),
        set[int](),
        list[tuple[int, ...]](),
    )
    while left:
        ready = [at for at in left if not (set(needs[at]) & needs.keys()) - done]
        if not ready:
            raise ValueError(f"expected stages that wait for earlier ones, got a circle of {left}")
        wave = tuple(ready if together else ready[:1])
        found.append(wave)
        done.update(wave)
        left = [at for at in left if at not in done]
    return tuple(found)


def _with_causes(needs: Mapping[int, Collection[int]], priority: Collection[int]) -> set[int]:
    found, more = set[int](), set(priority) & needs.keys()
    while more:
        found |= more
        more = {cause for at in more for cause in needs[at] if cause in needs} - found
    return found


def priority_stages(runs: Sequence[Run], units: Sequence[str], priority: Collection[str]) -> frozenset[int]:
    """Places of the stages (runs of units, in order) that hold a priority unit."""
    return frozenset(
        place for place, (first, stop) in enumerate(runs) if set(units[first:stop]) & set(priority)
    )


def load_order(
    stages: Sequence[Run], mine: Collection[Run], units: Sequence[str], priority: Collection[str]
) -> tuple[Run, ...]:
    """The runs of `mine`, in the order in which one peer loads them for a plan of these stages.

    A peer loads one run at a time. Runs that are no stage of the plan come last.
    """
    places = {run: place for place, run in enumerate(stages)}
    wanted = [places[run] for run in set(mine) if run in places]
    order = waves(chained(wanted), priority_stages(stages, units, priority), together=False)
    planned = [stages[place] for wave in order for place in wave]
    return (*planned, *sorted(set(mine) - set(planned)))
