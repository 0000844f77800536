"""The project as people install it: its wheel and its source archive, made from the page that `make setup` built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "web_peer" / "dist"


def built_package(folder: Path, *kinds: str) -> None:
    """Leaves in `folder` what `make dist` makes; with "--wheel" the wheel only, which is then made from the checkout
    instead of the source archive. No program is within reach, Node least of all.
    """
    if not (PAGE / "index.html").is_file():
        pytest.fail("web_peer/dist is not there: run `make setup`")
    nothing = folder / "no-programs"
    nothing.mkdir(parents=True)
    command = [sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", str(folder), str(ROOT)]
    made = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"PATH": str(nothing)}, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr


def only(folder: Path, pattern: str) -> Path:
    """The one file of that name."""
    (found,) = folder.glob(pattern)
    return found
