"""Networks of their own for processes: namespaces that reach a middle one, and nobody else."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

MIDDLE = "10.77.0.1"  # reached from every namespace


def can_make() -> str:
    """Why no namespaces can be made here; empty: they can."""
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    if shutil.which("ip") is None:
        return "the program ip is not installed (iproute2)"
    made = subprocess.run(["ip", "netns", "add", _name("try")], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"no network namespace can be made here: {made.stderr.strip()[:200]}"
    _ip("netns", "del", _name("try"))
    return ""


def inside(name: str) -> list[str]:
    """What comes before a command that is to run in that namespace."""
    return ["ip", "netns", "exec", _name(name)]


@contextmanager
def star(*names: str) -> Iterator[None]:
    """A namespace `middle` with the address MIDDLE, and one for each name with a cable to it. Nothing is forwarded."""
    with ExitStack() as stack:
        for name in ("middle", *names):
            _ip("netns", "add", _name(name))
            stack.callback(_ip, "netns", "del", _name(name))
            _ip("-n", _name(name), "link", "set", "lo", "up")
        _ip("-n", _name("middle"), "addr", "add", f"{MIDDLE}/32", "dev", "lo")
        for number, name in enumerate(names, 1):
            here, there = f"sh{os.getpid() % 10**6}a{number}", f"sh{os.getpid() % 10**6}b{number}"
            _ip(
                "link",
                "add",
                here,
                "netns",
                _name("middle"),
                "type",
                "veth",
                "peer",
                there,
                "netns",
                _name(name),
            )
            for end, space, last in ((here, "middle", 1), (there, name, 2)):
                _ip("-n", _name(space), "addr", "add", f"10.77.{number}.{last}/24", "dev", end)
                _ip("-n", _name(space), "link", "set", end, "up")
            _ip("-n", _name(name), "route", "add", "default", "via", f"10.77.{number}.1")
        yield


@contextmanager
def unplugged(number: int) -> Iterator[None]:
    """Until the block ends, the cable of the namespace with that place among the names of `star`, from 1, is out."""
    end = f"sh{os.getpid() % 10**6}a{number}"
    _ip("-n", _name("middle"), "link", "set", end, "down")
    try:
        yield
    finally:
        _ip("-n", _name("middle"), "link", "set", end, "up")


def _name(name: str) -> str:
    return f"shoal{os.getpid()}-{name}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
