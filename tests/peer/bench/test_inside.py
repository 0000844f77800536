"""The two that `shoal bench inside` times compute the same, and both are timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from peer.bench import inside
from peer.runtime.execution import Row
from peer.runtime.kv_slots import KvSlots


def test_a_team_is_timed_at_what_one_peer_computes(
    made_up: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("CONTEXT", 256), ("PROMPT_TOKENS", 80), ("DECODE_TOKENS", 3)):
        monkeypatch.setattr(inside, name, value)
    _, manifest, store = made_up("f32")
    hidden = np.random.default_rng(3).standard_normal((40, manifest.hidden)).astype(np.float32)
    with inside._one(manifest, store) as one, inside._team(manifest, store, (1, 1)) as two:
        for work in (inside._prompt, inside._decode):
            assert min(inside._alternating(2, one, two, manifest, work)) > 0
        slots = KvSlots(1, inside.CONTEXT)
        slots.admit(b"s")
        one.ensure(slots, 1, 64)
        expected = one.head(one.prompt(hidden, Row(0, 0))[-1:].copy())
        found = two.head(two.prompt(hidden, Row(0, 0))[-1:].copy())
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
