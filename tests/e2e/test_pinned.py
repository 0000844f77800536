"""An asker that keeps embedding, head and sampling: the tokens of the model, and no frame that tells any of them."""

from __future__ import annotations

from pathlib import Path

from peer.audit.receipts import ledger_session
from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import PeerOptions
from peer.model.chat_template import Message
from peer.origin.answer_stream import Delta, Settings
from peer.origin.pinned_ends import ends_of
from peer.session.sampling import Sampling
from peer.wire.frame_codec import encode
from peer.wire.generated.frames import Frame, Open, Request, Step, Token
from peer.wire.tensors import Dtype
from planner.model.store import Store
from tests.e2e.real_mesh import UNITS, Models, Start
from tests.patience import WITHIN_S

QUESTION = "What is the capital of France? Tell me about it in a paragraph."
COUNT = 12
CHOOSY = Sampling(temperature=0.8, seed=3, repetition_penalty=1.1, frequency_penalty=0.3, min_p=0.02)
PINNED = PeerOptions("pinned", 0, 1, "cpu", "aiortc", ("127.0.0.1",), pin_ends=True)


def watched(mesh: MeshMember) -> list[Frame]:
    """All frames that `mesh` hands to others from now on."""
    sent: list[Frame] = []
    send = mesh.links.dialer.send

    def seen(peer: str, frame: Frame) -> None:
        sent.append(frame)
        send(peer, frame)

    mesh.links.dialer.send = seen  # type: ignore[method-assign]
    return sent


async def asked(mesh: MeshMember, prompt: list[int], sampling: Sampling) -> tuple[list[int], str]:
    conversation = mesh.conversation()
    ids, text = [], ""
    async for piece in conversation.tokens(prompt, Settings(sampling, COUNT, ignore_end=True)):
        if isinstance(piece, Delta):
            ids += [piece.token] * (piece.token >= 0)
            text += piece.text
    conversation.close()
    return ids, text


async def checked(link: str, prompt: list[int], models: Models, others: list[MeshMember]) -> None:
    """Both stages of an answer are computed again, and who asked pays for no unit that it computed itself."""
    async with join(link, PINNED, models.store) as asker:
        await _checked(asker, prompt, [*others, asker])


async def _checked(asker: MeshMember, prompt: list[int], meshes: list[MeshMember]) -> None:
    assert asker.accounts is not None
    checks, view, sent = asker.accounts.checks, asker.view, watched(asker)
    judges = [mesh.accounts.checks.judge for mesh in meshes if mesh.accounts is not None]
    conversation, answer = asker.conversation(), None
    async for _ in conversation.tokens(prompt, Settings(Sampling(), COUNT, ignore_end=True)):
        session = next(frame.session for frame in sent if isinstance(frame, Open))
        answer = checks.answer_of(session) or answer
    assert answer is not None
    tokens = tuple(asker.sessions.tokens(session))
    last = len(tokens) - 2
    assert [await checks.check_known(answer, tokens, stage, last) for stage in range(2)] == ["same", "same"]
    conversation.close()
    assert sum(judge.again.positions for judge in judges) + last * sum(judge.kept for judge in judges) > last
    assert {judge.worst for judge in judges} == {0}, "the same order of additions gives the same bits"
    key = ledger_session(session, view.me, answer.opening.answer)
    assert await view.until(lambda s: key in s.ledger.sessions, WITHIN_S)
    assert {area.units for area in view.state.ledger.sessions[key].areas} == {(1, 31), (31, UNITS - 1)}


async def test_an_asker_that_keeps_its_ends_gets_the_same_tokens_and_tells_none(
    start: Start, models: Models, tmp_path: Path
) -> None:
    async with start((31,), 2) as meshes:
        founder = meshes[0]
        await founder.until_serving(WITHIN_S)
        assert founder.link is not None
        assert founder.manifest is not None
        prompt = founder.text.encode_chat([Message("user", QUESTION)])
        async with join(founder.link.url(), PINNED, Store(tmp_path / "own")) as asker:
            assert asker.sessions.own_ends is not None
            graphs = {unit.graph for unit in founder.manifest.units}  # these came with the tokenizer
            assert asker.sessions.own_ends.fetched_bytes == sum(
                ref.bytes for ref in ends_of(founder.manifest) if ref not in graphs
            )
            sent = watched(asker)
            for sampling in (Sampling(), CHOOSY):
                ids, text = await asked(asker, prompt, sampling)
                assert (ids, text) == await asked(founder, prompt, sampling)
                assert len(ids) == COUNT
                assert text.encode() not in b"".join(map(encode, sent))
            assert asker.sessions.own_ends.drawn >= 2 * COUNT
        await checked(founder.link.url(), prompt, models, meshes)
        opens = [frame for frame in sent if isinstance(frame, Open)]
        steps = [frame for frame in sent if isinstance(frame, Step)]
        assert len(opens) >= 2
        assert all((each.sampling, each.end_tokens, each.history) == ((), (), ()) for each in opens)
        assert len(steps) >= 2 * COUNT
        assert all(step.tensor.dtype is Dtype.FLOAT32 for step in steps)
        assert not any(isinstance(frame, Token) for frame in sent)
        words = [word.encode() for word in ("capital", "France", "Paris")]
        for frame in sent:
            assert not isinstance(frame, Request) or not any(word in frame.body for word in words)
