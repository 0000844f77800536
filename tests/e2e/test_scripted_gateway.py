"""The gateway of a model whose marks of calls are single tokens, asked by the official openai client."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import Message
from openai import APIError, AsyncOpenAI, BadRequestError, InternalServerError, NotFoundError
from openai.types.responses import Response

from peer.errors import GrammarFailed
from peer.gateway.grammar_jobs import GuidedAnswer
from peer.gateway.server import GatewayOptions, gateway
from peer.member.joining import Founding, found
from peer.member.peer_options import MeshOptions
from planner.importers.decoder_units import build_model
from planner.model.store import Store
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.e2e.chat_clients_run import chat_clients_say
from tests.e2e.real_mesh import CONTEXT, options
from tests.e2e.scripted_model import END, scripted_model
from tests.patience import WITHIN_S

MODEL = "scripted"
TEMPLATE = "{% if tools %}<tool_call>{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"
CALL = b'\n{"name": "weather", "arguments": '
CITY = b'{"city": "Bern"}'
SAYS: dict[str, Sequence[bytes]] = {
    "@call@": (b"<tool_call>", CALL, CITY, b"}\n", b"</tool_call>", END.encode()),
    "@words@": (b"Hello", b" there", END.encode()),
    "@turns@": (b"one", b"<|eot|>", b" two", END.encode()),
    "@json@": (b'{"city": "B', b'ern"}', END.encode()),
}
HALVES = ((b"\xf0\x9f\x98", 1.0), (b"\xf0\x9f", 0.95), (b"\xf0", 0.9), (b"\xe2\x80", 0.85), (b"\xc3", 0.8))


def tool(name: str) -> dict[str, Any]:
    city = {"type": "object", "properties": {"city": {"enum": ["Bern"]}}, "required": ["city"]}
    return {
        "type": "function",
        "function": {"name": name, "parameters": city | {"additionalProperties": False}},
    }


TOOLS = [tool("weather"), tool("time")]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncOpenAI]:
    follows: dict[bytes, Sequence[tuple[bytes, float]]] = {b"@half@": HALVES}
    for start, said in SAYS.items():
        for first, then in zip((start.encode(), *said), said, strict=False):
            follows[first] = ((then, 1.0),)
    user = ["<tool_call>", "</tool_call>", "@half@", *SAYS]
    store = Store(tmp_path)
    model = build_model(scripted_model(MODEL, TEMPLATE, ["<|eot|>"], user, follows), "f32", store)
    promise = Founding(model, MeshOptions(CONTEXT, 4, "latency", None), ServerOptions())
    async with AsyncExitStack() as stack:
        founding = found(promise, options("founder", 2 << 30), store, identity_from_seed(os.urandom(32)))
        mesh = await stack.enter_async_context(founding)
        await mesh.until_serving(WITHIN_S)
        url = await stack.enter_async_context(gateway(mesh, GatewayOptions(port=0)))
        yield await stack.enter_async_context(AsyncOpenAI(base_url=url, api_key="any", max_retries=0))


async def ask(client: AsyncOpenAI, text: str, **more: Any) -> Any:
    said: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": text}]}
    return await client.chat.completions.create(**said | {"temperature": 0, "max_tokens": 90} | more)


async def streamed(client: AsyncOpenAI, text: str, **more: Any) -> tuple[str, list[Any], str]:
    """The words, the calls and the finish_reason of a stream."""
    words, calls, why = "", [], ""
    async for chunk in await ask(client, text, stream=True, **more):
        words += chunk.choices[0].delta.content or ""
        calls += chunk.choices[0].delta.tool_calls or []
        why = chunk.choices[0].finish_reason or why
    return words, calls, why


async def test_the_openai_client_gets_calls_forms_and_words(
    client: AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One mesh for all of it: what takes long is to start one."""
    await calls_tools(client)
    await holds_to_forms(client)
    await keeps_words_and_control_tokens_apart(client)
    await tells_tokens_of_equal_text_apart(client)
    await answers_as_responses(client)
    await answers_as_messages(client)
    await says_when_a_grammar_failed(client, monkeypatch)


@pytest.mark.soak
async def test_langchain_and_litellm_get_the_same(client: AsyncOpenAI, tmp_path: Path) -> None:
    found = await chat_clients_say(tmp_path / "clients", "chat", str(client.base_url).rstrip("/"), MODEL)
    city, call = {"city": "Bern"}, [["weather", {"city": "Bern"}]]
    assert found["langchain"] == {
        "words": "Hello there",
        "usage": 3,
        "conversation": "Hello there",
        "streamed": ["Hello", " there"],
        "batch": ["Hello there", "one two"],
        "called": call,
        "called in a stream": call,
        "form": city,
        "form by a tool": city,
    }
    each = {"words": "Hello there", "usage": 3, "streamed": "Hello there"}
    each_called: dict[str, Any] = {**each, "called": call, "called in a stream": call}
    assert found["litellm"] == {"form": city} | {
        f"{api}: {what}": got for api in ("openai", "anthropic") for what, got in each_called.items()
    }


async def calls_tools(client: AsyncOpenAI) -> None:
    named = {"type": "function", "function": {"name": "weather"}}
    answer = (await ask(client, "@words@", tools=TOOLS, tool_choice="required")).choices[0]
    assert (answer.finish_reason, answer.message.content) == ("tool_calls", None)
    assert {each.function.name for each in answer.message.tool_calls} <= {"weather", "time"}
    for start, choice in (("@call@", "auto"), ("@words@", named)):
        words, calls, why = await streamed(client, start, tools=TOOLS, tool_choice=choice)
        assert (words, why) == ("", "tool_calls"), choice
        told = [(each.function.name, json.loads(each.function.arguments)) for each in calls]
        assert told == [("weather", {"city": "Bern"})]
    answer = (await ask(client, "@words@", tools=TOOLS)).choices[0]
    assert (answer.message.content, answer.message.tool_calls) == ("Hello there", None)


async def holds_to_forms(client: AsyncOpenAI) -> None:
    schemas = ({"const": "<|im_end|> <tool_call>"}, TOOLS[0]["function"]["parameters"])
    forms = [{"type": "json_schema", "json_schema": {"name": "x", "schema": schema}} for schema in schemas]
    answer = (await ask(client, "@json@", response_format=forms[0])).choices[0]
    assert (json.loads(answer.message.content), answer.finish_reason) == (schemas[0]["const"], "stop")
    words, _, why = await streamed(client, "@json@", response_format=forms[1])
    assert (json.loads(words), why) == ({"city": "Bern"}, "stop")


async def keeps_words_and_control_tokens_apart(client: AsyncOpenAI) -> None:
    assert (await ask(client, "@turns@")).choices[0].message.content == "one two"
    for stop in ("<|eot|>", "one<|eot|>", "<|eot|> tw", "e tw"):
        answer = (await ask(client, "@turns@", stop=[stop])).choices[0]
        assert (answer.finish_reason, "two" in answer.message.content) == ("stop", False), stop
    spelled = await ask(client, f"{END}@words@")
    assert spelled.usage.prompt_tokens == len(END) + 1  # a token for each letter
    assert spelled.choices[0].message.content == "Hello there"


async def tells_tokens_of_equal_text_apart(client: AsyncOpenAI) -> None:
    asked = await ask(client, "@half@", max_tokens=1, logprobs=True, top_logprobs=5)
    entries = asked.choices[0].logprobs.content[0].top_logprobs
    assert [bytes(entry.bytes) for entry in entries] == [utf8 for utf8, _ in HALVES]
    assert len({entry.token for entry in entries}) == 5
    completed = await client.completions.create(
        model=MODEL, prompt="@half@", max_tokens=1, temperature=0, logprobs=5
    )
    told = completed.choices[0].logprobs
    assert told is not None
    assert told.top_logprobs
    assert told.tokens
    assert told.token_logprobs
    assert list(told.top_logprobs[0].values()) == [entry.logprob for entry in entries]
    assert told.top_logprobs[0][told.tokens[0]] == told.token_logprobs[0] == entries[0].logprob


async def answers_as_responses(client: AsyncOpenAI) -> None:
    async def respond(asked: str, **more: Any) -> Response:
        said: dict[str, Any] = {"model": MODEL, "input": asked, "temperature": 0, "max_output_tokens": 90}
        whole: Response = await client.responses.create(**said | more)
        events = [event async for event in await client.responses.create(**said | more, stream=True)]
        assert events[0].type == "response.created"
        assert events[-1].type == f"response.{whole.status}"
        streamed = events[-1].response
        assert (streamed.output_text, streamed.status) == (whole.output_text, whole.status)
        assert [item.type for item in streamed.output] == [item.type for item in whole.output]
        return whole

    whole = await respond("@words@")
    assert (whole.output_text, whole.status) == ("Hello there", "completed")
    assert whole.usage is not None
    assert whole.usage.output_tokens == 3
    assert (await respond("@words@", max_output_tokens=1)).status == "incomplete"
    tools = [{"type": "function", **each["function"], "strict": False} for each in TOOLS]
    for start, choice in (("@call@", "auto"), ("@words@", {"type": "function", "name": "weather"})):
        (call,) = (await respond(start, tools=tools, tool_choice=choice)).output
        assert call.type == "function_call"
        assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Bern"})
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "@words@"}
    again = [{"role": "user", "content": "?"}, call.model_dump(exclude_none=True), result]
    assert (await respond("", input=again, tools=tools)).output_text == "Hello there"
    form = {"type": "json_schema", "name": "x", "schema": TOOLS[0]["function"]["parameters"], "strict": True}
    assert json.loads((await respond("@json@", text={"format": form})).output_text) == {"city": "Bern"}
    with pytest.raises(BadRequestError, match="previous_response_id"):
        await client.responses.create(model=MODEL, input="x", previous_response_id="resp_1")
    with pytest.raises(NotFoundError, match="does not exist here"):
        await client.responses.create(model="other", input="x")


async def answers_as_messages(client: AsyncOpenAI) -> None:
    base = str(client.base_url).rstrip("/").removesuffix("/v1")
    async with AsyncAnthropic(base_url=base, api_key="any", max_retries=0) as asked:
        await _messages(asked)


async def _messages(client: AsyncAnthropic) -> None:
    async def message(text: str, **more: Any) -> Message:
        turns = [{"role": "user", "content": text}]
        said: dict[str, Any] = {"model": MODEL, "messages": turns, "max_tokens": 90} | more
        said["extra_body"] = {"temperature": 0}
        whole: Message = await client.messages.create(**said)
        async with client.messages.stream(**said) as events:
            streamed = await events.get_final_message()
        assert [block.type for block in streamed.content] == [block.type for block in whole.content]
        assert (streamed.stop_reason, streamed.stop_sequence) == (whole.stop_reason, whole.stop_sequence)
        assert streamed.usage.output_tokens == whole.usage.output_tokens
        return whole

    def words(said: Message) -> str:
        return "".join(block.text for block in said.content if block.type == "text")

    whole = await message("@words@")
    assert (words(whole), whole.stop_reason, whole.usage.output_tokens) == ("Hello there", "end_turn", 3)
    stopped = await message("@words@", stop_sequences=["zzz", " there"])
    assert (words(stopped), stopped.stop_reason, stopped.stop_sequence) == (
        "Hello",
        "stop_sequence",
        " there",
    )
    assert (await message("@words@", max_tokens=1)).stop_reason == "max_tokens"
    functions = [each["function"] for each in TOOLS]
    tools = [{"name": each["name"], "input_schema": each["parameters"]} for each in functions]
    for start, choice in (("@call@", {"type": "auto"}), ("@words@", {"type": "tool", "name": "weather"})):
        called = await message(start, tools=tools, tool_choice=choice)
        (use,) = called.content
        assert use.type == "tool_use"
        assert (use.name, use.input, called.stop_reason) == ("weather", {"city": "Bern"}, "tool_use")
    again = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": [use.model_dump(exclude_none=True)]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "@words@"}]},
    ]
    assert words(await message("", messages=again, tools=tools)) == "Hello there"
    form = {"type": "json_schema", "schema": functions[0]["parameters"]}
    assert json.loads(words(await message("@json@", output_config={"format": form}))) == {"city": "Bern"}
    turns: Any = [{"role": "user", "content": "@words@"}]
    assert (await client.messages.count_tokens(model=MODEL, messages=turns)).input_tokens == 1
    assert [each.id async for each in client.models.list()] == [MODEL]
    with pytest.raises(anthropic.BadRequestError, match="thinking is not supported"):
        await message("x", thinking={"type": "enabled", "budget_tokens": 1024})
    with pytest.raises(anthropic.NotFoundError, match="does not exist here") as missing:
        await message("x", model="other")
    assert missing.value.type == "not_found_error"


async def says_when_a_grammar_failed(client: AsyncOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    follow = GuidedAnswer.next

    async def fails_later(self: GuidedAnswer, taken: Sequence[int]) -> tuple[int, ...] | None:
        if taken:
            raise GrammarFailed("the grammar cannot follow this answer any further")
        return await follow(self, taken)

    monkeypatch.setattr(GuidedAnswer, "next", fails_later)
    with pytest.raises(InternalServerError) as whole:
        await ask(client, "@call@", tools=TOOLS, tool_choice="required")
    assert whole.value.code == "grammar_failed"
    with pytest.raises(APIError) as stream:
        await streamed(client, "@json@", response_format={"type": "json_object"})
    assert stream.value.code == "grammar_failed"
