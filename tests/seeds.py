"""How many seeds a series has: all of them in `make soak`, a twentieth in `make test`, fewer in `make test-quick`.

The variable SHOAL_TEST_SERIES says which, for pytest and, by web_peer/tests/seeds.ts, for vitest.
"""

from __future__ import annotations

import os
from typing import Final

SHARES: Final = {"soak": 1, "test": 20, "quick": 50}  # one seed of so many is run
SERIES: Final = os.environ.get("SHOAL_TEST_SERIES") or "test"


def seeds(whole: int) -> int:
    """How many of the `whole` seeds of a series are run, from its first one on; at least one.

    Raises ValueError where SHOAL_TEST_SERIES names no series.
    """
    if SERIES not in SHARES:
        raise ValueError(f"SHOAL_TEST_SERIES: expected one of {', '.join(SHARES)}, found {SERIES!r}")
    return max(1, whole // SHARES[SERIES])
