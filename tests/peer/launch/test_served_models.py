"""Which model `generate` and `chat` ask, and in which words another one is refused."""

from __future__ import annotations

import pytest

from peer.cli.main import parser
from peer.errors import BadCommand
from peer.launch.served_models import asked_model
from peer.state.generated.commands import DecoderOffered, ModelChosen, ModelOffered
from peer.state.mesh_state import MeshState, apply

OWN = ModelChosen("a" * 64, "talker", 4, 128, 2, "latency")
OCR, DET = ModelOffered("b" * 64, "ocr"), ModelOffered("c" * 64, "det")
ALL = "talker answers in words, and shoal run asks det, ocr"


MORE = DecoderOffered("more", "d" * 64, 4, 128, 2, "latency")


def mesh(*commands: ModelChosen | ModelOffered | DecoderOffered) -> MeshState:
    state = MeshState()
    for command in commands:
        state = apply(state, command)
    return state


@pytest.mark.parametrize("asked", [None, "talker", "a" * 64, "a" * 12])
def test_the_model_that_answers_is_asked_by_its_name_its_id_or_by_none(asked: str | None) -> None:
    assert asked_model(mesh(OWN, OCR, MORE), asked) is None


@pytest.mark.parametrize("asked", ["more", "d" * 64, "d" * 12])
def test_a_further_one_is_asked_by_its_name_or_its_id(asked: str) -> None:
    assert asked_model(mesh(OWN, OCR, MORE), asked) == "more"


def test_the_only_one_of_a_mesh_without_a_model_of_its_own_need_not_be_named() -> None:
    assert asked_model(mesh(OCR, MORE), None) == "more"


@pytest.mark.parametrize(
    ("state", "asked", "why"),
    [
        (mesh(OWN, OCR, DET), "gpt", f"this mesh serves no model 'gpt': {ALL}"),
        (mesh(OWN), "gpt\x1b[2J", "this mesh serves no model 'gpt\ufffd[2J': talker answers in words"),
        (mesh(OWN), "aaa", "this mesh serves no model 'aaa': talker answers in words"),
        (
            mesh(OWN, OCR),
            "ocr",
            "ocr computes outputs of inputs and answers no questions: shoal run LINK ocr --input FILE asks it; "
            "talker answers in words here",
        ),
        (
            mesh(OCR),
            "b" * 64,
            "ocr computes outputs of inputs and answers no questions: shoal run LINK ocr --input FILE asks it",
        ),
        (mesh(OWN, MORE), "gpt", "this mesh serves no model 'gpt': talker, more answer in words"),
        (
            mesh(MORE, DecoderOffered("most", "e" * 64, 4, 128, 2, "latency")),
            None,
            "say which model is asked, with --model: more, most answer in words",
        ),
        (mesh(OCR, DET), None, "no model of this mesh answers in words: shoal run asks det, ocr"),
        (
            mesh(),
            None,
            "no model of this mesh answers in words: nothing is offered yet, which shoal offer does",
        ),
    ],
)
def test_any_other_is_refused_with_what_the_mesh_serves(
    state: MeshState, asked: str | None, why: str
) -> None:
    with pytest.raises(BadCommand) as refusal:
        asked_model(state, asked)
    assert str(refusal.value) == why


@pytest.mark.parametrize("command", ["generate LINK hello", "chat LINK", "chat LINK --in title"])
def test_both_commands_take_a_name(command: str) -> None:
    assert parser().parse_args(command.split()).model is None
    assert parser().parse_args([*command.split(), "--model", "talker"]).model == "talker"
