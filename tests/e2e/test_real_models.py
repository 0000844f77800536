"""Real models over three peers: split twice, equal to the bit; and somebody's own model, in five lines."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from peer.api import Mesh
from tests.e2e.command import ROOT, running
from tests.e2e.real_mesh import Models, Start
from tests.e2e.real_models import IN_THE_PICTURE, NAMES, offer, place, put, read_by_the_example
from tests.patience import WITHIN_S
from tests.planner.importers.onnx.cut_models import run as run_whole
from tests.planner.importers.onnx.made_up import chain
from tests.planner.tiny_models import TinyModel


@pytest.mark.slow
async def test_real_models_split_over_three_peers_are_equal_to_the_bit(
    start: Start, models: Models, graph_file: Callable[[str], Path], minilm_folder: Path, tmp_path: Path
) -> None:
    """And their mesh reads the text in a photograph, over what the last cut gave to each peer."""
    async with start(None, 3) as peers:
        founder = peers[0]
        mesh = Mesh(founder)
        orders = permutations([peer.me for peer in peers])
        for name in NAMES:
            real = await asyncio.to_thread(put, name, models.store, graph_file, minilm_folder)
            whole = real.whole()
            await offer(founder, real)
            for seed, cuts in enumerate(real.cuts()):
                await place(founder, real, cuts, next(orders, None) or [peer.me for peer in peers])
                given = real.inputs(seed)
                assert_same(await mesh.run(name, given), whole.run(given))
        assert founder.link is not None
        link, reader = founder.link.url(), tmp_path / "reader"

        def read() -> list[str]:
            with Mesh.join_blocking(link, store=reader) as asker:
                return read_by_the_example(asker.run, graph_file)

        assert await asyncio.to_thread(read) == list(IN_THE_PICTURE)


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, name, strict=True)


def in_five_lines() -> tuple[list[str], str]:
    """The commands and the program of docs/models.md, section "Your own model in five lines"."""
    (section,) = re.findall(r"## Your own model in five lines\n(.*?)\n## ", text(), re.DOTALL)
    blocks = dict(re.findall(r"```(sh|python)\n(.*?)```", section, re.DOTALL))
    commands = [line for line in blocks["sh"].splitlines() if line]
    assert len(commands) + len([line for line in blocks["python"].splitlines() if line]) == 5
    return commands, blocks["python"]


def text() -> str:
    return (ROOT / "docs" / "models.md").read_text()


@pytest.mark.slow
async def test_somebodys_own_model_runs_in_a_mesh_in_five_lines(tmp_path: Path) -> None:
    made = chain()
    (tmp_path / "mine.onnx").write_bytes(made.model.SerializeToString())
    tiny = TinyModel().write_gguf(tmp_path / "tiny.gguf")
    commands, program = in_five_lines()
    named = {"smollm2-135m": str(tiny), "mine.onnx": str(tmp_path / "mine.onnx")}
    with ExitStack() as stack:
        link = ""
        for number, line in enumerate(commands):
            tool, *words = shlex.split(line, comments=True)
            assert tool == "shoal"
            more = ["--bind", "127.0.0.1", "--memory", "1GiB", "--threads", "1"]
            more += ["--port", "0"] if words[0] == "serve" else []
            words = [link if word == "LINK" else named.get(word, word) for word in words]
            process = stack.enter_context(running(tmp_path / str(number), *words, *more))
            if not link:
                link = (await asyncio.to_thread(process.until, r"^http://127\.0\.0\.1:\d+/#\S+"))[0]
        async with Mesh.join(link, store=tmp_path / "asker") as mesh:
            view = mesh.member.view
            await view.until(
                lambda state: sum(m.profile is not None for m in state.members.values()) == 2, WITHIN_S
            )
            await view.until(
                lambda state: "mine" in state.offers and bool(state.offers["mine"].stages), WITHIN_S
            )
        x = np.random.default_rng(0).standard_normal((5, 16), np.float32)
        known = {"LINK": link, "x": x}
        await asyncio.to_thread(exec, compile(program, "docs/models.md", "exec"), known)
        np.testing.assert_array_equal(known["y"], run_whole(made.model.SerializeToString(), {"x": x})["y"])
