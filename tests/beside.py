"""Runs the tests of pytest without browsers and real meshes, then those of vitest, on what the processors have left.

`beside.py VENV`. A process of its own session, since Linux may share processors out by session first.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

LEAST = 19  # the lowest priority there is


def main(venv: str) -> int:
    """The exit status: whether any of them failed."""
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # shells ignore it for what runs in the background
    os.setsid()
    os.nice(LEAST)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(LEAST))
    pytest = [sys.executable, "-m", "pytest", "tests", "--ignore=tests/browsers", "--ignore=tests/e2e"]
    pytest += ["-o", "cache_dir=.pytest_cache/beside"]  # that of the others is written at the same time
    failed = subprocess.run(pytest, check=False).returncode != 0
    vitest = subprocess.run(
        ["./with_node.sh", venv, "npm", "run", "--silent", "test"], cwd="web_peer", check=False
    )
    if vitest.returncode != 0:
        print("vitest failed, see above", flush=True)
    return int(failed or vitest.returncode != 0)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except KeyboardInterrupt:
        sys.exit(130)
