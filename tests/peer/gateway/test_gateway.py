"""What requests of other programs mean, what answers look like, how calls of tools are read, and whose turn it is."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, cast

import pytest
from aiohttp.test_utils import make_mocked_request

from peer.errors import ApiError, MustContribute
from peer.gateway import responses as shapes
from peer.gateway import server
from peer.gateway.answers import Called, Calling, Done, Said, Task, _events
from peer.gateway.chat_requests import chat_request, completion_request
from peer.gateway.request_queue import Line
from peer.gateway.responses import Choice, Heading, Likely, Usage, Used
from peer.gateway.server import _problem
from peer.gateway.tool_calls import CallScanner, Style, ToolCall, parsed, style_of
from peer.model.tokenizer import Text
from peer.origin.answer_stream import Delta, Finished, Settings
from peer.origin.arithmetic_changes import Crossing
from peer.session.sampling import GREEDY, Sampling
from planner.model.sampling_defaults import OPENAI, USUAL, SamplingDefaults

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {}}}},
}
NAMES = frozenset(("weather", "time"))


# --- requests


def test_what_is_left_out() -> None:
    asked = chat_request(ASK, USUAL)
    wanted = asked.wanted
    assert (wanted.choices, wanted.stream) == (1, False)
    assert (wanted.seed, wanted.max_tokens, wanted.stop, wanted.alternatives) == (None, None, (), None)
    assert asked.turns == ({"role": "user", "content": "Hi"},)
    assert (asked.tools, asked.required, asked.format) == ((), False, None)


OWN = SamplingDefaults(0.6, 20, 0.9, 0.05, 1.1)  # a model's


@pytest.mark.parametrize(
    ("defaults", "more", "drawn"),
    [
        (USUAL, {}, Sampling(0.7, top_p=0.95)),
        (OPENAI, {}, Sampling(1.0)),
        (OWN, {}, Sampling(0.6, 20, 0.9, 0.05, 1.1)),
        (OWN, {"temperature": None, "top_p": None}, Sampling(0.6, 20, 0.9, 0.05, 1.1)),
        (OWN, {"temperature": 1.5, "top_k": 0}, Sampling(1.5, 0, 0.9, 0.05, 1.1)),
        (OWN, {"temperature": 0}, GREEDY),
        (OWN, {"temperature": 0, "repetition_penalty": 1.2}, Sampling(repetition_penalty=1.2)),
        (OWN, {"presence_penalty": 1}, Sampling(0.6, 20, 0.9, 0.05, 1.1, presence_penalty=1.0)),
        (SamplingDefaults(0.0, repetition_penalty=1.1), {}, Sampling(repetition_penalty=1.1)),
    ],
)
def test_sampling_that_a_request_leaves_out_is_the_models(
    defaults: SamplingDefaults, more: dict[str, Any], drawn: Sampling
) -> None:
    assert chat_request(ASK | more, defaults).wanted.sampling(7) == replace(drawn, seed=7)
    prompt = {"model": "m", "prompt": "x"}
    assert completion_request(prompt | more, defaults).wanted.sampling(7) == replace(drawn, seed=7)


@pytest.mark.parametrize(
    ("more", "name", "value"),
    [
        ({"max_tokens": 5}, "max_tokens", 5),
        ({"max_completion_tokens": 6, "max_tokens": 5}, "max_tokens", 6),
        ({"stop": "x"}, "stop", ("x",)),
        ({"stop": ["x", "y"]}, "stop", ("x", "y")),
        ({"stop": None, "user": "me", "metadata": {"a": 1}}, "stop", ()),
        ({"seed": -1}, "seed", 2**53 - 1),
        ({"n": 3}, "choices", 3),
        ({"logprobs": True}, "alternatives", 0),
        ({"logprobs": True, "top_logprobs": 4}, "alternatives", 4),
        ({"logit_bias": {"5": -100, "3": 0.5}}, "bias", ((3, 500_000), (5, -100_000_000))),
        ({"stream": True, "stream_options": {"include_usage": True}}, "usage_at_end", True),
    ],
)
def test_settings(more: dict[str, Any], name: str, value: object) -> None:
    assert getattr(chat_request(ASK | more, USUAL).wanted, name) == value


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"model": 3}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": "1"}, "top_p"),
        ({"n": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"seed": 1.5}, "seed"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"tools": [{"type": "web"}]}, "tools[0]"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_object", "scheme": {}}}, "response_format.scheme"),
        ({"response_format": {"type": "text", "schema": {}}}, "response_format.schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "mode": "x"}}},
            "response_format.json_schema.mode",
        ),
        ({"stream_options": {"include_usages": True}}, "stream_options.include_usages"),
        ({"messages": [{"role": "user", "content": "x", "images": ["a"]}]}, "messages[0].images"),
        ({"tools": [TOOL | {"cache": 1}]}, "tools[0].cache"),
        ({"tools": [TOOL | {"function": TOOL["function"] | {"returns": {}}}]}, "tools[0].function.returns"),
        ({"audio": {}}, "audio"),
    ],
)
def test_what_cannot_be_asked_names_the_parameter(more: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        chat_request(ASK | more, USUAL)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_messages_become_turns_as_templates_read_them() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}
    turns = chat_request(
        ASK
        | {
            "messages": [
                {
                    "role": "developer",
                    "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}],
                },
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "rain"},
            ]
        },
        USUAL,
    ).turns
    assert turns[0] == {"role": "system", "content": "Be brief."}
    assert turns[1]["content"] == ""
    assert turns[1]["tool_calls"][0]["function"] == {"name": "weather", "arguments": {"city": "Bern"}}
    assert turns[2] == {"role": "tool", "content": "rain", "tool_call_id": "c1"}


def test_a_schema_beside_json_object_is_held_to() -> None:
    asked = chat_request(
        ASK | {"response_format": {"type": "json_object", "schema": {"type": "object"}}}, USUAL
    )
    assert asked.format is not None
    assert asked.format.schema == {"type": "object"}


def test_a_tiny_top_p_is_the_likeliest_token_alone() -> None:
    assert chat_request(ASK | {"top_p": 1e-7}, USUAL).wanted.sampling(1).top_p == 1e-6


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.1:80", "127.0.0.1"),
        ("localhost", "localhost"),
        ("[::1]:4711", "::1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("evil.example:80", "evil.example"),
        ("[::1].evil.example", "[::1].evil.example"),
    ],
)
def test_names_in_host(host: str, name: str) -> None:
    assert server._name_of(host) == name


def test_a_page_that_may_ask_may_send_what_its_client_sends() -> None:
    sent = {
        "Origin": "http://page.test",
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
    }
    allowed = server._allowing(make_mocked_request("OPTIONS", "/v1/models", headers=sent))
    assert allowed["Access-Control-Allow-Headers"] == sent["Access-Control-Request-Headers"]
    broken = sent | {"Access-Control-Request-Headers": "a: b"}
    found = server._allowing(make_mocked_request("OPTIONS", "/v1/models", headers=broken))
    assert found["Access-Control-Allow-Headers"] == "authorization, content-type"


@pytest.mark.parametrize(
    ("choice", "required", "forced", "tools"),
    [
        (None, False, None, 1),
        ("auto", False, None, 1),
        ("none", False, None, 0),
        ("required", True, None, 1),
        ({"type": "function", "function": {"name": "weather"}}, True, "weather", 1),
    ],
)
def test_tool_choice(choice: object, required: bool, forced: str | None, tools: int) -> None:
    asked = chat_request(ASK | {"tools": [TOOL], "tool_choice": choice}, USUAL)
    assert (asked.required, asked.forced, len(asked.tools)) == (required, forced, tools)


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("a", ("a",)), (["a", "b"], ("a", "b")), ([1, 2], ((1, 2),)), ([[1], [2, 3]], ((1,), (2, 3)))],
)
def test_prompts_of_completions(prompt: object, prompts: tuple[object, ...]) -> None:
    assert completion_request({"model": "m", "prompt": prompt}, USUAL).prompts == prompts


@pytest.mark.parametrize(
    "more", [{"prompt": []}, {"prompt": [-1]}, {"suffix": "x"}, {"best_of": 2}, {"tools": []}]
)
def test_completions_refuse(more: dict[str, Any]) -> None:
    with pytest.raises(ApiError):
        completion_request({"model": "m", "prompt": "x"} | more, USUAL)


# --- tools


@pytest.mark.parametrize(
    ("template", "style"),
    [
        ("...<tool_call>\n{...}</tool_call>", Style.TAGGED),
        ("{{ '[TOOL_CALLS]' }}", Style.LISTED),
        ('Respond with {"name": ..., "parameters": ...}', Style.BARE),
        ("nothing of the kind", None),
    ],
)
def test_styles(template: str, style: Style | None) -> None:
    assert style_of(template) is style


CITY = '{"city": "Bern"}'


@pytest.mark.parametrize(
    ("style", "text", "words", "calls"),
    [
        (Style.TAGGED, f'<tool_call>\n{{"name": "weather", "arguments": {CITY}}}\n</tool_call>', "", 1),
        (
            Style.TAGGED,
            f'I look.\n<tool_call>{{"name": "weather", "arguments": {CITY}}}</tool_call>',
            "I look.",
            1,
        ),
        (
            Style.TAGGED,
            f'<tool_call>{{"name": "weather", "arguments": {CITY}}}</tool_call>\n'
            '<tool_call>{"name": "time", "arguments": {}}</tool_call>',
            "",
            2,
        ),
        (Style.TAGGED, f'<tool_call>{{"name": "weather", "arguments": {CITY}}}', "", 1),
        (Style.BARE, f'{{"name": "weather", "parameters": {CITY}}}', "", 1),
        (Style.BARE, f'<|python_tag|>{{"name": "weather", "parameters": {CITY}}}; {{"name": "time"}}', "", 2),
        (
            Style.LISTED,
            f'[TOOL_CALLS] [{{"name": "weather", "arguments": {CITY}}}, {{"name": "time"}}]',
            "",
            2,
        ),
        (Style.LISTED, f'[{{"name": "weather", "arguments": {CITY}}}]', "", 1),
    ],
)
def test_calls(style: Style, text: str, words: str, calls: int) -> None:
    found = parsed(style, text, NAMES)
    assert found[0] == words
    assert [call.name for call in found[1]] == ["weather", "time"][:calls]
    assert json.loads(found[1][0].arguments) == {"city": "Bern"}


@pytest.mark.parametrize("style", list(Style))
@pytest.mark.parametrize(
    "text",
    [
        "Just words, { and [ among them.",
        '{"name": "unknown", "arguments": {}}',
        '<tool_call>{"name": "weather", "arguments": "no object"}</tool_call>',
        '<tool_call>{"name": "weather", "arg',
        "[" * 5000,
        "",
    ],
)
def test_what_is_no_call_stays_words(style: Style, text: str) -> None:
    assert parsed(style, text, NAMES) == (text, ())


WEATHER = f'{{"name": "weather", "arguments": {CITY}}}'
UNKNOWN = '{"name": "unknown", "arguments": {"name": "weather"}}'
MIXED = [
    (Style.TAGGED, f"Hm.\n<tool_call>{WEATHER}</tool_call>\nDone.", "Hm.\nDone.", ["weather"]),
    (Style.TAGGED, f"<tool_call>{WEATHER}</tool_call>\n\n", "", ["weather"]),
    (
        Style.TAGGED,
        f"<tool_call>{UNKNOWN}</tool_call>\n<tool_call>{WEATHER}</tool_call>",
        f"<tool_call>{UNKNOWN}</tool_call>",
        ["weather"],
    ),
    (
        Style.TAGGED,
        f'a <tool_call>{{"name": "wea <tool_call>{WEATHER}</tool_call> b',
        'a <tool_call>{"name": "wea b',
        ["weather"],
    ),
    (Style.TAGGED, "<tool_call>no JSON</tool_call> <tool_c", "<tool_call>no JSON</tool_call> <tool_c", []),
    (Style.BARE, f"Let me look: {WEATHER} That was it.", "Let me look: That was it.", ["weather"]),
    (Style.BARE, f"{UNKNOWN}; {WEATHER}", f"{UNKNOWN};", ["weather"]),
    (Style.BARE, 'f() { return "}" } [1] {"city": "Bern"}', 'f() { return "}" } [1] {"city": "Bern"}', []),
    (Style.LISTED, f"Let me check. [TOOL_CALLS] [{WEATHER}]", "Let me check.", ["weather"]),
    (Style.LISTED, f"Let me check. [TOOL_CALLS]weather[ARGS]{CITY}", "Let me check.", ["weather"]),
    (Style.LISTED, f"weather[ARGS]{CITY}", "", ["weather"]),
    (Style.LISTED, f"weather{CITY} and more", "and more", ["weather"]),
    (
        Style.LISTED,
        f"[TOOL_CALLS]weather[CALL_ID]a1B[ARGS]{CITY}[TOOL_CALLS]time[ARGS]{{}}",
        "",
        ["weather", "time"],
    ),
    (Style.LISTED, f"[TOOL_CALLS]unknown[ARGS]{CITY}", f"[TOOL_CALLS]unknown[ARGS]{CITY}", []),
    (Style.LISTED, f"[TOOL_CALLS] [{UNKNOWN}, {WEATHER}]", UNKNOWN, ["weather"]),
    (
        Style.LISTED,
        f"The weather in [1]: unweather{CITY} weath",
        f"The weather in [1]: unweather{CITY} weath",
        [],
    ),
]


@pytest.mark.parametrize(("style", "text", "words", "calls"), MIXED)
def test_good_calls_come_out_and_the_words_around_them(
    style: Style, text: str, words: str, calls: list[str]
) -> None:
    found = parsed(style, text, NAMES)
    assert found[0] == words
    assert [call.name for call in found[1]] == calls
    assert all(json.loads(call.arguments) in ({"city": "Bern"}, {}) for call in found[1])


@pytest.mark.parametrize(("style", "text"), [row[:2] for row in MIXED])
def test_a_stream_gives_what_the_whole_answer_gives(style: Style, text: str) -> None:
    for size in (1, 2, 3, 7):
        scanner = CallScanner(style, NAMES)
        shown = [scanner.push(text[at : at + size]) for at in range(0, len(text), size)]
        more, calls = scanner.end()
        assert ("".join(shown) + more, calls) == parsed(style, text, NAMES)


def test_words_are_shown_until_a_call_may_begin() -> None:
    scanner = CallScanner(Style.TAGGED, NAMES)
    shown = [scanner.push(character) for character in 'Let me see. <tool_call>{"name"']
    assert "".join(shown) == "Let me see."
    assert shown[0] == "L"
    assert CallScanner(Style.BARE, NAMES).push("Hello") == "Hello"


def test_a_long_answer_is_read_once() -> None:
    scanner = CallScanner(Style.BARE, NAMES)
    began = time.process_time()
    pieces = [scanner.push('{"name": "x", "a": [' if at == 0 else '{"b": "c"}, ') for at in range(5_000)]
    assert "".join(pieces) == ""
    assert time.process_time() - began < 1


@pytest.mark.parametrize("tail", [f'[{{"name": "weather", "arguments": {CITY}}}]', "[ in brackets ]"])
async def test_a_mark_that_is_a_control_token_begins_a_call_and_is_never_shown(tail: str) -> None:
    """The text of an answer lacks such a mark; what it was is known by its id."""

    async def pieces() -> AsyncGenerator[Delta | Finished]:
        for text, control in (("I look.", ""), ("", "[TOOL_CALLS]"), (tail, ""), ("", "</s>")):
            yield Delta(text, 1, (), control)
        yield Finished("end", 1, 0, 4, 0.1, 0.2, ())

    task = Task(0, (1,), Settings(), Calling(Style.LISTED, NAMES, True))
    events = [event async for event in _events(task, pieces(), cast(Text, None))]
    shown = "".join(event.text for event in events if isinstance(event, Said))
    called = [call.name for event in events if isinstance(event, Called) for call in event.calls]
    ends = [event.why for event in events if isinstance(event, Done)]
    is_call = "weather" in tail
    assert shown == ("I look." if is_call else f"I look.{tail}")
    assert (called, ends) == ((["weather"], ["tool_calls"]) if is_call else ([], ["end"]))


# --- shapes


def heading(with_likely: bool = False) -> Heading:
    return Heading("chatcmpl-1", 1700000000, "m", "fp", with_likely)


def test_a_whole_answer() -> None:
    likely = Likely(7, "é", "é".encode(), -0.5, (Likely(8, "e", b"e", -1.0),))
    choice = Choice(0, "é", [likely], (ToolCall("weather", "{}"),), ("call_1",), "tool_calls")
    shape = shapes.chat(heading(True), [choice], Usage(3, 1, 2))
    answer = shape["choices"][0]
    assert answer["finish_reason"] == "tool_calls"
    assert answer["message"]["tool_calls"][0]["function"] == {"name": "weather", "arguments": "{}"}
    told = answer["logprobs"]["content"][0]
    assert (told["bytes"], told["top_logprobs"][0]["token"]) == ([0xC3, 0xA9], "e")
    assert shape["usage"]["total_tokens"] == 5
    assert shape["usage"]["prompt_tokens_details"] == {"cached_tokens": 1}


HALVES = (
    Likely(1, "\ufffd", b"\xf0\x9f", -0.1),
    Likely(2, "\ufffd", b"\xf0", -0.2),
    Likely(3, "\n", b"\n", -0.3),
    Likely(4, "\n", b"\n", -0.4),
    Likely(5, "<|im_end|>", None, -0.5),
    Likely(6, "<|im_end|>", b"<|im_end|>", -0.6),
    Likely(9, "", None, -0.7),
)
CALLED = [
    "bytes:\\xf0\\x9f",
    "bytes:\\xf0",
    "\n",
    "token_id:4",
    "<|im_end|>",
    "token_id:6",
    "token_id:9",
]


@pytest.mark.parametrize("chosen", range(len(HALVES)))
def test_tokens_of_equal_text_stay_apart(chosen: int) -> None:
    drawn = HALVES[chosen]
    likely = Likely(drawn.token, drawn.text, drawn.utf8, drawn.logprob, HALVES)
    said = shapes.chat_says(heading(True), 0, "", [likely])["choices"][0]["logprobs"]["content"][0]
    told = {entry["token"]: entry for entry in said["top_logprobs"]}
    assert [entry["logprob"] for entry in said["top_logprobs"]] == [one.logprob for one in HALVES]
    assert [entry["bytes"] for entry in told.values()] == [
        None if one.utf8 is None else list(one.utf8) for one in HALVES
    ]
    assert told[said["token"]]["logprob"] == said["logprob"] == drawn.logprob
    shaped = shapes.completion_says(heading(True), 0, "", [likely])["choices"][0]["logprobs"]
    assert list(shaped["top_logprobs"][0].values()) == [one.logprob for one in HALVES]
    assert shaped["top_logprobs"][0][shaped["tokens"][0]] == shaped["token_logprobs"][0] == drawn.logprob
    if not chosen:
        assert list(shaped["top_logprobs"][0]) == list(told) == CALLED


def test_offsets_count_the_characters_of_the_text() -> None:
    parts = [b"a", "🙂".encode()[:2], "🙂".encode()[2:], None, b"bc", b"d"]
    likely = [Likely(at, "", utf8, -1.0) for at, utf8 in enumerate(parts)]
    shaped = shapes.completion_says(heading(True), 0, "a🙂bcd", likely)["choices"][0]["logprobs"]
    assert shaped["text_offset"] == [0, 1, 1, 2, 2, 4]


def test_usage_counts_each_prompt_once_and_every_answer() -> None:
    used = Used(choices=2)
    for index, one in enumerate((Usage(9, 0, 4), Usage(9, 8, 5), Usage(7, 0, 1), Usage(7, 2, 2))):
        used.add(index, one)
    assert used.all == Usage(9 + 7, 8 + 2, 4 + 5 + 1 + 2)
    assert Used(choices=1).all == Usage(0, 0, 0)


def test_who_must_contribute_hears_so_and_is_not_told_to_wait() -> None:
    problem = _problem(MustContribute("you have asked for 7 credits more than you contributed"))
    assert (problem.status, problem.kind, problem.code) == (503, "server_error", "must_contribute")
    assert problem.retry_after_s is None
    assert "7 credits" in shapes.error(problem)["error"]["message"]


def test_the_error_object_is_openais() -> None:
    problem = ApiError("no", 404, param="model", code="model_not_found")
    assert shapes.error(problem) == {
        "error": {
            "message": "no",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }


# --- the line


async def in_line(line: Line, count: int) -> None:
    while line.waiting < count:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_who_came_first_goes_first_and_nobody_is_forgotten() -> None:
    line, order = Line(lambda: 3, 100), list[int]()
    gate = asyncio.Event()

    async def ask(number: int) -> None:
        await line.enter()
        order.append(number)
        await gate.wait()
        line.leave()

    asking = [asyncio.create_task(ask(number)) for number in range(64)]
    await in_line(line, 61)
    assert order == [0, 1, 2]
    for gone in (5, 6):
        asking[gone].cancel()
    gate.set()
    await asyncio.gather(*asking, return_exceptions=True)
    assert order == [number for number in range(64) if number not in (5, 6)]
    assert (line.inside, line.waiting) == (0, 0)


async def test_one_who_leaves_when_its_turn_comes_gives_it_on() -> None:
    line = Line(lambda: 1, 10)
    await line.enter()
    first, second = asyncio.create_task(line.enter()), asyncio.create_task(line.enter())
    await in_line(line, 2)
    line.leave()
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert first.cancelled()
    assert (line.inside, line.waiting) == (1, 0)


async def test_a_full_line_refuses_and_says_when_to_come_again() -> None:
    line = Line(lambda: 1, 1)
    line.check(2)
    with pytest.raises(ApiError) as caught:
        line.check(3, "b")
    assert (caught.value.status, caught.value.code) == (503, "mesh_full")
    assert caught.value.retry_after_s is not None


async def test_each_client_has_its_turn_whatever_another_asks() -> None:
    line, order = Line(lambda: 1, 100), list[str]()
    await line.enter("a")

    async def ask(client: str) -> None:
        await line.enter(client)
        order.append(client)
        line.leave(client)

    asking = [asyncio.create_task(ask(client)) for client in "aaaaabbc"]
    await in_line(line, 8)
    line.leave("a")
    await asyncio.gather(*asking)
    assert "".join(order) == "bcabaaaa"
    assert (line.inside, line.waiting, line._let_in) == (0, 0, {})


async def test_a_place_goes_to_who_has_the_fewest() -> None:
    line = Line(lambda: 3, 100)
    for client in "aab":
        await line.enter(client)
    asking = {client: asyncio.create_task(line.enter(client)) for client in "abc"}
    await in_line(line, 3)
    for left, comes in (("b", "c"), ("a", "b"), ("c", "a")):  # c has none, then b, then both have one
        line.leave(left)
        await asking.pop(comes)
        assert not any(each.done() for each in asking.values())
    assert line.inside == 3


async def test_one_client_may_wait_in_half_of_the_line() -> None:
    line = Line(lambda: 1, 4)
    await line.enter("a")
    asking = [asyncio.create_task(line.enter("a")) for _ in range(2)]
    await in_line(line, 2)
    with pytest.raises(ApiError) as caught:
        line.check(1, "a")
    assert (caught.value.status, caught.value.code) == (429, "rate_limit_exceeded")
    assert caught.value.retry_after_s is not None
    line.check(2, "b")
    for each in asking:
        each.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    line.check(1, "a")


async def test_room_that_comes_lets_more_in() -> None:
    most = 0
    line = Line(lambda: most, 10)
    waiting = asyncio.create_task(line.enter())
    await in_line(line, 1)
    most = 1
    line.look()
    await waiting
    assert line.inside == 1


def test_a_choice_says_where_it_went_on_with_other_arithmetic() -> None:
    heading = Heading("id", 1, "m", "f", with_likely=False)
    crossed = (Crossing(3, 0, 30, "cpu/avx2/rows-1/0123", ""),)
    told = {"crossed": [{"tokens": 3, "first": 0, "stop": 30, "before": "cpu/avx2/rows-1/0123", "after": ""}]}
    used = Usage(1, 0, 1)
    for shape in (shapes.chat, shapes.completion):
        whole = shape(heading, [Choice(0, "a", why="end", crossed=crossed), Choice(1, "b", why="end")], used)
        assert [choice.get("shoal") for choice in whole["choices"]] == [told, None]
    for end in (
        shapes.chat_ends(heading, 0, "end", crossed),
        shapes.completion_says(heading, 0, "", (), "end", crossed),
    ):
        assert end["choices"][0]["shoal"] == told
        assert end["choices"][0]["finish_reason"] == "stop"
    assert "shoal" not in shapes.chat_ends(heading, 0, "end")["choices"][0]
