"""`shoal bench inside`: what a team takes for a prompt and for a token, against one peer with the whole model.

Both are in this process, members of the team as threads with one thread of onnxruntime each, and parts go from one to
the other in memory. So figures are of cutting units and of adding parts up, without a network between the members;
what that costs is in the figures of `shoal bench pipeline`. Rounds alternate, and figures are medians of them. Models
have random weights in known shapes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from peer.bench.shapes import SHAPES, RandomModel
from peer.errors import TeamBroken
from peer.launch.terminal import say
from peer.runtime.arithmetic import prove
from peer.runtime.execution import Execution, Row
from peer.runtime.kv_slots import KvSlots
from peer.runtime.piece_sizes import PIECE_TOKENS
from peer.runtime.stage_execution import StageExecution
from peer.runtime.teams.helper_worker import HelperWorker
from peer.runtime.teams.mailbox import Mailbox
from peer.runtime.teams.member_execution import Channel, Send, load_member
from peer.runtime.teams.team import Team, joint_form
from peer.runtime.teams.team_execution import TeamExecution
from peer.session.evidence import Floats
from peer.wire.generated.frames import TeamRows, TeamStep
from planner.importers.decoder_units import build_model
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import Store

PROMPT_TOKENS: Final = 512
DECODE_TOKENS: Final = 12  # a round
CONTEXT: Final = 1024
SESSION: Final = bytes(16)
FIGURES: Final = (("prompt_tensor_2", "1b"), ("decode_tensor_2", "3b"))


def bench_inside(args: argparse.Namespace) -> dict[str, Any]:
    """The figures by name: shares of the time of one peer, and the seconds that they are of."""
    found: dict[str, Any] = {}
    for name, shape in FIGURES:
        with tempfile.TemporaryDirectory(prefix="shoal-inside-") as folder:
            store = Store(Path(folder) / "store")
            say(f"making a random model in the shape of {shape}, 8-bit")
            source = RandomModel(shape, SHAPES[shape], "8bit", Path(folder))
            manifest = decode_manifest(store.manifest_bytes(build_model(source, "8bit", store)))
            work = _prompt if name.startswith("prompt") else _decode
            with ExitStack() as stack:
                one = stack.enter_context(_one(manifest, store))
                two = stack.enter_context(_team(manifest, store, (1, 1)))
                seconds = _alternating(args.rounds, one, two, manifest, work)
        found[name] = round(seconds[1] / seconds[0], 3)
        found[f"{name}_alone_s"], found[f"{name}_team_s"] = (round(each, 4) for each in seconds)
    return found


def _alternating(
    rounds: int,
    one: StageExecution,
    two: StageExecution,
    manifest: Manifest,
    work: Callable[[StageExecution, KvSlots, Floats], float],
) -> tuple[float, float]:
    """The median seconds of each; what comes first warms them and does not count."""
    hidden = np.random.default_rng(3).standard_normal((PROMPT_TOKENS, manifest.hidden)).astype(np.float32)
    subjects = []
    for execution in (one, two):
        slots = KvSlots(1, CONTEXT)
        slots.admit(SESSION)
        execution.ensure(slots, 1, CONTEXT)
        work(execution, slots, hidden)
        subjects.append((execution, slots))
    seen: list[list[float]] = [[], []]
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for times, (execution, slots) in zip(seen, subjects, strict=True):
            times.append(work(execution, slots, hidden))
    alone, team = (statistics.median(times) for times in seen)
    return alone, team


def _prompt(execution: StageExecution, _: KvSlots, hidden: Floats) -> float:
    """Seconds for a prompt of PROMPT_TOKENS, and the logits of its last token."""
    begun = time.perf_counter()
    made = hidden[:0]
    for start in range(0, len(hidden), PIECE_TOKENS):
        made = execution.prompt(hidden[start : start + PIECE_TOKENS], Row(0, start))[-1:].copy()
    execution.head(made)
    return time.perf_counter() - begun


def _decode(execution: StageExecution, _: KvSlots, hidden: Floats) -> float:
    """Seconds for a token behind PIECE_TOKENS others, with its logits."""
    execution.prompt(hidden[:PIECE_TOKENS], Row(0, 0))
    begun = time.perf_counter()
    for at in range(PIECE_TOKENS, PIECE_TOKENS + DECODE_TOKENS):
        execution.head(execution.decode(hidden[at : at + 1], range(1), [at]).copy())
    return (time.perf_counter() - begun) / DECODE_TOKENS


@contextmanager
def _one(manifest: Manifest, store: Store) -> Iterator[Execution]:
    form = prove(store, manifest, "cpu", 1).form
    shard = make_shard(manifest, store, 0, len(manifest.units), "cpu", exact=form.plain)
    execution = Execution(shard, threads=1, context=CONTEXT, form=form)
    try:
        yield execution
    finally:
        execution.close()


@contextmanager
def _team(manifest: Manifest, store: Store, shares: tuple[int, ...]) -> Iterator[TeamExecution]:
    team, places = Team(0, len(manifest.units), shares), range(len(shares))
    with ExitStack() as stack:
        members = [load_member(manifest, store, team, place, threads=1, context=CONTEXT) for place in places]
        for member in members:
            stack.callback(member.close)
        form = joint_form([member.form for member in members])
        boxes = [Mailbox() for _ in places]

        def over(why: str) -> None:
            for box in boxes:
                box.end(why)

        send: Send = lambda member, part: boxes[member].put(part)  # noqa: E731
        channels = [Channel(SESSION, place, len(shares), send, boxes[place]) for place in places]
        helpers = [
            HelperWorker(members[at], channels[at], form, manifest.hidden, 1, CONTEXT, over)
            for at in places[1:]
        ]
        for helper in helpers:
            stack.callback(helper.close, "the benchmark is over")

        def tell(frame: TeamStep | TeamRows) -> None:
            if boxes[0].broken:
                raise TeamBroken(boxes[0].broken)
            for helper in helpers:
                helper.take(frame)

        yield TeamExecution(members[0], None, channels[0], form, tell, over, has_head=True)
