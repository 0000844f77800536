"""The vectors that both languages replay are what their generators write: a change of a core changes them knowingly."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

VECTORS = Path(__file__).parents[1] / "vectors"


@pytest.mark.parametrize(
    "name",
    [
        "admission",
        "answers",
        "breakers",
        "canaries",
        "check_choices",
        "compose",
        "coordinator",
        "display_names",
        "flow",
        "kv_copy",
        "kv_slots",
        "mesh_facts",
        "mesh_state",
        "moving",
        "pipeline",
        "pace",
        "piece_sizes",
        "pinned",
        "prefixes",
        "receipts",
        "relief",
        "sampling_defaults",
        "session",
        "session_rules",
        "speaking",
        "speech",
        "decoder_planning",
        "state_rules",
        "step_times",
        "surroundings",
        "text",
        "text_inputs",
        "transactions",
        "turns",
        "versions",
        "voting",
        "wire_rules",
        "wish",
    ],
)
def test_vectors_are_up_to_date(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(VECTORS))
    maker = runpy.run_path(str(VECTORS / f"make_{name}.py"))
    command = f"PYTHONPATH=. python tests/vectors/make_{name}.py"
    assert maker["PATH"].read_text(encoding="utf-8") == maker["text"](), f"run {command}"
