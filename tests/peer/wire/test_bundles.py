"""Frames that travel together: same frames, same order, and what a broken bundle is told."""

from __future__ import annotations

import numpy as np
import pytest

from peer.errors import FrameError
from peer.limits import MAX_BUNDLE_FRAMES
from peer.wire.bundles import BUNDLE_BYTES, bundled, frames_of
from peer.wire.frame_codec import decode, encode
from peer.wire.generated.frames import Bundle, Frame, Ping, Release, Step, Token
from peer.wire.tensors import tensor_of

SESSION = b"s" * 16
TOKEN = Token(SESSION, 1, 7, 42, 0)


def step(tokens: int, width: int = 576) -> Step:
    return Step(SESSION, 1, 1, 0, tokens, 0, tensor_of(np.ones((tokens, width), dtype=np.float32)))


def opened(frames: list[Frame]) -> list[Frame]:
    """What the receiver makes of them."""
    seen: list[Frame] = []
    for frame in frames:
        arrived = decode(encode(frame))
        seen += frames_of(arrived) if isinstance(arrived, Bundle) else [arrived]
    return seen


@pytest.mark.parametrize(
    ("frames", "messages"),
    [
        ([], 0),
        ([TOKEN], 1),
        ([TOKEN, TOKEN, Release(SESSION)], 1),
        ([TOKEN, Ping(1), TOKEN, TOKEN], 3),  # the control channel has an order of its own
        ([step(1)] * 8, 1),
        ([step(50)] * 3, 2),  # two of them fill a bundle
        ([step(200), TOKEN], 2),  # a large frame goes alone
        ([TOKEN] * (MAX_BUNDLE_FRAMES + 1), 2),
    ],
)
def test_bundling_keeps_frames_and_order(frames: list[Frame], messages: int) -> None:
    sent = bundled(frames)
    assert len(sent) == messages
    assert opened(sent) == frames
    assert all(len(encode(frame)) <= BUNDLE_BYTES + 1024 for frame in sent if isinstance(frame, Bundle))


INNER = encode(TOKEN)


@pytest.mark.parametrize(
    "bundle",
    [
        Bundle((len(INNER) + 1,), INNER),
        Bundle((len(INNER),), INNER + b"x"),
        Bundle((len(INNER) - 1, 1), INNER),
        Bundle((3,), b"abc"),
        Bundle((len(encode(Ping(1))),), encode(Ping(1))),
        Bundle((len(encode(Bundle((), b""))),), encode(Bundle((), b""))),
    ],
)
def test_a_broken_bundle_is_a_named_error(bundle: Bundle) -> None:
    with pytest.raises(FrameError):
        frames_of(bundle)
