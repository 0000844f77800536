"""Breakers: both kinds of fault open them, one probe at a time closes them, flapping makes them wait longer."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.transport.circuit_breakers import (
    CALM_MS,
    LEARNED,
    MAX_KEYS,
    MAX_QUIET_MS,
    PROBE_MS,
    QUIET_MS,
    WINDOW_MS,
    Breakers,
    link,
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


def test_slow_steps_open_it_unless_usual_ones_make_up_for_them() -> None:
    slow, mixed = Breakers(), Breakers()
    for now in range(6):
        slow.slow("a", now)
        mixed.slow("a", now)
        mixed.succeeded("a", now)
    assert slow.state("a", 6) == "open"
    assert mixed.state("a", 6) == "closed"


@pytest.mark.parametrize("usual_us", [800, 20_000, 2_000_000])
def test_slow_is_slow_for_that_peer(usual_us: int) -> None:
    breakers = Breakers()
    late = max(4 * usual_us, usual_us + 50_000) + 1
    assert not breakers.stepped("a", 0, late), "nothing is usual yet"
    breakers.forget("a")
    for now in range(LEARNED):
        assert not breakers.stepped("a", now, usual_us)
    assert not breakers.stepped("a", 50, late - 1 - usual_us // 8)
    again = Breakers()
    for now in range(LEARNED):
        again.stepped("a", now, usual_us)
    for now in range(6):
        again.stepped("a", 100 + now, 100 * late)
    assert again.state("a", 106) == "open"


def test_a_peer_that_stays_slower_becomes_usual_and_closes_again() -> None:
    breakers = Breakers()
    for now in range(LEARNED):
        breakers.stepped("a", now, 20_000)
    steps = 0
    while breakers.stepped("a", 1_000 * steps, 200_000):
        steps += 1
        assert steps < 30
    assert steps > 3


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


@pytest.mark.parametrize("fault", ["failed", "slow", "broke"])
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


def test_links_have_breakers_of_their_own() -> None:
    breakers = opened(link("a", "b"))
    assert breakers.allows("a", 0)
    assert breakers.allows(link("b", "a"), 0)
    assert not breakers.allows(link("a", "b"), 0)
    assert breakers.shown(0) == [("a>b", "open")]


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
