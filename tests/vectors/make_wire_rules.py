"""Writes wire_rules.json: which frames must stay in order, and which travel together in a bundle."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from make_frames import FRAMES, SESSION
from tracing import beside, written

from peer.errors import FrameError
from peer.limits import MAX_BUNDLE_FRAMES
from peer.wire.bundles import BUNDLE_BYTES, bundled, frames_of
from peer.wire.frame_codec import channel_of, encode, sessions_of
from peer.wire.generated.frames import Bundle, Channel, Frame, Ping, Release, Step, Token
from peer.wire.tensors import tensor_of

PATH = beside(__file__, "wire_rules.json")
SEED = 20261129
OTHER = bytes(reversed(range(16)))
BROKEN = (Bundle((3, 1), b"abcd"), Bundle((), b""))  # of frames.json: they hold no frames


def token(session: bytes, position: int) -> Token:
    return Token(session, 1, position, 7, 0)


def step(rows: int) -> Step:
    return Step(SESSION, 1, 1, 0, rows, 0, tensor_of(np.ones((rows, 576), np.float32)))


def together(*frames: Frame) -> Bundle:
    parts = [encode(frame) for frame in frames]
    return Bundle(tuple(len(part) for part in parts), b"".join(parts))


def orders() -> list[dict[str, Any]]:
    """The keys of every kind of frame; "" is that of frames of no session."""
    bundles = (
        together(token(SESSION, 1)),
        together(token(OTHER, 1), token(SESSION, 1), token(OTHER, 2)),
        together(token(SESSION, 1), *(frame for frame in FRAMES if type(frame).__name__ == "Probe")),
    )
    return [
        {"hex": encode(frame).hex(), "sessions": [key.hex() for key in sessions_of(frame)]}
        for frame in (*FRAMES, *bundles)
        if frame not in BROKEN
    ]


def lists() -> dict[str, tuple[Frame, ...]]:
    rng = random.Random(SEED)
    data = tuple(frame for frame in FRAMES if channel_of(frame) is Channel.DATA and frame not in BROKEN)
    mixed = tuple(frame for frame in FRAMES if frame not in BROKEN)
    named: dict[str, tuple[Frame, ...]] = {
        "nothing": (),
        "one": (token(SESSION, 1),),
        "three": (token(SESSION, 1), token(OTHER, 1), Release(SESSION)),
        "the control channel has an order of its own": (
            token(SESSION, 1),
            Ping(1),
            token(SESSION, 2),
            token(OTHER, 1),
        ),
        "a bundle stays as it is": (token(SESSION, 1), together(token(OTHER, 1)), token(SESSION, 2)),
        "every kind of the data channel": data,
    }
    return named | {f"mixed {number}": tuple(rng.choices(mixed, k=9)) for number in range(6)}


def sizes() -> list[dict[str, Any]]:
    """Frames too many or too long for one bundle, by how many rows a step has; 0: a token. And how many frames go."""
    traces = {
        "a batch": [1] * 8,
        "two of them fill a bundle": [50] * 3,
        "a large frame goes alone": [BUNDLE_BYTES // (576 * 4) + 2, 0, 0],
        "too many": [0] * (MAX_BUNDLE_FRAMES + 1),
        "between large ones": [0, 100, 0, 100, 0],
    }
    return [
        {
            "name": name,
            "rows": rows,
            "sent": [
                len(encode(frame)) for frame in bundled([step(n) if n else token(SESSION, 1) for n in rows])
            ],
        }
        for name, rows in traces.items()
    ]


def opened(bundle: Bundle) -> list[str] | str:
    try:
        return [encode(frame).hex() for frame in frames_of(bundle)]
    except FrameError as error:
        return type(error).__name__


def bundles() -> list[dict[str, Any]]:
    whole = together(token(SESSION, 1), Release(OTHER))
    cases = (
        whole,
        *BROKEN,
        Bundle(whole.sizes, whole.body[:-1]),
        Bundle(whole.sizes, whole.body + b"\0"),
        Bundle((whole.sizes[0] - 1, whole.sizes[1] + 1), whole.body),
        together(whole),
        together(Ping(1)),
    )
    return [{"sizes": list(case.sizes), "body": case.body.hex(), "frames": opened(case)} for case in cases]


def text() -> str:
    tables = {
        "orders": orders(),
        "bundled": [
            {
                "name": name,
                "frames": [encode(frame).hex() for frame in frames],
                "sent": [encode(frame).hex() for frame in bundled(frames)],
            }
            for name, frames in lists().items()
        ],
        "sizes": sizes(),
        "bundles": bundles(),
    }
    return written("order keys of frames, and bundles", tables)


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
