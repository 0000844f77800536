"""A tab keeps to its plan, and so to its pledge, while it measures, loads and computes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.browsers.harness import Models, binary
from tests.browsers.memory import MIB, occupied

PLEDGE = 860 * MIB  # little more than the plan: the whole model as float32, four sessions, the tab itself


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_tab_keeps_to_its_plan(app: Path, models: Models) -> None:
    binary("chromium")
    seen = await occupied(
        models.store, models.ids["8bit"], app, "chromium", cuts=(), founder=0, pledge=PLEDGE
    )
    most = max(seen.loading, seen.computing)
    assert most <= seen.planned <= PLEDGE
    assert most > 0.85 * seen.planned  # what the plan says is what it takes
