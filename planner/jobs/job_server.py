"""The process that jobs are forked from: it loads once what they need, and forks one process for each job.

Edge, and a program of its own that imports nothing of ours: peer code comes with the first message. A job ends when its
budget of CPU time or address space is spent, and at once when the other side of its socket is closed, whatever it is
in: the kernel sends SIGIO then. So it ends with the program that asked, also where that was killed.
"""

from __future__ import annotations

import fcntl
import gc
import os
import pickle
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

LENGTH: Final = struct.Struct("<Q")
BEGUN: Final = b"\1"  # first on the socket of a job
NO_ROOM: Final = "no room"  # in place of an answer: the address space was spent


def main() -> None:
    """Loads what the first message names, then forks for each socket that comes, until standard input ends.

    The argument says how far this and its jobs stand behind the program that asks.
    """
    os.nice(int(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGIO):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for jobs
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    control = socket.socket(fileno=os.dup(0))
    os.dup2(1, 0)  # nothing: who holds this socket is a job server
    first = receive(control)
    if first is None:
        return
    sys.path[:] = pickle.loads(first)
    prepared = _prepared(receive(control))
    gc.collect()
    gc.freeze()
    while True:
        sent, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not sent:
            return
        channel = socket.socket(fileno=descriptors[0])
        try:
            if os.fork() == 0:
                control.close()
                _work(channel, prepared)
                os._exit(0)
        except OSError:
            pass  # closing the socket says so
        channel.close()


def _prepared(message: bytes | None) -> Callable[[], Any]:
    """What gives a job that which all of them need; where that cannot be loaded, it raises why."""
    try:
        load, args = pickle.loads(message or b"")
        found = load(*args)
    except Exception as error:
        why = error

        def fails() -> Any:
            raise why

        return fails
    return lambda: found


def _work(channel: socket.socket, prepared: Callable[[], Any]) -> None:
    """One job: calls, until the other side closes the socket."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    fcntl.fcntl(channel, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(channel, fcntl.F_SETFL, fcntl.fcntl(channel, fcntl.F_GETFL) | os.O_ASYNC)
    held: Any = None
    bounded = False
    channel.sendall(BEGUN)
    while (message := receive(channel)) is not None:
        try:
            cpu_s, memory_bytes, keeps, work, args = pickle.loads(message)
            if not bounded:
                _bound(memory_bytes)
                bounded = True
            _arm(channel, cpu_s)
            try:
                answer = getattr(held, work)(*args) if isinstance(work, str) else work(prepared(), *args)
            finally:
                _disarm()
            if keeps:
                held, answer = answer, None
            reply = pickle.dumps((True, answer))
        except MemoryError:
            reply = pickle.dumps((False, NO_ROOM))
        except Exception as error:
            reply = _told(error)
        try:
            channel.sendall(LENGTH.pack(len(reply)) + reply)
        except OSError:
            return


def _told(error: Exception) -> bytes:
    try:
        return pickle.dumps((False, error))
    except Exception:  # it holds what does not travel
        return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}"[:300])))


def _bound(memory_bytes: int) -> None:
    """Where the system says how much address space is taken, and holds processes to a limit (Linux)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return
    most = pages * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _arm(channel: socket.socket, cpu_s: float) -> None:
    """From here on: the end of the CPU time, and of the other side, is the end of this process."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    closed = select.poll()
    closed.register(channel, select.POLLHUP)
    if any(event & select.POLLHUP for _, event in closed.poll(0)):
        os._exit(0)  # it went before this process could be told


def _disarm() -> None:
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_PROF, 0)


def receive(channel: socket.socket) -> bytes | None:
    """One message, after its length; None where the other side is gone."""
    head = _exactly(channel, LENGTH.size)
    return _exactly(channel, LENGTH.unpack(head)[0]) if head is not None else None


def _exactly(channel: socket.socket, count: int) -> bytes | None:
    found = bytearray()
    while len(found) < count:
        try:
            part = channel.recv(min(count - len(found), 1 << 20))
        except OSError:
            return None
        if not part:
            return None
        found += part
    return bytes(found)


if __name__ == "__main__":
    main()
