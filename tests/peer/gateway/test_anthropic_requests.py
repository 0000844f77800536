"""Anthropic's Messages API: what its requests are as chat requests, what is refused, and the events of its answers."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types import Message

from peer.errors import ApiError
from peer.gateway.answers import Begun, Called, Done, Event, Said
from peer.gateway.anthropic_answers import MessageForm, error, message, models
from peer.gateway.anthropic_requests import chat_body
from peer.gateway.chat_requests import chat_request
from peer.gateway.responses import Choice, Usage
from peer.gateway.tool_calls import ToolCall
from peer.origin.answer_stream import Finished
from planner.model.sampling_defaults import SamplingDefaults

ASK: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
TOOL = {"name": "weather", "description": "Of a city.", "input_schema": {"type": "object"}}
USED = Usage(10, 4, 3)
CALL = ToolCall("weather", '{"city": "Bern"}')


def done(why: str, stop: str = "") -> Done:
    return Done(0, why, Finished(why, 10, 4, 3, 0.1, 0.2, (), (), stop))


def turns(*messages: tuple[str, Any], **more: Any) -> list[dict[str, Any]]:
    given = [{"role": role, "content": content} for role, content in messages]
    found: list[dict[str, Any]] = chat_body(ASK | {"messages": given} | more)["messages"]
    return found


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def test_turns_are_those_of_a_chat() -> None:
    system = [text("Be "), text("brief.", cache_control={"type": "ephemeral"})]
    assert turns(("user", [text("a"), text("b")]), system=system) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "ab"},
    ]
    assert turns(("user", "one"), ("user", "two"))[0]["content"] == "one\n\ntwo", "one turn of a role"
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bern"}}
    results = [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("warm")]},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "gone", "is_error": True},
    ]
    thought = {"type": "thinking", "thinking": "…", "signature": "…"}
    found = turns(
        ("user", "?"), ("assistant", [thought, text("Well"), use]), ("user", [*results, text("and then?")])
    )
    function = {"name": "weather", "arguments": '{"city": "Bern"}'}
    assert found[1:] == [
        {
            "role": "assistant",
            "content": "Well",
            "tool_calls": [{"type": "function", "id": "toolu_1", "function": function}],
        },
        {"role": "tool", "tool_call_id": "toolu_1", "content": "warm"},
        {"role": "tool", "tool_call_id": "toolu_2", "content": "The call failed: gone"},
        {"role": "user", "content": "and then?"},
    ]


def test_settings_are_those_of_a_chat() -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    asked = chat_request(
        chat_body(
            ASK
            | {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "stream": True, "stop_sequences": ["x"]}
            | {
                "tools": [TOOL],
                "metadata": {"user_id": "u"},
                "cache_control": {"type": "ephemeral"},
                "thinking": {"type": "disabled"},
            }
            | {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
            | {"output_config": {"format": form}}
        ),
        SamplingDefaults(0.7),
    )
    assert (asked.wanted.max_tokens, asked.wanted.stop, asked.wanted.stream) == (9, ("x",), True)
    assert (asked.wanted.drawn.top_k, asked.required, asked.parallel) == (7, True, False)
    assert asked.format is not None
    assert asked.format.schema == {"type": "object"}
    (tool,) = asked.tools
    assert tool.whole["function"]["description"] == "Of a city."
    named = ASK | {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "weather"}}
    assert chat_request(chat_body(named), SamplingDefaults(0.7)).forced == "weather"
    assert "max_tokens" not in chat_body({k: v for k, v in ASK.items() if k != "max_tokens"}, counted=True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"max_tokens": None}, "max_tokens must say how long"),
        ({"messages": []}, "messages must be a list"),
        (
            {"messages": [{"role": "system", "content": "x"}]},
            r"messages\[0\]\.role must be user or assistant",
        ),
        (
            {"messages": [*ASK["messages"], {"role": "assistant", "content": "He"}]},
            "the last message must be",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "bytes of a picture in base64",
        ),
        ({"messages": [{"role": "user", "content": [7]}]}, "must be an object"),
        ({"messages": [{"role": "user", "content": 7}]}, "must be text, or a list of blocks"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "must name the call"),
        ({"messages": [{"role": "user", "content": "x", "name": "y"}]}, r"messages\[0\]\.name"),
        ({"system": [{"type": "image"}]}, "system.0.: this mesh reads text blocks"),
        ({"stop_sequences": "x"}, "stop_sequences must be up to 16"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "runs no tools of its own"),
        ({"tools": [{"name": "x"}]}, "input_schema must be"),
        ({"tool_choice": "auto"}, "tool_choice must have the type"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking is not supported"),
        ({"output_config": {"effort": "low"}}, "output_config.effort"),
        ({"output_format": {"type": "text"}}, "output_format must be"),
        ({"mcp_servers": []}, "mcp_servers"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ApiError, match=says) as refused:
        chat_request(chat_body(ASK | change), SamplingDefaults(0.7))
    assert refused.value.status == 400
    assert error(refused.value)["error"]["type"] == "invalid_request_error"


def test_a_whole_answer_is_a_message() -> None:
    said = Message.model_validate(message("m", Choice(0, "Hello", why="stop", stop="x"), USED))
    assert (said.content[0].type, said.stop_reason, said.stop_sequence) == ("text", "stop_sequence", "x")
    assert (said.usage.input_tokens, said.usage.cache_read_input_tokens, said.usage.output_tokens) == (
        6,
        4,
        3,
    )
    choice = Choice(0, "", calls=(CALL,), call_ids=("1",), why="tool_calls")
    called = Message.model_validate(message("m", choice, USED))
    (use,) = called.content
    assert use.type == "tool_use"
    assert (use.id, use.name, use.input, called.stop_reason) == (
        "toolu_1",
        "weather",
        {"city": "Bern"},
        "tool_use",
    )
    assert message("m", Choice(0, "", why="end"), USED)["content"] == [{"type": "text", "text": ""}]


def test_a_stream_opens_and_closes_each_block() -> None:
    stream = MessageForm("m", 10, lambda count: [str(place) for place in range(count)])
    events: list[Event] = [
        Begun(0), Said(0, "He", ()), Said(0, "", ()), Said(0, "llo", ()), Called(0, (CALL, CALL)), done("tool_calls"),
    ]  # fmt: skip
    found = [*stream.begin(1), *(part for event in events for part in stream.parts(event)), *stream.end(USED)]
    assert [each["type"].removeprefix("content_block_") for each in found] == [
        "message_start", "start", "delta", "delta", "stop", "start", "delta", "stop", "start", "delta", "stop",
        "message_delta", "message_stop",
    ]  # fmt: skip
    assert [each["index"] for each in found if "index" in each] == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert found[0]["message"]["usage"]["input_tokens"] == 10
    assert found[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert found[-2]["usage"]["output_tokens"] == 3
    assert stream.failed(ApiError("x", 503, "server_error"))["error"]["type"] == "overloaded_error"


def test_the_list_of_models() -> None:
    assert models([("a", "t"), ("b", "t")])["last_id"] == "b"
    assert models([])["first_id"] is None
