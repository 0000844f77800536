"""The scenarios of `shoal validate` about the coordinator, each with meshes of its own."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field, replace
from typing import Any

from peer.errors import PeerError
from peer.launch.terminal import Interrupts, out, say
from peer.validation.runs.leader_runner import LeaderRunner
from peer.validation.runs.loss_runner import Load
from peer.validation.scenarios.leader_faults import LINKS, MEANING, VOTERS, Kept, Leading, Led, figures
from peer.validation.world.mesh import Shape
from peer.validation.world.voter_mesh import voters
from planner.model.store import Store


@dataclass
class LeaderFound:
    """What the runs of one scenario showed."""

    runs: list[Led] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    calm_s: list[float] = field(default_factory=list)

    def figures(self, within_ms: float | None) -> dict[str, Any]:
        """Returns the figures of all runs; `within_ms` bounds the recovery where it is given."""
        return figures(self.runs, self.kept, self.calm_s, within_ms)


async def run_leaders(
    args: argparse.Namespace,
    store: Store,
    shape: Shape,
    load: Load,
    name: Leading,
    found: LeaderFound,
    until_s: float,
    ctrl: Interrupts,
    level: str,
) -> None:
    """All runs of one scenario. A mesh that could not be made whole again is given up, and the next is another."""
    todo = list(range(args.first, args.first + args.count))
    shape = replace(shape, peers=VOTERS[name], browsers=())
    while todo and time.monotonic() < until_s:
        say(f"starting {shape.peers} voters{', their links through a relay' if name in LINKS else ''}")
        words = ["--protection", *level.split()]
        entering = voters(
            shape,
            store,
            relayed=name in LINKS,
            seed=load.seed,
            protection=words,
            last_words=ctrl.last_words,
        )
        try:
            async with entering as made:
                runner = LeaderRunner(made, load, say)
                await runner.begin()
                try:
                    while todo and time.monotonic() < until_s:
                        led = await runner.run(name, todo.pop(0))
                        found.runs.append(led)
                        if led.trouble:
                            say(f"{name.value}: {led.trouble}")
                            break
                    found.calm_s += runner.calm_s
                    assert made.asker.link is not None
                    found.kept.append(await runner.end(made.asker.link.mesh))
                finally:
                    await runner.close()
        except PeerError as error:
            found.runs.append(Led((), (), False, None, None, None, str(error)))
            if todo:
                todo.pop(0)
        ctrl.last_words.clear()


def tell_leaders(name: Leading, shown: dict[str, Any]) -> None:
    """One line for people."""
    held = "held  " if shown["held"] else "FAILED"
    times = f"{shown['leader_p50_s']}/{shown['leader_p95_s']} s without a leader"
    kept = f"{shown['acknowledged']} commands, {shown['lost']} lost, {shown['stale_reads']} stale reads"
    out.print(
        f"{name.value:20} {held}, {shown['runs']} runs, {times}, {kept}   {MEANING[name]}", markup=False
    )
