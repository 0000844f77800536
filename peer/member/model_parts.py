"""The parts of a peer that serve one model that answers in words: its tokenizer, stages, and sessions asked here. Edge.

A peer has these parts once for the mesh's own model and once for each further one; a frame goes to those of the model
whose session it is of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from peer.model.local_model import LocalModel
from peer.origin.session_host import SessionHost
from peer.replication.decoder_view import ModelView
from peer.session.effects import StageEffect
from peer.stage.stage_host import StageHost
from peer.transport.peer_links import PeerLinks
from peer.wire.generated.frames import (
    Cancel,
    Feed,
    Frame,
    Here,
    Open,
    Refuse,
    Release,
    Step,
    Token,
    Where,
)
from planner.model.store import Store

AtStage = Callable[[float, str, Any], list[StageEffect]]  # now, sender, frame
AtOrigin = Callable[[float, str, Any], None]

OF_SESSIONS: Final = (Step, Token, Open, Feed, Where, Cancel, Release, Refuse, Here)


class ModelParts:
    """Of the model that `view` is of. `numbers` of requests for pieces are one sequence for all models of a peer."""

    def __init__(self, links: PeerLinks, view: ModelView, store: Store, numbers: Iterator[int]) -> None:
        self.view = view
        self.model = LocalModel(store, links, numbers)
        self.stage = StageHost(links, view, self.model)
        self.sessions = SessionHost(links, view)
        core, sessions = self.stage.core, self.sessions
        self.at_stage: Mapping[type[Frame], AtStage] = {
            Step: core.step,
            Token: core.token,
            Open: core.open,
            Feed: core.feed,
            Where: lambda _, peer, frame: core.where(peer, frame),
            Cancel: lambda _, peer, frame: core.cancel(peer, frame),
            Release: lambda _, peer, frame: core.release(peer, frame),
        }
        self.at_origin: Mapping[type[Frame], AtOrigin] = {
            Step: sessions.handed_back,
            Token: sessions.frame,
            Feed: sessions.fed,
            Refuse: sessions.frame,
            Here: sessions.frame,
        }

    def gone(self, peer: str) -> None:
        """Takes that the connection to a peer ended: pieces and stages."""
        self.model.gone(peer)
        self.stage.gone(peer)

    async def close(self, why: str) -> None:
        """Ends what is under way; answers end with an error that says `why`. Units are unloaded by who loaded them."""
        await self.model.close()
        await self.stage.close()
        self.sessions.close(why)
        await self.sessions.stop_reporting()
