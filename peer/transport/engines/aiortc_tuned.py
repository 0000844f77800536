"""Decides how aiortc's packets take a shorter way: no task and no acknowledgement of its own for each packet.

aiortc puts every datagram into a queue that a task empties, sends from a task of its own, acknowledges each packet
with another, starts with a window of three packets and never sends more than four in a row. These subclasses replace
those steps by others that RFC 9260 allows as well:

- a datagram is decrypted and handled where it arrives, and a message is sent where send() is called;
- every fourth packet is acknowledged, or fewer after SACK_DELAY_S (section 6.2 allows 200 ms), gaps at once, and an
  acknowledgement rides in a packet with data that has room for it (section 6.10);
- the window starts at ten packets, as in Chrome's dcSCTP and in TCP (RFC 6928), and a burst may have sixteen: a hidden
  state of 8 KB, and once the window has grown one of 16 KB, crosses a slow link in one round trip instead of three;
- between two peers of one machine a packet has up to 9000 bytes, since what a packet costs hardly depends on its size
  (docs/protocol.md, Connections and channels): both sides say in their SDP that they take such, the path is within the
  machine, and the other side has acknowledged something, so that it takes packets as described here.

They reach into aiortc and aioice, so tune() first checks that everything it touches is there, and otherwise leaves the
connection as aiortc made it. A test checks that with the installed versions nothing is missing.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Generator
from ipaddress import ip_address
from struct import pack
from types import coroutine
from typing import Any, Final, cast

from aiortc import RTCDataChannel, rtcsctptransport
from aiortc.rtcdtlstransport import RTCDtlsTransport, State
from aiortc.rtcsctptransport import Chunk, DataChunk, RTCSctpTransport, SackChunk
from google_crc32c import value as crc32c
from OpenSSL import SSL

from peer.transport.engines.aiortc_ice import BoundConnection

SACK_EVERY_PACKETS: Final = (
    4  # RFC 9260 says 2; at 4 the answer to a frame of a few packets acknowledges all of them
)
SACK_DELAY_S: Final = (
    0.02  # longer than a stage computes a token, so that its answer carries the acknowledgement
)
WINDOW_PACKETS: Final = 10
BURST_PACKETS: Final = 16  # a float32 hidden state of 4096
LOCAL_PACKET_BYTES: Final = 9000  # with DTLS below 9216, the most that macOS sends in a datagram
LOCAL_WINDOW_PACKETS: Final = 10  # on their way within a machine: a socket's buffer of 208 KiB holds them
LOCAL_LINE: Final = f"a=x-shoal-local-packet:{LOCAL_PACKET_BYTES}"  # in an SDP
_SACK_BYTES: Final = 16  # without gaps
_LOCAL_DATA_BYTES: Final = (
    LOCAL_PACKET_BYTES
    - rtcsctptransport.SCTP_COMMON_HEADER_LENGTH
    - rtcsctptransport.SCTP_DATA_CHUNK_HEADER_LENGTH
)
_DATAGRAM_BYTES: Final = 1500
_MOST_DATAGRAM_BYTES: Final = 9216

_USED: Final[dict[str, tuple[str, ...]]] = {
    "sctp": (
        *("_advertised_rwnd", "_cwnd", "_fast_recovery_exit", "_flight_size", "_flight_size_increase"),
        *(
            "_forward_tsn_chunk",
            "_last_received_tsn",
            "_local_port",
            "_loop",
            "_outbound_queue",
            "_remote_port",
        ),
        *("_local_tsn", "_outbound_stream_seq", "_send"),
        *("_remote_max_message_size", "_remote_verification_tag", "_sack_duplicates", "_sack_misordered"),
        *("_sack_needed", "_sent_queue", "_t3_handle", "_t3_start", "_data_channel_queue", "State"),
        *("_data_channel_flush", "_data_channel_send", "_handle_data", "_receive_sack_chunk", "_send_chunk"),
        *("_rto", "_send_sack", "_set_state", "_t3_cancel", "_t3_expired", "_t3_restart", "_transmit"),
    ),
    "dtls": ("_data_receiver", "_ssl", "_state", "_write_ssl"),
    "ice": ("_nominated", "_queue"),
    "rtcsctptransport": (
        *("SCTP_DATA_CHUNK_HEADER_LENGTH", "SCTP_COMMON_HEADER_LENGTH", "SCTP_MAX_PACKET_LENGTH"),
        *("SCTP_DATA_FIRST_FRAG", "SCTP_DATA_LAST_FRAG", "USERDATA_MAX_LENGTH", "WEBRTC_BINARY"),
    ),
}


def missing(sctp: RTCSctpTransport) -> list[str]:
    """What tune() needs of aiortc and aioice and does not find; empty for the versions it was written for."""
    dtls = sctp.transport
    parts: dict[str, Any] = {
        "sctp": sctp,
        "dtls": dtls,
        "ice": dtls.transport._connection,
        "rtcsctptransport": rtcsctptransport,
    }
    return [
        f"{part}.{name}" for part, names in _USED.items() for name in names if not hasattr(parts[part], name)
    ]


def tune(sctp: RTCSctpTransport, broken: Callable[[str], None]) -> bool:
    """Gives a transport that has not started the shorter way. False: this aiortc is another, nothing was changed.

    `broken(reason)` is called when a packet of the other side makes aiortc fail.
    """
    ice = sctp.transport.transport._connection
    whole = type(sctp) is RTCSctpTransport and type(sctp.transport) is RTCDtlsTransport
    if not whole or not isinstance(ice, BoundConnection) or missing(sctp):
        return False
    sctp.transport.__class__ = TunedDtls
    cast(TunedDtls, sctp.transport).broken = broken
    sctp.__class__ = TunedSctp
    sctp._cwnd = WINDOW_PACKETS * rtcsctptransport.USERDATA_MAX_LENGTH
    return True


class TunedDtls(RTCDtlsTransport):
    """Datagrams decrypted where they arrive, packets encrypted and sent where they are made."""

    broken: Callable[[str], None]

    def take_datagram(self, data: bytes) -> None:
        """A datagram from the connected ICE transport: SCTP within DTLS is handled now, the rest as aiortc does."""
        ice = self._transport._connection
        receiver = self._data_receiver
        if not 19 < data[0] < 64 or receiver is None or self._ssl is None:
            ice._queue.put_nowait((data, 1))
            return
        self._ssl.bio_write(data)
        try:
            packet = self._ssl.recv(_MOST_DATAGRAM_BYTES)
        except SSL.ZeroReturnError:
            ice._queue.put_nowait(
                None
            )  # closed by the other side: aiortc's task ends on this as on a lost socket
            return
        except SSL.Error:
            run_now(self._write_ssl())
            return
        try:
            run_now(receiver._handle_data(packet))
        except (
            Exception
        ) as error:  # aiortc trusts the other side's SCTP in places; this ends its connection alone
            self.broken(f"a packet broke the transport ({error!r})")

    def send_packet(self, packet: bytes) -> None:
        """Encrypts and sends one SCTP packet. Raises ConnectionError when there is no way."""
        pair = self._transport._connection._nominated.get(1)
        if self._state is not State.CONNECTED or pair is None or self._ssl is None:
            raise ConnectionError("not connected")
        try:
            self._ssl.send(packet)
        except SSL.Error as error:  # shut down, which the state tells a moment later
            raise ConnectionError(f"not connected ({error!r})") from error
        most = _DATAGRAM_BYTES if len(packet) < _DATAGRAM_BYTES // 2 else _MOST_DATAGRAM_BYTES
        pair.protocol.transport.sendto(self._ssl.bio_read(most), pair.remote_addr)

    def is_local(self) -> bool:
        """Whether the datagrams stay within this machine."""
        pair = self._transport._connection._nominated.get(1)
        if pair is None:
            return False
        mine, theirs = pair.local_candidate, pair.remote_candidate
        if "relay" in (mine.type, theirs.type):
            return False
        return mine.host == theirs.host or (is_loopback(mine.host) and is_loopback(theirs.host))


class TunedSctp(RTCSctpTransport):
    """An SCTP association that sends at once, acknowledges less often and starts with a larger window."""

    _loop: asyncio.AbstractEventLoop
    takes_local = False  # the other side has said LOCAL_LINE
    _is_local = False  # packets of LOCAL_PACKET_BYTES are sent
    _flushing = False
    _resending = False
    _unacked_packets = 0
    _sack_due_s = 0.0
    _sack_timer: asyncio.TimerHandle | None = None
    _t3_due_s = 0.0
    _t3_timer: asyncio.TimerHandle | None = None

    def _set_state(self, state: RTCSctpTransport.State) -> None:
        super()._set_state(state)
        dtls = cast(TunedDtls, self.transport)
        ice = dtls.transport._connection
        if state is self.State.ESTABLISHED:
            ice.sink = dtls.take_datagram
        elif state is self.State.CLOSED:
            ice.sink = None
            self._cancel_sack()
            self._t3_stop()

    # Sending

    def _data_channel_send(self, channel: RTCDataChannel, data: bytes | str) -> None:
        limit_bytes = self._remote_max_message_size
        if not isinstance(data, bytes) or not data or (limit_bytes and len(data) > limit_bytes):
            super()._data_channel_send(channel, data)
            return
        channel._addBufferedAmount(len(data))
        self._data_channel_queue.append((channel, rtcsctptransport.WEBRTC_BINARY, data))
        if not self._flushing:
            run_now(self._data_channel_flush())

    async def _data_channel_flush(self) -> None:
        if self._flushing:
            return  # called from a handler of the flush that is under way, which takes what was queued since
        self._flushing = True
        try:
            with contextlib.suppress(ConnectionError):  # the transport's end is reported by its state
                await super()._data_channel_flush()
        finally:
            self._flushing = False

    async def _send(
        self,
        stream_id: int,
        pp_id: int,
        user_data: bytes,
        expiry: float | None = None,
        max_retransmits: int | None = None,
        ordered: bool = True,
    ) -> None:
        plain = ordered and expiry is None and max_retransmits is None
        if not self._is_local or not plain or len(user_data) <= rtcsctptransport.USERDATA_MAX_LENGTH:
            await super()._send(stream_id, pp_id, user_data, expiry, max_retransmits, ordered)
            return
        sequence = self._outbound_stream_seq.get(stream_id, 0)
        self._outbound_stream_seq[stream_id] = (sequence + 1) % (1 << 16)
        for start in range(0, len(user_data), _LOCAL_DATA_BYTES):
            chunk: Any = DataChunk()
            chunk.user_data = user_data[start : start + _LOCAL_DATA_BYTES]
            is_last = start + _LOCAL_DATA_BYTES >= len(user_data)
            chunk.flags = (0 if start else rtcsctptransport.SCTP_DATA_FIRST_FRAG) | (
                rtcsctptransport.SCTP_DATA_LAST_FRAG if is_last else 0
            )
            chunk.tsn = self._local_tsn
            self._local_tsn = (self._local_tsn + 1) % (1 << 32)
            chunk.stream_id, chunk.stream_seq, chunk.protocol = stream_id, sequence, pp_id
            chunk._abandoned = chunk._acked = chunk._in_flight = chunk._retransmit = False
            chunk._book_size = len(chunk.user_data)
            chunk._expiry = chunk._max_retransmits = chunk._sent_time = None
            chunk._misses = chunk._sent_count = 0
            self._outbound_queue.append(chunk)
        await self._transmit()

    async def _transmit(self) -> None:
        with contextlib.suppress(ConnectionError):  # nobody waits for the tasks that resend
            await self._transmit_due()

    async def _transmit_due(self) -> None:
        if self._resending or self._fast_recovery_exit is not None or self._forward_tsn_chunk is not None:
            await super()._transmit()
            self._resending = any(chunk._retransmit for chunk in self._sent_queue)
            return
        burst_bytes = BURST_PACKETS * rtcsctptransport.USERDATA_MAX_LENGTH
        limit_bytes = min(self._flight_size + burst_bytes, self._cwnd)
        if self._is_local:  # nothing is between but the buffer of a socket
            limit_bytes = LOCAL_WINDOW_PACKETS * LOCAL_PACKET_BYTES
        while self._outbound_queue and self._flight_size < limit_bytes:
            chunk = self._outbound_queue.popleft()
            self._sent_queue.append(chunk)
            self._flight_size_increase(chunk)
            chunk._sent_count += 1
            chunk._sent_time = time.time()
            await self._send_chunk(chunk)
            if not self._t3_handle:
                self._t3_start()

    async def _send_chunk(self, chunk: Chunk) -> None:
        body = bytes(chunk)
        if self._unacked_packets and isinstance(chunk, DataChunk):
            most = LOCAL_PACKET_BYTES if self._is_local else rtcsctptransport.SCTP_MAX_PACKET_LENGTH
            room = most - rtcsctptransport.SCTP_COMMON_HEADER_LENGTH
            if len(body) + _SACK_BYTES <= room and not self._sack_misordered and not self._sack_duplicates:
                body = self._plain_sack() + body
        head = pack("!HHL", self._local_port, self._remote_port, self._remote_verification_tag)
        checksum = crc32c(head + b"\0\0\0\0" + body)
        cast(TunedDtls, self.transport).send_packet(head + pack("<L", checksum) + body)

    async def _receive_sack_chunk(self, chunk: SackChunk) -> None:
        if chunk.gaps:
            self._resending = True
        if self.takes_local and not self._is_local:
            self._is_local = cast(TunedDtls, self.transport).is_local()
        await super()._receive_sack_chunk(chunk)

    # Acknowledging

    async def _send_sack(self) -> None:
        """Called for each packet with data. Gaps and repeats are acknowledged at once, the rest by count or time."""
        self._sack_needed = False
        if not self._unacked_packets:
            self._sack_due_s = self._loop.time() + SACK_DELAY_S
        self._unacked_packets += 1
        if self._sack_misordered or self._sack_duplicates:
            self._unacked_packets = 0
            await super()._send_sack()
        elif self._unacked_packets >= SACK_EVERY_PACKETS:
            await self._send_chunk(_Ready(self._plain_sack()))
        elif self._sack_timer is None:
            self._sack_timer = self._loop.call_at(self._sack_due_s, self._sack_late)

    def _plain_sack(self) -> bytes:
        self._unacked_packets = 0
        rwnd_bytes = max(0, self._advertised_rwnd)
        return pack("!BBHLLHH", SackChunk.type, 0, _SACK_BYTES, self._last_received_tsn, rwnd_bytes, 0, 0)

    def _sack_late(self) -> None:
        """The timer is left alone while packets come and go: it looks again when it fires."""
        self._sack_timer = None
        if not self._unacked_packets:
            return
        if self._loop.time() < self._sack_due_s:
            self._sack_timer = self._loop.call_at(self._sack_due_s, self._sack_late)
            return
        with contextlib.suppress(ConnectionError):  # the transport's end is reported by its state
            run_now(self._send_chunk(_Ready(self._plain_sack())))

    def _cancel_sack(self) -> None:
        if self._sack_timer is not None:
            self._sack_timer.cancel()
            self._sack_timer = None

    # The retransmission timer, moved instead of made anew for each acknowledgement

    def _t3_start(self) -> None:
        self._t3_restart()

    def _t3_restart(self) -> None:
        self._t3_due_s = self._loop.time() + self._rto
        if self._t3_timer is None or self._t3_timer.when() > self._t3_due_s:
            self._t3_stop()
            self._t3_timer = self._loop.call_at(self._t3_due_s, self._t3_late)
        self._t3_handle = self._t3_timer

    def _t3_cancel(self) -> None:
        self._t3_handle = None

    def _t3_stop(self) -> None:
        if self._t3_timer is not None:
            self._t3_timer.cancel()
            self._t3_timer = None

    def _t3_late(self) -> None:
        self._t3_timer = None
        if self._t3_handle is None:
            return
        if self._loop.time() < self._t3_due_s:
            self._t3_handle = self._t3_timer = self._loop.call_at(self._t3_due_s, self._t3_late)
            return
        self._resending = True
        self._t3_expired()


def with_local_line(sdp: str) -> str:
    """A description, whose last medium is the data channels', that says that this side takes larger packets."""
    return f"{sdp.rstrip()}\r\n{LOCAL_LINE}\r\n"


def has_local_line(sdp: str) -> bool:
    """Whether the other side takes packets of LOCAL_PACKET_BYTES within a machine."""
    return LOCAL_LINE in sdp.splitlines()


def is_loopback(host: str) -> bool:
    """Whether an address is one of this machine's alone. False for what is none."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class _Ready(Chunk):
    """A chunk whose bytes are made."""

    def __init__(self, encoded: bytes) -> None:
        super().__init__()
        self._encoded = encoded

    def __bytes__(self) -> bytes:
        return self._encoded


def run_now(step: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine of aiortc to its end here and now. None of those here waits; one that did becomes a task."""
    try:
        waited_for = step.send(None)
    except StopIteration:
        return
    task = asyncio.get_running_loop().create_task(_rest(step, waited_for))
    _unfinished.add(task)
    task.add_done_callback(_unfinished.discard)


_unfinished: Final[set[asyncio.Task[None]]] = set()


async def _rest(step: Coroutine[Any, Any, None], waited_for: Any) -> None:
    """Goes on with a coroutine that waits for `waited_for`."""
    with contextlib.suppress(StopIteration):
        while True:
            try:
                answer = await _handed_on(waited_for)
            except Exception as error:
                waited_for = step.throw(error)
            else:
                waited_for = step.send(answer)


@coroutine
def _handed_on(waited_for: Any) -> Generator[Any, Any, Any]:
    return (yield waited_for)
