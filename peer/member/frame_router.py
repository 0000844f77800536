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
from peer.member.decoder_parts import AllDecoders
from peer.member.model_parts import OF_SESSIONS, ModelParts
from peer.replication.mesh_view import MeshView
from peer.session.effects import StageEffect
from peer.stage.flow_host import FlowHost
from peer.stage.session_requests import answer_of_sessions
from peer.stage.team_host import TeamHost
from peer.transport.peer_links import PeerLinks
from peer.wire.bundles import frames_of
from peer.wire.generated.frames import (
    Bundle,
    Bye,
    ByeAck,
    Consensus,
    Credit,
    Frame,
    Hello,
    Piece,
    PieceRequest,
    Ping,
    Pong,
    Probe,
    ProbeAck,
    Request,
    Response,
    RunGo,
    RunItemFailed,
    RunValue,
    TeamEnd,
    TeamPart,
    TeamRows,
    TeamStep,
)

OF_CONNECTIONS: Final = (Hello, Ping, Pong, Bye, ByeAck, Credit)  # the connection takes them itself

Alone = Callable[[str, Any], None]  # sender, frame


class FrameRouter:
    """Hands on what comes in over links, and what becomes of connections."""

    def __init__(
        self,
        links: PeerLinks,
        view: MeshView,
        own: ModelParts,
        decoders: AllDecoders,
        flow: FlowHost,
        teams: TeamHost,
        leadership: Leadership,
    ) -> None:
        self._links = links
        self._view = view
        self._own = own
        self._decoders = decoders
        self._flow = flow
        self._teams = teams
        self._leadership = leadership
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
            PieceRequest: self._piece_wanted,
            Piece: self._piece_came,
            RunValue: flow.value,
            RunGo: flow.go,
            RunItemFailed: flow.failed,
            TeamStep: teams.step,
            TeamRows: teams.step,
            TeamPart: teams.part,
            TeamEnd: teams.end,
            **dict.fromkeys(OF_CONNECTIONS, _nothing),
        }
        answer_of_sessions(links, lambda session: self._parts_of(session).stage)
        links.on_connected(self._back)
        links.on_congestion(self._congestion)
        links.on_gone(self._gone)

    @property
    def kinds(self) -> frozenset[type[Frame]]:
        """The kinds of frames that somebody takes."""
        return frozenset((*self._alone, *self._own.at_stage, *self._own.at_origin))

    def frame(self, peer: str, frame: Frame) -> None:
        """Takes a frame of `peer`, or of this peer itself. Raises a PeerError for one that ends the connection."""
        for parts in self._every:
            parts.stage.touch()
        take = self._alone.get(type(frame))
        if take is not None:
            take(peer, frame)
        else:
            self._of_sessions(peer, [frame])

    @property
    def _every(self) -> tuple[ModelParts, ...]:
        """The parts of all models, those of the mesh's own first."""
        return (self._own, *(each.parts for each in self._decoders)) if self._decoders else (self._own,)

    def _parts_of(self, session: bytes) -> ModelParts:
        return self._decoders.of_session(session) or self._own

    def _bundle(self, peer: str, frame: Bundle) -> None:
        self._of_sessions(peer, frames_of(frame))

    def _of_sessions(self, peer: str, frames: list[Frame]) -> None:
        """Hands frames that came together to the stages and to sessions; what the stages decide is done at once."""
        now = time.monotonic()
        effects: dict[ModelParts, list[StageEffect]] = {self._own: []}
        for frame in frames:
            kind = type(frame)
            if not isinstance(frame, OF_SESSIONS):
                take = self._in_bundles.get(kind)
                if take is None:
                    raise WrongChannel(f"BUNDLE: {kind.__name__} does not travel in bundles")
                take(peer, frame)
                continue
            parts = self._parts_of(frame.session)
            at_stage, at_origin = parts.at_stage.get(kind), parts.at_origin.get(kind)
            if at_stage is not None:
                effects.setdefault(parts, []).extend(at_stage(now, peer, frame))
            if at_origin is not None:
                at_origin(now, peer, frame)
        for parts, decided in effects.items():
            parts.stage.perform(decided)
            parts.stage.queue.look()

    def _piece_wanted(self, peer: str, frame: PieceRequest) -> None:
        """Has the model give it that it is a piece of."""
        models = (parts.model for parts in self._every)
        found = next((model for model in models if model.has(frame.sha256)), self._own.model)
        found.requested(peer, frame)

    def _piece_came(self, peer: str, frame: Piece) -> None:
        for parts in self._every:
            parts.model.came(peer, frame)

    def _back(self, peer: str) -> None:
        for parts in self._every:
            parts.sessions.back(peer)

    def _congestion(self, peer: str, full: bool) -> None:
        for parts in self._every:
            parts.stage.congestion(peer, full)

    def _gone(self, peer: str, reason: str, polite: bool) -> None:
        """Whom the end of a connection concerns, in this order: answers move before anybody is planned without."""
        self._teams.gone(peer)
        for parts in self._every:
            parts.gone(peer)
        self._flow.gone(peer)
        for parts in self._every:
            parts.sessions.gone(peer, reason, polite=polite)
        self._view.unreachable(peer)
        self._leadership.gone(peer, reason)


def _nothing(_: str, __: Frame) -> None:
    return
