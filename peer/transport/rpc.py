"""Questions between two connected peers: REQUEST and RESPONSE frames as awaitable calls.

Edge. Bodies are JSON objects, whose bytes are counted before they are read; a handler's MeshError becomes the caller's
error with the same text.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from peer.errors import BadCommand, BeginAnew, ConnectionLost, MeshError, NotLeader, PeerError
from peer.limits import MAX_INT, MAX_REFUSAL_BYTES, MAX_TEXT_BYTES
from peer.transport.request_table import Admitted
from peer.wire.generated.frames import Frame, Request, Response
from peer.wire.json_codec import Body, has_more_values
from peer.wire.request_kind import RequestKind

CALL_TIMEOUT_S = 20.0  # the other side answers control questions from its event loop, never from a model run
MAX_ANSWERING = 32  # requests of one peer; an honest one has a handful
STATUS_OK, STATUS_REFUSED, STATUS_FAILED, STATUS_ELSEWHERE, STATUS_ANEW = 0, 1, 2, 3, 4
MAX_PEER = 128  # characters of a peer id
LARGE_BODY_BYTES = 128 << 10  # of JSON: more may take tens of milliseconds to read
LARGE_VALUES = 16384  # of these: what is honest and large is a long text; so many take 2 to 10 ms to read
LARGE_SHARE = 0.05  # of the time, for these
MAX_PAUSE_S = 2.0  # after one of them

T = TypeVar("T")
A = TypeVar("A")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Open:
    answered: asyncio.Future[Body]
    max_answer_bytes: int


class Calls:
    """`send(peer, frame)` hands a frame over; `admit(peer, method)` is this side's part: it raises BadCommand for an
    unknown method and for a peer without the right.
    """

    def __init__(self, send: Callable[[str, Frame], None], admit: Callable[[str, str], Admitted]) -> None:
        self._send = send
        self._admit = admit
        self._next_id = 0
        self._open: dict[tuple[str, int], _Open] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._answering: Counter[str] = Counter()  # by peer: how many of its requests
        self._large = _LargeBodies()

    async def call(self, peer: str, kind: RequestKind[T, A], said: T, timeout_s: float = CALL_TIMEOUT_S) -> A:
        """The other side's answer. Raises MeshError with its refusal (NotLeader, BeginAnew where it says so),
        BadCommand for what is too long to be said and for what is no answer to this, ConnectionLost, or TimeoutError.
        """
        body = json.dumps(kind.body(said)).encode()
        _check_bytes(kind.method, body, kind.max_body_bytes)
        self._next_id += 1
        key = (peer, self._next_id)
        answered: asyncio.Future[Body] = asyncio.get_running_loop().create_future()
        self._open[key] = _Open(answered, kind.max_answer_bytes)
        try:
            self._send(peer, Request(self._next_id, kind.method, body))
            async with asyncio.timeout(timeout_s):
                return kind.read_answer(await answered)
        finally:
            self._open.pop(key, None)

    def requested(self, peer: str, frame: Request) -> None:
        """Answers in a task of its own. Raises BadCommand when the other side asks too much at once."""
        if self._answering[peer] >= MAX_ANSWERING:
            raise BadCommand(f"expected at most {MAX_ANSWERING} requests at once")
        self._answering[peer] += 1
        task = asyncio.ensure_future(self._respond(peer, frame))
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._answering -= Counter([peer])  # drops peers that come to nothing
            if peer not in self._answering:
                self._large.forget(peer)

        task.add_done_callback(done)

    def responded(self, peer: str, frame: Response) -> None:
        """Wakes the caller; an answer to nothing is ignored."""
        found = self._open.get((peer, frame.id))
        if found is None or found.answered.done():
            return
        if frame.status != STATUS_OK:
            found.answered.set_exception(_refusal(frame))
            return
        try:
            _check_bytes("an answer", frame.body, found.max_answer_bytes)
            found.answered.set_result(_object(frame.body))
        except BadCommand as error:
            found.answered.set_exception(error)

    def gone(self, peer: str, reason: str) -> None:
        """Fails what waits for an answer of `peer`."""
        for (asked, _), found in list(self._open.items()):
            if asked == peer and not found.answered.done():
                found.answered.set_exception(ConnectionLost(f"peer {peer} is gone: {reason}"))

    async def close(self) -> None:
        """Ends the answers under way."""
        for task in list(self._tasks):
            task.cancel()
        while self._tasks:  # each leaves by its callback, for which gather does not wait from Python 3.12 on
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.sleep(0)

    async def _respond(self, peer: str, frame: Request) -> None:
        try:
            admitted = self._admit(peer, frame.method)
            _check_bytes(frame.method, frame.body, admitted.max_body_bytes)
            is_large = len(frame.body) > LARGE_BODY_BYTES
            said = await self._large.read(peer, frame.body) if is_large else _object(frame.body)
            body = json.dumps(await admitted.answer(said)).encode()
            _check_bytes(f"the answer to {frame.method}", body, admitted.max_answer_bytes)
            response = Response(frame.id, STATUS_OK, "", body)
        except NotLeader as error:
            named = json.dumps({"leader": error.leader}).encode()
            response = Response(frame.id, STATUS_ELSEWHERE, _short(str(error)), named)
        except BeginAnew as error:
            highest = json.dumps({"above": error.above}).encode()
            response = Response(frame.id, STATUS_ANEW, _short(str(error)), highest)
        except PeerError as error:
            response = Response(frame.id, STATUS_REFUSED, _short(str(error)), b"{}")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # What it waited for was cancelled, not this answer: the caller must not wait for nothing.
            log.warning("answering %s was cancelled", frame.method[:40])
            response = Response(frame.id, STATUS_FAILED, "the other peer broke it off", b"{}")
        except Exception as error:
            log.exception("answering %s failed", frame.method[:40])
            response = Response(
                frame.id, STATUS_FAILED, f"the other peer failed: {type(error).__name__}", b"{}"
            )
        try:
            self._send(peer, response)
        except PeerError as error:
            log.info("no answer to %s: %s", peer[:8], error)


class _LargeBodies:
    """Large bodies of requests are read one at a time, in a share of the time, and each peer has its turn: who sends
    many keeps neither heartbeats nor others waiting.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._own: dict[str, asyncio.Lock] = {}  # by peer: one of each waits for its turn

    async def read(self, peer: str, data: bytes) -> Body:
        async with self._own.setdefault(peer, asyncio.Lock()):
            await self._turn.acquire()
        begun = time.perf_counter()
        try:
            if has_more_values(data, LARGE_VALUES):
                raise BadCommand(f"a body of {len(data)} bytes: expected at most {LARGE_VALUES} values")
            return _object(data)
        finally:
            pause_s = min((time.perf_counter() - begun) / LARGE_SHARE, MAX_PAUSE_S)
            asyncio.get_running_loop().call_later(pause_s, self._turn.release)

    def forget(self, peer: str) -> None:
        """Nothing of it is under way any more."""
        self._own.pop(peer, None)


def _refusal(frame: Response) -> MeshError:
    body: Body = {}
    with contextlib.suppress(BadCommand):  # it names nothing
        _check_bytes("a refusal", frame.body, MAX_REFUSAL_BYTES)
        body = _object(frame.body)
    if frame.status == STATUS_ELSEWHERE:
        leader = body.get("leader")
        return NotLeader(frame.message, leader if isinstance(leader, str) and len(leader) <= MAX_PEER else "")
    if frame.status == STATUS_ANEW:
        above = body.get("above")  # one more must be an incarnation, too
        return BeginAnew(frame.message, above if type(above) is int and 0 <= above < MAX_INT else 0)
    return MeshError(frame.message)


def _check_bytes(what: str, data: bytes, most: int) -> None:
    """Raises BadCommand for JSON of more than `most` bytes."""
    if len(data) > most:
        raise BadCommand(
            f"{what}: expected at most {most} bytes of JSON, got {len(data)}; say less, or in parts"
        )


def _object(data: bytes) -> Body:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise BadCommand(f"expected a JSON object, got {len(data)} bytes that are not JSON") from None
    if not isinstance(body, dict):
        raise BadCommand(f"expected a JSON object, got {type(body).__name__}")
    return body


def _short(text: str) -> str:
    return text.encode(errors="replace")[:MAX_TEXT_BYTES].decode(errors="ignore")
