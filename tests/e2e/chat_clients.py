"""LangChain's and LiteLLM's chat, asked of a gateway: a program for an environment that has them.

python chat_clients.py chat URL MODEL
python chat_clients.py pictures URL MODEL FILE.png WORDS TOKENS

It prints what each got, as one JSON object. What the scripted model says is in tests/e2e/test_scripted_gateway.py, what
a model that sees says is in tests/e2e/test_sight.py.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from base64 import b64encode
from pathlib import Path
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


def pictures(url: str, model: str, file: str, words: str, tokens: str) -> dict[str, Any]:
    """What each gets for a question about the picture in `file`, in the forms that these libraries have for one."""
    inside = b64encode(Path(file).read_bytes()).decode()
    openais = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{inside}"}}
    langchains = {"type": "image", "base64": inside, "mime_type": "image/png"}
    said = {"temperature": 0, "max_tokens": int(tokens)}
    chat = importlib.import_module("langchain_openai").ChatOpenAI(
        base_url=url, api_key="any", model=model, max_retries=0, **said
    )

    def question(picture: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"role": "user", "content": [picture, {"type": "text", "text": words}]}]

    found = {
        "langchain": chat.invoke(question(openais)).content,
        "langchain: its own form": chat.invoke(question(langchains)).content,
        "langchain: streamed": "".join(chunk.content for chunk in chat.stream(question(openais))),
    }
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the internet for prices
    completion = importlib.import_module("litellm").completion
    for api, base in (("openai", url), ("anthropic", url.removesuffix("/v1"))):
        asked = {"model": f"{api}/{model}", "api_base": base, "api_key": "any", "num_retries": 0, **said}
        whole = completion(messages=question(openais), **asked)
        found[f"litellm: {api}"] = whole.choices[0].message.content
        chunks = completion(messages=question(openais), stream=True, **asked)
        found[f"litellm: {api}, streamed"] = "".join(each.choices[0].delta.content or "" for each in chunks)
    return found


def main(asked: str, *words: str) -> None:
    """Prints what was got."""
    if asked == "pictures":
        print(json.dumps(pictures(*words)))
    else:
        url, model = words
        print(json.dumps({"langchain": langchain(url, model), "litellm": litellm(url, model)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
