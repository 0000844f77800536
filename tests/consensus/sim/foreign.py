"""The TypeScript core as a child process, so that groups of both languages can be simulated."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peer.consensus.events import Effect, Event
from peer.consensus.trace_json import effect_of, plain
from tests.consensus.sim.member import AnyCore, new_core

WEB_PEER = Path(__file__).parents[3] / "web_peer"
DRIVER = "tests/consensus/run.js"


def missing() -> str:
    """What is not here that the child process needs; empty when all is."""
    if shutil.which("node") is None:
        return "node"
    if not (WEB_PEER / "node_modules" / "vite").is_dir():
        return "the packages of web_peer"
    return ""


class Child:
    """One process for any number of cores, each known by a name; a name's Boot begins a new one."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", DRIVER, "stdio"],
            cwd=WEB_PEER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def step(self, name: str, now_ms: int, event: Event) -> list[Effect]:
        said = self._ask({"core": name, "now": now_ms, "event": plain(event), "digest": False})
        if "error" in said:
            raise ValueError(f"the core in TypeScript: {said['error']}")
        return [effect_of(json.dumps(effect)) for effect in said["effects"]]

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"{DRIVER}: expected an answer, got the end with status {self._process.wait()}"
            )
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """The process ends when nothing more can come."""
        self._process.communicate(timeout=30)


@dataclass(frozen=True, slots=True)
class ForeignCore:
    """One core in the child."""

    child: Child
    name: str

    def step(self, now_ms: int, event: Event) -> Sequence[Effect]:
        return self.child.step(self.name, now_ms, event)


def mixed(child: Child, seed: int) -> Callable[[str], AnyCore]:
    """Which servers are whose: about half of them, others in other runs."""

    def make(name: str) -> AnyCore:
        return ForeignCore(child, name) if (seed >> (ord(name) - ord("a"))) & 1 else new_core()

    return make
