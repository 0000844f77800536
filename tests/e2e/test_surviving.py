"""Peers are killed and frozen while the real model answers on real processes: the tokens are those of the calm run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peer.member.peer_options import Lent, MeshOptions
from peer.state.protection import PRESETS
from peer.validation.runs.loss_runner import Load, Runner
from peer.validation.scenarios.faults import Name
from peer.validation.scenarios.figures import figures
from peer.validation.world.mesh import Shape, rig
from tests.e2e.real_mesh import PLEDGE, Models
from tests.seeds import SERIES

SEED = 3
STAGES = 2
RUNS = (
    *(((Name.PEER_CRASH, 0),) if SERIES == "soak" else ()),
    (Name.PEER_CRASH, 8),
    (Name.PEER_FROZEN, 8),
)  # of one set of questions (runner.SETS)


@pytest.mark.series
async def test_answers_survive_kills_and_a_freeze(models: Models) -> None:
    options = MeshOptions(512, 4, "latency", (31,), PRESETS["high"])
    shape = Shape(models.ids["8bit"], options, 2 * STAGES, Lent(PLEDGE), 1, "aiortc")
    lines: list[str] = []
    last_words: list[Callable[[], None]] = []
    async with rig(shape, models.store, relayed=False, seed=SEED, last_words=last_words) as made:
        runner = Runner(made, Load(sessions=3, tokens=24, seed=SEED), lines.append)
        runs = [(await runner.run(name, number)).ran for name, number in RUNS]
        pids = [child.pid for child in made.children.values()]
        assert all(pids), "killed peers are back"
    got = figures(runs)
    assert got.held, lines
    assert got.answers == 3 * len(RUNS)
    assert got.kv_equal == 1.0, lines
    assert all(run.primary_hit for run in runs), lines
    assert all(any("kill" in note or "freeze" in note for note in run.notes) for run in runs), lines
    assert all(child.pid is None for child in made.children.values())
