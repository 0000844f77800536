"""`shoal serve --nearby` and `shoal join --nearby` as processes on two machines of one network."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.importers.decoder_units import build_model
from planner.model.store import Store
from tests.e2e.command import running
from tests.e2e.namespaces import can_make, inside, star
from tests.e2e.scripted_model import END, scripted_model


@pytest.fixture
def network() -> Iterator[None]:
    if why := can_make():
        warnings.warn(f"meshes found by multicast are NOT tested here: {why}", stacklevel=1)
        pytest.skip(why)
    with star("ann"):
        yield


def test_a_mesh_is_found_and_joined_without_its_link(tmp_path: Path, network: None) -> None:
    """The founder names neither an address nor a port: what it announces leads there all the same."""
    store = Store(tmp_path / "store")
    made = scripted_model("scripted", "{{ messages[0].content }}", [], ["@"], {b"@": ((END.encode(), 1.0),)})
    model = build_model(made, "f32", store)
    common = ["--store", store.root, "--memory", "1GiB"]
    serving = ["serve", model, "--host", "0.0.0.0", "--port", "0", "--nearby", "--name", "carol", *common]
    with running(tmp_path, *serving, before=inside("middle")) as carol:
        code = carol.until(r"shoal join --nearby there, with the code (\S+)")[1]
        joining = ["join", "--nearby", "--name", "ann", "--state", tmp_path / "ann", *common]
        with running(tmp_path, *joining, typed=True, before=inside("ann")) as ann:
            ann.until(r"1  carol: scripted, at http://10\.77\.", 30)
            ann.type(code)
            carol.until("ann is here")
