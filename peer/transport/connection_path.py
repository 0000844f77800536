"""Tells whether a relay or a third peer is in a connection's way, by descriptions and what its engine says. Pure."""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

from peer.state.failure_domains import End, is_relayed

MAX_CHARS: Final = 1 << 17  # of the other side's description, with its later candidates


@runtime_checkable
class TellsPair(Protocol):
    """An engine that knows which addresses it uses."""

    def selected(self) -> tuple[End, End] | None:
        """Of this side and of the other; None: none yet."""


class Path:
    """Of one connection over `engine`."""

    def __init__(self, engine: object) -> None:
        self._engine = engine
        self.mine = ""  # description of this side
        self._theirs = ""

    def own(self, sdp: str) -> str:
        """Takes this side's description, and gives it back."""
        self.mine = sdp
        return sdp

    def other(self, sdp: str) -> str:
        """Takes the other side's description or a later candidate, and gives it back."""
        line = sdp if sdp.startswith("v=") else f"a={sdp}"
        self._theirs = f"{self._theirs}{line}\n"[:MAX_CHARS]
        return sdp

    def relayed(self) -> bool | None:
        """Whether a relay or a third peer is in the way; None: nobody can tell."""
        pair = self._engine.selected() if isinstance(self._engine, TellsPair) else None
        return is_relayed((self.mine, self._theirs), pair)
