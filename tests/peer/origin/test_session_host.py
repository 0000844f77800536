"""Whom sessions of this peer are led to when what they need is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from peer.errors import NoPlan
from peer.origin import session_host
from peer.origin.session_host import Outcome, SessionHost
from peer.session.ask import Ask
from peer.session.origin import OriginSession, Phase
from peer.session.routes import Route
from peer.session.sampling import GREEDY
from peer.state.generated.commands import (
    MemberJoined,
    ModelChosen,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanStage,
    UnitsHeld,
)
from peer.state.mesh_state import MeshState, apply
from peer.wire.generated.frames import Open

SESSION = bytes(range(16))
PLAN = PlanRecord(1, (PlanStage(0, 2, "a", ("c",)), PlanStage(2, 4, "b", ("a", "c"))), 0, 0)


def mesh() -> MeshState:
    """Two stages; who stands by for them has not said that it holds them."""
    state = apply(MeshState(term=1), ModelChosen("a" * 64, "toy", 4, 128, 2, "latency"))
    for peer, held in (("a", ((0, 2),)), ("b", ((2, 4),)), ("c", ())):
        state = apply(apply(state, MemberJoined(peer, peer, True)), UnitsHeld(peer, held))
    return apply(apply(state, PlanProposed(PLAN)), PlanActivated(1))


class Host:
    """A peer that asks, whose frames go nowhere."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, tuple[str, ...]]] = []
        self.outcomes: list[Outcome] = []

        async def ask_leader(*_: object) -> None:
            raise NoPlan("nobody coordinates now")

        def send(peer: str, frame: object) -> None:
            if isinstance(frame, Open):
                self.opened.append((peer, frame.route))

        dialer = SimpleNamespace(connection=lambda _: None, speaks=lambda _: 99, prepare=lambda _: None)
        links: Any = SimpleNamespace(
            me="asker", send_or_lose=send, spare=send, unreached=frozenset(), dialer=dialer
        )
        view: Any = SimpleNamespace(
            state=mesh(),
            replica=object(),
            subscribe=lambda _: None,
            ask_leader=ask_leader,
        )
        self.sessions = SessionHost(links, view)
        self.core = OriginSession(SESSION, "asker")
        self.sessions.attach(self.core, self.outcomes.append)
        asked = Ask((1, 2, 3), 10, GREEDY, (0,))
        self.sessions.perform(SESSION, self.core.begin(0.0, Route(1, ("a", "b")), asked))

    def lose(self, peer: str, now: float) -> None:
        """That peer is gone for good."""
        self.sessions.perform(SESSION, self.core.peer_gone(now, peer, "it was lost"))


@pytest.mark.parametrize(
    ("after_s", "opened"),
    [(0.0, []), (session_host.STRANDED_S - 0.1, []), (session_host.STRANDED_S, [("a", ("a", "a"))])],
)
async def test_who_is_to_hold_what_was_lost_is_asked_when_the_log_does_not_say_for_long(
    monkeypatch: pytest.MonkeyPatch, after_s: float, opened: list[tuple[str, tuple[str, ...]]]
) -> None:
    host = Host()
    host.opened.clear()
    monkeypatch.setattr("peer.origin.session_host.time.monotonic", lambda: 100.0 + after_s)
    host.lose("b", 100.0)
    assert host.opened == opened
    assert host.core.phase is (Phase.PREFILL if opened else Phase.REROUTING)
    assert not host.outcomes
    host.sessions.detach(SESSION)


async def test_a_stage_that_nobody_is_to_hold_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host()
    host.opened.clear()
    monkeypatch.setattr("peer.origin.session_host.time.monotonic", lambda: 200.0)
    for peer in ("b", "a", "c"):
        host.opened.clear()
        host.lose(peer, 100.0)
    assert not host.opened
    assert host.core.phase is Phase.REROUTING
    host.sessions.detach(SESSION)
