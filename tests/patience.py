"""How long tests wait: nothing hangs on it but the moment of a failure, and a slow or busy machine is no fault."""

from __future__ import annotations

import os
from typing import Final

WITHIN_S: Final = 240.0  # for a state that has to come about; below the limit of a test in pyproject.toml
SLOW: Final = 3.0  # a slow machine takes so many times as long as the one that figures in tests are meant for


def soon(calm_s: float) -> float:
    """Seconds in which a busy or slow machine does what a calm one does within `calm_s` seconds.

    Longer by as many processes as wait for each processor now.
    """
    return calm_s * SLOW * max(1.0, max(os.getloadavg()) / (os.cpu_count() or 1))
