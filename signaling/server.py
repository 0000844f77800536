"""Performs what the hub decides: WebSockets, timers and files of the signaling server (aiohttp).

The server introduces peers and serves the model store. It keeps no state of the mesh, only who may come in.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from aiohttp import WSCloseCode, WSMsgType, web

from planner.model.store import Store
from planner.service.planning_jobs import PlanningJobs
from signaling.app_files import add_app_routes
from signaling.errors import (
    BadCertificate,
    HostRefused,
    MalformedMessage,
    MessageTooLarge,
    OriginRefused,
    OutOfOrder,
    PortInUse,
    ServerError,
    SignalingError,
    Stopping,
    TooSlow,
    code_of,
)
from signaling.generated.messages import MAX_CLIENT_BYTES, MAX_JOIN_BYTES, Registered, Relay, ServerMessage
from signaling.guard import check_host, check_origin
from signaling.http_connections import (
    SHORTAGE_RETRY_AFTER_S,
    ConnectionRoom,
    HttpConnections,
    is_shortage,
    listening,
)
from signaling.ice import LENT_TIMES
from signaling.limits import SocketMeter
from signaling.messages import decode_client, encode
from signaling.metrics import CONTENT_TYPE, Metrics
from signaling.planning import Planning, add_planning_route
from signaling.presence import NONCE_BYTES
from signaling.reachable_host import local_host, reachable_host
from signaling.room import (
    Broke,
    Closed,
    Drop,
    Effect,
    Event,
    Forget,
    Hub,
    LentAnew,
    Opened,
    Persist,
    Policy,
    Received,
    Send,
    refusal,
)
from signaling.state import StateFolder, encode_admissions
from signaling.store_routes import add_store_routes

HEARTBEAT_S = 20.0  # a silent socket is closed after one and a half of these
NOT_KEPT = "the server could not write its state folder: this holds only until it restarts"
CLOSE_WITHIN_S = 2.0  # for the other side to answer a close
log = logging.getLogger("shoal.signaling")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Tls:
    """Files in PEM: the certificate with those that vouch for it, and its private key."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class ServerOptions:
    """Where to listen, for whom, and where to keep what must survive a restart."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: any free one
    policy: Policy = field(default_factory=Policy)
    allow_origins: frozenset[str] = frozenset()
    allow_hosts: frozenset[str] = frozenset()
    state_folder: Path | None = None
    behind_proxy: bool = False  # believe the last X-Forwarded-For
    web_app: Path | None = None  # the built app; None: a plain page instead
    tls: Tls | None = None  # None: plain HTTP
    connections: ConnectionRoom = field(default_factory=ConnectionRoom)


@dataclass(frozen=True)
class RunningServer:
    """A server that listens."""

    url: str  # http(s)://host:port, by which others reach it where they can
    local_url: str  # by which this machine does, also when its addresses change
    host: str
    port: int


@dataclass(slots=True)
class QueuedInAll:
    """Bytes that wait to be written, of all sockets."""

    bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Queued:
    text: str
    kept: asyncio.Future[bool] | None  # what has to be on the disk first
    instead: str  # what is said where it is not; empty: the same


class _Socket:
    """One WebSocket: what waits to be written, and the task that writes it."""

    def __init__(
        self,
        number: int,
        address: str,
        ws: web.WebSocketResponse,
        request: web.Request,
        all_queued: QueuedInAll,
    ) -> None:
        self.number = number
        self.address = address
        self.ws = ws
        self.queued_bytes = 0
        self._all_queued = all_queued
        self._is_over = False
        self._request = request
        self._outbox: asyncio.Queue[_Queued | None] = asyncio.Queue()

    def queue(self, text: str, kept: asyncio.Future[bool] | None = None, instead: str = "") -> None:
        """Writes `text` after all before it, and not before `kept` is done; where that is False, maybe `instead`."""
        if not self._is_over:
            self._count(len(text))
            self._outbox.put_nowait(_Queued(text, kept, instead))

    def over(self) -> None:
        """Nothing of it waits any more."""
        self._count(-self.queued_bytes)
        self._is_over = True

    def _count(self, more: int) -> None:
        if not self._is_over:
            self.queued_bytes += more
            self._all_queued.bytes += more

    def finish(self) -> None:
        """Close once everything queued is written."""
        self._outbox.put_nowait(None)

    def is_open(self) -> bool:
        transport = self._request.transport
        return not self.ws.closed and transport is not None and not transport.is_closing()

    def abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()

    async def write(self) -> None:
        """Runs until the socket is closed from here or breaks."""
        while (queued := await self._outbox.get()) is not None:
            text, kept = queued.text, queued.kept
            if kept is not None and not await asyncio.shield(kept):
                text = queued.instead or text
            try:
                await self.ws.send_str(text)
            except (
                ConnectionError,
                RuntimeError,
            ):  # RuntimeError: aiohttp's word for a socket that is closing
                return
            self._count(-len(queued.text))
        await self.ws.close()


class SignalingServer:
    """The edge around one hub."""

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._state = StateFolder(options.state_folder) if options.state_folder else None
        self.hub = Hub(options.policy, self._state.load() if self._state else ())
        self.metrics = Metrics(lambda: self.hub)
        self._sockets: dict[int, _Socket] = {}
        self._numbers = 0
        self._queued = QueuedInAll()
        self._saving = asyncio.Lock()
        self._keeping: set[asyncio.Task[bool]] = set()
        self._empty = asyncio.Event()  # set whenever the last socket goes

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """GET /ws."""
        limits = self._options.policy.limits
        address = self._address(request)
        from_there = sum(1 for s in self._sockets.values() if s.address == address)
        if len(self._sockets) >= limits.sockets or from_there >= limits.sockets_per_address:
            self.metrics.rejected.labels("TooManySockets").inc()
            raise web.HTTPServiceUnavailable(text="too many connections: try again later\n")
        ws = web.WebSocketResponse(
            heartbeat=HEARTBEAT_S, timeout=CLOSE_WITHIN_S, max_msg_size=MAX_CLIENT_BYTES, compress=False
        )
        if not ws.can_prepare(request).ok:
            raise web.HTTPUpgradeRequired(
                text="this address speaks WebSocket\n", headers={"Upgrade": "websocket"}
            )
        await ws.prepare(request)
        self._numbers += 1
        socket = _Socket(self._numbers, address, ws, request, self._queued)
        self._sockets[socket.number] = socket
        self.metrics.sockets.set(len(self._sockets))
        loop = asyncio.get_running_loop()
        deadline = loop.call_later(limits.join_within_s, self._join_is_late, socket.number)
        try:
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(socket.write())
                await self._step(Opened(socket.number, address, secrets.token_bytes(NONCE_BYTES)))
                await self._read(socket)
                if socket.is_open():
                    socket.finish()
                    await asyncio.wait([writer], timeout=CLOSE_WITHIN_S)
                writer.cancel()
        finally:
            deadline.cancel()
            del self._sockets[socket.number]
            socket.over()
            if not self._sockets:
                self._empty.set()
            self.metrics.sockets.set(len(self._sockets))
            await self._step(Closed(socket.number))
        return ws

    async def _read(self, socket: _Socket) -> None:
        meter = SocketMeter(self._options.policy.limits, time.monotonic())
        async for frame in socket.ws:
            if frame.type is WSMsgType.ERROR:
                if getattr(frame.data, "code", None) == WSCloseCode.MESSAGE_TOO_BIG:
                    self._count(MessageTooLarge())
                return
            error: SignalingError | None
            if frame.type is not WSMsgType.TEXT:
                error = MalformedMessage("messages are text frames, this one is binary")
            elif len(frame.data) > MAX_JOIN_BYTES and not self.hub.is_inside(socket.number):
                error = MessageTooLarge(
                    f"a join has at most {MAX_JOIN_BYTES} bytes, this message has {len(frame.data)}"
                )
            else:
                error = meter.count(len(frame.data), time.monotonic())
            if error is None:
                try:
                    message = decode_client(frame.data)
                except SignalingError as broken:
                    error = broken
                else:
                    if isinstance(message, Relay):
                        self.metrics.relayed.labels(message.signal.kind.value).inc()
                    await self._step(Received(socket.number, message))
                    continue
            await self._step(Broke(socket.number, error))
            return  # what it sent meanwhile is not even read

    def _join_is_late(self, number: int) -> None:
        socket = self._sockets.get(number)
        if socket is not None and not self.hub.is_inside(number):
            within = self._options.policy.limits.join_within_s
            for effect in self._decided(Broke(number, OutOfOrder(f"no join within {within:g} s"))):
                self._perform(effect)

    def _decided(self, event: Event) -> list[Effect]:
        """What the hub says. Where memory ran out in the middle of that, all begin anew: who is in joins again."""
        try:
            return self.hub.step(event, time.time())
        except MemoryError:
            log.error("memory ran out: all members are asked to join again")
            self.hub = Hub(self._options.policy, [room.admissions for room in self.hub.rooms.values()])
            for socket in list(self._sockets.values()):
                socket.abort()
                socket.over()
            return []

    async def _step(self, event: Event) -> None:
        """Performs what the hub says, and returns when what had to be kept is. All is queued before this waits for the
        disk, or what a later event says would overtake it.
        """
        kept: asyncio.Task[bool] | None = None
        for effect in self._decided(event):
            if isinstance(effect, Persist):
                kept = asyncio.create_task(self._persist(effect.mesh), name="keep admissions")
                self._keeping.add(kept)
                kept.add_done_callback(self._keeping.discard)
            else:
                self._perform(effect, kept)
        if kept is not None:
            await asyncio.shield(kept)

    def _perform(self, effect: Effect, kept: asyncio.Future[bool] | None = None) -> None:
        match effect:
            case Send(numbers, message):
                self._send(numbers, message, kept)
            case Drop(number, error):
                socket = self._sockets.get(number)
                if socket is not None:
                    if error is not None:
                        self._count(error)
                        socket.queue(encode(refusal(error, ends=True)))
                    socket.finish()
            case Forget(mesh):
                if self._state is not None:
                    self._state.forget(mesh)
            case Persist():
                pass  # done by _step

    def _send(
        self, numbers: Sequence[int], message: ServerMessage, kept: asyncio.Future[bool] | None
    ) -> None:
        text, limits = encode(message), self._options.policy.limits
        instead = (
            encode(replace(message, code="ServerError", text=NOT_KEPT))
            if isinstance(message, Registered)
            else ""
        )
        for number in numbers:
            socket = self._sockets.get(number)
            if socket is None:
                continue
            if self._queued.bytes + len(text) > limits.queued_in_all:
                slowest = max(self._sockets.values(), key=lambda each: each.queued_bytes)
                self._count(TooSlow())
                slowest.abort()
                slowest.over()
            if socket.queued_bytes + len(text) > limits.queued_bytes:
                self._count(TooSlow())
                socket.abort()  # its reader ends, and the hub hears of it as of any other loss
            else:
                socket.queue(text, kept, instead)

    def _count(self, error: SignalingError) -> None:
        self.metrics.rejected.labels(code_of(error)).inc()

    async def _persist(self, mesh: str) -> bool:
        """Whether it would survive a restart, as far as this server was asked to care for that."""
        room = self.hub.rooms.get(mesh)
        if self._state is None or room is None:
            return True
        async with self._saving:
            text = encode_admissions(room.admissions)
            try:
                await asyncio.to_thread(self._state.save, mesh, text)
            except OSError as error:
                log.error("the state of mesh %s could not be kept: %s", mesh, error.strerror)
                return False
        return True

    def _address(self, request: web.Request) -> str:
        if self._options.behind_proxy:
            forwarded = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
            if forwarded:
                return forwarded[:64]
        return request.remote or ""

    async def lend_anew(self, app: web.Application) -> AsyncIterator[None]:
        """While the server runs: everyone has credentials for the TURN relay that are good for a while."""
        turn = self._options.policy.turn
        if turn is None:
            yield
            return

        async def repeat(every_s: float) -> None:
            while True:
                await asyncio.sleep(every_s)
                await self._step(LentAnew())

        task = asyncio.create_task(repeat(turn.lifetime_s / LENT_TIMES), name="turn credentials")
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def stop(self, app: web.Application) -> None:
        """Tell everyone, and wait a moment for their sockets to close."""
        for socket in list(self._sockets.values()):
            stopping = Stopping("the server is stopping: it will be back under the same link")
            socket.queue(encode(refusal(stopping, ends=True)))
            socket.finish()
        if self._sockets:
            self._empty.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_WITHIN_S):
                    await self._empty.wait()
        await asyncio.gather(*self._keeping)

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Host and Origin checks for every route."""
        host = request.headers.get("Host", "")
        try:
            check_host(host, self._options.host, self._options.allow_hosts)
            check_origin(request.headers.get("Origin"), host, self._options.allow_origins)
        except (HostRefused, OriginRefused) as error:
            self._count(error)
            return web.Response(status=403, text=f"{error}\n")
        try:
            return await handler(request)
        except (MemoryError, OSError) as error:
            if not is_shortage(error):
                raise
            log.warning("a request failed: %s", type(error).__name__)
            raise web.HTTPServiceUnavailable(
                text="this server is short of memory or open files at the moment: try again\n",
                headers={"Retry-After": str(SHORTAGE_RETRY_AFTER_S)},
            ) from error


def create_app(
    options: ServerOptions,
    store: Store | None,
    plans: Mapping[str, Planning],
    connections: HttpConnections,
) -> web.Application:
    """The web application: WebSocket rooms, store, what plans by path, health and metrics."""
    server = SignalingServer(options)
    app = web.Application(
        middlewares=[connections.middleware, server.guard], client_max_size=options.policy.limits.plan_bytes
    )

    async def health(request: web.Request) -> web.Response:
        return web.json_response(
            {"ok": True, "rooms": server.hub.occupied(), "members": server.hub.members()}
        )

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(body=server.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    add_app_routes(app, options.web_app)
    app.router.add_get("/healthz", health)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/ws", server.handle, allow_head=False)
    add_store_routes(app, store, server.metrics)
    for path, planning in plans.items():
        add_planning_route(app, path, planning, options.policy.limits, server.metrics)
    app.cleanup_ctx.append(server.lend_anew)
    app.on_shutdown.append(server.stop)
    return app


@asynccontextmanager
async def serve(
    options: ServerOptions,
    store: Store | None = None,
    planning: Planning | None = None,
    placing: Callable[[PlanningJobs, bytes], Awaitable[bytes]] | None = None,
) -> AsyncIterator[RunningServer]:
    """Listen until the block ends. PortInUse, BadCertificate or ServerError when that cannot be.

    `planning` None: by what the request says alone, in processes of the server's own. `placing`: answers where units
    of offered models run, in these processes; None: nobody does here.
    """
    context = tls_context(options.tls) if options.tls is not None else None
    own = PlanningJobs()  # no process before the first plan
    room = options.connections
    if options.behind_proxy:  # whose address all of them have
        room = replace(room, most_of_address=room.most)
    connections = HttpConnections(room)
    plans: dict[str, Planning] = {"/plan": planning or own.plan_bytes}
    if placing is not None:
        plans["/place"] = partial(placing, own)
    runner = web.AppRunner(
        create_app(options, store, plans, connections),
        handle_signals=False,
        shutdown_timeout=CLOSE_WITHIN_S,
    )
    await runner.setup()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(own.close)
        stack.push_async_callback(runner.cleanup)
        try:
            host, port = await stack.enter_async_context(
                listening(runner, connections, (options.host, options.port), context, access_log=None)
            )
        except OSError as error:
            raise _cannot_listen(options, error) from error
        scheme = "https" if context is not None else "http"
        url, local_url = (
            f"{scheme}://{f'[{name}]' if ':' in name else name}:{port}"
            for name in (reachable_host(host), local_host(host))
        )
        yield RunningServer(url, local_url, host, port)


def tls_context(tls: Tls) -> ssl.SSLContext:
    """BadCertificate names the file and what is wrong with it."""
    for path, option in ((tls.certificate, "--cert"), (tls.key, "--key")):
        try:
            path.read_bytes()
        except OSError as error:
            raise BadCertificate(f"{option} {path}: {error.strerror or error}") from error
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(tls.certificate, tls.key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise BadCertificate(
            f"--cert {tls.certificate} and --key {tls.key} are no certificate and its private key in PEM "
            f"without a password ({reason.replace('_', ' ').lower()})"
        ) from error
    return context


def own_certificate(tls: Tls) -> ssl.SSLContext:
    """For the program that listens with this certificate: it believes it, whoever signed it, under any name."""
    context = ssl.create_default_context(cafile=tls.certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _no_password() -> bytes:
    raise ValueError("the key asks for a password")


def _cannot_listen(options: ServerOptions, error: OSError) -> ServerError:
    where = f"port {options.port} on {options.host}"
    match error.errno:
        case errno.EADDRINUSE:
            return PortInUse(
                f"{where} is taken by another program: choose another with --port, or stop that program"
            )
        case errno.EACCES:
            return ServerError(f"{where} needs more rights: choose a port above 1023 with --port")
        case _:
            return ServerError(f"cannot listen on {where}: {error.strerror or error}")
