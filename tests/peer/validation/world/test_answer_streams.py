"""Questions of a validation become tokens where those of people do, and not in the process that holds a mesh."""

from __future__ import annotations

import ast
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

import peer
from peer.member.mesh_member import MeshMember
from peer.model.chat_template import Message
from peer.model.prompts import Prompt
from peer.origin.answer_stream import Delta, Finished, Settings
from peer.session.sampling import GREEDY
from peer.validation.scenarios.workload import Question
from peer.validation.world import answer_streams

ROOT = Path(peer.__file__).parent
ENCODES = {"encode", "encode_chat", "encode_turns", "encode_words", "render_chat", "text_of"}
WITHOUT_A_MESH = {  # what encodes there: each before or beside the processes that hold meshes
    "bench/browser.py": {"encode_chat", "render_chat", "text_of"},
    "bench/pipeline.py": {"encode_chat", "text_of"},
    "bench/single.py": {"encode_chat"},
    "bench/wan.py": {"encode_chat", "text_of"},
}


@dataclass
class Talk:
    """A conversation whose prompts are known."""

    session: bytes = b""
    prompted: list[Sequence[Message]] = field(default_factory=list)
    closed: bool = False

    def __call__(self, *_: object) -> Self:
        return self

    async def prompt(self, messages: Sequence[Message]) -> Prompt:
        self.prompted.append(messages)
        return Prompt((5, 6, 7))

    async def tokens(self, prompt: Sequence[int], _: Settings) -> AsyncGenerator[Delta | Finished]:
        assert tuple(prompt) == (5, 6, 7)
        yield Finished("length", 3, 0, 1, 0.1, 0.2, ("a",))

    def close(self) -> None:
        self.closed = True


async def test_a_question_is_put_into_tokens_as_those_of_people_are(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = Talk()
    monkeypatch.setattr(answer_streams, "Conversation", talk)
    mesh = cast(
        MeshMember, SimpleNamespace(sessions=None, model=SimpleNamespace(prompts=None))
    )  # and no tokenizer
    answered = await answer_streams.answer_all(mesh, [Question("why?", GREEDY, 1)], digests=False)
    assert [each.stream.route for each in answered] == [("a",)]
    assert (talk.prompted, talk.closed) == ([[Message("user", "why?")]], True)


def encoding_calls(source: str) -> set[str]:
    """Names of functions of a tokenizer that are called there, but not those of strings and bytes."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ENCODES and (name != "encode" or of_a_text(node)):
            found.add(name)
    return found


def of_a_text(call: ast.Call) -> bool:
    """Whether words are handed over, as to a tokenizer; a string is encoded without, or with the name of a code."""
    return any(not isinstance(each, ast.Constant) for each in call.args)


def test_validations_and_benches_encode_nothing_where_a_mesh_has_its_heartbeat() -> None:
    found: dict[str, Any] = {}
    for folder in ("validation", "bench"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if calls := encoding_calls(file.read_text(encoding="utf-8")):
                found[file.relative_to(ROOT).as_posix()] = calls
    assert found == WITHOUT_A_MESH
