"""Grammars are compiled and followed in processes of their own, within time and memory."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from peer.errors import ApiError, GrammarFailed
from peer.gateway import grammar_jobs as module
from peer.gateway.grammar_jobs import CallForm, Form, GrammarJobs, JsonForm
from peer.gateway.tool_calls import Style, Tool
from peer.model.tokenizer import _BYTE_OF, TextFile
from peer.session.steering import WORD_BITS
from planner.jobs.jobs import Budget

END = 256
VOCAB = dict(_BYTE_OF) | {"<end>": END}
SLOW = JsonForm({"type": "integer", "multipleOf": 999983})  # some 20 s, were it let


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer.json whose tokens are the bytes, and an end."""
    file = tmp_path_factory.mktemp("words") / "tokenizer.json"
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = {"id": END, "content": "<end>", "special": True, "normalized": False}
    rules: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [end | {"single_word": False, "lstrip": False, "rstrip": False}],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": VOCAB, "merges": []},
    }
    file.write_text(json.dumps(rules))
    return file


@asynccontextmanager
async def grammars(tokenizer: Path) -> AsyncIterator[GrammarJobs]:
    made = GrammarJobs(TextFile(tokenizer, None, None, (END,), False))
    try:
        yield made
    finally:
        await made.close()


def fits(mask: tuple[int, ...] | None) -> set[str]:
    assert mask is not None
    tokens = (token for token in range(END + 1) if mask[token // WORD_BITS] >> token % WORD_BITS & 1)
    return {chr(token) if token < END else "end" for token in tokens}


async def test_an_answer_follows_its_grammar_to_the_end(tokenizer: Path) -> None:
    async with grammars(tokenizer) as made:
        form = JsonForm({"enum": ["ab", "ac"]})
        await made.check(form)
        answer = made.guided(form)
        assert fits(await answer.next(())) == {'"'}
        assert fits(await answer.next(b'"a')) == {"b", "c"}
        assert await answer.next(b'c"') is None
        answer.close()
        assert fits(await answer.next(())) == {'"'}  # it began anew
        with pytest.raises(GrammarFailed):
            await answer.next(b"x")
        answer.close()


@pytest.mark.parametrize(
    ("form", "param"),
    [
        (SLOW, "response_format"),
        (JsonForm({"type": "nonsense"}), "response_format"),
        (CallForm(Style.BARE, (Tool("f", {"properties": {"n": SLOW.schema}}, {}),), False), "tools"),
    ],
)
async def test_a_form_that_costs_too_much_is_refused_and_stays_so(
    tokenizer: Path, monkeypatch: pytest.MonkeyPatch, form: Form, param: str
) -> None:
    monkeypatch.setattr(module, "BUDGET", Budget(cpu_s=0.4, memory_bytes=256 << 20))
    async with grammars(tokenizer) as made:
        for _ in range(2):
            with pytest.raises(ApiError) as refusal:
                await made.check(form)
            assert (refusal.value.status, refusal.value.code) == (400, "invalid_schema")
            assert refusal.value.param == param
        begun = time.monotonic()
        with pytest.raises(ApiError):
            await made.check(form)
        assert time.monotonic() - begun < 0.1  # it is known


async def test_slow_forms_hold_up_neither_this_process_nor_other_forms(tokenizer: Path) -> None:
    async with grammars(tokenizer) as made:
        await made.check(JsonForm(None))
        slow = [
            asyncio.ensure_future(made.check(JsonForm({"multipleOf": 999983 - each}))) for each in range(4)
        ]
        await asyncio.sleep(0)
        begun = time.thread_time()  # the same on a machine that is busy
        for each in range(5):
            await made.check(JsonForm({"enum": [each]}))
        assert time.thread_time() - begun < 0.1
        assert not all(asking.done() for asking in slow)
        for asking in slow:
            asking.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
