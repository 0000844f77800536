"""LangChain's and LiteLLM's chat, asked of a gateway: a program for an environment that has them.

python chat_clients.py URL MODEL

It prints what each got, as one JSON object. What the scripted model says is in tests/e2e/test_scripted_gateway.py.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

CITY = {
    "title": "place",
    "description": "Where one is.",
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Bern"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather of a city.", "parameters": CITY},
}


def langchain(url: str, model: str) -> dict[str, Any]:
    """What `ChatOpenAI` of langchain-openai gets."""
    chat = importlib.import_module("langchain_openai").ChatOpenAI(
        base_url=url, api_key="any", model=model, temperature=0, max_tokens=90, max_retries=0
    )
    tools = chat.bind_tools([TOOL])
    summed: Any = None
    for chunk in tools.stream("@call@"):
        summed = chunk if summed is None else summed + chunk

    def calls(message: Any) -> list[Any]:
        return [[each["name"], each["args"]] for each in message.tool_calls]

    answer = chat.invoke("@words@")
    history = [("system", "say it"), ("user", "@words@"), ("assistant", "Hello"), ("user", "@words@")]
    return {
        "words": answer.content,
        "usage": answer.usage_metadata["output_tokens"],
        "conversation": chat.invoke(history).content,
        "streamed": [chunk.content for chunk in chat.stream("@words@") if chunk.content],
        "batch": [each.content for each in chat.batch(["@words@", "@turns@"])],
        "called": calls(tools.invoke("@call@")),
        "called in a stream": calls(summed),
        "form": chat.with_structured_output(CITY, method="json_schema").invoke("@json@"),
        "form by a tool": chat.with_structured_output(CITY, method="function_calling").invoke("@words@"),
    }


def litellm(url: str, model: str) -> dict[str, Any]:
    """What `completion` of litellm gets, by OpenAI's API and by Anthropic's."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the internet for prices
    library = importlib.import_module("litellm")
    library.__dict__["suppress_debug_info"] = True

    def ask(text: str, api: str = "openai", **more: Any) -> Any:
        base = url if api == "openai" else url.removesuffix("/v1")
        messages = [{"role": "user", "content": text}]
        said = {"temperature": 0, "max_tokens": 90, "num_retries": 0} | more
        return library.completion(
            model=f"{api}/{model}", api_base=base, api_key="any", messages=messages, **said
        )

    def calls(message: Any) -> list[Any]:
        return [[each.function.name, json.loads(each.function.arguments)] for each in message.tool_calls]

    def streamed(text: str, api: str, **more: Any) -> Any:
        chunks = [*ask(text, api, stream=True, **more)]
        return library.stream_chunk_builder(chunks).choices[0].message

    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": CITY, "strict": True}}
    found: dict[str, Any] = {
        "form": json.loads(ask("@json@", response_format=form).choices[0].message.content)
    }
    for api in ("openai", "anthropic"):
        answer = ask("@words@", api)
        found |= {
            f"{api}: words": answer.choices[0].message.content,
            f"{api}: usage": answer.usage.completion_tokens,
            f"{api}: streamed": streamed("@words@", api).content,
            f"{api}: called": calls(ask("@call@", api, tools=[TOOL]).choices[0].message),
            f"{api}: called in a stream": calls(streamed("@call@", api, tools=[TOOL])),
        }
    return found


if __name__ == "__main__":
    _, asked_url, asked_model = sys.argv
    print(
        json.dumps(
            {"langchain": langchain(asked_url, asked_model), "litellm": litellm(asked_url, asked_model)}
        )
    )
