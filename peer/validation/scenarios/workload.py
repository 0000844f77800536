"""Decides what is asked: sets of questions with greedy and random sampling, drawn from a seed. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from peer.session.sampling import GREEDY, Sampling
from peer.validation.scenarios.faults import pick

_TOPICS: Final = (
    "What is the capital of France? Tell me about it in a paragraph.",
    "Why is the sky blue in the day and red in the evening?",
    "Write a short story about a lighthouse keeper and a whale.",
    "How does a bicycle stay upright while it moves?",
    "Explain to a child how rain is made.",
    "List what one needs to bake bread, and say what each part does.",
    "What happened to the dinosaurs?",
    "Describe a day in the life of a medieval blacksmith.",
    "How do vaccines work?",
    "Give three reasons to learn a second language.",
)
_BACKGROUND: Final = (
    "The harbour was built when ships still had sails, and every winter its walls are repaired with the same stone. ",
    "Farmers of the valley keep bees beside their orchards because trees that are visited bear twice as much. ",
    "A clock that loses a second a day is good enough for a railway, and useless for finding one's place at sea. ",
)
LONGEST_BACKGROUND: Final = 8  # sentences, about 170 tokens: a prompt of several chunks
_SETTINGS: Final = (
    GREEDY,
    Sampling(temperature=0.8, top_p=0.95),
    GREEDY,
    Sampling(temperature=1.0, top_k=40, repetition_penalty=1.15),
)


@dataclass(frozen=True, slots=True)
class Question:
    """One answer to ask for: as many tokens, end or not, so that runs compare."""

    text: str
    sampling: Sampling
    tokens: int


def questions(sessions: int, tokens: int, draw: Callable[[], float]) -> tuple[Question, ...]:
    """A set to be answered at the same time: half of it greedy."""
    found = []
    for place in range(sessions):
        sentences = int(draw() * (LONGEST_BACKGROUND + 1))
        background = "".join(pick(draw, _BACKGROUND) for _ in range(sentences))
        settings = _SETTINGS[place % len(_SETTINGS)]
        sampling = Sampling(
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            repetition_penalty=settings.repetition_penalty,
            seed=int(draw() * (1 << 31)),
        )
        found.append(Question(f"{background}{pick(draw, _TOPICS)}", sampling, tokens))
    return tuple(found)
