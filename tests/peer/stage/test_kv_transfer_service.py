"""What is believed of a cache that another peer gives: its bytes are those that it named, and numbers."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from peer.errors import CannotServe
from peer.stage.kv_transfer_service import packed, unpacked


def test_a_cache_comes_as_it_went() -> None:
    arrays = [np.random.default_rng(at).standard_normal((2, 3, 4), np.float32) for at in range(2)]
    data, sha256 = packed(arrays)
    np.testing.assert_array_equal(unpacked(data, sha256).reshape(2, 2, 3, 4), np.stack(arrays))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_not_taken(wrong: float) -> None:
    data, sha256 = packed([np.array([1, wrong, 2], np.float32)])
    with pytest.raises(CannotServe, match="not finite"):
        unpacked(data, sha256)


def test_other_bytes_than_were_named_are_not_taken() -> None:
    data, _ = packed([np.ones(3, np.float32)])
    with pytest.raises(CannotServe, match="other bytes"):
        unpacked(data, hashlib.sha256(b"").digest())
