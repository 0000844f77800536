"""The official openai client against the gateway of a mesh: an answer as it comes, then one as JSON.

shoal api 'http://127.0.0.1:8765/#...'                                  # prints the address
python examples/openai_client.py http://127.0.0.1:8000/v1 'Why is the sky blue?' [key]
"""

from __future__ import annotations

import io
import sys

from openai import APIConnectionError, APIStatusError, OpenAI


def run(address: str, question: str, key: str) -> None:
    client = OpenAI(base_url=address, api_key=key)
    model = client.models.list().data[0].id
    stream = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": question}], max_tokens=60, stream=True
    )
    for chunk in stream:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    whole = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        max_tokens=60,
        temperature=0,
        response_format={"type": "json_object"},
    )
    print(f"\n{whole.choices[0].message.content}")


def main() -> int:
    """Exit status 1 and one line when the gateway does not answer."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack what the model says
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return 0
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        run(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) == 4 else "none")
    except (APIConnectionError, APIStatusError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
