"""Answers of conversations made again by somebody else: as they were asked, turn for turn, or from the text alone.

What an asker's session had sampled was computed a token at a time, what it was given in steps of several: with packed
weights the two differ (docs/numerics.md). So an answer is repeated to the token in a session that had the same turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peer.conversation.turn_order import prompt_of
from peer.member.mesh_member import MeshMember
from peer.origin.answer_stream import Conversation, Delta, Settings, day_of
from peer.session.sampling import Sampling
from peer.session.seat import ID_BYTES
from peer.state.conversations import Conversation as Talk
from peer.state.generated.commands import Message


@dataclass(frozen=True, slots=True)
class Again:
    """An answer as the log has it, and the words and the number of tokens that came this time."""

    answer: Message
    text: str
    tokens: int

    @property
    def same(self) -> bool:
        return (self.text, self.tokens) == (self.answer.text, self.answer.tokens)


async def as_asked(mesh: MeshMember, talk: Talk) -> list[Again]:
    """Every answer of `talk`, those of one session one after the other in one session here."""
    turns: dict[str, list[Message]] = {}
    for message in talk.messages:
        if message.form == "answer":
            turns.setdefault(message.session[: -2 * ID_BYTES], []).append(message)  # the rest counts moves
    return [made for answers in turns.values() for made in await _in_one_session(mesh, talk, answers)]


async def from_text(mesh: MeshMember, talk: Talk, answer: Message) -> Again:
    """One answer in a session of its own, which is given everything that was said before."""
    return (await _in_one_session(mesh, talk, [answer]))[0]


async def _in_one_session(mesh: MeshMember, talk: Talk, answers: Sequence[Message]) -> list[Again]:
    session = mesh.conversation()
    try:
        return [await _made(mesh, talk, answer, session) for answer in answers]
    finally:
        session.close()


async def _made(mesh: MeshMember, talk: Talk, answer: Message, session: Conversation) -> Again:
    asked = talk.messages.get(answer.parent)
    assert asked is not None
    prompt = mesh.text.encode_chat(prompt_of(talk, asked.id), day_of(asked.when_ms))
    settings = Settings(Sampling.from_wire(list(answer.sampling)), max_tokens=answer.max_tokens)
    pieces = [piece async for piece in session.tokens(prompt, settings) if isinstance(piece, Delta)]
    return Again(answer, "".join(piece.text for piece in pieces), sum(piece.token >= 0 for piece in pieces))
