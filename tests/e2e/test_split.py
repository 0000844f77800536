"""The promise of splitting, over real data channels: the tokens are those of the model in one piece."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from peer.member.mesh_member import MeshMember
from peer.model.chat_template import Message
from peer.origin.answer_stream import Delta, Finished, Settings
from peer.session.sampling import Sampling
from tests.e2e.real_mesh import UNITS, Models, Start
from tests.e2e.unsplit import QUESTION, Unsplit, ask
from tests.patience import WITHIN_S
from tests.seeds import seeds

TOKENS = 100  # with the prompt, more positions than the first size of a cache
OPENING = (
    "The capital of France is Paris. It is a vibrant city known for its rich history, culture, and iconic landmarks. "
    "Paris is also a major global hub for finance, fashion, gastronomy, and culture, attracting millions of visitors "
    "each year."
)
SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0.8, seed=1),
    Sampling(temperature=0.8, seed=2, top_p=0.9, top_k=50),
    Sampling(temperature=0.8, seed=3, repetition_penalty=1.1, frequency_penalty=0.3, min_p=0.02),
)


@pytest.fixture(scope="module")
def unsplit(models: Models) -> Unsplit:
    return Unsplit(models)


@pytest.mark.series
@pytest.mark.parametrize("turn", range(seeds(20)))
async def test_split_equals_unsplit_alone_and_among_seven_others(
    turn: int, start: Start, unsplit: Unsplit
) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    stages = rng.randint(2, 4)
    cuts = tuple(sorted(rng.sample(range(1, UNITS), stages - 1)))
    note = f"turn {turn}, seed {seed}, cuts {cuts}"
    async with start(cuts, stages) as meshes:
        founder = meshes[0]
        await founder.until_serving(WITHIN_S)
        prompt = founder.text.encode_chat([Message("user", QUESTION)])
        alone = SAMPLINGS[rng.randrange(1, len(SAMPLINGS))]
        assert await ask(founder, prompt, TOKENS, alone) == unsplit.answer(prompt, TOKENS, alone), note
        questions = [
            prompt[: len(prompt) - cut] for cut in range(8)
        ]  # eight different positions at every step
        asked = [SAMPLINGS[number % len(SAMPLINGS)] for number in range(8)]
        answers = await asyncio.gather(
            *(
                ask(meshes[number % stages], questions[number], TOKENS if number < 2 else 40, asked[number])
                for number in range(8)
            )
        )
        for number in range(8):
            count = TOKENS if number < 2 else 40
            assert answers[number] == unsplit.answer(questions[number], count, asked[number]), (note, number)


@pytest.mark.quick
async def test_float32_text_is_that_of_the_model(start: Start) -> None:
    async with start((31,), 2, weights="f32", sessions=1) as meshes:
        await meshes[0].until_serving(WITHIN_S)
        text = ""
        async for piece in meshes[1].conversation().chat([Message("user", QUESTION)], Settings()):
            match piece:
                case Delta(shown, _):
                    text += shown
                case Finished(why=why):
                    assert why == "end"
        assert text.startswith(OPENING)


async def test_a_longer_conversation_prefills_only_what_is_new(start: Start) -> None:
    async with start((20,), 2) as meshes:
        await meshes[0].until_serving(WITHIN_S)
        conversation = meshes[1].conversation()
        messages = [Message("user", QUESTION)]
        cached = []
        for question in ("And its river?", "How long is it?"):
            answer = ""
            async for piece in conversation.chat(messages, Settings(max_tokens=30)):
                match piece:
                    case Delta(shown, _):
                        answer += shown
                    case Finished():
                        cached.append((piece.cached_tokens, piece.prompt_tokens))
            messages += [Message("assistant", answer), Message("user", question)]
        assert cached[0][0] == 0
        assert cached[1][0] >= cached[0][1]  # the whole first prompt, and what of the answer encodes alike
        fresh = await _words(meshes[1], messages[:3])
        again = await _words(meshes[0], messages[:3])
        assert fresh == again


async def _words(mesh: MeshMember, messages: list[Message]) -> str:
    text = ""
    conversation = mesh.conversation()
    async for piece in conversation.chat(messages, Settings(max_tokens=20)):
        if isinstance(piece, Delta):
            text += piece.text
    conversation.close()
    return text


async def test_stop_strings_and_cancelling_free_the_stages(start: Start) -> None:
    async with start((31,), 2) as meshes:
        founder = meshes[0]
        await founder.until_serving(WITHIN_S)
        conversation = founder.conversation()
        text, why = "", ""
        async for piece in conversation.chat([Message("user", QUESTION)], Settings(stop=("vibrant",))):
            match piece:
                case Delta(shown, _):
                    text += shown
                case Finished():
                    why = piece.why
        assert why == "stop"
        assert text.rstrip().endswith("It is a")
        stream = conversation.chat([Message("user", "Count to one hundred.")], Settings(max_tokens=400))
        seen: Counter[str] = Counter()
        async for piece in stream:
            seen[type(piece).__name__] += 1
            if seen["Delta"] == 5:
                conversation.stop()
        assert seen["Finished"] == 1
        conversation.close()
        for mesh in meshes:
            await asyncio.wait_for(_empty(mesh), WITHIN_S)


async def _empty(mesh: MeshMember) -> None:
    """Returns when no session holds a slot of this peer; woken by every frame that is dealt with."""
    while mesh.stage.core.sessions():
        mesh.stage.touched.clear()
        await mesh.stage.touched.wait()
