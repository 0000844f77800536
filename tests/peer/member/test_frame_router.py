"""Every kind of frame has somebody who takes it, and what travels in bundles is taken one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from peer.errors import WrongChannel
from peer.limits import LOWEST_VERSION
from peer.member.peer_parts import PeerParts
from peer.wire.bundles import bundled
from peer.wire.generated.frames import Frame, Hello, Here, Ping, Refuse, Token, Where
from planner.model.store import Store


def parts() -> PeerParts:
    def engine() -> Any:
        raise AssertionError("nothing is dialled here")

    async def signal(*_: Any) -> None:
        raise AssertionError("nobody is signalled here")

    hello = Hello(LOWEST_VERSION, "me", "me", "test")
    return PeerParts(hello, engine, signal, lambda: bytes(16), Store(Path("/nonexistent")))


def answers(made: PeerParts, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Frame]]:
    """What goes out from now on."""
    sent: list[tuple[str, Frame]] = []
    monkeypatch.setattr(made.links, "send_or_lose", lambda peer, frame: sent.append((peer, frame)))
    return sent


async def test_somebody_takes_each_kind_of_frame() -> None:
    assert parts().router.kinds == frozenset(get_args(Frame))


async def test_what_comes_bundled_is_answered_as_what_comes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = parts()
    sent = answers(made, monkeypatch)
    asks: list[Frame] = [Where(bytes([number]) * 16, 1, 0) for number in range(3)]
    for frame in asks:
        made.router.frame("b", frame)
    alone = list(sent)
    assert [type(frame) for _, frame in alone] == [Here] * 3
    sent.clear()
    (bundle,) = bundled([*asks, Token(bytes(16), 1, 0, 5, 0)])
    made.router.frame("b", bundle)
    frames = [frame for _, frame in sent]
    assert len(sent) == 1, "what a stage says about frames that came together goes together"
    assert bundled([frame for _, frame in alone]) == frames


@pytest.mark.parametrize("frame", [Ping(1), Refuse(bytes(16), 1, 0, 0, 0, 1, "no")])
async def test_what_belongs_to_the_connection_or_to_nobody_changes_nothing(
    frame: Frame, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = parts()
    sent = answers(made, monkeypatch)
    made.router.frame("b", frame)
    assert sent == []
    assert made.stage.touched.is_set()


async def test_a_bundle_holds_no_frame_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    made = parts()
    monkeypatch.setattr("peer.member.frame_router.frames_of", lambda _: [Ping(1)])
    (bundle,) = bundled([Where(bytes(16), 1, 0), Where(bytes(16), 2, 0)])
    with pytest.raises(WrongChannel, match="Ping does not travel in bundles"):
        made.router.frame("b", bundle)
