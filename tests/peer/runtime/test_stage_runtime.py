"""The runtime's promise: what a session gets depends on its own tokens only, whatever else runs and however
hostile.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from peer.model.fetcher import Fetcher
from peer.runtime.arithmetic import proven
from peer.runtime.execution import Execution
from peer.runtime.forms import ALONE, Form, RowShape
from peer.runtime.stage_runtime import Done, RefusalReason, Refused, StageRuntime, Step
from peer.session.effects import RunStep
from peer.session.seat import Run_
from peer.stage.unit_host import Room, Serving
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest
from planner.model.store import Store

Answer = Done | Refused
WAIT_S = 60


class Stage:
    """A runtime and what it delivered."""

    def __init__(
        self,
        manifest: Manifest,
        store: Store,
        first: int,
        stop: int,
        form: Form | None = None,
        **settings: int,
    ) -> None:
        """In `form`, or in the one that this machine is proven to need."""
        self.answers: SimpleQueue[Answer] = SimpleQueue()
        form = form or proven(store, manifest, "cpu", 1).form
        self.runtime = StageRuntime(
            make_shard(manifest, store, first, stop, exact=form.plain),
            threads=1,
            slots=settings.get("slots", 8),
            context=settings.get("context", 512),
            form=form,
            deliver=self.answers.put,
        )

    def next(self) -> Answer:
        return self.answers.get(timeout=WAIT_S)

    def done(self) -> Done:
        answer = self.next()
        assert isinstance(answer, Done), answer
        return answer


@contextmanager
def stage(
    manifest: Manifest, store: Store, first: int, stop: int, form: Form | None = None, **settings: int
) -> Iterator[Stage]:
    made = Stage(manifest, store, first, stop, form, **settings)
    try:
        yield made
    finally:
        made.runtime.close()


def keep(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return logits.copy()


def tokens_step(
    session: bytes, position: int, tokens: list[int], finish: Callable[[Any], object] | None = keep
) -> Step:
    return Step(session, position, np.array(tokens, np.int64), None, True, finish)


def run_alone(one: Stage, session: bytes, tokens: list[int], prompt: int) -> list[npt.NDArray[np.float32]]:
    """Logits after the prompt and after each token."""
    found = []
    one.runtime.submit(tokens_step(session, 0, tokens[:prompt]))
    found.append(one.done().finished)
    for position in range(prompt, len(tokens)):
        one.runtime.submit(tokens_step(session, position, [tokens[position]]))
        found.append(one.done().finished)
    return found  # type: ignore[return-value]


def random_tokens(seed: int, count: int, vocab: int = 100) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, vocab, count)]


@pytest.mark.parametrize("weights", ["f32", "8bit", "4bit"])
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.any_processor), 1, 2])
def test_a_crowd_changes_nothing(made_up: Callable[..., Any], weights: str, seed: int) -> None:
    """Random prompts, steps, rewinds, releases of seven sessions: each equals its own run alone, to the bit."""
    _, manifest, store = made_up(weights)
    _crowd_and_alone(manifest, store, seed, None)


@pytest.mark.parametrize(
    "change",
    [
        lambda form: replace(form, body=RowShape(4, 4), head=RowShape(2, 2), ends=16),
        lambda form: replace(form, body=ALONE, head=ALONE),
        lambda form: replace(form, body=RowShape(8, 8, 8), ends=0),
    ],
    ids=["in fours", "row by row", "token by token"],
)
def test_a_crowd_changes_nothing_in_forms_that_other_machines_need(
    made_up: Callable[..., Any], change: Callable[[Form], Form]
) -> None:
    """They hold here as well: each asks for more than this machine needs."""
    _, manifest, store = made_up("8bit")
    _crowd_and_alone(manifest, store, 4, change(proven(store, manifest, "cpu", 1).form))


def _crowd_and_alone(manifest: Manifest, store: Store, seed: int, form: Form | None) -> None:
    rng = random.Random(seed)
    texts = {bytes([n]): random_tokens(n, rng.randrange(90, 200)) for n in range(7)}
    prompts = {session: rng.randrange(2, 80) for session in texts}
    with stage(manifest, store, 0, len(manifest.units), form) as alone:
        expected = {}
        for session, tokens in texts.items():
            expected[session] = run_alone(alone, session, tokens, prompts[session])
            alone.runtime.release(session)
    with stage(manifest, store, 0, len(manifest.units), form, slots=5) as crowd:
        waiting = list(texts)
        at: dict[bytes, int] = {}
        busy: set[bytes] = set()
        finished = 0
        while finished < len(texts):
            while waiting and len(at) < 5:
                session = waiting.pop(0)
                at[session] = 0
            for session in rng.sample(sorted(at), len(at)):
                if session in busy or rng.random() < 0.3:
                    continue
                position = at[session]
                if position > prompts[session] and rng.random() < 0.1:
                    position = at[session] = max(prompts[session], position - rng.randrange(1, 4))
                end = prompts[session] if position == 0 else position + 1
                crowd.runtime.submit(tokens_step(session, position, texts[session][position:end]))
                busy.add(session)
            if not busy:
                continue
            answer = crowd.done()
            busy.discard(answer.session)
            at[answer.session] = answer.position + answer.count
            place = at[answer.session] - prompts[answer.session]
            np.testing.assert_array_equal(answer.finished, expected[answer.session][place])
            if at[answer.session] == len(texts[answer.session]):
                crowd.runtime.release(answer.session)
                del at[answer.session]
                finished += 1


@pytest.mark.any_processor
def test_a_prompts_last_token_may_come_alone(made_up: Callable[..., Any]) -> None:
    _, manifest, store = made_up()
    tokens = random_tokens(6, 33)
    with stage(manifest, store, 0, len(manifest.units)) as one:
        one.runtime.submit(tokens_step(b"whole", 0, tokens))
        expected = one.done().finished
        one.runtime.submit(tokens_step(b"parts", 0, tokens[:32]))
        one.done()
        step = tokens_step(b"parts", 32, tokens[32:])
        one.runtime.submit(replace(step, prompt=True))
        np.testing.assert_array_equal(one.done().finished, expected)


@pytest.mark.any_processor
def test_cuts_and_chunks_change_nothing(made_up: Callable[..., Any]) -> None:
    """Every cut of a small model, the prompt in chunks of every size: the same logits to the bit."""
    for weights in ("f32", "8bit", "4bit", "f16"):
        _, manifest, store = made_up(weights)
        tokens, prompt, units = random_tokens(5, 75), 70, len(manifest.units)
        with stage(manifest, store, 0, units) as whole:
            expected = run_alone(whole, b"s", tokens, prompt)
        for cut, chunk in zip(range(1, units), itertools.cycle((70, 33, 7, 2, 64)), strict=False):
            with stage(manifest, store, 0, cut) as one, stage(manifest, store, cut, units) as two:
                found, position = [], 0
                while position < len(tokens):
                    count = min(chunk, prompt - position) if position < prompt else 1
                    last = position + count >= prompt
                    given = np.array(tokens[position : position + count], np.int64)
                    is_prompt = position < prompt
                    one.runtime.submit(Step(b"s", position, given, None, last, prompt=is_prompt))
                    hidden = one.done().hidden
                    two.runtime.submit(Step(b"s", position, None, hidden, last, keep, prompt=is_prompt))
                    answer = two.done()
                    if last:
                        found.append(answer.finished)
                    position += count
                np.testing.assert_array_equal(found, expected, f"{weights}, cut {cut}, chunks of {chunk}")


R = RefusalReason


def hidden(value: float, count: int = 1, width: int = 64, dtype: Any = np.float32) -> npt.NDArray[Any]:
    return np.full((count, width), value, dtype)


@pytest.mark.parametrize(
    ("step", "reason", "have"),
    [
        (Step(b"new", 1, None, hidden(1), True), R.MISSING_POSITION, 0),
        (Step(b"old", 11, None, hidden(1), True), R.MISSING_POSITION, 10),
        (Step(b"old", -1, None, hidden(1), True), R.MISSING_POSITION, 10),
        (Step(b"old", 10, None, hidden(1, 31), True), R.CONTEXT_OVERFLOW, 10),
        (Step(b"new", 0, None, hidden(1, 41), True), R.CONTEXT_OVERFLOW, 0),
        (Step(b"third", 0, None, hidden(1), True), R.NO_SLOT, 0),
        (Step(b"old", 10, None, hidden(np.nan), True), R.NOT_FINITE_INPUT, 10),
        (Step(b"old", 10, None, hidden(-np.inf, 3), True), R.NOT_FINITE_INPUT, 10),
        (Step(b"old", 10, None, hidden(1, width=63), True), R.FAILED, 10),
        (Step(b"old", 10, None, hidden(1, dtype=np.float64), True), R.FAILED, 10),
        (Step(b"old", 10, None, hidden(1, 0), True), R.FAILED, 10),
        (Step(b"old", 10, None, hidden(1)[0], True), R.FAILED, 10),
        (Step(b"old", 10, None, None, True), R.FAILED, 10),
        (Step(b"old", 10, np.array([1]), None, True), R.FAILED, 10),
    ],
    ids=lambda value: value.name if isinstance(value, R) else "",
)
def test_bad_steps_are_refused_and_change_nothing(
    made_up: Callable[..., Any], step: Step, reason: RefusalReason, have: int
) -> None:
    _, manifest, store = made_up()
    with stage(manifest, store, 1, 5, slots=2, context=40) as one:
        for session in (b"old", b"other"):
            one.runtime.submit(Step(session, 0, None, hidden(1, 10), False))
            one.done()
        one.runtime.submit(step)
        answer = one.next()
        assert isinstance(answer, Refused)
        assert (answer.reason, answer.have, answer.position) == (reason, have, step.position)
        assert answer.text
        one.runtime.submit(Step(b"old", 10, None, hidden(2), False))
        again = one.done().hidden
        assert one.runtime.lengths() == {b"old": 11, b"other": 10}
        one.runtime.submit(Step(b"other", 10, None, hidden(2), False))
        np.testing.assert_array_equal(one.done().hidden, again)


@pytest.mark.parametrize("count", [1, 3])
def test_a_result_that_is_not_finite_goes_nowhere(
    made_up: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    _, manifest, store = made_up()
    with stage(manifest, store, 1, 5) as one, monkeypatch.context() as broken:
        for method in ("decode", "prompt"):
            broken.setattr(Execution, method, lambda self, values, *_: values * np.float32(np.nan))
        one.runtime.submit(Step(b"s", 0, None, hidden(1, count), True))
        answer = one.next()
        assert isinstance(answer, Refused)
        assert (answer.reason, answer.have) == (R.NOT_FINITE_OUTPUT, 0)


@pytest.mark.parametrize("tokens", [[-1], [100], [3, 100], [2**40]])
def test_token_ids_outside_the_vocabulary(made_up: Callable[..., Any], tokens: list[int]) -> None:
    _, manifest, store = made_up()
    with stage(manifest, store, 0, 1) as one:
        one.runtime.submit(tokens_step(b"s", 0, tokens))
        answer = one.next()
        assert isinstance(answer, Refused)
        assert answer.reason is R.FAILED


def test_a_failing_finish_or_receiver_does_not_end_the_worker(made_up: Callable[..., Any]) -> None:
    _, manifest, store = made_up()

    def fail(_: object) -> object:
        raise ZeroDivisionError("no")

    with stage(manifest, store, 0, len(manifest.units)) as one:
        for tokens in ([1], [1, 2, 3]):
            one.runtime.submit(tokens_step(b"s", 0, tokens, fail))
            answer = one.next()
            assert isinstance(answer, Refused)
            assert (answer.reason, one.runtime.lengths()[b"s"]) == (R.FAILED, 0)
        one.runtime.submit(tokens_step(b"s", 0, [1, 2, 3]))
        assert one.done().count == 3


def test_a_fault_of_the_runtime_itself_answers_everyone(
    made_up: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, manifest, store = made_up()
    with stage(manifest, store, 0, len(manifest.units)) as one:
        with monkeypatch.context() as broken:
            broken.setattr("peer.runtime.stage_runtime.spans", lambda *_: 1 / 0)
            for session in (b"a", b"b"):
                one.runtime.submit(tokens_step(session, 0, [1]))
                answer = one.next()
                assert isinstance(answer, Refused)
                assert answer.reason is R.FAILED
        one.runtime.submit(tokens_step(b"a", 0, [1]))
        assert one.done().count == 1


def test_release_drops_queued_steps_and_frees_the_slot(made_up: Callable[..., Any]) -> None:
    _, manifest, store = made_up()
    with stage(manifest, store, 0, len(manifest.units), slots=1) as one:
        long = random_tokens(1, 400)
        for _ in range(3):
            one.runtime.submit(tokens_step(b"a", 0, long))
        one.runtime.release(b"a")
        one.runtime.submit(tokens_step(b"b", 0, [1, 2]))
        answers = [one.next()]
        while answers[-1].session == b"a":
            answers.append(one.next())
        assert answers[-1].session == b"b"
        assert isinstance(answers[-1], Done)
        assert len(answers) <= 3
        assert one.runtime.lengths() == {b"b": 2}


def test_truncate_keeps_a_prefix_and_waits_its_turn(made_up: Callable[..., Any]) -> None:
    _, manifest, store = made_up()
    with stage(manifest, store, 0, len(manifest.units)) as one:
        one.runtime.submit(tokens_step(b"s", 0, random_tokens(1, 200)))
        one.runtime.truncate(b"s", 50)
        one.runtime.truncate(b"unknown", 3)
        one.runtime.submit(tokens_step(b"s", 51, [1]))
        assert one.done().count == 200
        answer = one.next()
        assert isinstance(answer, Refused)
        assert (answer.reason, answer.have) == (R.MISSING_POSITION, 50)


@pytest.mark.parametrize("run", [(0, 1), (0, 3), (1, 5), (5, 6)], ids=str)
def test_a_session_goes_on_behind_a_cache_that_was_copied(made_up: Callable[..., Any], run: Run_) -> None:
    """Also where units cache nothing: the embedding alone, or the head."""
    _, manifest, store = made_up("f32")
    assert len(manifest.units) == 6
    found: SimpleQueue[Any] = SimpleQueue()
    names = [name for unit in manifest.units[slice(*run)] for name in unit.state]
    with stage(manifest, store, *run) as one, stage(manifest, store, *run) as other:
        given = np.arange(9) if run[0] == 0 else None
        states = None if run[0] == 0 else np.random.default_rng(1).random((9, 64), np.float32)
        one.runtime.submit(Step(b"a", 0, given, states, False))
        one.done()
        one.runtime.copied(b"a", 9, names, found.put)
        other.runtime.put(b"b", 9, found.get(timeout=WAIT_S), found.put)
        assert found.get(timeout=WAIT_S)
        nexts = []
        for each, session in ((one, b"a"), (other, b"b")):
            state = None if run[0] == 0 else np.ones((1, 64), np.float32)
            each.runtime.submit(Step(session, 9, np.array([3]) if run[0] == 0 else None, state, True, keep))
            nexts.append(each.done())
        np.testing.assert_array_equal(*(done.finished if run[1] == 6 else done.hidden for done in nexts))


async def test_who_asks_a_worker_that_ends_hears_so(made_up: Callable[..., Any]) -> None:
    _, manifest, store = made_up()
    run, busy, go_on = (0, len(manifest.units)), threading.Event(), threading.Event()

    def before_call() -> None:
        busy.set()
        assert go_on.wait(WAIT_S)

    serving = Serving(
        store, Fetcher(store, ""), manifest, Room("cpu", 1, 1, 64, before_call=before_call), lambda _: None
    )
    await serving.load(run)
    step = RunStep(run, b"s", 1, 0, np.arange(3), None, True, None, prompt=True, most_rows=1, behind=False)
    serving.submit(step)
    assert await asyncio.to_thread(busy.wait, WAIT_S)
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
        copied = tasks.create_task(serving.copied(run, b"s", 3, []))
        digest = tasks.create_task(serving.digest(run, b"s", 0, 3))
        put = tasks.create_task(serving.put(run, b"t", 3, {}))
        await asyncio.sleep(0)  # all three have asked
        ended = tasks.create_task(serving.unload(run))
        await asyncio.sleep(0)
        go_on.set()
        await ended
    assert (copied.result(), digest.result(), put.result()) == (None, None, False)


def test_a_long_prompt_lets_others_through(made_up: Callable[..., Any]) -> None:
    _, manifest, store = made_up()
    with stage(manifest, store, 0, len(manifest.units)) as one:
        one.runtime.submit(tokens_step(b"short", 0, [1, 2]))
        one.done()
        one.runtime.submit(tokens_step(b"long", 0, random_tokens(1, 500)))
        position, order = 2, list[bytes]()
        one.runtime.submit(tokens_step(b"short", position, [3]))
        while not order or order[-1] != b"long":
            answer = one.done()
            order.append(answer.session)
            if answer.session == b"short":
                position += 1
                one.runtime.submit(tokens_step(b"short", position, [3]))
        assert len(order) >= 4


@pytest.mark.any_processor
@pytest.mark.parametrize("form", [None, Form(RowShape(4, 4), RowShape(2), 16)], ids=["proven", "filled up"])
def test_the_whole_context_can_be_used(made_up: Callable[..., Any], form: Form | None) -> None:
    """To the last position, with a full neighbour sitting idle between two rows of a batch."""
    _, manifest, store = made_up()
    with stage(manifest, store, 0, len(manifest.units), form, context=130, slots=3) as one:
        for session in (b"a", b"b", b"c"):
            one.runtime.submit(tokens_step(session, 0, random_tokens(3, 129)))
            one.done()
        one.runtime.submit(tokens_step(b"b", 129, [7]))
        expected = one.done().finished
        for session in (b"a", b"c"):
            one.runtime.submit(tokens_step(session, 129, [7]))
        for _ in "ac":
            np.testing.assert_array_equal(one.done().finished, expected)
        one.runtime.submit(tokens_step(b"b", 129, [7]))
        np.testing.assert_array_equal(one.done().finished, expected)
        one.runtime.submit(tokens_step(b"a", 130, [7]))
        answer = one.next()
        assert isinstance(answer, Refused)
        assert answer.reason is R.CONTEXT_OVERFLOW


def test_a_context_beyond_the_model_is_refused(made_up: Callable[..., Any]) -> None:
    _, manifest, store = made_up()
    with pytest.raises(ValueError, match="512"):
        Stage(manifest, store, 0, 1, context=513)


def test_prompts_run_in_smaller_pieces_while_answers_are_under_way(
    made_up: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that counts tokens: 1 ms each, and 10 ms a decode batch. What comes out is what it would be alone."""
    _, manifest, store = made_up("f32")
    now_s = 0.0
    calls: list[int] = []
    prompt, decode = Execution.prompt, Execution.decode

    def prompted(self: Execution, hidden: Any, row: Any, ends: int = 0) -> Any:
        nonlocal now_s
        now_s += 0.001 * len(hidden)
        calls.append(len(hidden))
        return prompt(self, hidden, row, ends)

    def decoded(self: Execution, *args: Any) -> Any:
        nonlocal now_s
        now_s += 0.010
        calls.append(0)
        return decode(self, *args)

    monkeypatch.setattr("peer.runtime.stage_runtime.perf_counter", lambda: now_s)
    monkeypatch.setattr(Execution, "prompt", prompted)
    monkeypatch.setattr(Execution, "decode", decoded)
    answer, question = random_tokens(1, 100), random_tokens(2, 180)
    with stage(manifest, store, 0, len(manifest.units), Form()) as one:
        alone = run_alone(one, b"q", question, len(question))
        assert calls == [64, 64, 52]
        one.runtime.release(b"q")
        one.runtime.submit(tokens_step(b"a", 0, answer[:10]))
        one.done()
        for position in range(10, 14):
            one.runtime.submit(tokens_step(b"a", position, answer[position : position + 1]))
            one.done()
        calls.clear()
        while_asked: list[Answer] = []
        done = threading.Event()

        def deliver(answered: Answer) -> None:  # the next token is asked for before the worker goes on
            while_asked.append(answered)
            if answered.session == b"q":
                done.set()
            elif not done.is_set():
                at = answered.position + 1
                one.runtime.submit(tokens_step(b"a", at, answer[at : at + 1]))

        monkeypatch.setattr(one.runtime, "_deliver_to", deliver)
        with one.runtime._wake:  # both before the worker looks
            one.runtime._inbox.append(tokens_step(b"a", 14, answer[14:15]))
            one.runtime.submit(tokens_step(b"q", 0, question))
        assert done.wait(WAIT_S)
        found = [each for each in while_asked if each.session == b"q"]
    assert [each for each in calls if each][:22] == [8] * 22
    assert calls[:6] == [0, 8, 0, 8, 0, 8]
    assert isinstance(found[0], Done)
    assert (found[0].finished == alone[0]).all()
