"""Decides how frames are cut into pieces, in which order and how many go, and which pieces are refused.

Pure: the edge hands over what the engine has buffered and what arrived, and sends what these cores return.
The rules are those of docs/protocol.md, chapters Pieces and Flow control.
"""

from collections import Counter, deque
from typing import Final

from peer.errors import BackpressureExceeded, CreditExceeded, OversizeFrame, TruncatedFrame, WrongPiece
from peer.limits import (
    BULK_WATER_BYTES,
    GRANT_STEP_BYTES,
    HIGH_WATER_BYTES,
    MAX_QUEUED_BYTES,
    PIECE_BYTES,
    PIECE_VERSION,
    WINDOW_BYTES,
)
from peer.wire.frame_codec import MAX_FRAME_BYTES
from peer.wire.generated.frames import Channel

_FIRST: Final = 1
_LAST: Final = 2
_WHOLE: Final = bytes([PIECE_VERSION << 4 | _FIRST | _LAST])
_LENGTH_BYTES: Final = 4
_WHOLE_FRAME_BYTES: Final = PIECE_BYTES - len(_WHOLE)
_NO_SESSION: Final = (b"",)  # the orders of pieces of a model and of probes


class _Cut:
    """A frame on its way: the bytes before `at` have been cut off and sent."""

    __slots__ = ("at", "data", "orders")

    def __init__(self, data: bytes, orders: tuple[bytes, ...]) -> None:
        self.data = data
        self.orders = orders
        self.at = 0


class Sender:
    """The sending half of one channel.

    Frames that share a key of `orders` arrive in the order in which they were pushed. A short frame (one piece)
    goes before and between the pieces of long frames of other keys: a token never waits for a prompt. Of a long frame
    of no session the engine gets less at a time: nobody waits for it, and what is in the engine cannot be overtaken.
    """

    def __init__(self, channel: Channel, *, max_queued_bytes: int = MAX_QUEUED_BYTES) -> None:
        self._short: deque[bytes] = deque()
        self._long: deque[_Cut] = deque()
        self._long_orders: Counter[bytes] = Counter()
        self._max_queued_bytes = max_queued_bytes
        self._granted: int | None = None if channel is Channel.CONTROL else WINDOW_BYTES
        self._bulk_water_bytes = HIGH_WATER_BYTES if channel is Channel.CONTROL else BULK_WATER_BYTES
        self.queued_bytes = 0
        self.sent_bytes = 0

    def push(self, frame: bytes, orders: tuple[bytes, ...]) -> None:
        """Queues an encoded frame. Raises BackpressureExceeded when the queue would outgrow its bound."""
        if self.queued_bytes + len(frame) > self._max_queued_bytes:
            raise BackpressureExceeded(
                f"expected at most {self._max_queued_bytes} bytes to wait for this peer, got {len(frame)} "
                f"more on top of {self.queued_bytes}; wait for drained() before sending"
            )
        self.queued_bytes += len(frame)
        if len(frame) <= _WHOLE_FRAME_BYTES and self._long_orders.keys().isdisjoint(orders):
            self._short.append(frame)
        else:
            self._long.append(_Cut(frame, orders))
            self._long_orders.update(orders)

    def grant(self, total_bytes: int) -> None:
        """Takes a CREDIT; an older, smaller total changes nothing."""
        if self._granted is not None:
            self._granted = max(self._granted, total_bytes)

    def next(self, buffered_bytes: int) -> bytes | None:
        """The next piece to hand to an engine that has `buffered_bytes` waiting; None: nothing may go now."""
        if buffered_bytes >= HIGH_WATER_BYTES or not self.queued_bytes:
            return None
        if self._short:
            frame = self._short[0]
            piece = _WHOLE + frame
            if not self._pay(len(piece)):
                return None
            self._short.popleft()
            self.queued_bytes -= len(frame)
            return piece
        cut = self._long[0]
        if cut.orders == _NO_SESSION and buffered_bytes >= self._bulk_water_bytes:
            return None
        return self._cut_off(cut)

    def _cut_off(self, cut: _Cut) -> bytes | None:
        total = len(cut.data)
        if cut.at == 0 and total <= _WHOLE_FRAME_BYTES:
            head, stop = _WHOLE, total
        elif cut.at == 0:
            head = bytes([PIECE_VERSION << 4 | _FIRST]) + total.to_bytes(_LENGTH_BYTES, "little")
            stop = PIECE_BYTES - len(head)
        else:
            stop = min(total, cut.at + PIECE_BYTES - 1)
            head = bytes([PIECE_VERSION << 4 | (_LAST if stop == total else 0)])
        piece = head + cut.data[cut.at : stop]
        if not self._pay(len(piece)):
            return None
        self.queued_bytes -= stop - cut.at
        cut.at = stop
        if stop == total:
            self._long.popleft()
            self._long_orders -= Counter(cut.orders)  # drops keys that come to nothing
        return piece

    def _pay(self, piece_bytes: int) -> bool:
        if self._granted is not None and self.sent_bytes + piece_bytes > self._granted:
            return False
        self.sent_bytes += piece_bytes
        return True


class Receiver:
    """The receiving half of one channel: pieces in, whole frames out, credit counted."""

    def __init__(self, channel: Channel) -> None:
        self._max_frame_bytes = MAX_FRAME_BYTES[channel]
        self._parts: list[bytes] = []
        self._missing = 0  # bytes of the long frame that have not come; 0: none is open
        self._granted: int | None = None if channel is Channel.CONTROL else WINDOW_BYTES
        self._held = False
        self.received_bytes = 0

    def accept(self, piece: bytes) -> bytes | None:
        """The frame that this piece completes, or None. Raises the FrameError that names what is wrong."""
        if not 2 <= len(piece) <= PIECE_BYTES:
            error = OversizeFrame if len(piece) > PIECE_BYTES else TruncatedFrame
            raise error(f"expected a piece of 2 to {PIECE_BYTES} bytes, got {len(piece)}")
        self.received_bytes += len(piece)
        if self._granted is not None and self.received_bytes > self._granted:
            raise CreditExceeded(
                f"expected at most {self._granted} bytes on this channel so far, got {self.received_bytes}; "
                "wait for CREDIT"
            )
        head = piece[0]
        if head == _WHOLE[0]:
            if len(piece) - 1 > self._max_frame_bytes:
                raise self._oversize(len(piece) - 1)
            return piece[1:]
        if head >> 4 != PIECE_VERSION or head & 0x0F > _LAST:
            raise WrongPiece(
                f"expected piece version {PIECE_VERSION} and flags first, last or both, got {head:#04x}"
            )
        if head & _FIRST:
            self._begin(piece)
            return None
        return self._go_on(piece, last=bool(head & _LAST))

    def hold(self) -> None:
        """Stops granting: the consumer is behind. At most a window of bytes comes in meanwhile."""
        self._held = True

    def release(self) -> None:
        """Goes on granting; ask grant() what is due."""
        self._held = False

    def grant(self) -> int | None:
        """The total to announce in a CREDIT, or None while that would not be worth a frame."""
        if self._granted is None or self._held:
            return None
        due = self.received_bytes + WINDOW_BYTES
        if due - self._granted < GRANT_STEP_BYTES:
            return None
        self._granted = due
        return due

    def _begin(self, piece: bytes) -> None:
        if self._missing:
            raise WrongPiece(
                f"expected {self._missing} more bytes of a frame before another long one, got a first piece"
            )
        total = int.from_bytes(piece[1 : 1 + _LENGTH_BYTES], "little")
        body = piece[1 + _LENGTH_BYTES :]
        if total > self._max_frame_bytes:
            raise self._oversize(total)
        if not body or len(body) >= total:
            raise WrongPiece(
                f"expected a first piece to hold a part of its frame of {total} bytes, got {len(body)}"
            )
        self._missing = total - len(body)
        self._parts.append(body)

    def _go_on(self, piece: bytes, *, last: bool) -> bytes | None:
        if not self._missing:
            raise WrongPiece("expected the first piece of a frame, got a later one")
        self._missing -= len(piece) - 1
        if self._missing < 0 or (self._missing == 0) != last:
            raise WrongPiece(
                f"expected {self._missing} more bytes before the last piece"
                if self._missing > 0
                else f"expected the last piece to end its frame, got {-self._missing} bytes beyond, or no end"
            )
        self._parts.append(piece[1:])
        if not last:
            return None
        frame = b"".join(self._parts)
        self._parts.clear()
        return frame

    def _oversize(self, frame_bytes: int) -> OversizeFrame:
        return OversizeFrame(
            f"expected frames of at most {self._max_frame_bytes} bytes on this channel, got {frame_bytes}"
        )
