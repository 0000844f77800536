"""Clients of OpenAI's and Anthropic's APIs against the gateway of a mesh whose model knows tools: each that is
installed is tried.

    pip install openai anthropic langchain-openai litellm mcp instructor 'pydantic-ai-slim[openai]'
    python examples/try_clients.py http://127.0.0.1:8000/v1 ['Is it warm in Bern?'] [key]

Chat, streams, free and required tools, answers in a given form. Prints a line for each; exit status 1 when one fails.
examples/try_clients.mjs does the same with the official client in JavaScript.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Bern", "Oslo"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


class Weather(BaseModel):
    """The weather in a city."""

    model_config = ConfigDict(extra="forbid")
    city: Literal["Bern", "Oslo"]
    warm: bool


def get_weather(city: Literal["Bern", "Oslo"]) -> str:
    """The weather in a city."""
    return f"It is warm in {city}."


def expect(found: object, what: str) -> None:
    """Raises AssertionError that says what was wanted."""
    if not found:
        raise AssertionError(f"expected {what}, got {found!r}")


def openai(base: str, key: str, question: str) -> None:
    """The official client."""
    from openai import OpenAI

    client = OpenAI(base_url=base, api_key=key)
    asked: dict[str, Any] = {
        "model": client.models.list().data[0].id,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 200,
        "seed": 1,
    }
    whole = client.chat.completions.create(**asked)
    words = [
        chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**asked, stream=True)
    ]
    expect("".join(words) == (whole.choices[0].message.content or ""), "a stream of the same words")
    free = client.chat.completions.create(**asked, tools=[TOOL]).choices[0]
    expect(free.message.content or free.message.tool_calls, "words or calls")
    with client.chat.completions.stream(**asked, tools=[TOOL], tool_choice="required") as stream:
        call = stream.get_final_completion().choices[0].message.tool_calls[0]
    expect(call.function.name == "get_weather", "a call of the tool")
    follow = [
        *asked["messages"],
        {"role": "assistant", "tool_calls": [call.model_dump(include={"id", "type", "function"})]},
        {"role": "tool", "tool_call_id": call.id, "content": "warm"},
    ]
    client.chat.completions.create(**asked | {"messages": follow}, tools=[TOOL])
    parsed = client.chat.completions.parse(**asked, response_format=Weather)
    expect(parsed.choices[0].message.parsed, "an answer in the form")


def openai_responses(base: str, key: str, question: str) -> None:
    """The official client, by the Responses API."""
    from openai import OpenAI

    client = OpenAI(base_url=base, api_key=key)
    asked: dict[str, Any] = {"model": model_of(base, key), "input": question, "temperature": 0}
    asked["max_output_tokens"] = 200
    whole = client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        expect(stream.get_final_response().output_text == whole.output_text, "a stream of the same words")
    tool = {"type": "function", **TOOL["function"], "strict": True}
    call = client.responses.create(**asked, tools=[tool], tool_choice="required").output[-1]
    expect(call.type == "function_call" and call.name == "get_weather", "a call of the tool")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "warm"}
    back = [{"role": "user", "content": question}, call.model_dump(exclude_none=True), result]
    client.responses.create(**asked | {"input": back}, tools=[tool])
    expect(client.responses.parse(**asked, text_format=Weather).output_parsed, "an answer in the form")


def anthropic(base: str, key: str, question: str) -> None:
    """Anthropic's client, by the Messages API."""
    from anthropic import Anthropic

    client = Anthropic(base_url=base.rstrip("/").removesuffix("/v1"), api_key=key)
    asked: dict[str, Any] = {"model": client.models.list().data[0].id, "max_tokens": 200}
    asked["extra_body"] = {"temperature": 0}
    asked["messages"] = [{"role": "user", "content": question}]
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        expect(stream.get_final_message().content == whole.content, "a stream of the same words")
    function = TOOL["function"]
    tool = {"name": function["name"], "input_schema": function["parameters"]}
    called = client.messages.create(**asked, tools=[tool], tool_choice={"type": "any"})
    use = called.content[-1]
    expect(use.type == "tool_use" and use.name == "get_weather", "a call of the tool")
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "warm"}
    back = [
        *asked["messages"],
        {"role": "assistant", "content": called.content},
        {"role": "user", "content": [result]},
    ]
    client.messages.create(**asked | {"messages": back}, tools=[tool])
    expect(
        client.messages.count_tokens(model=asked["model"], messages=asked["messages"]).input_tokens, "a count"
    )


def langchain(base: str, key: str, question: str) -> None:
    """langchain-openai."""
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(base_url=base, api_key=key, model=model_of(base, key), max_tokens=200, seed=1)
    whole = model.invoke(question)
    expect(
        "".join(str(chunk.content) for chunk in model.stream(question)) == whole.content,
        "a stream of the same words",
    )
    model.bind_tools([TOOL]).invoke(question)
    call = model.bind_tools([TOOL], tool_choice="required").invoke(question).tool_calls
    expect(call and call[0]["name"] == "get_weather", "a call of the tool")
    for method in ("json_schema", "function_calling"):
        expect(
            model.with_structured_output(Weather, method=method).invoke(question), f"an answer by {method}"
        )


def litellm(base: str, key: str, question: str) -> None:
    """litellm, with the gateway as a provider like OpenAI."""
    from litellm import completion

    asked: dict[str, Any] = {
        "model": f"openai/{model_of(base, key)}",
        "api_base": base,
        "api_key": key,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 200,
        "seed": 1,
    }
    whole = completion(**asked).choices[0].message.content
    words = "".join(chunk.choices[0].delta.content or "" for chunk in completion(**asked, stream=True))
    expect(words == (whole or ""), "a stream of the same words")
    completion(**asked, tools=[TOOL])
    message = completion(**asked, tools=[TOOL], tool_choice="required").choices[0].message
    expect(message.tool_calls[0].function.name == "get_weather", "a call of the tool")
    back = [
        *asked["messages"],
        message,
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "warm"},
    ]
    completion(**asked | {"messages": back}, tools=[TOOL])
    formed = completion(**asked, response_format=Weather).choices[0].message.content
    expect(Weather.model_validate_json(formed), "an answer in the form")


def instructor(base: str, key: str, question: str) -> None:
    """instructor, by tools and by a JSON schema."""
    import instructor as library
    from openai import OpenAI

    for mode in (library.Mode.TOOLS, library.Mode.JSON_SCHEMA):
        client = library.from_openai(OpenAI(base_url=base, api_key=key), mode=mode)
        found = client.chat.completions.create(
            model=model_of(base, key),
            messages=[{"role": "user", "content": question}],
            response_model=Weather,
            max_tokens=200,
        )
        expect(found, f"an answer by {mode}")


def pydantic_ai(base: str, key: str, question: str) -> None:
    """pydantic-ai: an answer in a form by a required tool and by a schema, and a stream."""
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel(model_of(base, key), provider=OpenAIProvider(base_url=base, api_key=key))
    settings: Any = {"max_tokens": 200, "seed": 1}
    for form in (Weather, NativeOutput(Weather)):
        agent: Any = Agent(model, output_type=form, model_settings=settings)
        expect(agent.run_sync(question).output, "an answer in the form")

    async def streamed() -> list[str]:
        async with Agent(model, tools=[get_weather], model_settings=settings).run_stream(question) as answer:
            return [piece async for piece in answer.stream_text(delta=True)]

    asyncio.run(streamed())


def model_of(base: str, key: str) -> str:
    """The model that the gateway serves."""
    from openai import OpenAI

    return OpenAI(base_url=base, api_key=key).models.list().data[0].id


CLIENTS: dict[str, Callable[[str, str, str], None]] = {
    "openai": openai,
    "openai.resources.responses": openai_responses,
    "anthropic": anthropic,
    "langchain_openai": langchain,
    "litellm": litellm,
    "instructor": instructor,
    "pydantic_ai": pydantic_ai,
}


def main() -> int:
    """Exit status 1 when a client fails, 2 for wrong arguments."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return 0
    if len(sys.argv) not in (2, 3, 4):
        print("usage: try_clients.py ADDRESS [QUESTION] [KEY]", file=sys.stderr)
        return 2
    base, question, key = (*sys.argv[1:], *("", "Is it warm in Bern?", "none")[len(sys.argv) - 1 :])
    failed = False
    for name, tried in CLIENTS.items():
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            print(f"{name}: not installed")
            continue
        try:
            tried(base, key, question)
            print(f"{name}: ok")
        except Exception as problem:  # of whichever library
            failed = True
            print(f"{name}: {type(problem).__name__}: {' '.join(str(problem).split())[:600]}")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
