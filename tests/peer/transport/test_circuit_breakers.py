"""Breakers: both kinds of fault open them, one probe at a time closes them, flapping makes them wait longer."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.transport.circuit_breakers import (
    CALM_MS,
    MAX_KEYS,
    MAX_QUIET_MS,
    PROBE_MS,
    QUIET_MS,
    WINDOW_MS,
    Breakers,
)


def opened(key: str = "a", now: int = 0) -> Breakers:
    breakers = Breakers()
    breakers.broke(key, now)
    return breakers


def test_two_failures_within_the_window_open_it_and_two_far_apart_do_not() -> None:
    near, far = Breakers(), Breakers()
    near.failed("a", 0)
    assert near.state("a", 0) == "closed"
    near.failed("a", WINDOW_MS - 1)
    assert near.state("a", WINDOW_MS - 1) == "open"
    far.failed("a", 0)
    far.failed("a", WINDOW_MS)
    assert far.state("a", WINDOW_MS) == "closed"


def test_half_open_takes_one_probe_and_a_success_closes_it() -> None:
    breakers = opened()
    assert not breakers.allows("a", QUIET_MS - 1)
    assert breakers.allows("a", QUIET_MS)
    assert breakers.state("a", QUIET_MS) == "half-open"
    breakers.chosen("a", QUIET_MS)
    assert not breakers.allows("a", QUIET_MS + 1)
    assert breakers.allows("a", QUIET_MS + PROBE_MS), (
        "a probe that nobody heard of does not block it for good"
    )
    breakers.succeeded("a", QUIET_MS + 5)
    assert breakers.state("a", QUIET_MS + 5) == "closed"
    assert breakers.allows("a", QUIET_MS + 5)


def test_a_success_while_open_is_too_early_and_a_fault_starts_the_quiet_anew() -> None:
    breakers = opened()
    breakers.succeeded("a", 100)
    assert breakers.state("a", 100) == "open"
    breakers.failed("a", 1_500)
    assert breakers.state("a", QUIET_MS) == "open"
    assert breakers.quiet_until("a") == 1_500 + QUIET_MS


@pytest.mark.parametrize("fault", ["failed", "broke"])
def test_flapping_doubles_the_quiet_time_up_to_a_bound_and_calm_forgives(fault: str) -> None:
    breakers, now, quiet = Breakers(), 0, list[int]()
    breakers.broke("a", now)
    for _ in range(12):
        until = breakers.quiet_until("a")
        assert until is not None
        quiet.append(until - now)
        now = until
        breakers.chosen("a", now)
        getattr(breakers, fault)("a", now)
    assert quiet[0] == QUIET_MS
    assert all(b in (2 * a, MAX_QUIET_MS) for a, b in pairwise(quiet))
    assert quiet[-1] == MAX_QUIET_MS
    now = breakers.quiet_until("a") or 0
    breakers.succeeded("a", now)
    breakers.broke("a", now + CALM_MS)
    assert breakers.quiet_until("a") == now + CALM_MS + QUIET_MS


def test_a_breaker_that_closed_and_soon_breaks_waits_longer() -> None:
    breakers = opened()
    breakers.succeeded("a", QUIET_MS)
    breakers.broke("a", QUIET_MS + 10)
    assert breakers.quiet_until("a") == QUIET_MS + 10 + 2 * QUIET_MS


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.lists(st.sampled_from("abcdef")))
def test_order_keeps_everybody_and_puts_the_closed_first(candidates: list[str], broken: list[str]) -> None:
    breakers = Breakers()
    for now, key in enumerate(broken):
        breakers.broke(key, now)
    for now in (0, QUIET_MS, QUIET_MS + 3):
        found = breakers.order(candidates, now)
        assert sorted(found) == sorted(candidates)
        allowed = [breakers.allows(key, now) for key in found]
        assert allowed == sorted(allowed, reverse=True)
        for state in ("closed", "half-open", "open"):
            same = [key for key in found if breakers.state(key, now) == state]
            assert same == [key for key in candidates if breakers.state(key, now) == state]


def test_memory_is_bounded_and_open_ones_are_kept_longest() -> None:
    breakers = opened("first")
    for at in range(2 * MAX_KEYS):
        breakers.failed(f"peer {at}", 0)
    assert breakers.state("first", 0) == "open"
    assert len(breakers._all) == MAX_KEYS
