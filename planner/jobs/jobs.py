"""Calls of functions whose cost grows with foreign input: in a process each, within CPU time and memory, in two lanes.

Edge. Every call begins in the quick lane with a fraction of a second of CPU time. What does not end in it begins anew
in the long lane, one call at a time: short work never waits behind long work, whatever
somebody asks for. Cancelling a call ends its process at once; so does the end of this one, also by SIGKILL.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from planner.errors import JobBroken, JobsBusy, JobTooLarge, JobTooLong
from planner.jobs import job_server
from planner.jobs.job_server import BEGUN, LENGTH, NO_ROOM

QUICK_CPU_S: Final = 0.25
QUICK_AT_ONCE: Final = 2
NICE: Final = 10  # a model that answers goes first; jobs have a tenth of what it has
MOST_WAITING: Final = 32  # in each lane
WALL_FACTOR: Final = 20  # a busy machine gives a job that much less than one CPU at worst
LOAD_S: Final = 120.0  # for what all jobs are handed
MOST_REPLY_BYTES: Final = 64 << 20

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Budget:
    """What one call may take at most: seconds of CPU time, bytes of address space beside what is loaded; and how far it
    stands behind this process.
    """

    cpu_s: float = 5.0
    memory_bytes: int = 512 << 20
    nice: int = NICE


class Jobs:
    """Processes that have called `load(*args)` once, as what each job is handed first. For one event loop.

    `load`, jobs and what they return travel by pickle: functions of modules, values, errors with one argument.
    """

    def __init__(
        self,
        load: Callable[..., Any],
        *args: Any,
        budget: Budget = Budget(),
        quick_cpu_s: float = QUICK_CPU_S,
    ) -> None:
        """`quick_cpu_s`: what the quick lane gives a call; where it is all of the budget, there is no other lane."""
        self._load = pickle.dumps((load, args))
        self._budget = budget
        self._quick_cpu_s = min(quick_cpu_s, budget.cpu_s)
        self._server: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._quick = _Lane(QUICK_AT_ONCE)
        self._long = _Lane(1)

    def start(self) -> None:
        """Begins to load, so that the first call need not wait for that."""
        if self._server is None:
            self._server = self._started()

    async def close(self) -> None:
        """Ends the process that jobs come from. Jobs end as their callers do."""
        if self._server is not None:
            (process, control), self._server = self._server, None
            control.close()
            await asyncio.to_thread(process.wait)

    async def run(self, work: Callable[Concatenate[Any, P], T], *args: P.args, **_: P.kwargs) -> T:
        """What `work(loaded, *args)` returns or raises. Raises JobError for what it took, or when too many wait."""
        job, found = await self._begun(work, args, keeps=False)
        job.close()
        made: T = found
        return made

    async def hold(self, make: Callable[..., Any], *args: Any) -> Held:
        """Keeps what `make(loaded, *args)` returns in its process, until the result is closed. Raises as `run`."""
        job, _ = await self._begun(make, args, keeps=True)
        return Held(job)

    async def _begun(
        self, work: Callable[..., Any], args: tuple[Any, ...], *, keeps: bool
    ) -> tuple[_Job, Any]:
        """The process of a job, and what it answered first."""
        for lane, cpu_s in ((self._quick, self._quick_cpu_s), (self._long, self._budget.cpu_s)):
            job = _Job(self, replace(self._budget, cpu_s=cpu_s))
            try:
                async with lane:
                    return job, await job.call(work, args, keeps=keeps)
            except JobTooLong:
                job.close()
                if cpu_s == self._budget.cpu_s:
                    raise
            except BaseException:
                job.close()
                raise
        raise AssertionError("the long lane returns or raises")

    def _started(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs:
            quiet = {
                "TOKENIZERS_PARALLELISM": "false",
                "OPENBLAS_NUM_THREADS": "1",
            }  # a fork takes one thread along
            process = subprocess.Popen(
                [sys.executable, job_server.__file__, str(self._budget.nice)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # what a library prints when it fails may quote a prompt
                env=os.environ | quiet,
            )
        for message in (pickle.dumps(sys.path), self._load):
            ours.sendall(LENGTH.pack(len(message)) + message)
        return process, ours

    async def _forked(self) -> socket.socket:
        """The socket to a new job. Raises JobBroken."""
        for _ in range(2):  # once more where the server has ended since
            self.start()
            assert self._server is not None
            process, control = server = self._server
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            try:
                with theirs:
                    socket.send_fds(control, [b"\0"], [theirs.fileno()])
                async with asyncio.timeout(LOAD_S):
                    if await asyncio.get_running_loop().sock_recv(ours, len(BEGUN)):
                        return ours
            except (OSError, TimeoutError):
                pass
            except BaseException:
                ours.close()
                raise
            ours.close()
            if self._server is server:
                self._server = None
                control.close()
                process.kill()
                await asyncio.to_thread(process.wait)
        raise JobBroken(
            "a process for this could not be started: see how many may run, and how much memory is free"
        )


class Held:
    """What a job keeps."""

    def __init__(self, job: _Job) -> None:
        self._job = job

    async def call(self, method: str, *args: Any) -> Any:
        """What that method of it returns or raises. Raises JobError when that took too much: all later calls do."""
        return await self._job.call(method, args)

    def close(self) -> None:
        """Ends its process, whatever it is in."""
        self._job.close()


class _Lane:
    """So many at once; a bounded number of others waits."""

    def __init__(self, most: int) -> None:
        self._places = asyncio.Semaphore(most)
        self._waiting = 0

    async def __aenter__(self) -> None:
        if self._waiting >= MOST_WAITING:
            raise JobsBusy(f"{MOST_WAITING} others wait already: try again later")
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1

    async def __aexit__(self, *_: object) -> None:
        self._places.release()


class _Job:
    """The socket to one process. Closing it ends that process."""

    def __init__(self, jobs: Jobs, budget: Budget) -> None:
        self._jobs = jobs
        self._cpu_s, self._memory_bytes = budget.cpu_s, budget.memory_bytes
        self._channel: socket.socket | None = None
        self._closed = False

    def close(self) -> None:
        self._closed = True
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    async def call(
        self, work: Callable[..., Any] | str, args: tuple[Any, ...], *, keeps: bool = False
    ) -> Any:
        if self._closed:
            raise JobBroken("the process that worked on this has ended")
        if self._channel is None:
            self._channel = await self._jobs._forked()
        message = pickle.dumps((self._cpu_s, self._memory_bytes, keeps, work, args))
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self._cpu_s * WALL_FACTOR):
                reply = await self._exchange(self._channel, message)
        except TimeoutError:
            reply = None
        except BaseException:  # a caller that left: nobody wants what this makes
            self.close()
            raise
        if reply is None:
            self.close()
            if time.monotonic() - begun >= self._cpu_s:
                raise JobTooLong(f"this took more than {self._cpu_s:g} s of computing")
            raise JobTooLarge(f"this took more than {self._memory_bytes >> 20} MiB of memory")
        fine, found = pickle.loads(reply)
        if fine:
            return found
        if found == NO_ROOM:
            self.close()
            raise JobTooLarge(f"this took more than {self._memory_bytes >> 20} MiB of memory")
        raise found

    async def _exchange(self, channel: socket.socket, message: bytes) -> bytes | None:
        """The reply; None where the process ended without one."""
        loop = asyncio.get_running_loop()
        with suppress(ConnectionError):
            await loop.sock_sendall(channel, LENGTH.pack(len(message)))
            await loop.sock_sendall(channel, message)
            head = await self._exactly(channel, LENGTH.size)
            if head is None:
                return None
            count = LENGTH.unpack(head)[0]
            if count <= MOST_REPLY_BYTES:
                return await self._exactly(channel, count)
        return None

    async def _exactly(self, channel: socket.socket, count: int) -> bytes | None:
        loop = asyncio.get_running_loop()
        found = bytearray()
        while len(found) < count:
            part = await loop.sock_recv(channel, min(count - len(found), 1 << 20))
            if not part:
                return None
            found += part
        return bytes(found)
