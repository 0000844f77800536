"""A conversation is repeated to the bit in a session with the same turns, also where the plan changed in between."""

from __future__ import annotations

from peer.member.mesh_member import MeshMember
from peer.model.chat_template import Message
from peer.origin.answer_stream import Conversation, Delta, Settings
from peer.session.sampling import Sampling
from peer.session.steering import Steering
from tests.e2e.real_mesh import Start
from tests.patience import WITHIN_S

QUESTIONS = ("Name a fruit.", "Why is the sea salty?", "And what is tea?")
CUTS = ((31,), (21,))
SETTINGS = Settings(Sampling(temperature=0.8, seed=7), 8, steering=Steering(alternatives=3), ignore_end=True)


async def said(mesh: MeshMember, session: Conversation, prompt: list[int]) -> list[Delta]:
    """An answer, with the probabilities of its tokens: they show a bit that the tokens do not."""
    pieces = session.tokens(prompt, SETTINGS)
    return [piece async for piece in pieces if isinstance(piece, Delta) and piece.token >= 0]


async def test_turns_that_are_said_again_give_the_same_bits_over_whatever_plans(start: Start) -> None:
    async with start(CUTS[0], 2) as (founder, other):
        await founder.until_serving(WITHIN_S)
        talk = founder.conversation()
        prompts, answers, plans = list[list[int]](), list[list[Delta]](), list[int]()
        messages: list[Message] = []
        for question in QUESTIONS:
            messages.append(Message("user", question))
            prompts.append(founder.text.encode_chat(messages))
            answers.append(await said(founder, talk, prompts[-1]))
            plans.append(talk.plan)
            messages.append(Message("assistant", "".join(piece.text for piece in answers[-1])))
            if len(answers) == 1:  # what was sampled so far is computed anew by other stages
                founder.set_cuts(CUTS[1])
                assert await founder.view.until(
                    lambda state: (plan := state.serving()) is not None and plan.stages[0].stop == CUTS[1][0],
                    WITHIN_S,
                )
        talk.close()
        assert plans[0] < plans[1] == plans[2]
        again = other.conversation()
        for prompt, answer in zip(prompts, answers, strict=True):
            assert await said(other, again, prompt) == answer
        again.close()
