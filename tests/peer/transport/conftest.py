"""Pairs of connected peers in one process, over loopback and real engines."""

import importlib.util
from collections.abc import AsyncIterator

import pytest

from tests.peer.transport.connected_pairs import Mesh


@pytest.fixture
async def mesh() -> AsyncIterator[Mesh]:
    made = Mesh()
    yield made
    await made.close()


FAST = importlib.util.find_spec("aiolibdatachannel") is not None
_needs_fast = pytest.mark.skipif(
    not FAST,
    reason="libdatachannel NOT TESTED: aiolibdatachannel is not installed (CPython >= 3.12, extra `fast`)",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`engines` runs a test over every pair of engines, `engine` over each of them."""
    names = ("aiortc", "libdatachannel")
    if "engines" in metafunc.fixturenames:
        pairs = [(a, b) for a in names for b in names]
        metafunc.parametrize(
            "engines",
            [
                pytest.param(pair, id="-".join(pair), marks=[_needs_fast] if "libdatachannel" in pair else [])
                for pair in pairs
            ],
        )
    if "engine" in metafunc.fixturenames:
        metafunc.parametrize(
            "engine",
            [pytest.param(n, id=n, marks=[_needs_fast] if n == "libdatachannel" else []) for n in names],
        )
