"""Runs tests beside those in browsers, at a lower priority: `beside.py meshes|computing VENV`.

`meshes` are those of real meshes, tests/e2e; `computing` all others of pytest, then those of vitest. A process of its
own session, since Linux may share processors out by session first.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

NICE = {"meshes": 2, "computing": 19}  # 19 is the lowest priority there is
APART = ("browsers", "e2e")  # the folders that are lanes of their own


def main(lane: str, venv: str) -> int:
    """The exit status: whether any of them failed."""
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # shells ignore it for what runs in the background
    os.setsid()
    os.nice(NICE[lane])
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICE[lane]))
    pytest = [sys.executable, "-m", "pytest"]
    pytest += [
        "-o",
        f"cache_dir=.pytest_cache/{lane}",
    ]  # those of the other lanes are written at the same time
    if lane == "meshes":
        return subprocess.run([*pytest, "tests/e2e"], check=False).returncode
    pytest += ["tests", *(f"--ignore=tests/{folder}" for folder in APART)]
    failed = subprocess.run(pytest, check=False).returncode != 0
    vitest = subprocess.run(
        ["./with_node.sh", venv, "npm", "run", "--silent", "test"], cwd="web_peer", check=False
    )
    if vitest.returncode != 0:
        print("vitest failed, see above", flush=True)
    return int(failed or vitest.returncode != 0)


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
