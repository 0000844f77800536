"""What cores of either language did in simulated runs, Python's does again: same effects, same state, step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from peer.consensus.core import Core
from peer.consensus.trace_json import event_of, plain
from tests.vectors.consensus_traces import read_lives

VECTORS = Path(__file__).parents[2] / "vectors"
LIVES = 500


def lives_of(name: str) -> list[dict[str, Any]]:
    return read_lives((VECTORS / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["consensus.txt", "consensus-ts.txt"])
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
