"""OpenAI's Responses API: what its requests are as chat requests, what is refused, and the events of its answers."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from peer.errors import ApiError
from peer.gateway.answers import Called, Done, Event, Said
from peer.gateway.chat_requests import chat_request
from peer.gateway.response_answers import ResponseAnswer, ResponseForm
from peer.gateway.response_requests import chat_body
from peer.gateway.responses import Choice, Likely, Usage
from peer.gateway.tool_calls import ToolCall
from peer.origin.answer_stream import Finished
from planner.model.sampling_defaults import SamplingDefaults

ASK: dict[str, Any] = {"model": "m", "input": "Hi"}
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}
USED = Usage(10, 4, 3)
CALL = ToolCall("weather", '{"city": "Bern"}')
EVENTS: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


def done(why: str) -> Done:
    return Done(0, why, Finished(why, 10, 4, 3, 0.1, 0.2, ()))


def answer(**fields: Any) -> ResponseAnswer:
    return ResponseAnswer.new(7, "m", chat_body(ASK | fields)[1])


def test_turns_are_those_of_a_chat() -> None:
    items = [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
        },
        {"type": "reasoning", "summary": []},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "c"}],
            "id": "msg_1",
        },
        {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}", "id": "fc_1"},
        {"type": "function_call", "call_id": "2", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "warm"},
    ]
    found = chat_body(ASK | {"input": items, "instructions": "Be brief."})[0]["messages"]
    assert [turn["role"] for turn in found] == ["system", "user", "assistant", "tool"]
    assert [turn["content"] for turn in found] == ["Be brief.", "ab", "c", "warm"]
    assert [call["id"] for call in found[2]["tool_calls"]] == ["1", "2"]
    chat_request(chat_body(ASK | {"input": items})[0], SamplingDefaults(0.7))


def test_settings_are_those_of_a_chat() -> None:
    form = {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": True}
    body, echo = chat_body(
        ASK
        | {"max_output_tokens": 5, "temperature": 0.5, "top_p": 0.9, "stream": True, "store": True}
        | {"tools": [TOOL], "tool_choice": {"type": "function", "name": "weather"}, "user": "u"}
        | {"parallel_tool_calls": False, "text": {"format": form, "verbosity": "low"}}
        | {"reasoning": {"effort": None}, "truncation": "disabled", "top_logprobs": 2}
        | {"include": ["message.output_text.logprobs"], "stream_options": {"include_obfuscation": False}}
    )
    asked = chat_request(body, SamplingDefaults(0.7))
    assert (asked.wanted.max_tokens, asked.wanted.alternatives, asked.wanted.stream) == (5, 2, True)
    assert (asked.forced, asked.parallel, echo.with_likely) == ("weather", False, True)
    assert asked.format is not None
    assert asked.format.schema == {"type": "object"}
    assert (
        chat_request(chat_body(ASK | {"text": {"format": {"type": "text"}}})[0], SamplingDefaults(0.7)).format
        is None
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
        ({"truncation": "auto"}, "truncation is not supported"),
        ({"include": ["file_search_call.results"]}, "include may have"),
        ({"input": []}, "input must be text, or a list of items"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "got 'item_reference'"),
        ({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "got 'input_audio'"),
        (
            {
                "input": [
                    {"role": "user", "content": [{"type": "input_image", "image_url": "x", "file_id": "x"}]}
                ]
            },
            "image_url or file_id expected, got both",
        ),
        ({"input": [7]}, r"input\[0\] must be an object"),
        ({"tools": [{"type": "web_search"}]}, "runs no tools of its own"),
        ({"text": {"format": 7}}, "text.format must be"),
        ({"text": 7}, "text must be an object"),
        ({"instructions": ["x"]}, "instructions must be text"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ApiError, match=says) as refused:
        chat_body(ASK | change)
    assert refused.value.status == 400


def test_a_whole_answer_is_a_response() -> None:
    likely = Likely(1, "He", b"He", -0.1)
    asked = answer(tools=[TOOL], include=["message.output_text.logprobs"], temperature=0.5)
    said = Response.model_validate(asked.whole(Choice(0, "Hello", [likely], why="length"), USED))
    assert (said.output_text, said.status, said.temperature) == ("Hello", "incomplete", 0.5)
    assert said.incomplete_details is not None
    assert said.incomplete_details.reason == "max_output_tokens"
    assert said.usage is not None
    assert (said.usage.input_tokens_details.cached_tokens, said.usage.total_tokens) == (4, 13)
    choice = Choice(0, "", calls=(CALL,), call_ids=("1",), why="tool_calls")
    called = Response.model_validate(answer().whole(choice, USED))
    (call,) = called.output
    assert call.type == "function_call"
    assert (call.call_id, call.name, call.arguments, called.status) == (
        "call_1",
        "weather",
        CALL.arguments,
        "completed",
    )


@pytest.mark.parametrize(
    ("events", "output", "why"),
    [
        ((Said(0, "He", ()), Said(0, "llo", ()), done("end")), ["Hello"], "completed"),
        ((Said(0, "Hello", ()), done("length")), ["Hello"], "incomplete"),
        ((Said(0, "Well", ()), Called(0, (CALL, CALL)), done("tool_calls")), ["Well", "{", "{"], "completed"),
        ((Called(0, (CALL,)), done("tool_calls")), ["{"], "completed"),
        ((done("end"),), [""], "completed"),
    ],
)
def test_a_stream_opens_and_closes_each_item(events: tuple[Event, ...], output: list[str], why: str) -> None:
    stream = ResponseForm(answer(), lambda count: [str(place) for place in range(count)])
    found = [*stream.begin(1), *(part for event in events for part in stream.parts(event)), *stream.end(USED)]
    assert [each["sequence_number"] for each in found] == list(range(len(found)))
    for each in found:
        assert EVENTS.validate_python(each).type == each["type"]
    kinds = [each["type"].removeprefix("response.") for each in found]
    assert kinds[-1] == why
    assert kinds.count("output_item.added") == kinds.count("output_item.done") == len(output)
    whole = Response.model_validate(found[-1]["response"])
    shown = [
        item.arguments[0] if item.type == "function_call" else whole.output_text for item in whole.output
    ]
    assert shown == output
    deltas = "".join(each["delta"] for each in found if each["type"] == "response.output_text.delta")
    assert deltas == whole.output_text
    EVENTS.validate_python(stream.failed(ApiError("x", 503, "server_error", code="answer_failed")))
