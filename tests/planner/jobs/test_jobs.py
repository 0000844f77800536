"""Jobs end with their budget, their caller, and the program that asked; short ones wait behind no long one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from planner.errors import JobBroken, JobsBusy, JobTooLarge, JobTooLong, NotInStore
from planner.jobs import jobs as module
from planner.jobs.jobs import Budget, Jobs

ROOT = Path(__file__).parents[3]
FOREVER = 2**400_000  # pow of it holds the interpreter lock until it is killed
BOUND = Budget(cpu_s=0.4, memory_bytes=96 << 20)


def loaded(word: str) -> str:
    return word


def fails(word: str) -> str:
    raise NotInStore(f"no {word}")


def said(word: str, other: str) -> tuple[str, int]:
    return word + other, os.getpid()


def refused(word: str) -> None:
    raise NotInStore(f"no {word}")


def stuck(_: str, file: str = "") -> int:
    if file:
        Path(file).write_text(str(os.getpid()))
    return pow(3, FOREVER)


def large(_: str) -> int:
    return len(bytes(200 << 20))


class Counter:
    def __init__(self, start: int) -> None:
        self.count = start

    def add(self, more: int) -> int:
        self.count += more
        return self.count

    def hang(self) -> int:
        return stuck("")

    def spin(self, cpu_s: float) -> int:
        until = time.process_time() + cpu_s
        while time.process_time() < until:
            pass
        return self.count


def counter(word: str, start: int) -> Counter:
    return Counter(start)


@asynccontextmanager
async def jobs(load: Callable[..., Any] = loaded, budget: Budget = BOUND) -> AsyncIterator[Jobs]:
    made = Jobs(load, "a", budget=budget)
    try:
        yield made
    finally:
        await made.close()


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(3000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never became so")


def ended(pid: int) -> Callable[[], bool]:
    """Whether no process has this id any more: nobody else is given it so soon."""

    def gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    return gone


async def written(file: Path) -> int:
    """Waits for the process id in a file."""

    def read() -> int:
        while not file.exists() or not file.read_text():
            time.sleep(0.005)
        return int(file.read_text())

    return await asyncio.to_thread(read)


async def test_results_errors_and_budgets() -> None:
    async with jobs() as run:
        (first, one), (_, two) = await run.run(said, "b"), await run.run(said, "c")
        assert first == "ab"
        assert len({one, two, os.getpid()}) == 3
        with pytest.raises(NotInStore, match="no a"):
            await run.run(refused)
        with pytest.raises(JobTooLarge, match="96 MiB"):
            await run.run(large)
        with pytest.raises(JobTooLong, match=r"0\.4 s"):
            await run.run(stuck)
        assert (await run.run(said, "d"))[0] == "ad"


async def test_what_cannot_be_loaded_is_told_to_every_caller() -> None:
    async with jobs(fails) as run:
        for _ in range(2):
            with pytest.raises(NotInStore, match="no a"):
                await run.run(said, "b")


async def test_a_caller_that_leaves_ends_its_job_even_where_that_holds_the_interpreter(
    tmp_path: Path,
) -> None:
    async with jobs(budget=Budget(cpu_s=60)) as run:
        file = tmp_path / "pid"
        asking = asyncio.ensure_future(run.run(stuck, str(file)))
        pid = await written(file)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(ended(pid))


async def test_a_held_object_answers_until_it_is_closed_or_takes_too_long() -> None:
    async with jobs() as run:
        held = await run.hold(counter, 5)
        assert [await held.call("add", 1), await held.call("add", 2)] == [6, 8]
        with pytest.raises(JobTooLong):
            await held.call("hang")
        with pytest.raises(JobBroken):
            await held.call("add", 1)
        held.close()


async def test_short_work_waits_behind_no_long_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUICK_CPU_S", 0.05)
    async with jobs(budget=Budget(cpu_s=60)) as run:
        long = [asyncio.ensure_future(run.run(stuck)) for _ in range(10)]
        async with asyncio.timeout(30):
            await until(lambda: run._long._waiting == 9)  # all of them left the quick lane
            assert (await run.run(said, "b"))[0] == "ab"
        assert not any(each.done() for each in long)
        for each in long:
            each.cancel()
        await asyncio.gather(*long, return_exceptions=True)


async def test_more_than_may_wait_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    async with jobs(budget=Budget(cpu_s=60)) as run:
        asking = [asyncio.ensure_future(run.run(stuck)) for _ in range(5)]
        await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        done = [each for each in asking if each.done()]
        assert isinstance(done[0].exception(), JobsBusy)
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def test_a_server_that_was_killed_is_started_again() -> None:
    async with jobs() as run:
        await run.run(said, "b")
        assert run._server is not None
        run._server[0].kill()
        run._server[0].wait()
        assert (await run.run(said, "c"))[0] == "ac"


CHILD = """
import asyncio, sys
from planner.jobs.jobs import Budget, Jobs
from tests.planner.jobs.test_jobs import loaded, stuck
async def main():
    run = Jobs(loaded, "a", budget=Budget(cpu_s=60))
    run.start()
    print(run._server[0].pid, flush=True)
    await run.run(stuck, sys.argv[1])
asyncio.run(main())
"""


async def test_all_end_with_the_program_that_asked_also_by_sigkill(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CHILD,
        str(file),
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert child.stdout is not None
    server = int(await child.stdout.readline())
    job = await written(file)
    child.kill()
    await child.wait()
    await until(ended(job))
    await until(ended(server))


async def test_what_is_held_has_the_budget_of_its_lane_for_each_call() -> None:
    """One lane with all of the budget: for work whose first step is quick and whose later ones are not."""
    made = Jobs(loaded, "a", budget=Budget(cpu_s=1.0, memory_bytes=96 << 20), quick_cpu_s=1.0)
    try:
        held = await made.hold(counter, 5)
        assert [await held.call("spin", 0.5) for _ in range(3)] == [5, 5, 5]
        with pytest.raises(JobTooLong, match="more than 1 s"):
            await held.call("hang")
    finally:
        await made.close()
