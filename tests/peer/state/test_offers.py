"""Models beside the mesh's own: under a name each, where their units run, and what is refused in which words."""

from __future__ import annotations

import pytest

from peer.errors import BadCommand
from peer.state.generated.commands import (
    MAX_MODELS,
    ModelChosen,
    ModelOffer,
    ModelOffered,
    ModelPlaced,
    ModelWithdrawn,
    OfferCommand,
    RunStage,
)
from peer.state.member_commands import Command, check_command
from peer.state.mesh_state import MeshState, apply, decode_state, encode_state, refusal

OWN = ModelChosen("a" * 64, "SmolLM2", 6, 128, 2, "latency")
OCR = ModelOffered("b" * 64, "ocr")
STAGES = (RunStage(0, 2, "pa", ("pb",), 10), RunStage(2, 5, "pb", (), 20))
PLACED = ModelPlaced("ocr", 7, STAGES, 12_000, 83_000, ("one goes here",))


def grown(*commands: Command) -> MeshState:
    state = MeshState()
    for command in commands:
        state = apply(state, command)
    return state


def test_an_offer_is_placed_and_placed_again_and_withdrawn() -> None:
    state = grown(OWN, OCR)
    assert state.offers == {"ocr": ModelOffer("b" * 64)}
    state = apply(state, PLACED)
    assert state.offers["ocr"] == ModelOffer("b" * 64, 7, STAGES, 12_000, 83_000, ("one goes here",))
    assert decode_state(encode_state(state)) == state
    state = apply(state, ModelPlaced("ocr", 8, (), 0, 0, ("5 MiB are missing",)))
    assert (state.offers["ocr"].stages, state.offers["ocr"].why) == ((), ("5 MiB are missing",))
    assert apply(state, ModelWithdrawn("ocr")).offers == {}
    assert state.model == OWN, "the mesh's own model does not notice"


@pytest.mark.parametrize(
    ("before", "command", "why"),
    [
        ((OWN,), ModelOffered("b" * 64, "SmolLM2"), "SmolLM2 already: offer it under another name"),
        ((OWN, OCR), ModelOffered("c" * 64, "ocr"), "ocr already: offer it under another name"),
        ((OWN,), ModelWithdrawn("ocr"), "no model is offered under the name ocr"),
        ((OWN,), PLACED, "no model is offered under the name ocr"),
        ((OWN, OCR, PLACED), PLACED, "placement 7 of ocr is not newer than 7"),
        ((OWN, OCR), ModelPlaced("ocr", 1, STAGES[1:], 0, 0, ()), "from 0 on"),
        ((OWN, OCR), ModelPlaced("ocr", 1, (STAGES[0], STAGES[0]), 0, 0, ()), "each once, in order"),
        ((OWN, OCR), ModelPlaced("ocr", 1, (RunStage(0, 0, "pa"),), 0, 0, ()), "from 0 on"),
    ],
)
def test_what_has_no_effect_says_why(before: tuple[Command, ...], command: OfferCommand, why: str) -> None:
    state = grown(*before)
    assert why in refusal(state, command)
    assert apply(state, command).offers == state.offers


def test_there_are_at_most_so_many() -> None:
    offers = [ModelOffered("b" * 64, f"m{number}") for number in range(MAX_MODELS)]
    assert refusal(grown(*offers[:-1]), offers[-1]) == ""
    assert refusal(grown(*offers), OCR) == "16 models are offered, which is the most; withdraw one"


def test_the_meshs_own_model_takes_its_name_from_an_offer() -> None:
    state = apply(grown(ModelOffered("b" * 64, "SmolLM2"), OCR), OWN)
    assert set(state.offers) == {"ocr"}


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "a b", "größe", "x" * 65, "a\n", "-x"])
def test_a_bad_name_is_no_command(name: str) -> None:
    with pytest.raises(BadCommand, match=r"ModelOffered\.name: expected a name of 1 to 64 letters"):
        check_command(ModelOffered("b" * 64, name))
