"""How long a token takes here: steps that shared the machine, broke off or were dropped say nothing of it."""

from __future__ import annotations

import pytest

from peer.runtime.step_times import KEPT, StepTimes

RUN, OTHER = (0, 9), (9, 20)
S, T = b"s" * 16, b"t" * 16


def test_the_median_of_steps_that_ran_by_themselves() -> None:
    times = StepTimes()
    for position, took in enumerate((0.030, 0.010, 0.020)):
        times.begun(position, (RUN, S, 1, position), counts=True)
        times.ended(position + took, (RUN, S, 1, position), ran=True)
    assert times.medians_us() == [(0, 9, 20_000)]
    for position in range(KEPT):
        times.begun(10 + position, (RUN, S, 2, position), counts=True)
        times.ended(10 + position + 0.25, (RUN, S, 2, position), ran=True)
    assert times.medians_us() == [(0, 9, 250_000)]  # the last ones count
    times.unloaded(RUN)
    assert times.medians_us() == []


@pytest.mark.parametrize("case", ["prompt", "beside", "refused", "dropped", "unloaded"])
def test_what_says_nothing(case: str) -> None:
    times = StepTimes()
    step = (RUN, S, 1, 0)
    times.begun(0, step, counts=case != "prompt")
    match case:
        case "beside":
            times.begun(0.01, (OTHER, T, 1, 0), counts=True)
            times.ended(0.05, (OTHER, T, 1, 0), ran=True)
        case "dropped":
            times.dropped(RUN, S)
        case "unloaded":
            times.unloaded(RUN)
    times.ended(0.1, step, ran=case != "refused")
    assert times.medians_us() == []
    times.begun(1, step, counts=True)  # nothing is under way any more
    times.ended(1.5, step, ran=True)
    assert times.medians_us() == [(0, 9, 500_000)]
