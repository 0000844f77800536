"""Frames: vectors shared with TypeScript, every cut of every frame, and what encode refuses."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from peer.errors import FrameError, OversizeFrame, TruncatedFrame, WrongField
from peer.limits import MAX_CONTROL_FRAME_BYTES, MAX_HISTORY
from peer.wire.frame_codec import channel_of, decode, encode, sessions_of
from peer.wire.generated.frames import (
    LAYOUTS,
    Bundle,
    Bye,
    Channel,
    Frame,
    Kind,
    Open,
    Ping,
    Probe,
    Request,
    Step,
    Token,
)
from peer.wire.tensors import tensor_of

MAKER = runpy.run_path(str(Path(__file__).parents[2] / "vectors" / "make_frames.py"))
VECTORS = json.loads(MAKER["PATH"].read_text(encoding="utf-8"))
FRAMES: tuple[Frame, ...] = MAKER["FRAMES"]
SESSION = bytes(16)


def test_vectors_are_up_to_date() -> None:
    assert MAKER["PATH"].read_text(encoding="utf-8") == MAKER["text"](), "run tests/vectors/make_frames.py"


def test_every_kind_has_a_vector() -> None:
    assert {row["kind"] for row in VECTORS["codec"]} == {kind.name for kind in Kind}
    assert {layout.kind for layout in LAYOUTS} == set(Kind)


@pytest.mark.parametrize(
    ("frame", "row"), list(zip(FRAMES, VECTORS["codec"], strict=True)), ids=lambda v: type(v).__name__
)
def test_codec(frame: Frame, row: dict[str, object]) -> None:
    data = bytes.fromhex(str(row["hex"]))
    assert encode(frame) == data
    assert decode(data, Channel(int(str(row["channel"])))) == frame
    assert MAKER["shown"](decode(data)) == row["fields"]


@pytest.mark.parametrize("row", VECTORS["reject"], ids=lambda row: row["why"])
def test_reject(row: dict[str, str]) -> None:
    with pytest.raises(FrameError) as caught:
        decode(bytes.fromhex(row["hex"]), Channel(row["channel"]))
    assert type(caught.value).__name__ == row["error"]
    assert "expected" in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_cut_at_every_byte(frame: Frame) -> None:
    """A prefix is refused, unless the payload is free bytes and only that is cut."""
    data = encode(frame)
    body = getattr(frame, "body", getattr(frame, "history", b""))
    loose = len(body) * (1 if isinstance(body, bytes) else 4)
    for stop in range(len(data)):
        cut = data[:stop]
        if stop >= len(data) - loose and (isinstance(body, bytes) or (len(data) - stop) % 4 == 0):
            assert type(decode(cut)) is type(frame)
        else:
            with pytest.raises(FrameError):
                decode(cut)


def test_channels() -> None:
    assert channel_of(Ping(1)) is Channel.CONTROL
    assert channel_of(Token(SESSION, 0, 0, 0, 0)) is Channel.DATA


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (Ping(-1), WrongField),
        (Ping(True), WrongField),
        (Bye("é" * 2049, 0), WrongField),
        (Token(b"short", 0, 0, 0, 0), WrongField),
        (Request(1, "m", bytes(MAX_CONTROL_FRAME_BYTES)), OversizeFrame),
        (Probe(1, bytes(1024 * 1024 + 1)), OversizeFrame),
        (Step(SESSION, 0, 0, 0, 2, 0, tensor_of(np.zeros((1, 4), np.float32))), WrongField),
        (
            Open(
                *(SESSION, 0, 0, (), 0, "", 0, 0, 0, (), (), 0, 0, 0, 0, 0, (), (), ()),
                tuple(range(MAX_HISTORY + 1)),
            ),
            WrongField,
        ),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, type) else v.__name__,
)
def test_encode_refuses_what_the_receiver_would(frame: Frame, error: type[FrameError]) -> None:
    with pytest.raises(error):
        encode(frame)


def test_the_longest_history_fits() -> None:
    known = (SESSION, 0, 0, (), 0, "", 0, 0, 0, (), (), 0, 0, 0, 0, 0, (), (), ())
    opened = Open(*known, tuple(range(MAX_HISTORY)))
    assert decode(encode(opened)) == opened


def test_errors_do_not_show_what_people_wrote() -> None:
    header = bytes.fromhex("9304a6") + b"secret" + b"\xa6secret"
    with pytest.raises(WrongField) as caught:
        decode(len(header).to_bytes(4, "little") + header)
    assert "secret" not in str(caught.value)


def test_a_header_cannot_make_the_decoder_allocate_much() -> None:
    """Arrays nested in arrays, each claiming the most items: refused before they are filled."""
    header = b"\xdc\x04\x00" * 1000
    with pytest.raises((WrongField, TruncatedFrame)):
        decode(len(header).to_bytes(4, "little") + header)


@pytest.mark.parametrize("frame", [frame for frame in FRAMES if not isinstance(frame, Bundle)], ids=str)
def test_a_frame_belongs_to_the_session_that_it_names(frame: Frame) -> None:
    assert sessions_of(frame) == (getattr(frame, "session", b""),)


def test_sessions_of_frames_and_bundles() -> None:
    other = bytes([7]) * 16
    parts = [encode(Token(SESSION, 0, 0, 0, 0)), encode(Token(other, 0, 0, 0, 0)), encode(Probe(1, b""))]
    bundle = Bundle(tuple(map(len, parts)), b"".join(parts))
    assert sessions_of(decode(parts[1])) == (other,)
    assert sessions_of(bundle) == (b"", SESSION, other)
    assert sessions_of(Ping(1)) == (b"",)
