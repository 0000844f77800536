"""Decides what the kept results say in words: what held, what did not, and what to change. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from peer.validation.scenarios.figures import percentile

HARDLY_NOTICED_MS: Final = 800.0  # a pause that people take for the usual unevenness of an answer
ANNOYING_MS: Final = 2000.0
LEAST_RUNS: Final = 20  # fewer say little about a 95th percentile
CHEAP: Final = 0.9  # of the unprotected rate
LONG_RESTORE_S: Final = 20.0
BETTER: Final = 0.7  # a level is worth a word when it needs less than this share of another's time


@dataclass(frozen=True, slots=True)
class Seen:
    """One scenario at one level, all kept runs of it together."""

    level: str
    scenario: str
    runs: int
    completed: float
    equal: float
    kv_equal: float | None
    recoveries_ms: tuple[float, ...]
    slowdown: float | None
    replayed_bytes: int
    restored_s: tuple[float, ...]
    seeds: tuple[int, ...]
    bad_runs: tuple[tuple[int, int], ...]  # (seed, number) of runs that did not hold

    @property
    def p50_ms(self) -> float | None:
        """The median of the recoveries; None: there were none."""
        return percentile(self.recoveries_ms, 0.5)

    @property
    def p95_ms(self) -> float | None:
        """The time within which 95 of 100 recoveries were done; None: there were none."""
        return percentile(self.recoveries_ms, 0.95)

    @property
    def held(self) -> bool:
        """Whether no run was bad."""
        return not self.bad_runs


def advice(seen: Sequence[Seen], cost_tok_s: Mapping[str, float]) -> list[str]:
    """Sentences, the most pressing first. `cost_tok_s`: the median rate by how standbys were fed."""
    if not seen and not cost_tok_s:
        return ["Nothing was measured yet: run `shoal validate`."]
    return [*_broken(seen), *_slow(seen), *_levels(seen), *_costs(cost_tok_s), *_thin(seen)]


def _broken(seen: Sequence[Seen]) -> list[str]:
    found = []
    for one in seen:
        if one.held:
            continue
        seed, number = one.bad_runs[0]
        what = [
            *([f"{1 - one.completed:.1%} of answers broke off"] if one.completed < 1 else []),
            *([f"{1 - one.equal:.1%} of token streams changed"] if one.equal < 1 else []),
            *(["caches differed"] if one.kv_equal is not None and one.kv_equal < 1 else []),
        ] or ["the mesh was not whole again in time"]
        found.append(
            f"{one.scenario} at level {one.level} did not hold ({', '.join(what)}): do not rely on it; "
            f"`shoal validate --level {one.level} --scenario {one.scenario} --seed {seed} --first {number} "
            "--count 1` repeats the first such run."
        )
    if seen and not found:
        runs = sum(one.runs for one in seen)
        found.append(
            f"All {runs} runs held: every answer was completed with the tokens of the undisturbed one."
        )
    return found


def _slow(seen: Sequence[Seen]) -> list[str]:
    found = []
    for one in seen:
        p95 = one.p95_ms
        if p95 is None or p95 <= HARDLY_NOTICED_MS or not one.held:
            continue
        what = (
            "people wait: choose a level with standbys that compute along"
            if one.level == "basic"
            else "people wait: look at how late the loss is noticed before anything else"
            if p95 > ANNOYING_MS
            else "people may notice"
        )
        found.append(
            f"{one.scenario} at level {one.level}: one answer in twenty pauses for {p95 / 1000:.1f} s or more; {what}."
        )
    for one in seen:
        restored = percentile(one.restored_s, 0.5)
        if restored is not None and restored > LONG_RESTORE_S:
            found.append(
                f"After {one.scenario} at level {one.level} it takes {restored:.0f} s until every stage has its "
                "standby again, and a second loss in that time costs more: lend more memory, or choose a higher level."
            )
    return found


def _levels(seen: Sequence[Seen]) -> list[str]:
    found = []
    by_scenario: dict[str, list[Seen]] = {}
    for one in seen:
        if one.p50_ms is not None:
            by_scenario.setdefault(one.scenario, []).append(one)
    for scenario, ones in sorted(by_scenario.items()):
        ranked = sorted(ones, key=lambda one: (one.p50_ms or 0.0, one.level))
        best, worst = ranked[0], ranked[-1]
        if best.p50_ms is not None and worst.p50_ms and best.p50_ms < BETTER * worst.p50_ms:
            found.append(
                f"{scenario}: level {best.level} recovers in {best.p50_ms:.0f} ms (median), level {worst.level} in "
                f"{worst.p50_ms:.0f} ms."
            )
    return found


def _costs(tok_s: Mapping[str, float]) -> list[str]:
    off = tok_s.get("off")
    if not off:
        return []
    found = []
    for shadow, rate in sorted(tok_s.items()):
        if shadow == "off":
            continue
        share = rate / off
        word = (
            "leave it on"
            if share >= CHEAP
            else "let standbys run on machines that idle, or keep inputs only (log)"
        )
        found.append(f"Standbys fed by `{shadow}` leave {share:.0%} of the unprotected decode rate: {word}.")
    return found


def _thin(seen: Sequence[Seen]) -> list[str]:
    thin = sorted({one.scenario for one in seen if one.runs < LEAST_RUNS})
    if not thin:
        return []
    return [f"Fewer than {LEAST_RUNS} runs each of {', '.join(thin)}: their 95th percentiles say little."]
