"""The installed package: its wheel in an empty environment founds a mesh, which a browser joins and asks."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.browsers.harness import Driver, Models, launch
from tests.browsers.page import HELPED, SHOWN_WITHIN_S, Page
from tests.package import ROOT, built_package, only
from tests.patience import WITHIN_S

INSTALLED_WITHIN_S = 600  # from the package registry where pip's cache has nothing
ENDS_WITHIN_S = 20.0
MESH = ("--weights", "8bit", "--context", "512", "--cuts", "31", "--memory", "4GiB")  # the tab has to compute


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Path]:
    """The `shoal` of an environment that has the wheel and what it depends on, away from the checkout."""
    built_package(tmp_path / "dist", "--wheel")
    home = tmp_path / "environment"
    venv.create(home, symlinks=True)
    python, wheel = str(home / "bin" / "python"), str(only(tmp_path / "dist", "*.whl"))
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-qq", "--no-compile")
    subprocess.run([*pip, wheel], check=True, cwd=tmp_path, env=bare(os.environ), timeout=INSTALLED_WITHIN_S)
    where = "import peer, planner, signaling; print(peer.__file__, planner.__file__, signaling.__file__)"
    told = subprocess.check_output([python, "-c", where], cwd=tmp_path, env=bare(os.environ), text=True)
    assert all(Path(path).is_relative_to(home) for path in told.split()), told
    yield home / "bin" / "shoal"
    shutil.rmtree(home)  # some 400 MB


def bare(environment: os._Environ[str]) -> dict[str, str]:
    """Nothing of the checkout and its own environment."""
    away = ("PYTHONPATH", "VIRTUAL_ENV")
    path = (part for part in environment["PATH"].split(os.pathsep) if not Path(part).is_relative_to(ROOT))
    return {name: value for name, value in environment.items() if name not in away} | {
        "PATH": os.pathsep.join(path)
    }


@asynccontextmanager
async def serving(shoal: Path, home: Path, models: Models) -> AsyncIterator[str]:
    """The link that `shoal serve` prints. It has to end well, and to have said nothing of a missing page."""
    kept = {name: value for name, value in bare(os.environ).items() if not name.startswith("XDG_")}
    words = ("serve", models.ids["8bit"], "--port", "0", "--bind", "127.0.0.1", "--no-qr", *MESH)
    process = await asyncio.create_subprocess_exec(
        *(str(shoal), *words, "--store", str(models.store.root), "--until-stdin-closes"),
        cwd=home,
        env=kept | {"HOME": str(home)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WITHIN_S):
            link = (await process.stdout.readline()).decode().strip()
        yield link
        async with asyncio.timeout(ENDS_WITHIN_S):
            _, said = await process.communicate(b"")
        assert process.returncode == 0, said.decode()
        assert "cannot join" not in said.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_an_installed_wheel_founds_a_mesh_that_a_browser_joins(
    driver: Driver, installed: Path, models: Models, tmp_path: Path
) -> None:
    made = await launch(driver, "chromium", tmp_path / "profile")
    async with serving(installed, tmp_path, models) as link:
        assert link.startswith("http://127.0.0.1:")
        page = Page(await made.tab(link))
        await page.until("document.querySelector('.lending.is-lending')")
        await page.until_says("2 here", SHOWN_WITHIN_S)
        await page.ask("What is the capital of France?")
        await page.until("document.querySelector('.turn .foot .facts')")
        assert await page.run("document.querySelector('.turn .prose').innerText.trim() !== ''")
        await page.until(f"{HELPED} > 0", SHOWN_WITHIN_S)
    await made.close()
