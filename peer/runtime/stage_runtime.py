"""What runs next on a peer's shard: one worker thread batches the decodes that wait and lets prompts in
between.

Steps of one session run in the order they were submitted. Every result depends on the session's own tokens
only: not on what else is in a batch, on the chunks a prompt came in, nor on where the model is cut.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from time import perf_counter
from typing import Final

import numpy as np
import numpy.typing as npt
import psutil

from peer.errors import TeamBroken
from peer.runtime.execution import Execution, Row
from peer.runtime.fair_queue import FairQueue
from peer.runtime.forms import Form
from peer.runtime.kv_slots import KvSlots, spans
from peer.runtime.piece_sizes import LEAST_TOKENS, PIECE_TOKENS, PieceSizes, piece_stop
from peer.runtime.prefix_kv import KeptFronts
from peer.runtime.shared_sessions import SharedSessions
from peer.runtime.stage_execution import StageExecution
from peer.session.effects import PrefixWork
from peer.session.evidence import Floats
from peer.session.given_rows import shifted
from planner.model.lowering import Shard
from planner.model.manifest import SHIFT_COLUMNS

SOON_TOKENS: Final = 64  # for which a cache that was copied has room
GAP_ROWS: Final = 3  # idle rows carried along in a decode batch: each costs a quarter of another call

log = logging.getLogger(__name__)


class RefusalReason(Enum):
    """Why a step did not run. The numbers go over the wire."""

    MISSING_POSITION = 1
    CONTEXT_OVERFLOW = 2
    NO_SLOT = 3
    NOT_FINITE_INPUT = 4
    NOT_FINITE_OUTPUT = 5
    FAILED = 6
    LOST_NEIGHBOUR = 8


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """T tokens of a session from `position` on: `tokens` int64 (T,) on the shard with the embedding, unless who asks
    keeps that; else `hidden` float32 (T, hidden).

    `last`: the last chunk of a prompt, or a decode step; only then does the head run, for the last token, and
    `finish` is called on the worker with its logits (vocab,). The arrays belong to the runtime from `submit`
    on.

    `prompt`: these tokens are given, not sampled, however few they are. Attention adds up in another order for
    a single token than for several, so a stream is repeated to the bit when its prompt is sent as prompt again,
    in any chunks, and its sampled tokens one by one.
    """

    session: bytes
    position: int
    tokens: npt.NDArray[np.int64] | None
    hidden: Floats | None
    last: bool
    finish: Callable[[Floats], object] | None = None
    turn: int = 0  # the submitter's own number, given back with the answer
    most_rows: int = (
        0  # a decode batch with this step has at most so many rows (0: no bound), so that stages overlap
    )
    prompt: bool = False
    behind: bool = False  # nobody waits for it: it runs when nothing else does
    asker: str = ""  # whose it is: where several wait, each gets as many tokens
    shift: int = 0  # by how much places of `tokens` differ from their positions


@dataclass(frozen=True, slots=True, eq=False)
class Done:
    """`hidden` float32 (count, hidden) unless the head ran; `finished`: what `finish` returned."""

    session: bytes
    position: int
    count: int
    hidden: Floats | None
    finished: object | None
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """The step did not run, or its result was thrown away; `have` positions are cached here."""

    session: bytes
    position: int
    have: int
    reason: RefusalReason
    text: str
    turn: int = 0


@dataclass(frozen=True, slots=True)
class MemoryBytes:
    """`weights` and `overhead` (rotary tables, scratch of one piece) are computed, `kv` is what is allocated
    now.
    """

    weights: int
    kv: int
    overhead: int
    fronts: int = 0  # of prompts, kept beside the sessions


@dataclass(frozen=True, slots=True)
class _Release:
    session: bytes


@dataclass(frozen=True, slots=True)
class _Truncate:
    session: bytes
    length: int


@dataclass(frozen=True, slots=True)
class Digest:
    """What is cached of a session at positions [first, stop): `arrays` names each key and value array with the
    hash of its part, so that two peers compare whatever blocks both hold. `have` positions are cached.
    """

    have: int
    arrays: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Digest:
    session: bytes
    first: int
    stop: int
    answer: Callable[[Digest], None]


@dataclass(frozen=True, slots=True)
class _Copy:
    session: bytes
    stop: int
    names: Collection[str]
    answer: Callable[[dict[str, Floats] | None], None]


@dataclass(frozen=True, slots=True)
class _Put:
    session: bytes
    count: int
    arrays: Mapping[str, Floats]
    answer: Callable[[bool], None]


@dataclass(slots=True, eq=False)
class _Prompt:
    """A step of several tokens under way: `done` of them have run."""

    step: Step
    hidden: Floats
    done: int
    results: list[Floats]


@dataclass(slots=True, eq=False)
class _Refusal(Exception):
    reason: RefusalReason
    text: str


class StageRuntime:
    """Runs a shard for many sessions. Raises CannotServe when the shard cannot be loaded.

    `slots` sessions of up to `context` positions; `form`: how calls are shaped so that each result is the session's own
    (peer.runtime.arithmetic proves which holds); `deliver` is called on the worker thread, once for every
    step that is not dropped by a release. `before_call` runs on the worker before each call of the model: it may
    take its time or raise, as validation makes it do.
    """

    def __init__(
        self,
        shard: Shard,
        *,
        threads: int,
        slots: int,
        context: int,
        form: Form,
        deliver: Callable[[Done | Refused], None],
        before_call: Callable[[], None] | None = None,
        shared: SharedSessions | None = None,
        execution: StageExecution | None = None,
    ) -> None:
        """`shared`: sessions of other stages here, of which equal ones are used.

        `execution`: what runs the shard, which is closed with this; None: it is loaded here.
        """
        if context > shard.context:
            raise ValueError(f"context of at most {shard.context} expected, got {context}")
        self._shard = shard
        self._form = form
        self._slots = KvSlots(slots, context, form)
        self._execution = execution or Execution(
            shard, threads=threads, context=context, form=form, shared=shared
        )
        self._fronts = KeptFronts(self._execution, self._slots)
        resident = psutil.Process().memory_info().rss
        self._overhead = max(resident - shard.weight_bytes, 0) + scratch_bytes(shard)
        self._deliver_to = deliver
        self._before_call = before_call or (lambda: None)
        self._inbox: deque[Step | _Release | _Truncate | _Digest | _Copy | _Put | PrefixWork] = deque()
        self._waiting: dict[bytes, deque[Step | _Truncate | _Prompt]] = {}
        self._wake = threading.Condition()
        self._closing = False
        self._lengths: dict[bytes, int] = {}
        self._fair = FairQueue()
        # Token by token a piece is so many calls; else the smallest one fills a call.
        self._sizes = PieceSizes(max(LEAST_TOKENS, form.ends) if form.ends else 1)
        self._worker = threading.Thread(target=self._work, name="shoal-runtime", daemon=True)
        self._worker.start()

    def submit(self, step: Step) -> None:
        """From any thread; never blocks."""
        self._post(step)

    def release(self, session: bytes) -> None:
        """Free the session's slot; its queued steps are dropped without an answer."""
        self._post(_Release(session))

    def truncate(self, session: bytes, length: int) -> None:
        """Keep the first `length` positions only; steps submitted before run first."""
        self._post(_Truncate(session, length))

    def digest(self, session: bytes, first: int, stop: int, answer: Callable[[Digest], None]) -> None:
        """Calls `answer` on the worker with what is cached at positions [first, stop), as far as there is any."""
        self._post(_Digest(session, first, stop, answer))

    def copied(
        self,
        session: bytes,
        stop: int,
        names: Collection[str],
        answer: Callable[[dict[str, Floats] | None], None],
    ) -> None:
        """Calls `answer` on the worker with these arrays at positions [0, stop); None when it caches fewer."""
        self._post(_Copy(session, stop, names, answer))

    def put(
        self, session: bytes, count: int, arrays: Mapping[str, Floats], answer: Callable[[bool], None]
    ) -> None:
        """Makes `arrays` the cache of a session's first `count` positions; `answer` hears whether it could be."""
        self._post(_Put(session, count, arrays, answer))

    def front(self, work: PrefixWork) -> None:
        """Keeps the front of a prompt, begins a session with one, or drops it, before any step submitted later."""
        self._post(work)

    def lengths(self) -> dict[bytes, int]:
        """Cached positions per session, as of the last finished step."""
        return self._lengths

    def memory_bytes(self) -> MemoryBytes:
        """What this stage occupies: weights, KV arrays, overhead, kept prefixes."""
        return MemoryBytes(
            self._shard.weight_bytes, self._execution.kv_bytes, self._overhead, self._fronts.bytes
        )

    def close(self) -> None:
        """Ends the worker after the call it is in; waiting steps are dropped."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if threading.current_thread() is not self._worker:
            self._worker.join()

    def _post(self, item: Step | _Release | _Truncate | _Digest | _Copy | _Put | PrefixWork) -> None:
        with self._wake:
            self._inbox.append(item)
            self._wake.notify()

    # Everything below runs on the worker.

    def _work(self) -> None:
        try:
            while self._take():
                try:
                    self._decode_batch()
                    self._prompt_piece()
                except Exception as error:
                    self._fail_all(error)
        finally:
            self._execution.close()

    def _take(self) -> bool:
        """Sort in what was posted; waits only when there is nothing to run. False: close."""
        with self._wake:
            while not self._inbox and not self._waiting and not self._closing:
                self._wake.wait()
            if self._closing:
                return False
            posted = list(self._inbox)
            self._inbox.clear()
        for item in posted:
            match item:
                case _Release(session):
                    self._waiting.pop(session, None)
                    self._free(session)
                case _Digest():
                    self._answer_digest(item)
                case _Copy():
                    self._copy(item)
                case _Put():
                    self._put(item)
                case PrefixWork():
                    self._fronts.do(item)
                    self._publish()
                case _Truncate(session) | Step(session):
                    self._waiting.setdefault(session, deque()).append(item)
        self._truncate_due()
        return True

    def _truncate_due(self) -> None:
        for session, queue in list(self._waiting.items()):
            while queue and isinstance(queue[0], _Truncate):
                due = queue.popleft()
                assert isinstance(due, _Truncate)
                if self._slots.row(session) is not None:
                    self._cut(session, max(0, min(due.length, self._slots.length(session))))
            if not queue:
                del self._waiting[session]
        self._publish()

    def _free(self, session: bytes) -> None:
        self._sizes.released(session)
        move = self._slots.release(session)
        if move is not None:
            self._execution.move(move)
        self._execution.let_go(len(self._slots))
        self._publish()

    def _answer_digest(self, asked: _Digest) -> None:
        have = self._slots.length(asked.session)
        row = self._slots.row(asked.session)
        stop = min(asked.stop, have)
        try:
            arrays = {} if row is None else self._execution.digest(row, min(asked.first, stop), stop)
            asked.answer(Digest(have, tuple(sorted(arrays.items()))))
        except Exception:
            log.exception("a digest failed")
            asked.answer(Digest(have, ()))

    def _copy(self, asked: _Copy) -> None:
        row, arrays = self._slots.row(asked.session), None
        try:
            if row is not None and self._slots.length(asked.session) >= asked.stop:
                arrays = self._execution.copied(row, asked.stop, asked.names)
        except Exception:
            log.exception("a cache was not copied")
        asked.answer(arrays)

    def _put(self, asked: _Put) -> None:
        row, done = self._slots.admit(asked.session), False
        try:
            if row is not None and 0 < asked.count < self._slots.context:
                # At once for all that will come and for the next tokens: growing takes a moment from everybody.
                rows, positions = max(row + 1, self._slots.limit // 2), asked.count + SOON_TOKENS
                self._execution.ensure(self._slots, rows, min(positions, self._slots.context))
                self._execution.put(row, asked.count, asked.arrays)
                self._slots.set_length(asked.session, asked.count)
                done = True
        except Exception:
            log.exception("a copied cache was not taken")
        self._publish()
        asked.answer(done)

    def _publish(self) -> None:
        self._lengths = self._slots.lengths()

    def _next(self, session: bytes) -> None:
        """The session's first step is answered; what follows it may run."""
        queue = self._waiting[session]
        queue.popleft()
        if queue:
            # Behind the others, so that prompts take turns.
            self._waiting[session] = self._waiting.pop(session)
        else:
            del self._waiting[session]
        self._truncate_due()

    def _due(self) -> list[bytes]:
        """The sessions to look at now: those that somebody waits for, or all when there are none."""
        urgent = [
            session
            for session, queue in self._waiting.items()
            if any(not isinstance(item, _Truncate) and not _step_of(item).behind for item in queue)
        ]
        due = urgent or list(self._waiting)
        return self._fair.ordered([(session, self._asker(session)) for session in due])

    def _asker(self, session: bytes) -> str:
        return next((_step_of(i).asker for i in self._waiting[session] if not isinstance(i, _Truncate)), "")

    def _decode_batch(self) -> None:
        """Run the waiting one-token steps of all sessions, as few calls as their rows allow."""
        ready: dict[int, tuple[Step, Floats]] = {}
        for session in self._due():
            step = self._waiting[session][0]
            if not isinstance(step, Step) or not _is_decode(step):
                continue
            if step.most_rows and len(ready) >= step.most_rows:
                continue
            try:
                row = self._admit(step)
                ready[row] = (step, self._input(step))
            except _Refusal as refusal:
                self._refuse(step, refusal)
            except Exception as error:
                self._fail(step, error)
        if not ready:
            return
        begun_s = perf_counter()
        for span in spans(sorted(ready), GAP_ROWS):
            for wanted, whole in self._form.body.spans(span, self._slots.rows):
                self._decode_span(whole, {row: ready[row] for row in wanted if row in ready})
        urgent = [step.session for step, _ in ready.values() if not step.behind]
        if urgent:
            self._sizes.decoded(begun_s, perf_counter(), urgent)

    def _decode_span(self, span: range, steps: dict[int, tuple[Step, Floats]]) -> None:
        """One call for all rows of `span`. What those without a step write lies behind what is cached."""
        if not steps:
            return
        try:
            lengths = [
                steps[row][0].position if row in steps else self._slots.length_of_row(row) for row in span
            ]
            self._execution.ensure(self._slots, span.stop, max(lengths) + 1)
            hidden = np.zeros((len(span), self._shard.hidden), np.float32)
            for row, (_, value) in steps.items():
                hidden[row - span.start] = value[0]
            self._before_call()
            result = self._execution.decode(hidden, span, lengths)
            heads = {
                row: place
                for place, row in enumerate(
                    row for row, (step, _) in steps.items() if step.last and self._execution.has_head
                )
            }
            logits = (
                self._execution.head(np.stack([result[row - span.start] for row in heads])) if heads else None
            )
        except Exception as error:
            for step, _ in steps.values():
                self._fail(step, error)
            return
        for row, (step, _) in steps.items():
            mine = logits[heads[row]] if logits is not None and row in heads else None
            self._finish(step, result[row - span.start : row - span.start + 1].copy(), mine)

    def _prompt_piece(self) -> None:
        """Run one piece of the first waiting prompt."""
        for session in self._due():
            queue = self._waiting[session]
            first = queue[0]
            if isinstance(first, _Prompt) or (isinstance(first, Step) and not _is_decode(first)):
                break
        else:
            return
        step = first.step if isinstance(first, _Prompt) else first
        assert isinstance(step, Step)
        try:
            if isinstance(first, Step):
                self._admit(step)
                first = queue[0] = _Prompt(step, self._input(step), 0, [])
            assert isinstance(first, _Prompt)
            self._run_piece(session, first)
            if first.done < len(first.hidden):
                self._waiting[session] = self._waiting.pop(session)
                return
            result = first.results[0] if len(first.results) == 1 else np.concatenate(first.results)
            logits = None
            if step.last and self._execution.has_head:
                logits = self._execution.head(result[-1:])[0]
        except _Refusal as refusal:
            self._refuse(step, refusal)
        except Exception as error:
            self._fail(step, error)
        else:
            self._finish(step, result, logits)

    def _run_piece(self, session: bytes, prompt: _Prompt) -> None:
        begun_s = perf_counter()
        row = self._slots.row(session)
        assert row is not None
        start = prompt.step.position + prompt.done
        stop = piece_stop(start, start + self._sizes.next(begun_s), self._shard.widest_head)
        piece = prompt.hidden[prompt.done : prompt.done + stop - start]
        self._execution.ensure(self._slots, row + 1, start + self._form.filled_tokens(start, len(piece)))
        self._before_call()
        if self._form.ends:
            result = self._execution.prompt(piece, Row(row, start))
        else:
            result = np.concatenate(
                [self._prompt_token(row, start + at, piece[at]) for at in range(len(piece))]
            )
        if not np.isfinite(result).all():
            raise _Refusal(RefusalReason.NOT_FINITE_OUTPUT, "the result holds NaN or infinity")
        prompt.results.append(result.copy())
        self._sizes.ran(session, len(piece), perf_counter() - begun_s)
        self._fair.ran(prompt.step.asker, len(piece))
        prompt.done += len(piece)
        self._slots.set_length(session, start + len(piece))

    def _prompt_token(self, row: int, position: int, hidden: Floats) -> Floats:
        """One token of a prompt, (hidden) -> (1, hidden), where several in one call would depend on how it is cut."""
        ((_, span),) = self._form.body.spans(range(row, row + 1), self._slots.rows)
        lengths = [position if each == row else self._slots.length_of_row(each) for each in span]
        self._execution.ensure(self._slots, span.stop, max(lengths) + 1)
        rows = np.zeros((len(span), len(hidden)), np.float32)
        rows[row - span.start] = hidden
        found: Floats = self._execution.decode(rows, span, lengths)
        return found[row - span.start : row - span.start + 1].copy()

    def _admit(self, step: Step) -> int:
        """The session's row, its cache cut to `step.position`; or a refusal that changes nothing."""
        self._check(step)
        have = self._slots.length(step.session)
        if 0 < step.position < have:
            have = self._cut(step.session, step.position)
        if step.position < 0 or step.position > have:
            raise _Refusal(
                RefusalReason.MISSING_POSITION, f"position {step.position} needs as many cached, have {have}"
            )
        stop = step.position + _tokens(step)
        if stop > self._slots.context:
            raise _Refusal(
                RefusalReason.CONTEXT_OVERFLOW,
                f"{stop} positions do not fit the context of {self._slots.context}",
            )
        row = self._slots.admit(step.session)
        if row is None:
            raise _Refusal(RefusalReason.NO_SLOT, f"all {self._slots.limit} slots are taken; try again later")
        self._slots.set_length(step.session, step.position)
        return row

    def _cut(self, session: bytes, length: int) -> int:
        """Keeps the first `length` positions of a session that has a row and as many; 0 of them where a window would
        look at what was dropped. Returns how many are left.
        """
        row = self._slots.row(session)
        assert row is not None
        kept = length if self._execution.holds(row, length) else 0
        self._slots.set_length(session, kept)
        return kept

    def _check(self, step: Step) -> None:
        """The input's form; what a broken or hostile neighbour may send."""
        width, vocab = self._shard.hidden, self._shard.vocab
        if self._execution.has_embed and step.hidden is None:
            tokens = step.tokens
            if tokens is None or tokens.ndim != 1 or not len(tokens):
                raise _Refusal(RefusalReason.FAILED, "token ids of shape (T,) expected by the first stage")
            if int(tokens.min()) < 0 or int(tokens.max()) >= vocab:
                raise _Refusal(RefusalReason.FAILED, f"token ids below {vocab} expected")
            if step.shift and width <= SHIFT_COLUMNS:
                raise _Refusal(RefusalReason.FAILED, "places of tokens without axes expected")
            return
        hidden = step.hidden
        if hidden is None or hidden.ndim != 2 or not len(hidden) or hidden.shape[1] != width:
            raise _Refusal(RefusalReason.FAILED, f"activations of shape (T, {width}) expected")
        if hidden.dtype != np.float32:
            raise _Refusal(RefusalReason.FAILED, f"float32 activations expected, got {hidden.dtype}")
        if not np.isfinite(hidden).all():
            raise _Refusal(RefusalReason.NOT_FINITE_INPUT, "the activation holds NaN or infinity")

    def _input(self, step: Step) -> Floats:
        if step.hidden is not None:
            return step.hidden
        assert step.tokens is not None
        return shifted(self._execution.embed(step.tokens), step.shift)

    def _finish(self, step: Step, result: Floats, logits: Floats | None) -> None:
        """Answer the step with its result, unless that is not finite or `finish` fails."""
        checked = result if logits is None else logits
        if not np.isfinite(checked).all() or not np.isfinite(result).all():
            self._refuse(step, _Refusal(RefusalReason.NOT_FINITE_OUTPUT, "the result holds NaN or infinity"))
            return
        try:
            finished = step.finish(logits) if logits is not None and step.finish is not None else None
        except Exception as error:
            self._fail(step, error)
            return
        self._slots.set_length(step.session, step.position + len(result))
        self._fair.ran(step.asker, 1)
        self._next(step.session)
        hidden = None if logits is not None else result
        self._deliver(Done(step.session, step.position, len(result), hidden, finished, step.turn))

    def _refuse(self, step: Step, refusal: _Refusal) -> None:
        have = self._slots.length(step.session)
        self._next(step.session)
        self._deliver(Refused(step.session, step.position, have, refusal.reason, refusal.text, step.turn))

    def _fail(self, step: Step, error: Exception) -> None:
        log.error("a step failed: %s", type(error).__name__)
        if self._slots.length(step.session) > step.position:
            self._cut(step.session, step.position)
        if isinstance(error, TeamBroken):
            self._refuse(step, _Refusal(RefusalReason.LOST_NEIGHBOUR, str(error)[:500]))
            return
        self._refuse(step, _Refusal(RefusalReason.FAILED, f"{type(error).__name__}: {error}"[:500]))

    def _fail_all(self, error: Exception) -> None:
        """A fault of this module itself: every waiting step is answered, and the worker goes on with an empty queue."""
        log.exception("the runtime failed")
        waiting, self._waiting = self._waiting, {}
        for session, queue in waiting.items():
            for item in queue:
                step = item.step if isinstance(item, _Prompt) else item
                if isinstance(step, Step):
                    have = min(self._slots.length(session), max(step.position, 0))
                    text = f"{type(error).__name__}: {error}"[:500]
                    self._deliver(
                        Refused(session, step.position, have, RefusalReason.FAILED, text, step.turn)
                    )

    def _deliver(self, answer: Done | Refused) -> None:
        try:
            self._deliver_to(answer)
        except Exception:
            log.exception("the receiver of results failed")


def scratch_bytes(shard: Shard) -> int:
    """What one piece of a prompt occupies while it runs: activations of the widest layer a few times over,
    and the logits.
    """
    return 4 * (4 * PIECE_TOKENS * shard.scratch + shard.vocab)


def _step_of(item: Step | _Prompt) -> Step:
    return item.step if isinstance(item, _Prompt) else item


def _is_decode(step: Step) -> bool:
    """One token that was sampled: it may share a call. Tokens of a prompt go by themselves."""
    return not step.prompt and _tokens(step) == 1


def _tokens(step: Step) -> int:
    if step.tokens is not None:
        return int(step.tokens.size)
    return 0 if step.hidden is None else len(step.hidden) if step.hidden.ndim else 0
