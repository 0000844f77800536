"""Short prompts are read in this process, and no more of them than a share of its time has room for."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from peer.model.prompts import HERE_BURST_S, HERE_SHARE, Allowance, Prompts
from peer.model.tokenizer import Text, TextFile


@pytest.mark.parametrize(
    ("spent", "then_s", "left"),
    [
        ([], 0.0, True),
        ([0.09], 0.0, True),
        ([0.1], 0.0, False),
        ([0.3], 1.9, False),  # more than there was
        ([0.3], 2.1, True),
        ([0.05, 0.04], 100.0, True),
    ],
)
def test_an_allowance(spent: list[float], then_s: float, left: bool) -> None:
    made = Allowance(5.0, share=0.1, burst_s=0.1)
    for seconds in spent:
        assert made.left(5.0)
        made.spend(seconds)
    assert made.left(5.0 + then_s) is left


def test_no_more_than_a_burst_is_saved_up() -> None:
    made = Allowance(0.0, share=0.1, burst_s=0.1)
    assert made.left(1e6)
    made.spend(0.1)
    assert not made.left(1e6)


def worked(_: Text, seconds: float) -> int:
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        pass
    return os.getpid()


async def test_who_asks_for_much_in_little_is_read_in_another_process(tmp_path: Path) -> None:
    words = Tokenizer(
        models.BPE(vocab={n: at for at, n in enumerate(pre_tokenizers.ByteLevel.alphabet())}, merges=[])
    )
    words.decoder = decoders.ByteLevel()
    (tmp_path / "tokenizer.json").write_text(words.to_str())
    file = TextFile(tmp_path / "tokenizer.json", "{{ messages }}", None, (), False)
    loaded = file.read()
    prompts = Prompts(file, lambda: loaded)
    try:
        begun = time.monotonic()
        where = [await prompts.run(10, 512, worked, 0.02) for _ in range(20)]
        most = (HERE_BURST_S + HERE_SHARE * (time.monotonic() - begun)) / 0.02 + 1
        assert where[0] == os.getpid()
        assert where.count(os.getpid()) <= most
        assert set(where) != {os.getpid()}
    finally:
        await prompts.close()
