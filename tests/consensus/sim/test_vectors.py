"""What cores of either language did in simulated runs, Python's does again: same effects, same state, step by step."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from peer.consensus.core import Core
from peer.consensus.trace_json import event_of, plain

VECTORS = Path(__file__).parents[2] / "vectors"
LIVES = 500


def lives_of(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress((VECTORS / name).read_bytes()).splitlines()]


@pytest.mark.parametrize("name", ["consensus.jsonl.gz", "consensus-ts.jsonl.gz"])
def test_recorded_lives_go_the_same_way(name: str) -> None:
    lives = lives_of(name)
    assert len(lives) >= LIVES
    for life in lives:
        core = Core()
        for place, (now, event, effects, digest) in enumerate(life["steps"]):
            where = f"{life['name']}, step {place}"
            found = core.step(now, event_of(json.dumps(event)))
            assert [plain(effect) for effect in found] == effects, where
            assert core.digest()[: len(digest)] == digest, where
