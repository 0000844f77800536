"""What a peer says of its arithmetic when it measured itself once more: what is loaded computes as before."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from peer.member.lending import profile_of
from peer.member.peer_options import PeerOptions
from peer.member.remeasure import MeasuringAgain
from peer.runtime.self_benchmark import UnitTimes
from peer.state.generated.commands import Member, MemberMeasured

OPTIONS = PeerOptions("p", 1 << 30, 1, "cpu", "aiortc", ("127.0.0.1",))
A, B = "cpu/avx2/rows-1/0123456789abcdef", "cpu/avx2/rows-1/9f3ac1d2e4b07755"
FIRST = UnitTimes({"attn": 1e-3}, {"attn": 1e-4}, 1e-5, {"attn": 1e-4}, 1000, A)


@pytest.mark.parametrize(
    ("first", "again", "in_log", "said"),
    [
        (A, B, A, A),
        (A, A, "", A),  # a leader of an older version left it out
        ("", B, "", B),
        (A, "", A, A),
    ],
)
async def test_a_class_is_kept_and_times_are_new(first: str, again: str, in_log: str, said: str) -> None:
    told: list[MemberMeasured] = []

    async def tell(command: MemberMeasured, *, again: bool) -> None:
        assert again
        told.append(command)

    def measure(*_: object) -> UnitTimes:
        raise AssertionError("nobody asked for a measurement")

    view: Any = SimpleNamespace(measured=tell)
    nothing: Any = None
    times = replace(FIRST, arithmetic=first)
    measuring = MeasuringAgain(view, nothing, nothing, OPTIONS, times, lambda: False, measure)
    profile = replace(profile_of(OPTIONS, FIRST), arithmetic=in_log)
    fresh = replace(FIRST, decode_s={"attn": 2e-3}, arithmetic=again)
    await measuring._tell(Member("p", "p", True, "measured", profile), fresh)
    (command,) = told
    assert (command.profile.arithmetic, command.profile.decode_ns) == (said, {"attn": 2_000_000})


def test_a_peer_of_before_says_no_class() -> None:
    assert profile_of(OPTIONS, FIRST).arithmetic == A
    assert profile_of(replace(OPTIONS, older=True), FIRST).arithmetic == ""
