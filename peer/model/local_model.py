"""The mesh's model as this peer has it: manifest, tokenizer, and pieces of weights for other peers. Edge."""

from __future__ import annotations

from collections.abc import Iterator

from peer.errors import NoPlan
from peer.model.piece_exchange import ABSENT, Pieces
from peer.model.prompts import Prompts
from peer.model.tokenizer import Text, TextFile, text_file
from peer.transport.peer_links import PeerLinks
from peer.wire.generated.frames import Piece, PieceRequest
from planner.model.manifest import Manifest
from planner.model.sampling_defaults import USUAL, SamplingDefaults
from planner.model.store import Store


class LocalModel:
    """Before `know`, `manifest` and `pieces` are None: this peer can neither ask nor give pieces."""

    def __init__(self, store: Store, links: PeerLinks, numbers: Iterator[int]) -> None:
        """`numbers` of requests for pieces: one sequence for all models of this peer."""
        self.store = store
        self.manifest: Manifest | None = None
        self.pieces: Pieces | None = None
        self._links = links
        self._numbers = numbers
        self._text: Text | None = None
        self._prompts: Prompts | None = None

    @property
    def text(self) -> Text:
        """The model's tokenizer and chat template, read when first needed: tens of MiB that a peer that only computes
        does without. Raises NoPlan before the model is known.
        """
        if self._text is None:
            self._text = self.text_file.read()
        return self._text

    @property
    def prompts(self) -> Prompts:
        """What makes prompts tokens without holding this peer up. Raises NoPlan before the model is known."""
        if self._prompts is None:
            self._prompts = Prompts(self.text_file, lambda: self.text)
        return self._prompts

    @property
    def text_file(self) -> TextFile:
        """The same, for another process to read. Raises NoPlan before the model is known."""
        if self.manifest is None:
            raise NoPlan("the model's tokenizer is not here yet")
        return text_file(self.store, self.manifest)

    @property
    def sampling_defaults(self) -> SamplingDefaults:
        """How answers are drawn where whoever asks leaves that out; of a model that is not known yet, the usual."""
        return (self.manifest.sampling if self.manifest is not None else None) or USUAL

    def know(self, manifest: Manifest) -> None:
        """Takes which model it is: this peer can ask, and give others pieces of weights that it has."""
        self.manifest = manifest
        links = self._links
        self.pieces = Pieces(self.store, manifest, links.dialer.connection, links.send, self._numbers)

    def has(self, sha256: bytes) -> bool:
        """Whether a piece of that hash is one of this model, or of a cache of its answers that is lent."""
        return self.pieces is not None and self.pieces.has(sha256)

    def requested(self, peer: str, frame: PieceRequest) -> None:
        """Gives a piece, or says that it is not here. Raises BadCommand when the other side asks for too much."""
        if self.pieces is not None:
            self.pieces.requested(peer, frame)
        else:
            self._links.send(peer, Piece(frame.id, ABSENT, b""))

    def came(self, peer: str, frame: Piece) -> None:
        """Takes a part of a piece that this peer asked for."""
        if self.pieces is not None:
            self.pieces.came(peer, frame)

    def gone(self, peer: str) -> None:
        """Takes that the connection to a peer ended."""
        if self.pieces is not None:
            self.pieces.gone(peer)

    async def close(self) -> None:
        """Gives nothing any more, and reads no prompt."""
        if self._prompts is not None:
            await self._prompts.close()
        if self.pieces is not None:
            await self.pieces.close()
