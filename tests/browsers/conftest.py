"""Real browsers on 127.0.0.1, driven through one Node process, and the headless harness of the web peer.

Where a browser or Node is not installed the tests fail and say so, unless SHOAL_TEST_BROWSERS=none.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.store import Store
from tests.browsers.harness import WEB_PEER, Driver, Models, built, driving
from tests.browsers.numerics import Cut
from tests.imported import imported
from tests.measured import measured_once
from tests.planner.tiny_models import TinyModel


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("SHOAL_TEST_BROWSERS") == "none":
        here = Path(__file__).parent
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="SHOAL_TEST_BROWSERS=none: no browser was tested"))


@pytest.fixture(scope="session")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The harness page, built from the sources as they are."""
    folder = tmp_path_factory.mktemp("harness")
    vite = WEB_PEER / "node_modules" / ".bin" / "vite"
    if not vite.exists():
        pytest.fail("web_peer/node_modules is not there: run `make setup`, or set SHOAL_TEST_BROWSERS=none")
    command = [
        str(vite),
        "build",
        "-c",
        "vite.harness.config.ts",
        "--outDir",
        str(folder),
        "--logLevel",
        "error",
    ]
    subprocess.run([*command, "--emptyOutDir"], cwd=WEB_PEER, check=True, stdin=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The app, built from the sources as they are."""
    return built(tmp_path_factory.mktemp("app"))


@pytest.fixture(scope="session")
def node() -> Iterator[Driver]:
    with driving() as made:
        yield made


@pytest.fixture
async def driver(node: Driver) -> AsyncIterator[Driver]:
    """The Node process of all tests; what this one opened is closed at its end."""
    yield node
    await node.call("closeAll")


@pytest.fixture(scope="session")
def models(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    with imported(smollm2_gguf, tmp_path_factory.mktemp("store")) as (store, ids):
        yield Models(store, ids)


@pytest.fixture(scope="session", autouse=True)
def one_measurement() -> Iterator[None]:
    with measured_once():
        yield


@pytest.fixture(scope="session")
def two_blocks(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Models:
    """The first two blocks of the real model, float32: it computes nonsense, everywhere the same, and soon."""
    store = Store(tmp_path_factory.mktemp("two-blocks"))
    source = Cut(open_gguf(smollm2_gguf, "smollm2-135m"), 2)
    return Models(store, {"f32": build_model(source, "f32", store)})


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, str]:
    """A store with a model that every browser and process loads at once, and its id; float32: the same everywhere."""
    home = tmp_path_factory.mktemp("tiny")
    store = Store(home / "store")
    return store, build_model(open_gguf(TinyModel().write_gguf(home / "tiny.gguf"), "tiny"), "f32", store)
