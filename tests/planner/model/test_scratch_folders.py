"""Folders of work go with it, and those of killed processes with the next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from planner.model.scratch_folders import scratch_folder


def test_a_folder_goes_with_its_work_and_takes_those_of_the_dead_along(tmp_path: Path) -> None:
    parent = tmp_path / "tmp"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for kind, process in (("cut", ended.pid), ("cut", os.getpid()), ("import", ended.pid)):
        (parent / f"{kind}-{process}-x").mkdir(parents=True)
    with scratch_folder(parent, "cut") as folder:
        (folder / "half").write_bytes(b"half")
        assert folder.parent == parent
    left = {path.name for path in parent.iterdir()}
    assert left == {f"cut-{os.getpid()}-x", f"import-{ended.pid}-x"}
