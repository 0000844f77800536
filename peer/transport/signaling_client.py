"""Decides when a peer talks to the signaling server, and passes on only what it could verify.

The server is needed to meet, not to stay: when it is gone, members and connections are left as they are, and
the client comes back by itself with fresh nonces. Nothing is queued while it is away; sending then raises
NotConnected.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import ssl
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from types import TracebackType
from typing import assert_never

import aiohttp

from peer.transport.credentials import Credentials as Credentials  # offered here too, where it is used
from signaling.errors import (
    FINAL,
    ForgedPresence,
    MalformedMessage,
    MessageError,
    NotConnected,
    OutOfOrder,
    ProtocolMismatch,
    ServerUnreachable,
    SignalingError,
    from_wire,
)
from signaling.generated.messages import (
    MAX_BATCH,
    MAX_SERVER_BYTES,
    SIGNALING_PROTOCOL,
    Admit,
    Admitted,
    Challenge,
    ClientMessage,
    Ice,
    Join,
    Joined,
    Leave,
    Left,
    Refused,
    Register,
    Registered,
    Relay,
    Revoked,
    ServerMessage,
    Welcome,
)
from signaling.ice import IceServer
from signaling.invites import (
    Grant,
    Revocation,
    Role,
    make_membership,
    make_revocation,
    verify_grant,
)
from signaling.messages import decode_server, encode
from signaling.presence import (
    NONCE_BYTES,
    Presence,
    Signal,
    SignalKind,
    fingerprint_of,
    join_transcript,
    make_signal,
    make_vouch,
    verify_presence,
)
from signaling.roster import Roster

ANSWER_WITHIN_S = 10.0  # for the server to take a connection, a join or a registration
LEAVE_WITHIN_S = 1.0
MAX_BROKEN = 100  # messages on one socket that are none, before the client leaves it
MAX_ADDRESSES = 16
STEADY_S = 30.0  # a join that lasted this long starts the backoff anew
log = logging.getLogger("shoal.signaling")
Reported = Challenge | Welcome | Joined | Left | Registered | Revoked | Ice | Relay | Admitted


class ClientState(Enum):
    """Where the client stands with its server."""

    JOINING = "joining"
    JOINED = "joined"
    LOST = "lost"  # coming back by itself
    REFUSED = "refused"  # will not try again: the reason is permanent
    CLOSED = "closed"


def _nothing(*_: object) -> None: ...


@dataclass(frozen=True)
class SignalingEvents:
    """What the client reports, each on the event loop and never from inside a call of its user."""

    on_member: Callable[[Presence], None] = _nothing  # came, or came again with new nonces
    on_left: Callable[[str, str], None] = _nothing  # peer, reason; its connections may go on
    # from, connection, offer|answer, SDP
    on_description: Callable[[str, bytes, SignalKind, str], None] = _nothing
    on_candidate: Callable[[str, bytes, str], None] = _nothing  # from, connection, candidate
    on_membership: Callable[[Grant], None] = (
        _nothing  # this peer may come back for good: keep it with the key
    )
    on_rejected: Callable[[SignalingError], None] = _nothing  # something was not believed or not taken
    on_state: Callable[[ClientState, SignalingError | None], None] = _nothing


@dataclass(frozen=True)
class ClientSettings:
    """Times, where time and chance come from, and whose certificate counts."""

    patience_s: float = 3.0  # how long the first join keeps trying while nobody answers
    backoff_s: float = 0.25
    backoff_most_s: float = 15.0
    heartbeat_s: float = 20.0
    draw: Callable[[], float] = random.random
    token: Callable[[int], bytes] = secrets.token_bytes
    now_unix: Callable[[], float] = time.time
    tls: ssl.SSLContext | None = None  # None: certificates that this system trusts


def backoff_s(settings: ClientSettings, attempt: int) -> float:
    """Seconds to wait before attempt 1, 2, ...: doubling, half of it by chance, so that peers spread out."""
    longest = min(settings.backoff_most_s, settings.backoff_s * 2.0 ** min(attempt - 1, 30))
    return longest * (0.5 + 0.5 * settings.draw())


@dataclass
class _Link:
    """A joined socket and the record it was joined with."""

    ws: aiohttp.ClientWebSocketResponse
    own: Presence
    since_s: float
    registering: dict[int, asyncio.Future[None]] = field(default_factory=dict)


class SignalingClient:
    """`async with SignalingClient(...) as client:` is in the room, or raises the one clear reason why not."""

    def __init__(
        self,
        server: str,
        credentials: Credentials,
        events: SignalingEvents = SignalingEvents(),
        settings: ClientSettings = ClientSettings(),
    ) -> None:
        self.server = server.rstrip("/")
        self._addresses = [self.server]  # where this mesh meets, the one in use first
        self.ice_servers: tuple[IceServer, ...] = ()
        self.state = ClientState.JOINING
        self._credentials = credentials
        self._events = events
        self._settings = settings
        self._roster = Roster(credentials.mesh, credentials.identity.id)
        self._grants: dict[bytes, Grant] = {}
        self._link: _Link | None = None
        self._notices: list[Callable[[], None]] = []
        self._exit = AsyncExitStack()
        self._http: aiohttp.ClientSession | None = None
        self._run: asyncio.Task[None] | None = None
        self._joined = asyncio.Event()
        self._requests = 0

    # --- what its user asks

    @property
    def peer(self) -> str:
        """The id of this peer."""
        return self._credentials.identity.id

    @property
    def own(self) -> Presence:
        """The own record of the present join; NotConnected without one."""
        return self._connected().own

    @property
    def membership(self) -> Grant | None:
        """Proof of lasting membership, once the founder has given it: keep it beside the key."""
        return self._credentials.membership

    def also(self, addresses: Iterable[str]) -> None:
        """The mesh meets at these addresses as well."""
        more = [address for address in addresses if address not in self._addresses]
        self._addresses = [*self._addresses, *more][-MAX_ADDRESSES:]

    def members(self) -> dict[str, Presence]:
        """The verified others in the room, as last heard; kept while the server is away."""
        return self._roster.members()

    async def joined(self) -> None:
        """Wait until there is a joined socket."""
        await self._joined.wait()

    async def send_offer(self, to: str, connection: bytes, sdp: str) -> None:
        """NotConnected, UnknownPeer, or BadDescription when the SDP has no single SHA-256 fingerprint."""
        fingerprint_of(sdp)
        self._roster.offered(to, connection)
        await self._signal(to, SignalKind.OFFER, connection, sdp)

    async def send_answer(self, to: str, connection: bytes, sdp: str) -> None:
        """Sends an answer (SDP) to `to` for one connection."""
        await self._signal(to, SignalKind.ANSWER, connection, sdp)

    async def send_candidate(self, to: str, connection: bytes, candidate: str) -> None:
        """Sends an ICE candidate line to `to` for one connection."""
        await self._signal(to, SignalKind.CANDIDATE, connection, candidate)

    async def register(self, *grants: Grant) -> None:
        """Founder: have the server keep these invites. They are registered again after every reconnect."""
        for grant in grants:
            self._roster.admissions.register(grant)
            self._grants[grant.key] = grant
        await self._register(tuple(grants), ())

    async def revoke(self, invite_key: bytes) -> None:
        """Founder: withdraw an invite; members that came with it are out."""
        if not self._credentials.is_founder:
            raise ForgedPresence("only the founder, who holds the mesh key, can withdraw an invite")
        await self.withdraw(make_revocation(self._credentials.invite, invite_key))

    async def withdraw(self, *revocations: Revocation) -> None:
        """Pass on what the mesh key withdrew; its signature counts, not who brings it."""
        for revocation in revocations:
            self._revoked(revocation)
            self._grants.pop(revocation.key, None)
        self._tell()
        await self._register((), revocations)

    # --- life

    async def __aenter__(self) -> SignalingClient:
        async with AsyncExitStack() as undo:
            timeout = aiohttp.ClientTimeout(total=None, connect=ANSWER_WITHIN_S)
            connector = aiohttp.TCPConnector(ssl=self._settings.tls or True)
            self._http = await undo.enter_async_context(
                aiohttp.ClientSession(timeout=timeout, connector=connector)
            )
            await self._first_join()
            # Not a TaskGroup: what the block raises must reach its caller as it is, not wrapped in a group.
            self._run = asyncio.create_task(self._watched(), name="signaling")
            self._exit = undo.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        link, self._link = self._link, None
        self.state = ClientState.CLOSED
        self._joined.clear()
        if link is not None:
            try:
                async with asyncio.timeout(LEAVE_WITHIN_S):
                    await link.ws.send_str(encode(Leave()))
                    await link.ws.close()
            except (TimeoutError, ConnectionError, aiohttp.ClientError):
                pass
        async with self._exit:
            if self._run is not None:
                self._run.cancel()
                with suppress(asyncio.CancelledError):
                    await self._run

    async def _first_join(self) -> None:
        give_up_s = time.monotonic() + self._settings.patience_s
        attempt = 0
        while True:
            try:
                await self._join()
                return
            except ServerUnreachable:
                attempt += 1
                wait_s = backoff_s(self._settings, attempt)
                if time.monotonic() + wait_s > give_up_s:
                    raise
                await asyncio.sleep(wait_s)

    async def _watched(self) -> None:
        try:
            await self._live()
        except Exception:  # a handler of our user broke; it is raised again when the block ends
            self.state = ClientState.CLOSED
            self._joined.clear()
            log.exception("the signaling client stops")
            raise

    async def _live(self) -> None:
        """Read while joined, come back while not, until refused for good."""
        attempt = 0
        why: SignalingError | None = None
        while True:
            link = self._link
            if link is None:
                attempt += 1
                await asyncio.sleep(backoff_s(self._settings, attempt))
                try:
                    await self._join()
                    continue
                except SignalingError as error:
                    why = error
            else:
                self._tell()
                why = await self._read(link)
                if self._link is not link:
                    return  # closing
                self._lose(link)
                if time.monotonic() - link.since_s > STEADY_S:
                    attempt = 0
            if isinstance(why, ServerUnreachable):  # the next join goes to the next address
                self._addresses = [*self._addresses[1:], self._addresses[0]]
                self.server = self._addresses[0]
            if isinstance(why, FINAL):
                log.warning("the signaling server refused this peer: %s", why)
                self._become(ClientState.REFUSED, why)
                return
            if self.state is not ClientState.LOST:
                self._become(ClientState.LOST, why)

    def _become(self, state: ClientState, why: SignalingError | None) -> None:
        self.state = state
        self._joined.clear()
        self._events.on_state(state, why)

    def _lose(self, link: _Link) -> None:
        self._link = None
        for waiting in link.registering.values():
            if not waiting.done():
                waiting.set_exception(NotConnected("the signaling server went away before it confirmed"))

    # --- joining

    async def _join(self) -> None:
        """One attempt on a new socket; on success the room is known and `_notices` hold what to report."""
        assert self._http is not None
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                ws = await self._http.ws_connect(
                    f"{self.server}/ws", heartbeat=self._settings.heartbeat_s, max_msg_size=MAX_SERVER_BYTES
                )
                try:
                    own = await self._prove(ws)
                except BaseException:
                    await ws.close()
                    raise
        except aiohttp.WSServerHandshakeError as error:
            raise ServerUnreachable(
                f"{self.server} answers, but not as a signaling server (HTTP {error.status}): check the "
                f"link's host"
            ) from error
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
            raise ServerUnreachable(
                f"the certificate of {self.server} is not one that this machine trusts: the founder needs one "
                f"by a known authority, or put its file into SSL_CERT_FILE here"
            ) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ServerUnreachable(
                f"no signaling server answers at {self.server}: check the link, and that `shoal serve` runs "
                f"there"
            ) from error
        self._link = _Link(ws, own, time.monotonic())
        self.state = ClientState.JOINED
        self._joined.set()
        self._notices.insert(0, partial(self._events.on_state, ClientState.JOINED, None))

    async def _prove(self, ws: aiohttp.ClientWebSocketResponse) -> Presence:
        credentials = self._credentials
        challenge = await _next(ws)
        if isinstance(challenge, Refused):
            raise from_wire(challenge.code, challenge.text)
        if not isinstance(challenge, Challenge):
            raise OutOfOrder("a signaling server first sends a challenge: is this one of ours?")
        if challenge.protocol != SIGNALING_PROTOCOL:
            raise ProtocolMismatch(
                f"the server speaks signaling protocol {challenge.protocol}, this peer {SIGNALING_PROTOCOL}: update "
                f"the older one"
            )
        nonce = self._settings.token(NONCE_BYTES)
        key, invite_key = credentials.identity.public.encoded, credentials.invite.public.encoded
        signed = join_transcript(
            credentials.mesh, invite_key, key, credentials.name, challenge.room_nonce, nonce
        )
        join = Join(
            SIGNALING_PROTOCOL,
            credentials.mesh,
            invite_key,
            key,
            credentials.name,
            challenge.room_nonce,
            nonce,
            credentials.invite.sign(signed),
            credentials.identity.sign(signed),
            credentials.grant,
            credentials.membership,
            make_vouch(credentials.voucher, signed) if credentials.voucher is not None else None,
        )
        await ws.send_str(encode(join))
        welcome = await _next(ws)
        if isinstance(welcome, Refused):
            raise from_wire(welcome.code, welcome.text)
        if not isinstance(welcome, Welcome):
            raise OutOfOrder("a signaling server answers a join with a welcome or a refusal")
        return await self._enter(ws, join, welcome)

    async def _enter(self, ws: aiohttp.ClientWebSocketResponse, join: Join, welcome: Welcome) -> Presence:
        you, now_unix = welcome.you, self._settings.now_unix()
        verify_presence(you, self._credentials.mesh, now_unix, admitted=True)
        shown = (you.key, you.join_nonce, you.grant.key, you.vouch)
        if shown != (join.key, join.join_nonce, join.invite, join.vouch):
            raise ForgedPresence("the server's welcome is for somebody else: refused")
        self._credentials = replace(self._credentials, grant=you.grant)
        self.ice_servers = welcome.ice_servers
        for revocation in welcome.revocations:
            self._believe(partial(self._revoked, revocation))
        here = {m.peer for m in welcome.members}
        for peer in self._roster.members().keys() - here:
            self._roster.left(peer)
            self._notices.append(partial(self._events.on_left, peer, "absent"))
        for member in welcome.members:
            await self._arrive(ws, member)
        told = {r.key for r in welcome.revocations}
        revocations = [r for key, r in self._roster.admissions.revocations.items() if key not in told]
        for grants, withdrawn in _batches(list(self._grants.values()), revocations):
            await ws.send_str(encode(Register(0, grants, withdrawn)))
        return you

    # --- joined

    async def _read(self, link: _Link) -> SignalingError:
        """Until the socket ends; why it did."""
        broken = 0
        while broken <= MAX_BROKEN:
            try:
                message = await _next(link.ws)
            except MessageError as error:
                broken += 1
                self._events.on_rejected(error)
                continue
            except ServerUnreachable as error:
                return error
            if isinstance(message, Refused):
                refused = from_wire(message.code, message.text)
                if message.ends:
                    await link.ws.close()
                    return refused
                self._events.on_rejected(refused)
            else:
                await self._take(link, message)
            self._tell()
        await link.ws.close()
        return ServerUnreachable(f"{self.server} sends what no signaling server sends: check the link's host")

    async def _take(self, link: _Link, message: Reported) -> None:
        match message:
            case Joined(member):
                await self._arrive(link.ws, member)
            case Left(peer, reason):
                if self._roster.left(peer):
                    self._events.on_left(peer, reason)
            case Relay(signal):
                self._believe(lambda: self._deliver(self._roster.accept(signal, link.own)))
            case Revoked(revocation):
                self._believe(partial(self._revoked, revocation))
            case Admitted(membership):
                self._believe(lambda: self._became_member(membership))
            case Ice(servers):
                self.ice_servers = servers
            case Registered(request, code, text):
                waiting = link.registering.pop(request, None)
                if waiting is not None and not waiting.done():
                    if code:
                        waiting.set_exception(from_wire(code, text))
                    else:
                        waiting.set_result(None)
                elif code:
                    self._events.on_rejected(from_wire(code, text))
            case Challenge() | Welcome():
                self._events.on_rejected(OutOfOrder("the server greets a second time on one socket"))
            case _:
                assert_never(message)

    async def _arrive(self, ws: aiohttp.ClientWebSocketResponse, member: Presence) -> None:
        try:
            if not self._roster.arrived(member, self._settings.now_unix()):
                return
        except SignalingError as error:
            self._notices.append(partial(self._events.on_rejected, error))
            return
        self._notices.append(partial(self._events.on_member, member))
        if self._credentials.is_founder and member.membership is None and member.role is not Role.FOUNDER:
            membership = make_membership(self._credentials.invite, member.person_key, member.grant)
            with suppress(NotConnected):  # then it is done at the next join
                await _send(ws, Admit(membership))

    def _became_member(self, membership: Grant) -> None:
        own = self._credentials
        if (membership.key, membership.via) == (own.person.public.encoded, own.invite.public.encoded):
            verify_grant(membership, own.mesh)
            self._credentials = replace(own, membership=membership)
            self._notices.append(partial(self._events.on_membership, membership))
        self._roster.admitted(membership)  # of others, and of this person's other peers

    def _revoked(self, revocation: Revocation) -> None:
        self._out(self._roster.revoked(revocation), "InviteRevoked")

    def _deliver(self, signal: Signal) -> None:
        match signal.kind:
            case SignalKind.OFFER | SignalKind.ANSWER:
                self._events.on_description(signal.sender, signal.connection, signal.kind, signal.text)
            case SignalKind.CANDIDATE:
                self._events.on_candidate(signal.sender, signal.connection, signal.text)
            case _:
                assert_never(signal.kind)

    def _believe(self, step: Callable[[], None]) -> None:
        """Do something that verifies; what does not hold is reported and has no effect."""
        try:
            step()
        except SignalingError as error:
            self._notices.append(partial(self._events.on_rejected, error))

    def _out(self, peers: list[str], reason: str) -> None:
        for peer in peers:
            self._notices.append(partial(self._events.on_left, peer, reason))

    def _tell(self) -> None:
        notices, self._notices = self._notices, []
        for notice in notices:
            notice()

    # --- sending

    def _connected(self) -> _Link:
        if self._link is None:
            raise NotConnected(
                "the signaling server is away: connections go on, new ones wait until it is back"
            )
        return self._link

    async def _signal(self, to: str, kind: SignalKind, connection: bytes, text: str) -> None:
        link = self._connected()
        signal = make_signal(
            self._credentials.identity, link.own, self._roster.find(to), kind, connection, text
        )
        await _send(link.ws, Relay(signal))

    async def _register(self, grants: tuple[Grant, ...], revocations: tuple[Revocation, ...]) -> None:
        link = self._connected()
        for some_grants, some_revocations in _batches(list(grants), list(revocations)):
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._requests += 1
            request = self._requests
            link.registering[request] = done
            try:
                await _send(link.ws, Register(request, some_grants, some_revocations))
                async with asyncio.timeout(ANSWER_WITHIN_S):
                    await done
            except TimeoutError as error:
                raise NotConnected("the signaling server did not confirm in time") from error
            finally:
                done.cancel()
                link.registering.pop(request, None)


def _batches(
    grants: list[Grant], revocations: list[Revocation]
) -> list[tuple[tuple[Grant, ...], tuple[Revocation, ...]]]:
    longest = max(len(grants), len(revocations))
    return [
        (tuple(grants[i : i + MAX_BATCH]), tuple(revocations[i : i + MAX_BATCH]))
        for i in range(0, longest, MAX_BATCH)
    ]


async def _send(ws: aiohttp.ClientWebSocketResponse, message: ClientMessage) -> None:
    try:
        await ws.send_str(encode(message))
    except (ConnectionError, aiohttp.ClientError) as error:
        raise NotConnected("the signaling server went away while a message was sent") from error


async def _next(ws: aiohttp.ClientWebSocketResponse) -> ServerMessage:
    """The next message. Raises a MessageError, or ServerUnreachable when the socket has ended."""
    frame = await ws.receive()
    match frame.type:
        case aiohttp.WSMsgType.TEXT:
            return decode_server(frame.data)
        case aiohttp.WSMsgType.BINARY:
            raise MalformedMessage("the server sent a binary frame, messages are text")
        case _:
            raise ServerUnreachable("the signaling server closed the connection")
