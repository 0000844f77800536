"""What stays of a session where attention looks at a window."""

from __future__ import annotations

import pytest

from planner.model.kv_window import KvWindow


@pytest.mark.parametrize("window", [KvWindow(1, 512), KvWindow(100, 512), KvWindow(4096, 1024)], ids=str)
def test_what_is_kept_suffices(window: KvWindow) -> None:
    for length in range(3 * window.capacity):
        first = window.first_kept(length)
        assert first % window.block == 0
        assert first == 0 or first <= length - window.tokens + 1 - 64
        assert window.holds(first, length)
        assert length - first + 96 <= window.capacity
        assert first >= window.first_kept(length - 1) or length == 0
