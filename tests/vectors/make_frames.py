"""Writes frames.json, which the Python and TypeScript suites replay. Run it after a change of the wire."""

import json
import random
from dataclasses import fields
from pathlib import Path
from typing import Any

from peer.errors import FrameError
from peer.limits import (
    GRANT_STEP_BYTES,
    HIGH_WATER_BYTES,
    HIGHEST_VERSION,
    LOWEST_VERSION,
    MAX_CONTROL_FRAME_BYTES,
    MAX_DATA_FRAME_BYTES,
    MAX_HEADER_BYTES,
    MAX_INT,
    PIECE_BYTES,
    WINDOW_BYTES,
)
from peer.transport.flow_control import Receiver, Sender
from peer.wire.frame_codec import channel_of, decode, encode
from peer.wire.generated.frames import (
    LAYOUTS,
    Bundle,
    Bye,
    ByeAck,
    Cancel,
    Channel,
    Consensus,
    Credit,
    Feed,
    Frame,
    Hello,
    Here,
    Open,
    Piece,
    PieceRequest,
    Ping,
    Pong,
    Probe,
    ProbeAck,
    Refuse,
    Release,
    Request,
    Response,
    RunGo,
    RunItemFailed,
    RunValue,
    Step,
    TeamEnd,
    TeamPart,
    TeamRows,
    TeamStep,
    Token,
    Where,
)
from peer.wire.tensors import Dtype, Tensor

PATH = Path(__file__).with_name("frames.json")
SESSION = bytes(range(16))

FRAMES: tuple[Frame, ...] = (
    Hello(3, "mfrggzdfmztwq2lk", "Ada's laptop", "shoal/0.1 (aiortc)"),
    Hello(3, "", "", ""),
    Ping(0),
    Ping(MAX_INT),
    Pong(255),
    Bye("leaving", 0),
    Bye("WrongField: Zahl erwartet, Größe 😀", 2**40),
    ByeAck(),
    Credit(2, WINDOW_BYTES + GRANT_STEP_BYTES),
    Request(7, "profile", b'{"units":["attn.0"]}'),
    Request(2**32, "ready", b""),
    Response(7, 0, "", b"[]"),
    Response(8, 404, "no such model", b"null"),
    Consensus(b"\x81\xa4kind\xa6append"),
    Consensus(b""),
    Open(
        *(SESSION, 1, 4, ("a", "b", "c"), 1, "a", 0, 45, 200, (0, -1, 950000), (2,), 0),
        *(0, 1, 0, 0, (45,), (), (), (1, 2, 49151)),
    ),
    Open(bytes(16), 0, 0, (), 0, "", 0, 0, 0, (), (), 0, 0, 0, 0, 0, (), (), (), ()),
    Open(
        *(SESSION, 7, 4, ("a", "b"), 1, "c", 319, 320, 64, (800000,), (2, 0), 2),
        *(1, 6, 2, 300, (45, 255, 18, 2), (0, 1), ("d", "a"), tuple(range(0, 70000, 500))),
    ),
    Step(SESSION, 1, 1, 45, 1, 1, Tensor(Dtype.FLOAT32, (1, 3), bytes.fromhex("0000803f000000c00000003f"))),
    Step(SESSION, 1, 0, 0, 3, 0, Tensor(Dtype.INT32, (3,), bytes.fromhex("01000000ffbf00007f000000"))),
    Step(SESSION, 1, 63, 0, 2, 0, Tensor(Dtype.FLOAT32, (2, 0), b"")),
    Token(SESSION, 1, 46, 284, 0),
    Token(SESSION, 1, 2**31, 2**31 - 1, 2),
    Token(SESSION, 2, 5, 7, 0, bytes.fromhex("07000000000080bf08000000000000c0")),
    Refuse(SESSION, 1, 2, 46, 40, 1, "expected position 40"),
    Cancel(SESSION, 1, 46, "stopped by the asker"),
    Release(SESSION),
    Probe(1, bytes(range(64))),
    ProbeAck(1, 64),
    Bundle((3, 1), b"abcd"),
    Bundle((), b""),
    Feed(SESSION, 2, 1, 300),
    Where(SESSION, 2, 0),
    Here(SESSION, 2, 1, 320, 300, 2**40),
    PieceRequest(3, bytes(range(32)), 2**22 - 9, 9),
    Piece(3, 0, b"weights"),
    Piece(2**40, 1, b""),
    RunValue(SESSION, 2, 7, 3, (1, 3, 2**20), 2**18, 2**18 + 5, b"value"),
    RunValue(SESSION, 1, 0, 0, (), 0, 0, b""),
    RunGo(SESSION, 2, 2**40),
    RunItemFailed(SESSION, 2, 7, "no memory"),
    TeamStep(
        SESSION, 3, 1, 2, 2, (45, 2**40), Tensor(Dtype.FLOAT32, (2, 1), bytes.fromhex("0000803f000000c0"))
    ),
    TeamStep(SESSION, 2**40, 2, 0, 1, (), Tensor(Dtype.FLOAT32, (1, 1), bytes.fromhex("0000803f"))),
    TeamPart(SESSION, 3, 61, 15, 1, Tensor(Dtype.FLOAT32, (1, 2), bytes.fromhex("0000803f000000c0"))),
    TeamRows(SESSION, 4, 0, (2, 128, 45, 46)),
    TeamRows(SESSION, 5, 2, ()),
    TeamEnd(SESSION, "a member was lost"),
)


def shown(frame: Frame) -> dict[str, Any]:
    """The fields of a frame as JSON: bytes in hex, a tensor by its parts."""

    def plain(value: Any) -> Any:
        match value:
            case Tensor():
                return {"dtype": int(value.dtype), "shape": list(value.shape), "data": value.data.hex()}
            case bytes():
                return value.hex()
            case tuple():
                return list(value)
            case _:
                return value

    return {field.name: plain(getattr(frame, field.name)) for field in fields(frame)}


def framed(header: str, payload: str = "") -> bytes:
    """Frame bytes for a msgpack header and a payload, both in hex."""
    raw = bytes.fromhex(header)
    return len(raw).to_bytes(4, "little") + raw + bytes.fromhex(payload)


SESSION_HEX = "c410" + SESSION.hex()
STEP = "9921" + SESSION_HEX
OPEN = "dc001420" + SESSION_HEX + "010190"
ABOVE = f"{HIGHEST_VERSION + 1:02x}"  # a version that this side does not speak
TURN = "00000000" + "909090"  # role, answer, before, keep; spans, shadow_stages, shadows
REJECTS: tuple[tuple[str, Channel, bytes], ...] = (
    ("no bytes", Channel.CONTROL, b""),
    ("header length cut short", Channel.CONTROL, b"\x05\x00\x00"),
    ("header longer than the frame", Channel.CONTROL, b"\x05\x00\x00\x00\x92\x02"),
    ("header length above the limit", Channel.DATA, (MAX_HEADER_BYTES + 1).to_bytes(4, "little") + b"\x92"),
    ("empty header", Channel.CONTROL, framed("")),
    ("msgpack that ends early", Channel.CONTROL, framed("9202")),
    ("msgpack with bytes to spare", Channel.CONTROL, framed("91050c")),
    ("msgpack's unused byte", Channel.CONTROL, framed("9202c1")),
    ("a map as header", Channel.CONTROL, framed("80")),
    ("an integer as header", Channel.CONTROL, framed("02")),
    ("an empty array as header", Channel.CONTROL, framed("90")),
    ("an extension type", Channel.CONTROL, framed("9202d60100000000")),
    ("a nest of arrays", Channel.CONTROL, framed("91" * 2000)),
    ("an array that claims 2^32-1 items", Channel.CONTROL, framed("92 02 dd ffffffff")),
    ("kind 0", Channel.CONTROL, framed("9100")),
    ("a kind of nobody", Channel.DATA, framed("913f")),
    ("a kind that is true", Channel.CONTROL, framed("92c300")),
    ("a kind that is text", Channel.CONTROL, framed("92a13200")),
    ("TOKEN on control", Channel.CONTROL, encode(Token(SESSION, 1, 1, 1, 0))),
    ("PING on data", Channel.DATA, encode(Ping(1))),
    ("HELLO above the highest version with a field more", Channel.CONTROL, framed(f"9601{ABOVE}a161a162a16305")),
    ("a field missing", Channel.CONTROL, framed("9102")),
    ("a field too many", Channel.CONTROL, framed("93020000")),
    ("a float for an integer", Channel.CONTROL, framed("9202cb3ff0000000000000")),
    ("a negative nonce", Channel.CONTROL, framed("9202ff")),
    ("a nonce of 2^53", Channel.CONTROL, framed("9202cf0020000000000000")),
    ("true for an integer", Channel.CONTROL, framed("9202c3")),
    ("nil for an integer", Channel.CONTROL, framed("9202c0")),
    ("text that is not UTF-8", Channel.CONTROL, framed("9304a1ff00")),
    ("bytes for text", Channel.CONTROL, framed("9304c4016100")),
    ("a reason of 4097 bytes", Channel.CONTROL, framed("9304da1001" + "61" * 4097 + "00")),
    ("a name of 129 bytes in 43 characters", Channel.CONTROL, framed("950103a0d981" + "e282ac" * 43 + "a0")),
    ("a payload after PING", Channel.CONTROL, framed("920200", "00")),
    ("credit for control", Channel.CONTROL, framed("93060100")),
    ("a session of 15 bytes", Channel.DATA, framed("9225c40f" + "00" * 15)),
    ("a session as text", Channel.DATA, framed("9225b0" + "61" * 16)),
    ("a range of no bytes", Channel.DATA, framed("9530" + "01" + "c420" + "00" * 32 + "0000")),
    ("a hash of 31 bytes", Channel.DATA, framed("9530" + "01" + "c41f" + "00" * 31 + "0001")),
    ("finish 3", Channel.DATA, framed("9622" + SESSION_HEX + "01010103")),
    ("history of 6 bytes", Channel.DATA, framed(OPEN + "00a0000000909000" + TURN, "00" * 6)),
    ("a negative token in history", Channel.DATA, framed(OPEN + "00a0000000909000" + TURN, "ff" * 4)),
    ("a negative token in end_tokens", Channel.DATA, framed(OPEN + "00a00000009091ff00" + TURN)),
    ("role 2", Channel.DATA, framed(OPEN + "00a0000000909000" + "02000000" + "909090")),
    ("a negative span", Channel.DATA, framed(OPEN + "00a0000000909000" + "00000000" + "91ff9090")),
    ("513 spans", Channel.DATA, framed(
        OPEN + "00a0000000909000" + "00000000" + "dc0201" + "01" * 513 + "9090")),
    ("a shadow of stage 64", Channel.DATA, framed(OPEN + "00a0000000909000" + "00000000" + "90914091a161")),
    ("129 shadows", Channel.DATA, framed(
        OPEN + "00a0000000909000" + "00000000" + "9090" + "dc0081" + "a0" * 129)),
    ("OPEN as protocol 1 had it", Channel.DATA, framed(
        "9d20" + SESSION_HEX + "010190" + "00a0000000909000")),
    ("FEED for stage 64", Channel.DATA, framed("9529" + SESSION_HEX + "014000")),
    ("HERE without its steps", Channel.DATA, framed("962b" + SESSION_HEX + "01000000")),
    ("WHERE with a payload", Channel.DATA, framed("942a" + SESSION_HEX + "0100", "00")),
    ("a step for stage 64", Channel.DATA, framed(STEP + "0140000100" + "01920101", "00" * 4)),
    ("step without tensor fields", Channel.DATA, framed("9721" + SESSION_HEX + "0101000100")),
    ("step with data type 9", Channel.DATA, framed(STEP + "0101000100" + "099101", "00" * 4)),
    ("step with a byte too few", Channel.DATA, framed(STEP + "0101000100" + "01920101", "00" * 3)),
    ("step with a byte too many", Channel.DATA, framed(STEP + "0101000100" + "01920101", "00" * 5)),
    ("step of 2 positions with 1 row", Channel.DATA, framed(STEP + "0101000200" + "01920101", "00" * 4)),
    ("step with 5 dimensions", Channel.DATA, framed(STEP + "0101000100" + "01950101010101", "00" * 4)),
    ("step whose shape overflows", Channel.DATA, framed(
        STEP + "0101000100" + "019301cf001fffffffffffffcf001fffffffffffff", "00" * 4)),
    ("step of no positions", Channel.DATA, framed(STEP + "0101000000" + "01920001")),
    ("team work of 3", Channel.DATA, framed("9940" + SESSION_HEX + "0103000190" + "01920101", "00" * 4)),
    ("a team step of 2 rows with 1", Channel.DATA, framed(
        "9940" + SESSION_HEX + "0100000290" + "01920101", "00" * 4)),
    ("a part of member 16", Channel.DATA, framed("9841" + SESSION_HEX + "01001001" + "01920101", "00" * 4)),
    ("rows of a team turned", Channel.DATA, framed("9542" + SESSION_HEX + "010390")),
    ("TEAM_END without its message", Channel.DATA, framed("9243" + SESSION_HEX)),
)  # fmt: skip


class Trace:
    """Operations on a Sender and a Receiver, with what they answered."""

    def __init__(self, name: str, channel: Channel) -> None:
        self.name = name
        self.channel = channel
        self.sender = Sender(channel)
        self.receiver = Receiver(channel)
        self.ops: list[dict[str, Any]] = []

    def push(self, frame_bytes: int, fill: int, order: str) -> None:
        self.sender.push(bytes([fill]) * frame_bytes, tuple(key.encode() for key in order))
        self.ops.append({"do": "push", "bytes": frame_bytes, "fill": fill, "orders": list(order)})

    def next(self, buffered_bytes: int = 0) -> bytes | None:
        piece = self.sender.next(buffered_bytes)
        self.ops.append(
            {"do": "next", "buffered": buffered_bytes, "piece": None if piece is None else _short(piece)}
        )
        return piece

    def credit(self, total_bytes: int) -> None:
        self.sender.grant(total_bytes)
        self.ops.append({"do": "credit", "total": total_bytes})

    def accept(self, piece: bytes) -> None:
        try:
            frame = self.receiver.accept(piece)
            gives: Any = None if frame is None else {"bytes": len(frame), "fill": frame[0]}
        except FrameError as error:
            gives = {"error": type(error).__name__}
        self.ops.append({"do": "accept", "piece": _short(piece), "gives": gives})

    def grant(self) -> int | None:
        total = self.receiver.grant()
        self.ops.append({"do": "grant", "gives": total})
        return total

    def hold(self, held: bool) -> None:
        (self.receiver.hold if held else self.receiver.release)()
        self.ops.append({"do": "hold" if held else "release"})

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "channel": int(self.channel), "ops": self.ops}


def _short(piece: bytes) -> dict[str, Any]:
    """Head in hex; the body is one byte many times over."""
    head = piece[:5] if piece and piece[0] & 3 == 1 else piece[:1]
    body = piece[len(head) :]
    return {"head": head.hex(), "bytes": len(body), "fill": body[0] if body else 0}


def _begin(frame_bytes: int, body: bytes) -> bytes:
    return b"\x11" + frame_bytes.to_bytes(4, "little") + body


def traces() -> list[Trace]:
    whole, middle, last = b"\x13", b"\x10", b"\x12"
    found: list[Trace] = []

    def trace(name: str, channel: Channel = Channel.DATA) -> Trace:
        found.append(Trace(name, channel))
        return found[-1]

    t = trace("a short frame goes whole")
    t.push(100, 1, "s")
    t.accept(t.next() or b"")
    t.next()

    t = trace("the longest frame of one piece, and one byte more")
    t.push(PIECE_BYTES - 1, 1, "s")
    t.push(PIECE_BYTES, 2, "s")
    while piece := t.next():
        t.accept(piece)

    t = trace("short frames go between the pieces of a long one, unless they belong behind it")
    t.push(3 * PIECE_BYTES, 1, "p")
    t.accept(t.next() or b"")
    t.push(10, 2, "p")
    t.push(20, 3, "o")
    while piece := t.next():
        t.accept(piece)

    t = trace("a frame of two keys waits for both, and holds up both")
    t.push(2 * PIECE_BYTES, 1, "a")
    t.push(10, 2, "ab")
    t.push(20, 3, "b")
    t.push(30, 4, "c")
    while piece := t.next():
        t.accept(piece)

    t = trace("long frames go one after another")
    t.push(2 * PIECE_BYTES, 1, "a")
    t.push(2 * PIECE_BYTES, 2, "b")
    while piece := t.next():
        t.accept(piece)

    t = trace("nothing goes to an engine that is full")
    t.push(10, 1, "s")
    t.next(HIGH_WATER_BYTES)
    t.next(HIGH_WATER_BYTES - 1)

    t = trace("credit runs out and comes back; an old total changes nothing")
    t.push(WINDOW_BYTES, 1, "s")
    while piece := t.next():
        t.receiver.accept(piece)
    t.ops = [t.ops[0], {"do": "drain"}]  # next(0), each piece accepted, until nothing comes
    t.next()
    t.credit(WINDOW_BYTES - 1)
    t.next()
    t.credit(t.grant() or 0)
    t.next()

    t = trace("a held receiver grants nothing, then all at once")
    t.hold(True)
    for _ in range(GRANT_STEP_BYTES // PIECE_BYTES + 1):
        t.receiver.accept(whole + bytes(PIECE_BYTES - 1))
        t.ops.append(
            {
                "do": "accept",
                "piece": _short(whole + bytes(PIECE_BYTES - 1)),
                "gives": {"bytes": PIECE_BYTES - 1, "fill": 0},
            }
        )
    t.grant()
    t.hold(False)
    t.grant()
    t.grant()

    t = trace("control needs no credit", Channel.CONTROL)
    t.grant()

    control, data = Channel
    for name, channel, pieces in (
        ("an empty piece", data, [b""]),
        ("a head alone", data, [whole]),
        ("a piece above 16 KiB", data, [whole + bytes(PIECE_BYTES)]),
        ("another piece version", data, [b"\x23ab"]),
        ("unknown flags", data, [b"\x17ab"]),
        ("a later piece first", data, [middle + b"ab"]),
        ("a last piece first", data, [last + b"ab"]),
        ("a frame above the limit of data", data, [_begin(MAX_DATA_FRAME_BYTES + 1, b"a")]),
        ("a frame above the limit of control", control, [_begin(MAX_CONTROL_FRAME_BYTES + 1, b"a")]),
        ("a first piece that holds its whole frame", data, [_begin(2, b"aa")]),
        ("a first piece without a body", data, [_begin(2, b"")]),
        ("a long frame inside another", data, [_begin(9, b"aa")] * 2),
        ("a last piece too early", data, [_begin(9, b"aa"), last + b"aa"]),
        ("a middle piece that completes", data, [_begin(4, b"aa"), middle + b"aa"]),
        ("a last piece too long", data, [_begin(4, b"aa"), last + b"aaa"]),
    ):  # fmt: skip
        t = trace(name, channel)
        for piece in pieces:
            t.accept(piece)

    t = trace("more than was granted")
    for _ in range(WINDOW_BYTES // PIECE_BYTES):
        t.receiver.accept(whole + bytes(PIECE_BYTES - 1))
    t.ops = [{"do": "fill"}]  # whole pieces of zeros accepted up to the window
    t.accept(whole + b"a")

    t = trace("a mixed run")
    rng = random.Random(2026)
    for step in range(60):
        t.push(
            rng.choice((1, 30, 2400, PIECE_BYTES - 1, PIECE_BYTES, 40_000)), step % 251 + 1, rng.choice("abc")
        )
        for _ in range(rng.randrange(4)):
            if piece := t.next(rng.choice((0, 0, HIGH_WATER_BYTES))):
                t.accept(piece)
    while piece := t.next():
        t.accept(piece)
    t.grant()
    return found


def error_of(channel: Channel, data: bytes) -> str:
    try:
        decode(data, channel)
    except FrameError as error:
        return type(error).__name__
    return "none"


def build() -> dict[str, Any]:
    kinds = {
        type(frame): layout.kind for frame in FRAMES for layout in LAYOUTS if layout.frame is type(frame)
    }
    return {
        "protocol": LOWEST_VERSION,
        "codec": [
            {
                "kind": kinds[type(frame)].name,
                "channel": int(channel_of(frame)),
                "fields": shown(frame),
                "hex": encode(frame).hex(),
            }
            for frame in FRAMES
        ],
        "reject": [
            {"why": why, "channel": int(channel), "hex": data.hex(), "error": error_of(channel, data)}
            for why, channel, data in REJECTS
        ],
        "flow": [trace.as_json() for trace in traces()],
    }


def text() -> str:
    """One line for each vector, so that a change shows as a change of that line."""
    built = build()
    rows = {
        name: ",\n".join(json.dumps(row, ensure_ascii=False) for row in built[name])
        for name in ("codec", "reject", "flow")
    }
    body = ",\n".join(f'"{name}": [\n{lines}\n]' for name, lines in rows.items())
    return f'{{"protocol": {built["protocol"]},\n{body}\n}}\n'


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
