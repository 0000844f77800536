"""Computes a step of another peer again, and says whether its result is what its units make of the input.

Edge around `peer.evidence`. The inputs come from the peer before (or the asker, who knows the tokens), the result from
the peer after; marks of the peer itself decide whether it got those inputs at all.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import psutil

from peer.calls import Body
from peer.errors import BadCommand, CannotServe
from peer.evidence import (
    MARK_BYTES,
    SAME,
    Floats,
    Verdict,
    distance,
    first_other,
    limit,
    marks_of,
    span_of,
    steps_of_spans,
)
from peer.mesh import Mesh
from peer.reports import whole
from peer.runtime import Done, Refused, StageRuntime, Step
from peer.sampling import BadSampling, Sampling, needs_history, sample
from peer.seats import Run_, Seat
from peer.spans import cut_spans, extended
from peer.tensors import tensor_of
from planner.shards import make_shard

PAGE_BYTES: Final = 384 * 1024  # of activations in one answer: bodies are at most 1032192 bytes of JSON
MOST_POSITIONS: Final = 1024  # up to the one that is checked: all of them are computed again
MOST_SPANS: Final = 512
SETTINGS: Final = 8  # integers of sampling of an answer that is not held to a form
TOGETHER: Final = 64  # given positions in a step
CALL_S: Final = 20.0
COMPUTE_S: Final = 40.0  # for a step: it runs when nothing else does
WHOLE_S: Final = 60.0  # for all steps of a check: then nobody waits for it any more
LOADED_S: Final = 90.0  # units that were loaded for a check stay for the next one

Answers = dict[bytes, Callable[[Done | Refused], None]]


@dataclass(frozen=True, slots=True)
class Place:
    """One stage at one position of a session, as its asker knows it. `before`, `after`: "" for the asker itself.

    Of the last stage also `token`, which it drew from that position, with which settings, and how many tokens of the
    answer were `sampled` before it.
    """

    session: bytes
    stage: int
    position: int
    units: Run_
    peer: str
    before: str
    after: str
    spans: tuple[int, ...]
    token: int = -1
    sampling: tuple[int, ...] = ()
    sampled: int = 0

    def to_body(self) -> Body:
        """The body of a `check` request."""
        return {
            "session": self.session.hex(),
            "stage": self.stage,
            "position": self.position,
            "units": list(self.units),
            "peer": self.peer,
            "before": self.before,
            "after": self.after,
            "spans": list(self.spans),
            "token": self.token,
            "sampling": list(self.sampling),
            "sampled": self.sampled,
        }


def place_of(body: Body) -> Place:
    """The place of a `check` request. Raises BadCommand."""
    units, spans, sampling = (_integers(body, key) for key in ("units", "spans", "sampling"))
    peer, before, after = (body.get(key) for key in ("peer", "before", "after"))
    token, position = body.get("token"), whole(body, "position")
    if len(units) != 2 or not 0 <= units[0] < units[1] or position >= MOST_POSITIONS:
        raise BadCommand(f"check: expected a run of units and a position below {MOST_POSITIONS}")
    if len(spans) > MOST_SPANS or len(sampling) > SETTINGS or type(token) is not int:
        raise BadCommand("check: expected spans, a token and sampling settings")
    if not (isinstance(peer, str) and isinstance(before, str) and isinstance(after, str)):
        raise BadCommand("check: expected peer, before and after")
    return Place(
        session=session_of(body),
        stage=whole(body, "stage"),
        position=position,
        units=(units[0], units[1]),
        peer=peer,
        before=before,
        after=after,
        spans=spans,
        token=token,
        sampling=sampling,
        sampled=whole(body, "sampled"),
    )


def session_of(body: Body) -> bytes:
    """The session that a request names. Raises BadCommand."""
    try:
        return bytes.fromhex(str(body.get("session")))
    except ValueError:
        raise BadCommand("session: expected hex digits") from None


def _integers(body: Body, key: str) -> tuple[int, ...]:
    found = body.get(key)
    if not isinstance(found, list) or not all(type(number) is int for number in found):
        raise BadCommand(f"check: expected integers as `{key}`")
    return tuple(found)


def spans_up_to(spans: Sequence[int], known: int, stop: int) -> tuple[int, ...]:
    """How positions [0, stop) were computed: below `known` by `spans` of given and sampled ones, the others alone."""
    cut = tuple(cut_spans(spans, min(stop, known)))
    return extended(cut, max(0, stop - known), given=False)


@dataclass(slots=True)
class _Loaded:
    runtime: StageRuntime
    timer: asyncio.TimerHandle
    waiting: Answers = field(default_factory=dict)


def testimony(seat: Seat, side: str, first: int, stop: int) -> Body:
    """What a seat can show of positions [first, stop): "marks" of its inputs, the newest inputs themselves ("in"), what
    it handed on ("out"), the "token" that it drew for `first`, or its "place": units, neighbours ("": the asker), and
    in which spans positions up to `stop` were given and sampled. Nulls for what is there no more.
    """
    match side:
        case "place":
            opening = seat.opening
            return {
                "units": list(seat.run),
                "before": seat.upstream if opening.stage else "",
                "after": seat.downstream or "",
                "spans": list(spans_up_to(opening.spans, opening.prompt_tokens, stop)),
            }
        case "token":
            known = seat.sampled.get(first)
            return {"token": known[0] if known is not None else None}
        case "marks":
            marks = seat.evidence.marked(first, stop)
            return {"marks": b"".join(marks).hex() if marks is not None else None}
        case "in" | "out":
            found = span_of(seat.log if side == "out" else seat.evidence.newest, first, stop)
            if found is None or found.nbytes > 2 * PAGE_BYTES:
                return {"rows": None}
            return {"rows": base64.b64encode(found.tobytes()).decode()}
        case _:
            raise BadCommand("witness: expected place, marks, in, out, token or tokens")


class Judge:
    """`own(asker, body)` is this peer's testimony. Checks come one after the other."""

    def __init__(self, mesh: Mesh, own: Callable[[str, Body], Body]) -> None:
        self._mesh = mesh
        self._node = mesh.node
        self._own = own
        self._loaded: dict[Run_, _Loaded] = {}
        self._turn = asyncio.Lock()
        self.positions = 0  # computed again here
        self.worst = 0.0  # the largest distance that counted as the same

    async def compare(self, asker: str, place: Place) -> Verdict:
        """Computes the place again. Raises PeerError, PlannerError or TimeoutError where that cannot be done."""
        async with self._turn:
            return await self._compare(asker, place)

    async def _compare(self, asker: str, place: Place) -> Verdict:
        stop = place.position + 1
        marks = await self._of(place.peer, asker, place, place.stage, "marks", 0, stop)
        if marks is None:
            return "unable"
        theirs = await self._of(place.peer, asker, place, place.stage, "place", 0, stop)
        if theirs != {key: place.to_body()[key] for key in ("units", "before", "after", "spans")}:
            return "disputed"  # about what was to be computed at all
        inputs = await self._inputs(asker, place, stop)
        if inputs is None or len(inputs) != stop:
            return "unable"
        if first_other(marks, await asyncio.to_thread(marks_of, tensor_of(inputs))) is not None:
            return "disputed"  # about what went from the peer before to this one
        most = self._limit(place.peer)
        if not place.after:
            return await self._compare_token(asker, place, inputs, most)
        seen = await self._of(place.after, asker, place, place.stage + 1, "in", place.position, stop)
        told = await self._of(place.peer, asker, place, place.stage, "out", place.position, stop)
        if seen is None:
            return "unable"
        gap = distance(seen[0], await self._compute(place, inputs))
        if gap <= most:
            self.worst = max(self.worst, gap)
            return "same"
        if told is None:
            return "unable"
        return "differs" if told[0].tobytes() == seen[0].tobytes() else "disputed"

    async def _compare_token(self, asker: str, place: Place, inputs: Any, most: float) -> Verdict:
        """A last stage hands on a token alone: it must be the one that these settings draw from the logits."""
        at = place.position + 1
        try:
            sampling = Sampling.from_wire(list(place.sampling))
        except BadSampling:
            return "unable"
        history: Any = ()
        if needs_history(sampling):
            history = await self._of(asker, asker, place, 0, "tokens", 0, at)
            if history is None:
                return "unable"
        logits = await self._compute(place, inputs)
        answer = history[len(history) - place.sampled :] if place.sampled else ()
        token = sample(logits, sampling, at, history, answer)
        if token == place.token:
            return "same"
        likely = 0 <= place.token < len(logits)
        if likely and float(logits[token] - logits[place.token]) <= most * 2 * float(np.std(logits)):
            return "same"  # the two were about equally likely
        if most > SAME and sampling.temperature > 0:
            return "unable"  # another rounding may draw another token
        told = await self._of(place.peer, asker, place, place.stage, "token", at, at + 1)
        if told is None:
            return "unable"
        return "differs" if told == place.token else "disputed"

    def _limit(self, peer: str) -> float:
        manifest, member = self._mesh.manifest, self._node.state.members.get(peer)
        profile = member.profile if member is not None else None
        mine = self._mesh.options.provider if self._mesh.options is not None else "cpu"
        weights = manifest.weights if manifest is not None else "4bit"
        return limit(weights, mine, profile.provider if profile is not None else "cpu")

    # --- what others say

    async def _inputs(self, asker: str, place: Place, stop: int) -> Any:
        """What the peer before handed on for positions [0, stop), in pages; of a first stage the tokens."""
        if not place.before:
            tokens = await self._of(asker, asker, place, 0, "tokens", 0, stop)
            return None if tokens is None else np.asarray(tokens, dtype=np.int32)
        manifest = self._mesh.manifest
        page = max(1, PAGE_BYTES // (4 * manifest.architecture.hidden)) if manifest is not None else 1
        parts = []
        for first in range(0, stop, page):
            last = min(first + page, stop)
            part = await self._of(place.before, asker, place, place.stage - 1, "out", first, last)
            if part is None:
                return None
            parts.append(part)
        return np.concatenate(parts)

    async def _of(
        self, peer: str, asker: str, place: Place, stage: int, side: str, first: int, stop: int
    ) -> Any:
        """A peer's testimony: rows (float32), marks, tokens or a token; None where it has them no more."""
        body = {"session": place.session.hex(), "stage": stage, "side": side, "first": first, "stop": stop}
        if peer == self._node.me:
            said = self._own(self._node.me, body)
        else:
            await self._node.dialer.dial(peer)
            said = await self._node.calls.call(peer, "witness", body, CALL_S)
        try:
            return _read(said, side, stop - first)
        except (ValueError, TypeError) as error:
            raise BadCommand(f"witness: expected {side} of {stop - first} positions") from error

    # --- computing

    async def _compute(self, place: Place, inputs: Any) -> Floats:
        """What these units make of `inputs` at the last position: a row, or logits. Raises CannotServe."""
        session = os.urandom(16)
        runtime, waiting = await self._runtime(place.units)
        tail = not place.after
        found: Any = None
        try:
            async with asyncio.timeout(WHOLE_S):
                for first, stop, given in steps_of_spans(place.spans, 0, len(inputs), TOGETHER):
                    part = inputs[first:stop]
                    step = Step(
                        session,
                        first,
                        None if place.before else part.astype(np.int64),
                        np.ascontiguousarray(part) if place.before else None,
                        tail and stop == len(inputs),
                        np.copy if tail else None,
                        prompt=given,
                        behind=True,
                    )
                    done = await _submitted(runtime, waiting, step)
                    self.positions += stop - first
                    found = done.finished if tail else done.hidden
        finally:
            waiting.pop(session, None)
            runtime.release(session)
        if not isinstance(found, np.ndarray):
            raise CannotServe("these units give no result")
        return found if tail else found[-1]

    async def _runtime(self, run: Run_) -> tuple[StageRuntime, Answers]:
        """What computes units `run`: as they serve here, or loaded for this."""
        serving = self._node.serving
        runtime = serving.runtime(run) if serving is not None else None
        if runtime is not None and serving is not None:
            return runtime, serving.private
        loaded = self._loaded.get(run) or await self._load(run)
        loaded.timer.cancel()
        loaded.timer = asyncio.get_running_loop().call_later(LOADED_S, self._unload, run)
        return loaded.runtime, loaded.waiting

    async def _load(self, run: Run_) -> _Loaded:
        """Units that this peer does not serve, from its own store; one that lends its memory has none to spare."""
        manifest, store, model = self._mesh.manifest, self._mesh.store, self._node.state.model
        options = self._mesh.options
        if manifest is None or model is None or not all(store.has_blob(ref) for ref in manifest.blobs(*run)):
            raise CannotServe("these units are not here")
        if options is not None and options.memory_bytes:
            raise CannotServe("the memory of this peer is lent to the plan")
        if 2 * sum(ref.bytes for ref in manifest.blobs(*run)) > psutil.virtual_memory().available:
            raise CannotServe("these units need more memory than is free here")
        waiting: Answers = {}

        def deliver(result: Done | Refused) -> None:
            if (tell := waiting.get(result.session)) is not None:
                tell(result)

        shard = await asyncio.to_thread(make_shard, manifest, store, *run, "cpu")
        make = partial(StageRuntime, shard, threads=1, slots=2, context=model.context, deliver=deliver)
        runtime = await asyncio.to_thread(make)
        timer = asyncio.get_running_loop().call_later(LOADED_S, self._unload, run)
        made = self._loaded[run] = _Loaded(runtime, timer, waiting)
        return made

    def _unload(self, run: Run_) -> None:
        made = self._loaded.pop(run)
        self._mesh.start(asyncio.to_thread(made.runtime.close))

    async def close(self) -> None:
        """Gives back what was loaded."""
        for run, made in list(self._loaded.items()):
            made.timer.cancel()
            del self._loaded[run]
            await asyncio.to_thread(made.runtime.close)


async def _submitted(runtime: StageRuntime, waiting: Answers, step: Step) -> Done:
    """The result of a step. Raises CannotServe when it is refused."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Done | Refused] = loop.create_future()

    def tell(result: Done | Refused) -> None:
        if not found.done():
            found.set_result(result)

    def answer(result: Done | Refused) -> None:
        loop.call_soon_threadsafe(tell, result)

    waiting[step.session] = answer
    runtime.submit(step)
    done = await asyncio.wait_for(found, COMPUTE_S)
    if isinstance(done, Refused):
        raise CannotServe(f"these units refuse the step: {done.text}")
    return done


def _read(said: Body, side: str, count: int) -> Any:
    match side:
        case "marks":
            marks = None if said.get("marks") is None else bytes.fromhex(said["marks"])
            return marks and [marks[at : at + MARK_BYTES] for at in range(0, len(marks), MARK_BYTES)]
        case "tokens":
            tokens = said.get("tokens")
            return [int(token) for token in tokens] if tokens is not None else None
        case "token":
            return said.get("token")
        case "place":
            return {key: said.get(key) for key in ("units", "before", "after", "spans")}
        case _:
            if said.get("rows") is None:
                return None
            return np.frombuffer(base64.b64decode(said["rows"]), dtype=np.float32).reshape(count, -1)
