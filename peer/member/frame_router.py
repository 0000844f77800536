"""Which part of this peer takes a frame: one table from the kind of a frame to who takes it.

Frames of sessions concern the stages here, the sessions asked here, or both; what stages decide about frames that came
together is performed at once. Edge.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from peer.coordination.leadership import Leadership
from peer.errors import WrongChannel
from peer.model.local_model import LocalModel
from peer.origin.session_host import SessionHost
from peer.replication.mesh_view import MeshView
from peer.session.effects import StageEffect
from peer.stage.flow_host import FlowHost
from peer.stage.stage_host import StageHost
from peer.transport.peer_links import PeerLinks
from peer.wire.bundles import frames_of
from peer.wire.generated.frames import (
    Bundle,
    Bye,
    ByeAck,
    Cancel,
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
    Token,
    Where,
)

OF_CONNECTIONS: Final = (Hello, Ping, Pong, Bye, ByeAck, Credit)  # the connection takes them itself

AtStage = Callable[[float, str, Any], list[StageEffect]]  # now, sender, frame
AtOrigin = Callable[[float, str, Any], None]
Alone = Callable[[str, Any], None]  # sender, frame


class FrameRouter:
    """Hands on what comes in over links, and what becomes of connections."""

    def __init__(
        self,
        links: PeerLinks,
        view: MeshView,
        model: LocalModel,
        stage: StageHost,
        sessions: SessionHost,
        flow: FlowHost,
        leadership: Leadership,
    ) -> None:
        self._links = links
        self._view = view
        self._model = model
        self._stage = stage
        self._sessions = sessions
        self._flow = flow
        self._leadership = leadership
        core = stage.core
        self._at_stage: Mapping[type[Frame], AtStage] = {
            Step: core.step,
            Token: core.token,
            Open: core.open,
            Feed: core.feed,
            Where: lambda _, peer, frame: core.where(peer, frame),
            Cancel: lambda _, peer, frame: core.cancel(peer, frame),
            Release: lambda _, peer, frame: core.release(peer, frame),
        }
        self._at_origin: Mapping[type[Frame], AtOrigin] = {
            Step: sessions.handed_back,
            Token: sessions.frame,
            Feed: sessions.fed,
            Refuse: sessions.frame,
            Here: sessions.frame,
        }
        self._in_bundles: Mapping[type[Frame], Alone] = {
            Probe: links.probed,
            ProbeAck: links.acknowledged,
        }
        self._alone: Mapping[type[Frame], Alone] = {
            **self._in_bundles,
            Bundle: self._bundle,
            Request: links.requested,
            Response: links.responded,
            Consensus: view.received,
            PieceRequest: model.requested,
            Piece: model.came,
            RunValue: flow.value,
            RunGo: flow.go,
            RunItemFailed: flow.failed,
            **dict.fromkeys(OF_CONNECTIONS, _nothing),
        }
        links.on_connected(sessions.back)
        links.on_congestion(stage.congestion)
        links.on_gone(self._gone)

    @property
    def kinds(self) -> frozenset[type[Frame]]:
        """The kinds of frames that somebody takes."""
        return frozenset((*self._alone, *self._at_stage, *self._at_origin))

    def frame(self, peer: str, frame: Frame) -> None:
        """Takes a frame of `peer`, or of this peer itself. Raises a PeerError for one that ends the connection."""
        self._stage.touch()
        take = self._alone.get(type(frame))
        if take is not None:
            take(peer, frame)
        else:
            self._of_sessions(peer, [frame])

    def _bundle(self, peer: str, frame: Bundle) -> None:
        self._of_sessions(peer, frames_of(frame))

    def _of_sessions(self, peer: str, frames: list[Frame]) -> None:
        """Hands frames that came together to the stages and to sessions; what the stages decide is done at once."""
        now = time.monotonic()
        effects: list[StageEffect] = []
        for frame in frames:
            kind = type(frame)
            at_stage, at_origin = self._at_stage.get(kind), self._at_origin.get(kind)
            if at_stage is not None:
                effects += at_stage(now, peer, frame)
            if at_origin is not None:
                at_origin(now, peer, frame)
            elif at_stage is None:
                take = self._in_bundles.get(kind)
                if take is None:
                    raise WrongChannel(f"BUNDLE: {kind.__name__} does not travel in bundles")
                take(peer, frame)
        self._stage.perform(effects)
        self._stage.queue.look()

    def _gone(self, peer: str, reason: str, polite: bool) -> None:
        """Whom the end of a connection concerns, in this order: answers move before anybody is planned without."""
        self._model.gone(peer)
        self._stage.gone(peer)
        self._flow.gone(peer)
        self._sessions.gone(peer, reason, polite=polite)
        self._view.unreachable(peer)
        self._leadership.gone(peer, reason)


def _nothing(_: str, __: Frame) -> None:
    return
