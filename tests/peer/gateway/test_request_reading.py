"""What is read of a request's bytes: bounds first, the same here and in a process, and no answer for foreign JSON."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from peer.errors import ApiError, ContextOverflow, PeerError, TextError
from peer.gateway import responses as shapes
from peer.gateway.grammar_jobs import CallForm, JsonForm
from peer.gateway.request_reading import (
    MAX_NESTING,
    ForFurther,
    ReadChat,
    Served,
    body_of,
    read_chat,
    read_completion,
    read_embedding,
    read_unanswered,
)
from peer.gateway.tool_calls import Style
from peer.model import prompts as module
from peer.model.prompts import Prompts, plain_prompt
from peer.model.tokenizer import Text, TextFile
from planner.jobs.jobs import Budget
from planner.model.sampling_defaults import USUAL

CONTEXT = 512
SERVED = Served("m", "0" * 64, CONTEXT, USUAL, {"embeds": 8, "e" * 64: 8}, frozenset(("ocr", "det")))
TEMPLATE = "{% for m in messages %}<tool_call>{{ m.role }}: {{ m.content }}{{ tools }}{% endfor %}"
LOOPS = "{% for a in range(900) %}{% for b in range(900) %}{% endfor %}{% endfor %}{{ messages[0].content }}"
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = Tokenizer(models.BPE(vocab={name: at for at, name in enumerate(names)}, merges=[]))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    words.add_tokens([AddedToken("<|longest|>", special=True, normalized=False)])
    file = tmp_path_factory.mktemp("words") / "tokenizer.json"
    file.write_text(words.to_str())
    return file


def file_of(tokenizer: Path, template: str = TEMPLATE) -> TextFile:
    return TextFile(tokenizer, template, None, (), False)


@pytest.fixture(scope="module")
def text(tokenizer: Path) -> Text:
    return file_of(tokenizer).read()


@asynccontextmanager
async def reading(tokenizer: Path, template: str = TEMPLATE) -> AsyncIterator[Prompts]:
    file = file_of(tokenizer, template)
    loaded = file.read()
    made = Prompts(file, lambda: loaded)
    try:
        yield made
    finally:
        await made.close()


def raw(**changes: Any) -> bytes:
    return json.dumps(ASK | changes).encode()


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize(
    ("changes", "tools", "form"),
    [
        ({}, set(), None),
        ({"tools": [TOOL]}, {"f"}, None),
        ({"tools": [TOOL], "tool_choice": "required"}, {"f"}, CallForm),
        ({"response_format": {"type": "json_object"}}, set(), JsonForm),
    ],
)
def test_a_chat_request(text: Text, changes: dict[str, Any], tools: set[str], form: type | None) -> None:
    asked = read_chat(text, raw(**changes), SERVED)
    assert isinstance(asked, ReadChat)
    assert text.decode(asked.prompt.tokens).startswith("<tool_call>user: Hi")
    assert (asked.tools, asked.style) == (tools, Style.TAGGED if tools else None)
    assert type(asked.form) is (form or type(None))


FURTHER = replace(SERVED, words=("more",), further=frozenset(("more", "d" * 64)))


@pytest.mark.parametrize("name", ["more", "d" * 64])
def test_a_request_for_a_further_model_is_read_once_more_for_that_one(text: Text, name: str) -> None:
    prompt = json.dumps({"model": name, "prompt": "Hi"}).encode()
    assert read_chat(text, raw(model=name), FURTHER) == ForFurther(name)
    assert read_completion(text, prompt, FURTHER) == ForFurther(name)
    assert read_unanswered(None, raw(model=name), replace(FURTHER, name="", model="")) == ForFurther(name)
    of_it = replace(FURTHER, name="more", model="d" * 64)
    assert isinstance(read_chat(text, raw(model=name), of_it), ReadChat)
    with pytest.raises(ApiError, match="answers in words and makes no embeddings") as refusal:
        read_embedding(None, json.dumps({"model": name, "input": "Hi"}).encode(), FURTHER)
    assert refusal.value.code == "model_not_supported"
    with pytest.raises(ApiError, match="'m', 'more' answer in words"):
        read_chat(text, raw(model="other"), FURTHER)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", None),
        (b'{"model": ' + b"[" * 100_000, None),
        (json.dumps(ASK | {"metadata": json.loads("[" * 150 + "]" * 150)}).encode(), None),
        (raw(model="other"), "model_not_found"),
        (raw(model="embeds"), "model_not_supported"),
        (raw(model="ocr"), "model_not_supported"),
        (raw(response_format={"type": "json_schema", "json_schema": {"schema": {"a": "x" * 100_001}}}), None),
        (
            raw(
                tools=[TOOL | {"function": {"name": "f", "parameters": {"a": "x" * 100_001}}}],
                tool_choice="required",
            ),
            None,
        ),
        (raw(logit_bias={str(each): 1 for each in range(2000)}), None),
        (raw(stop=["x"] * 1000), None),
        (raw(n=10**30), None),
    ],
)
def test_a_request_beyond_its_bounds_is_refused(text: Text, body: bytes, code: str | None) -> None:
    with pytest.raises(ApiError) as refusal:
        read_chat(text, body, SERVED)
    assert refusal.value.code == code


ALL = "served are: 'm' answers in words; 'embeds' makes embeddings; 'det', 'ocr' is run by shoal run"


@pytest.mark.parametrize(
    ("read", "name", "code", "why"),
    [
        ("chat", "other", "model_not_found", "The model 'other' does not exist here; "),
        ("chat", "embeds", "model_not_supported", "'embeds' makes embeddings and answers no questions: "),
        ("chat", "ocr", "model_not_supported", "'ocr' computes outputs of inputs and answers no questions: "),
        ("completion", "other", "model_not_found", "The model 'other' does not exist here; "),
        ("completion", "det", "model_not_supported", "shoal run asks it; "),
        ("embedding", "other", "model_not_found", "The model 'other' does not exist here; "),
        ("embedding", "m", "model_not_supported", "'m' answers in words and makes no embeddings; "),
        ("embedding", "ocr", "model_not_supported", "'ocr' computes outputs of inputs, as shoal run asks it"),
    ],
)
def test_what_a_model_is_and_what_else_is_served(
    text: Text, read: str, name: str, code: str, why: str
) -> None:
    body = json.dumps(
        {"chat": ASK, "completion": {"prompt": "x"}, "embedding": {"input": "x"}}[read] | {"model": name}
    )
    reading: Callable[[], object] = {
        "chat": lambda: read_chat(text, body.encode(), SERVED),
        "completion": lambda: read_completion(text, body.encode(), SERVED),
        "embedding": lambda: read_embedding(text, body.encode(), SERVED),
    }[read]
    with pytest.raises(ApiError) as refusal:
        reading()
    assert (refusal.value.code, refusal.value.param) == (code, "model")
    assert refusal.value.status == (404 if code == "model_not_found" else 400)
    assert why in str(refusal.value)
    assert str(refusal.value).endswith(ALL)


def test_without_an_embedding_model_it_is_said_how_there_is_one(text: Text) -> None:
    alone = Served("m", "0" * 64, CONTEXT, USUAL)
    body = json.dumps({"model": "m", "input": [1] * 100_000}).encode()
    with pytest.raises(
        ApiError,
        match="shoal offer has the mesh run one that does, and --embedding-model of shoal api this machine; ",
    ):
        read_embedding(text, body, alone)


def test_nesting_has_a_bound() -> None:
    assert body_of(b"[" * MAX_NESTING + b"]" * MAX_NESTING)
    with pytest.raises(ApiError, match="inside one another"):
        body_of(b"[" * (MAX_NESTING + 1) + b"]" * (MAX_NESTING + 1))


@pytest.mark.parametrize("prompt", [[1] * 100_000, [[1], [1] * 100_000], ["1"] * 64 + ["1"], [[10**9]]])
def test_prompts_of_completions_have_bounds(text: Text, prompt: Any) -> None:
    with pytest.raises((ApiError, ContextOverflow)):
        read_completion(text, json.dumps({"model": "m", "prompt": prompt}).encode(), SERVED)


@pytest.mark.parametrize("prompt", ["", ["go on", ""], [[1], []]])
def test_an_empty_prompt_is_called_by_its_own_name(text: Text, prompt: Any) -> None:
    with pytest.raises(ApiError, match="the prompt is empty") as caught:
        read_completion(text, json.dumps({"model": "m", "prompt": prompt}).encode(), SERVED)
    problem = shapes.error(caught.value)["error"]
    assert (problem["type"], problem["param"], problem["code"]) == ("invalid_request_error", "prompt", None)


def test_messages_that_a_template_makes_nothing_of(tokenizer: Path) -> None:
    silent = file_of(tokenizer, "{% if false %}x{% endif %}").read()
    with pytest.raises(ApiError, match="the prompt is empty") as caught:
        read_chat(silent, raw(), SERVED)
    assert caught.value.param == "messages"


JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=20),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
NAMES = ["messages", "tools", "tool_choice", "response_format", "stop", "logit_bias", "n", "seed", "logprobs"]


@settings(max_examples=60, deadline=None)
@given(some.dictionaries(some.sampled_from(NAMES), JSON, max_size=4))
def test_no_json_is_more_than_refused(text: Text, changes: dict[str, Any]) -> None:
    for body in (ASK | changes, changes):
        with suppress(PeerError):
            read_chat(text, json.dumps(body).encode(), SERVED)


@pytest.mark.parametrize(
    ("template", "body", "error"),
    [
        (TEMPLATE, raw(messages=said("1" * 3_900_000)), ContextOverflow),  # by its length alone
        (TEMPLATE, raw(messages=said("1" * 6_000)), ContextOverflow),  # it is counted
        (TEMPLATE, raw(metadata=[[]] * 200_000), None),  # JSON that is slow to read
        (LOOPS, raw(), TextError),  # a template that loops
    ],
)
async def test_no_request_holds_this_process_up(
    tokenizer: Path,
    monkeypatch: pytest.MonkeyPatch,
    template: str,
    body: bytes,
    error: type[Exception] | None,
) -> None:
    monkeypatch.setattr(module, "BUDGET", Budget(cpu_s=0.3))
    async with reading(tokenizer, template) as prompts:
        begun = time.thread_time()  # the same on a machine that is busy
        with pytest.raises(error) if error is not None else nullcontext():
            await prompts.run(len(body), CONTEXT, read_chat, body, SERVED)
        assert time.thread_time() - begun < 0.1


async def test_what_costs_too_much_to_read_is_refused(
    tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUDGET", Budget(cpu_s=0.3, memory_bytes=64 << 20))
    context = 1_000_000
    async with reading(tokenizer) as prompts:
        with pytest.raises(TextError, match="ask with less text"):
            await prompts.run(10**7, context, plain_prompt, "1" * 5_000_000, context)


async def test_long_and_short_prompts_read_the_same(tokenizer: Path) -> None:
    async with reading(tokenizer) as prompts:
        for body in (raw(messages=said("a" * 50)), raw(messages=said("é" * 150), tools=[TOOL])):
            short = await prompts.run(0, CONTEXT, read_chat, body, SERVED)
            assert await prompts.run(10**9, CONTEXT, read_chat, body, SERVED) == short
