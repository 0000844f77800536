"""The scenario of `shoal validate` about a peer that becomes slower, each run on a mesh of its own."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any, Final

from peer.errors import CannotServe, PeerError
from peer.launch.local_mesh import even_cuts, largest_stage, unit_bytes
from peer.launch.terminal import Interrupts, out, say
from peer.member.peer_options import Lent
from peer.validation.runs.loss_runner import Load
from peer.validation.runs.slowdown_runner import SlowRunner
from peer.validation.scenarios.slowdowns import MEANING, PEER_SLOWED, WITHIN_S, Slowed
from peer.validation.world.mesh import Shape, rig
from planner.model.manifest import decode_manifest
from planner.model.store import Store

CONTEXT: Final = 2048  # answers are to last
LEAST_PEERS: Final = 2
ROOM: Final = (5, 4)  # of what a peer must hold of the model when all hold alike


async def run_slowed(
    args: argparse.Namespace,
    store: Store,
    shape: Shape,
    load: Load,
    found: list[Slowed],
    until_s: float,
    ctrl: Interrupts,
) -> None:
    """All runs. The planner cuts the model itself; each peer lends so much that `--stages` of them are needed."""
    if shape.peers < LEAST_PEERS:
        raise CannotServe(f"{PEER_SLOWED} needs another peer that can take over, got --peers {shape.peers}")
    manifest = decode_manifest(store.manifest_bytes(shape.model_id))
    context = min(CONTEXT, manifest.context)
    sizes = unit_bytes(manifest, context, shape.mesh.sessions)
    fair = sum(sizes) * ROOM[0] // (ROOM[1] * args.stages)
    room = max(fair, largest_stage(sizes, even_cuts(sizes, min(args.stages, len(sizes)))))
    shape = replace(
        shape,
        mesh=replace(shape.mesh, context=context, cuts=None),
        memory=Lent(args.memory) if args.memory else Lent(room, beside_program=True),
        browsers=(),
    )
    for number in range(args.first, args.first + args.count):
        if time.monotonic() >= until_s:
            return
        say(f"starting {shape.peers} peers, of which {args.stages} are needed")
        try:
            entering = rig(shape, store, relayed=False, seed=load.seed, last_words=ctrl.last_words)
            async with entering as made:
                slowed = await SlowRunner(made, load).run(number)
        except PeerError as error:
            slowed = Slowed((), 1.0, None, None, None, 0, 0, 0, trouble=str(error))
        ctrl.last_words.clear()
        found.append(slowed)
        say(f"{PEER_SLOWED} {number}: {_line(slowed)}")


def tell_slowed(shown: dict[str, Any]) -> None:
    """One line for people."""
    held = "held  " if shown["held"] else "FAILED"
    times = f"relieved after {shown['relieved_p50_s']} s, at most {shown['relieved_worst_s']} s"
    out.print(
        f"{PEER_SLOWED:20} {held}, {shown['runs']} runs, {shown['equal']} of {shown['answers']} equal, {times} "
        f"(wanted {WITHIN_S:.0f})   {MEANING}",
        markup=False,
    )


def _line(slowed: Slowed) -> str:
    whole = sum(answer.completed for answer in slowed.judged)
    equal = sum(answer.equal for answer in slowed.judged)

    def after(time_s: float | None) -> str:
        return "never" if time_s is None else f"after {time_s:.1f} s"

    notes = "; ".join((*slowed.notes, *([slowed.trouble] if slowed.trouble else [])))
    return (
        f"noticed {after(slowed.noticed_s)}, planned {after(slowed.planned_s)}, relieved {after(slowed.relieved_s)}, "
        f"{slowed.moved} moved, {slowed.plans} plans, ran {slowed.share:.0%}, {whole}/{len(slowed.judged)} complete, "
        f"{equal} equal ({notes})"
    )
