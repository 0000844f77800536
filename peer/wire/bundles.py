"""Which data frames travel together: what one step made for one peer goes as one BUNDLE and is handled at once.

Pure. A batch of sessions thus reaches the next stage whole, and costs one message instead of many.
"""

from __future__ import annotations

from collections.abc import Sequence

from peer.errors import WrongField
from peer.limits import MAX_BUNDLE_FRAMES
from peer.wire.frame_codec import channel_of, decode, encode
from peer.wire.generated.frames import Bundle, Channel, Frame

BUNDLE_BYTES = 256 * 1024  # larger frames gain nothing from company


def bundled(frames: Sequence[Frame]) -> list[Frame]:
    """The same frames in the same order, with neighbours of the data channel put into bundles where that pays."""
    made: list[Frame] = []
    group: list[Frame] = []
    parts: list[bytes] = []
    size = 0

    def finish() -> None:
        nonlocal size
        if len(group) == 1:
            made.append(group[0])
        elif group:
            made.append(Bundle(tuple(len(part) for part in parts), b"".join(parts)))
        group.clear()
        parts.clear()
        size = 0

    for frame in frames:
        if channel_of(frame) is not Channel.DATA or isinstance(frame, Bundle):
            finish()
            made.append(frame)
            continue
        encoded = encode(frame)
        if size + len(encoded) > BUNDLE_BYTES or len(group) == MAX_BUNDLE_FRAMES:
            finish()
        group.append(frame)
        parts.append(encoded)
        size += len(encoded)
    finish()
    return made


def frames_of(bundle: Bundle) -> list[Frame]:
    """The frames inside. Raises a FrameError when sizes and bytes do not agree, or a part breaks its own rules."""
    if sum(bundle.sizes) != len(bundle.body):
        raise WrongField(
            f"BUNDLE: expected {sum(bundle.sizes)} bytes after the header, got {len(bundle.body)}"
        )
    frames: list[Frame] = []
    start = 0
    for size in bundle.sizes:
        frame = decode(bundle.body[start : start + size], Channel.DATA)
        if isinstance(frame, Bundle):
            raise WrongField("BUNDLE: expected frames other than bundles inside")
        frames.append(frame)
        start += size
    return frames
