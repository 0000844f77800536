"""Real models over a process, a tab of Chromium and one of Firefox: within 1e-4 of the whole on a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from peer.dataflow.value_codec import Array
from peer.member.mesh_member import MeshMember
from peer.state.generated.commands import ModelWithdrawn, RunStage
from planner.model.store import Store
from tests.browsers.harness import Driver, Models, founded, visit
from tests.e2e.graph_model import place
from tests.e2e.real_models import (
    IN_THE_PICTURE,
    NAMES,
    WHISPER_TINY,
    Cuts,
    Real,
    offer,
    put,
    read_by_the_example,
)
from tests.patience import WITHIN_S
from tests.seeds import seeds

BROWSERS: Final = ("chromium", "firefox")
RELATIVE: Final = 1e-4  # of the largest value of an output
ROUNDED: Final = 2.0**-22  # of a probability near 0: a float32 near 1 is taken from 1
CHEAPEST_FIRST: Final = (*sorted(NAMES, key=lambda name: name != "ppocr-v4-cls"), WHISPER_TINY)
TRIES: Final = 5  # of a run: the leader may place its model anew before it opens


def error_of(found: dict[str, Array], expected: dict[str, Array]) -> float:
    """The largest difference of an output, in parts of its largest value (ROUNDED / RELATIVE at least)."""
    assert found.keys() == expected.keys()
    worst = 0.0
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        if array.dtype.kind != "f":
            np.testing.assert_array_equal(found[name], array, name)
            continue
        off = float(np.abs(found[name] - array).max(initial=0))
        error = off / max(float(np.abs(array).max(initial=0)), ROUNDED / RELATIVE)
        worst = max(worst, error) if error == error else np.nan
    return worst


async def ran_there(
    founder: MeshMember, real: Real, cuts: Cuts, peers: Sequence[str], given: dict[str, Array]
) -> dict[str, Array]:
    """The outputs, computed by these peers and no others."""
    borders = (0, *cuts, len(real.manifest.units))
    stages = [RunStage(*span, peer, ()) for span, peer in zip(pairwise(borders), peers, strict=True)]
    for _ in range(TRIES):
        await place(founder, real.name, *stages)
        run = await founder.open_run(real.name)
        try:
            found = await run.run(given)
            (lane,) = run.lanes
        finally:
            await run.close()
        if lane == tuple(dict.fromkeys(peers)):
            return found
    raise AssertionError(f"{real.name} was placed elsewhere {TRIES} times")


@pytest.mark.slow
@pytest.mark.series
async def test_real_models_run_on_tabs_as_on_a_process(
    driver: Driver,
    harness: Path,
    tiny: tuple[Store, str],
    graph_file: Callable[[str], Path],
    minilm_folder: Path,
) -> None:
    """Nearly all of each model on each tab, and a third of it on each peer; so is the text in a picture read."""
    store, own = tiny
    errors: dict[tuple[str, str], float] = {}
    readers: dict[str, Real] = {}  # of text
    async with founded(Models(store, {"f32": own}), harness, weights="f32") as founder:
        assert founder.link is not None
        me = founder.me
        await founder.until_serving(WITHIN_S)
        tabs: dict[str, str] = {}
        for browser in BROWSERS:
            made = await visit(driver, browser)
            tab = await made.tab(founder.link.server)
            status = await tab.join(founder.link.url(), lends=True)
            assert status["state"] == "in", status
            (tabs[browser],) = founder.view.state.members.keys() - {me, *tabs.values()}
        chromium, firefox = tabs.values()
        assert await founder.view.until(
            lambda state: all(state.members[tab].profile is not None for tab in tabs.values()), WITHIN_S
        )
        for name in CHEAPEST_FIRST[: seeds(len(CHEAPEST_FIRST))]:
            real = await asyncio.to_thread(put, name, store, graph_file, minilm_folder)
            whole = real.whole()
            await offer(founder, real)
            thirds, ends = real.cuts()
            for seed, (on, cuts, peers) in enumerate(
                (
                    ("chromium", ends, (me, chromium, me)),
                    ("firefox", ends, (me, firefox, me)),
                    ("both", thirds, (chromium, me, firefox)),
                )
            ):
                given = real.inputs(seed)
                found = await ran_there(founder, real, cuts, peers, given)
                errors[name, on] = error_of(found, whole.run(given))
                print(f"{name} on {on}: {errors[name, on]:.2g}", flush=True)
            if name.startswith("ppocr"):
                readers[name] = real
            else:
                await founder.propose(ModelWithdrawn(name))
        if len(readers) == 3:  # the soak has them all
            loop = asyncio.get_running_loop()

            def run(name: str, given: Mapping[str, Array]) -> dict[str, Array]:
                real = readers[name]
                running = ran_there(founder, real, real.cuts()[0], (chromium, me, firefox), dict(given))
                return asyncio.run_coroutine_threadsafe(running, loop).result()

            read = await asyncio.to_thread(read_by_the_example, run, graph_file)
            assert read == list(IN_THE_PICTURE)
    assert not {where: error for where, error in errors.items() if not error <= RELATIVE}
