"""LangChain's and LiteLLM's chat in an environment of their own: they bring some 70 packages."""

from __future__ import annotations

import asyncio
import json
import venv
from pathlib import Path
from typing import Any, Final

from tests.e2e import chat_clients

CHAT_CLIENTS: Final = ("langchain-openai==1.7.4", "litellm==1.110.2")


async def chat_clients_say(home: Path, *words: str) -> Any:
    """What tests/e2e/chat_clients.py prints for `words`, run in an environment that is made at `home`."""
    venv.create(home, symlinks=True, with_pip=True)
    python = str(home / "bin" / "python")
    assert (await ran(python, "-m", "pip", "install", "--quiet", *CHAT_CLIENTS))[0] == 0
    status, out = await ran(python, str(Path(chat_clients.__file__)), *words)
    assert status == 0
    return json.loads(out.splitlines()[-1])


async def ran(*words: str) -> tuple[int, str]:
    """How a program ended, and what it wrote to standard output."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()
