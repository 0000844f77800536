"""Decides which defects can be put into the cores for a while, to prove that the simulated runs find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch

from peer.session import open_checks
from peer.session import origin as session
from peer.session import stage as pipeline
from peer.session.activation_log import ActivationLog
from peer.session.effects import FreeSlot, Ran, StageEffect
from peer.session.origin import OriginSession
from peer.session.sampling import Sampling, sample
from peer.session.seat import Over, Run_, Seat
from peer.session.stage import StageCore
from peer.wire.generated.frames import Cancel, Open, Step, Token
from peer.wire.tensors import Tensor
from tests.sim import worker

Plans = Mapping[int, tuple[tuple[frozenset[str], Run_], ...]]
Replacements = list[tuple[object, str, object]]


@dataclass(frozen=True, slots=True)
class Switch:
    """One defect: what it does, in words, and (owner, name, value) of what it replaces."""

    what: str
    replacements: Callable[[], Replacements]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The cores have the defect inside."""
        with ExitStack() as stack:
            for owner, name, value in self.replacements():
                stack.enter_context(patch.object(owner, name, value))
            yield


def _accepts_gaps() -> Replacements:
    original = Seat.next_step

    def next_step(self: Seat) -> Step | None:
        if self.submitted not in self.waiting and self.waiting:
            self.submitted = min(self.waiting)
            self.received = max(self.received, self.submitted)
        return original(self)

    return [(Seat, "next_step", next_step), (worker, "lacks", lambda have, position: False)]


def _forgets_duplicates() -> Replacements:
    original = Seat.take

    def take(self: Seat, step: Step) -> bool:
        if step.position < self.received:
            self.received = self.submitted = step.position
        return original(self, step)

    return [(Seat, "take", take)]


def _replays_shifted() -> Replacements:
    original = ActivationLog.since

    def since(self: ActivationLog, position: int) -> list[tuple[int, Tensor]] | None:
        found = original(self, position + 1)
        return None if found is None else [(at - 1, tensor) for at, tensor in found]

    return [(ActivationLog, "since", since)]


def _keeps_slots() -> Replacements:
    original = StageCore._free

    def free(self: StageCore, seat: Seat) -> list[StageEffect]:
        return [effect for effect in original(self, seat) if not isinstance(effect, FreeSlot)]

    return [(StageCore, "_free", free)]


def _samples_by_itself() -> Replacements:
    drawn = 0

    def pick(sampling: Sampling, position: int, history: tuple[int, ...], generated: int, logits: Any) -> int:
        nonlocal drawn
        drawn += 1
        answer = history[-generated:] if history and generated else ()
        return sample(logits, replace(sampling, seed=sampling.seed + drawn), position, history, answer)

    return [(open_checks, "pick", pick)]


def _trusts_old_plans() -> Replacements:
    original = StageCore.serve

    def serve(self: StageCore, plans: Plans, slots: Mapping[Run_, int]) -> None:
        oldest = {len(plan): plan for _, plan in sorted(plans.items(), reverse=True)}
        original(self, {version: oldest[len(plan)] for version, plan in plans.items()}, slots)

    return [(StageCore, "serve", serve)]


def _replays_as_prompt() -> Replacements:
    return [(Seat, "is_given", lambda self, position: position < self.opening.prompt_tokens)]


def _takes_steps_of_anybody() -> Replacements:
    original = StageCore.step

    def step(self: StageCore, now: float, sender: str, frame: Step) -> list[StageEffect]:
        seat = self._seats.get((frame.session, frame.stage))
        return original(self, now, seat.upstream if seat is not None else sender, frame)

    return [(StageCore, "step", step)]


def _takes_tokens_of_anybody() -> Replacements:
    original = OriginSession.token

    def token(self: OriginSession, now: float, sender: str, frame: Token) -> Any:
        return original(self, now, self.route[-1] if self.route else sender, frame)

    return [(OriginSession, "token", token)]


def _keeps_the_cache_past_a_branch() -> Replacements:
    def prefix(a: Sequence[int], b: Sequence[int]) -> int:
        return min(len(a), len(b))

    return [(session, "common_prefix", prefix)]


def _takes_over_with_holes() -> Replacements:
    def ask_upstream(self: StageCore, now: float, seat: Seat) -> list[StageEffect]:
        if seat.received < seat.opening.start:
            seat.received = seat.submitted = seat.opening.start
        return []

    return [(StageCore, "_ask_upstream", ask_upstream), (worker, "lacks", lambda have, position: False)]


def _tail_repeats_nothing() -> Replacements:
    original = StageCore._continue_tail

    def continue_tail(self: StageCore, seat: Seat, history: tuple[int, ...]) -> list[StageEffect]:
        original(self, seat, history)
        return []

    return [(StageCore, "_continue_tail", continue_tail)]


def _evicts_the_newest() -> Replacements:
    def drop_oldest(self: ActivationLog) -> None:
        if self._entries:
            self.bytes -= len(self._entries.pop()[1].data)

    return [(ActivationLog, "drop_oldest", drop_oldest)]


def _takes_tokens_of_old_answers() -> Replacements:
    original = OriginSession.token

    def token(self: OriginSession, now: float, sender: str, frame: Token) -> Any:
        return original(self, now, sender, replace(frame, turn=self.turn))

    return [(OriginSession, "token", token)]


def _takes_frames_of_old_turns() -> Replacements:
    def seat(self: StageCore, session: bytes, stage: int, turn: int) -> Seat | None:
        return self._seats.get((session, stage))

    return [(StageCore, "_seat", seat)]


def _takes_tokens_at_any_position() -> Replacements:
    original = OriginSession.token

    def token(self: OriginSession, now: float, sender: str, frame: Token) -> Any:
        return original(self, now, sender, replace(frame, position=len(self.tokens)))

    return [(OriginSession, "token", token)]


def _ignores_cancel() -> Replacements:
    def cancel(self: StageCore, sender: str, frame: Cancel) -> list[StageEffect]:
        return []

    return [(StageCore, "cancel", cancel)]


def _forgets_what_was_generated() -> Replacements:
    original = StageCore._continue_tail

    def continue_tail(self: StageCore, seat: Seat, history: tuple[int, ...]) -> list[StageEffect]:
        effects = original(self, seat, history)
        seat.generated = 0
        return effects

    return [(StageCore, "_continue_tail", continue_tail)]


def _counts_twice() -> Replacements:
    original = StageCore.open

    def opened(self: StageCore, now: float, sender: str, frame: Open) -> list[StageEffect]:
        most = max(1, frame.max_tokens - frame.generated)
        return original(self, now, sender, replace(frame, max_tokens=most))

    return [(StageCore, "open", opened)]


def _leases_never_end() -> Replacements:
    return [(pipeline, "LEASE_S", float("inf"))]


def _waits_for_askers_for_ever() -> Replacements:
    return [(pipeline, "ORPHAN_S", float("inf"))]


def _logs_without_bound() -> Replacements:
    original = ActivationLog.append

    def append(self: ActivationLog, position: int, tensor: Tensor) -> None:
        self._limit = 1 << 40
        original(self, position, tensor)

    return [(ActivationLog, "append", append), (pipeline, "bound_logs", lambda seats, over: None)]


def _takes_results_of_another_epoch() -> Replacements:
    original = StageCore.ran

    def ran(self: StageCore, now: float, result: Ran) -> list[StageEffect]:
        seat = self._of_run.get((result.session, result.run))
        return original(self, now, replace(result, epoch=seat.epoch) if seat is not None else result)

    return [(StageCore, "ran", ran)]


def _lets_late_opens_in() -> Replacements:
    return [(Over, "note", lambda self, asker, session, turn: None)]


SWITCHES: dict[str, Switch] = {
    "accepts_gaps": Switch("a stage computes a step though a position before it is missing", _accepts_gaps),
    "forgets_duplicates": Switch("a stage computes again what came twice", _forgets_duplicates),
    "replays_shifted": Switch("a log is sent again from the wrong position", _replays_shifted),
    "keeps_slots": Switch("a slot stays taken after its session was let go", _keeps_slots),
    "samples_by_itself": Switch("the tail draws tokens from chance of its own", _samples_by_itself),
    "trusts_old_plans": Switch("a stage serves the units of an older plan", _trusts_old_plans),
    "replays_as_prompt": Switch("sampled positions are computed again as given ones", _replays_as_prompt),
    "takes_steps_of_anybody": Switch(
        "a stage listens to peers before it in no route", _takes_steps_of_anybody
    ),
    "takes_tokens_of_anybody": Switch(
        "an asker shows tokens of a peer that is no tail", _takes_tokens_of_anybody
    ),
    "keeps_the_cache_past_a_branch": Switch(
        "an edited question goes on from what was cached of the old one", _keeps_the_cache_past_a_branch
    ),
    "takes_over_with_holes": Switch(
        "a standby takes over without the positions that it lacks", _takes_over_with_holes
    ),
    "tail_repeats_nothing": Switch(
        "a tail does not say again what the asker did not hear", _tail_repeats_nothing
    ),
    "evicts_the_newest": Switch("a full log gives up the newest instead of the oldest", _evicts_the_newest),
    "takes_tokens_of_old_answers": Switch(
        "an asker shows tokens of an answer that is over", _takes_tokens_of_old_answers
    ),
    "takes_frames_of_old_turns": Switch(
        "a stage listens to frames of turns that are over", _takes_frames_of_old_turns
    ),
    "takes_tokens_at_any_position": Switch(
        "an asker shows a token whatever its position", _takes_tokens_at_any_position
    ),
    "ignores_cancel": Switch("a stage goes on after it was told to stop", _ignores_cancel),
    "forgets_what_was_generated": Switch(
        "a tail that takes over counts no earlier token of the answer", _forgets_what_was_generated
    ),
    "counts_twice": Switch("tokens before a takeover count twice against the most", _counts_twice),
    "leases_never_end": Switch("sessions that nobody continues stay for ever", _leases_never_end),
    "waits_for_askers_for_ever": Switch(
        "sessions whose asker is gone stay for ever", _waits_for_askers_for_ever
    ),
    "logs_without_bound": Switch("logs of activations only grow", _logs_without_bound),
    "takes_results_of_another_epoch": Switch(
        "a stage hands on what was computed before it went back", _takes_results_of_another_epoch
    ),
    "lets_late_opens_in": Switch("an OPEN that comes after the end takes a seat", _lets_late_opens_in),
}

# The first seed whose run shows it. `python -m tests.sim --switches` looks anew; docs/simulator.md has them, too.
FIRST: Final[Mapping[str, int]] = {
    "accepts_gaps": 29,
    "forgets_duplicates": 3,
    "replays_shifted": 11,
    "keeps_slots": 0,
    "samples_by_itself": 1,
    "trusts_old_plans": 33,
    "replays_as_prompt": 12,
    "takes_steps_of_anybody": 30,
    "takes_tokens_of_anybody": 30,
    "keeps_the_cache_past_a_branch": 3,
    "takes_over_with_holes": 11,
    "tail_repeats_nothing": 303,
    "evicts_the_newest": 76,
    "takes_tokens_of_old_answers": 14,
    "takes_frames_of_old_turns": 12,
    "takes_tokens_at_any_position": 3,
    "ignores_cancel": 9,
    "forgets_what_was_generated": 52,
    "counts_twice": 20,
    "leases_never_end": 13,
    "waits_for_askers_for_ever": 0,
    "logs_without_bound": 25,
    "takes_results_of_another_epoch": 54,
    "lets_late_opens_in": 37,
}
