"""Runs the tests in lanes at once: `lanes.py test|quick|soak VENV`; the exit status says whether all passed.

Those in real browsers and those of real meshes mostly wait for other processes; those that only compute use what time
the processors have left. The first lane of a run is shown as it goes, the others once they have ended. Each lane is a
session of its own, since Linux may share processors out by session first.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

ROOT: Final = Path(__file__).parents[1]
APART: Final = ("tests/browsers", "tests/e2e")  # the folders that are lanes of their own
COMPUTING: Final = ("tests", *(f"--ignore={folder}" for folder in APART))
KERNELS: Final = "tests/peer/runtime"  # as much work as everything else that computes
COMMANDS: Final = "tests/e2e/test_cli.py"  # mostly starts of processes, as long as half of the other meshes
OTHERS_THAN_COMMANDS: Final = tuple(
    f"--ignore-glob=*/test_{first}*" for first in ("[abd-r]", "c[!l]", "cl[!i]")
)
LONG: Final = "tests/peer/runtime/test_stage_runtime_real_model.py"  # every format and half of the real model
ENDS_WITHIN_S: Final = 30.0
INTERRUPTED: Final = 130
PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h
MOST_GENERATIONS: Final = 20
SLOWEST: Final = ("--durations=10", "--durations-min=5")  # named at the end of a lane


@dataclass(frozen=True, slots=True)
class Lane:
    """Words of pytest, then of vitest; None where one of them does not run."""

    name: str
    nice: int  # one that only computes gives way, but gets a share of a busy machine none the less
    pytest: tuple[str, ...] | None
    vitest: tuple[str, ...] | None = None


RUNS: Final[Mapping[str, tuple[Lane, ...]]] = {
    "test": (
        Lane("browsers a-p", 0, ("tests/browsers", "--ignore-glob=*/test_[q-z]*")),
        Lane("browsers q-z", 0, ("tests/browsers", "--ignore-glob=*/test_[a-p]*")),
        Lane("meshes a-r", 0, ("tests/e2e", f"--ignore={COMMANDS}", "--ignore-glob=*/test_[s-z]*")),
        Lane("commands and meshes s-z", 0, ("tests/e2e", *OTHERS_THAN_COMMANDS)),
        Lane("kernels and vitest", 5, (KERNELS,), ()),
        Lane("computing", 0, (*COMPUTING, f"--ignore={KERNELS}")),  # as long as any, on one processor
    ),
    "quick": (
        Lane("one of each", 0, ("-m", "quick", *APART)),
        Lane("computing", 5, ("-m", "not slow", f"--ignore={LONG}", *COMPUTING)),
        Lane("vitest", 5, None, ()),
    ),
    "soak": (
        Lane("series", 0, ("-m", "series or soak", *COMPUTING), ("tests/sim", "tests/sim-consensus")),
        Lane("series of meshes", 0, ("-m", "series or soak", *APART)),
    ),
}


def main(run: str, venv: str) -> int:
    """The exit status: 0 where every test of every lane passed."""
    lanes = RUNS[run]
    os.environ["SHOAL_TEST_SERIES"] = run
    adopt_orphans()
    running: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / str(number) for number in range(len(lanes))]
        try:
            for number, log in enumerate(logs):
                words = [sys.executable, __file__, run, venv, str(number)]
                with log.open("wb") as file:
                    out = None if number == 0 else file
                    running.append(
                        subprocess.Popen(
                            words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
                        )
                    )
            wait_for(running)
        finally:
            late = [
                lane.name for lane, process in zip(lanes, running, strict=False) if process.poll() is None
            ]
            stop(running)
            end_orphans()
            for lane, log in zip(lanes, logs, strict=True):
                if log.exists() and log.stat().st_size:
                    print(f"\n== {lane.name}, beside the first lane", flush=True)
                    print(log.read_text(errors="replace"), end="", flush=True)
            if late:
                print(f"\nended before they were done: {', '.join(late)}", flush=True)
    return int(any(process.returncode != 0 for process in running))


def stop(running: Iterable[subprocess.Popen[bytes]]) -> None:
    """Ends the lanes that still run, with all their processes: as by Ctrl-C, or else by force."""
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
    ends_by = time.monotonic() + ENDS_WITHIN_S
    for process in running:
        try:
            process.wait(max(0.0, ends_by - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def adopt_orphans() -> None:
    """From here on this process is the parent of whatever its descendants leave running, where Linux can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def wait_for(running: Iterable[subprocess.Popen[bytes]]) -> None:
    """Until all of them have ended. Orphans are reaped as soon as they end, as an init does: tests look for them."""
    left = {process.pid: process for process in running}
    while left:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        process = left.pop(ended.si_pid, None) if ended is not None else None
        if process is not None:
            process.wait()
        elif ended is not None:
            os.waitpid(ended.si_pid, 0)


def end_orphans() -> None:
    """Ends what tests left running, such as a browser of a lane that was ended by force, and says so."""
    for _ in range(MOST_GENERATIONS):  # what is ended leaves its own children here
        left = children()
        if not left:
            return
        for process, words in left.items():
            print(f"left running by a test, ended now: {process} {words[:100]}", flush=True)
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(process, 0)


def children() -> dict[int, str]:
    """The processes whose parent this one is, with their words; those that have ended are waited for."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            continue
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            status = (folder / "stat").read_text()
            if int(status.rpartition(")")[2].split()[1]) == os.getpid():
                found[int(folder.name)] = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
    return found


def run_lane(lane: Lane, venv: str) -> int:
    """The exit status: 0 where every test of this lane passed. Tells at its end how long and how much work it was.

    SIGINT, which its whole group is sent, ends what runs now, and nothing more is begun.
    """
    told: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: told.append(number))
    os.nice(lane.nice)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(lane.nice))
    begun = time.monotonic()
    cache = f"cache_dir=.pytest_cache/{lane.name.replace(' ', '-')}"  # others are written at the same time
    commands: list[tuple[list[str], Path]] = []
    if lane.pytest is not None:
        commands.append(([sys.executable, "-m", "pytest", "-o", cache, *SLOWEST, *lane.pytest], ROOT))
    if lane.vitest is not None:
        vitest = ["./with_node.sh", venv, "npm", "run", "--silent", "test", "--", *lane.vitest]
        commands.append((vitest, ROOT / "web_peer"))
    failed = [words for words, folder in commands if told or subprocess.call(words, cwd=folder) != 0]
    for words in failed:
        print(f"{lane.name}: not passed, see above: {' '.join(words)}", flush=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = used.ru_utime + used.ru_stime
    print(f"{lane.name}: {time.monotonic() - begun:.0f} s, {busy:.0f} s of processor time", flush=True)
    return int(bool(failed))


def interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    run, venv, *number = sys.argv[1:]
    if number:
        sys.exit(run_lane(RUNS[run][int(number[0])], venv))
    for each in (signal.SIGINT, signal.SIGTERM):  # shells ignore the first for what runs in the background
        signal.signal(each, interrupted)
    try:
        sys.exit(main(run, venv))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
