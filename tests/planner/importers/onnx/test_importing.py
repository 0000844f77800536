"""Imports in a process of their own: what comes into the store, what is left after an error, and their bounds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from planner.errors import CorruptModel, NoSuchModel, UnknownArchitecture
from planner.importers.onnx.asked import SourceGraph
from planner.importers.onnx.importing import files_of, import_graph
from planner.jobs.jobs import Budget
from planner.model.graph_manifest import decode_graph_manifest
from planner.model.store import Store
from tests.planner.importers.onnx import made_up
from tests.planner.importers.onnx.made_up import FLOAT, INT64, node

SMALL = Budget(cpu_s=4.0, memory_bytes=512 << 20)


def left(store: Store) -> list[str]:
    return sorted(path.relative_to(store.root).as_posix() for path in store.root.rglob("*") if path.is_file())


def children() -> set[psutil.Process]:
    """Those of this process, in which other tests ran before."""
    return set(psutil.Process().children(recursive=True))


def test_a_file_becomes_a_model_of_the_store(tmp_path: Path) -> None:
    made = made_up.chain()
    path = made_up.saved_outside(made.model, tmp_path)
    assert files_of(path, "mine") == {"model.onnx": path, "model.bin": tmp_path / "model.bin"}
    store, before = Store(tmp_path / "store"), children()
    seen: list[tuple[int, int]] = []
    source = SourceGraph(path, "mine", sizes=(("rows", 4),))
    model_id = import_graph(source, store, lambda done, total: seen.append((done, total)))
    manifest = decode_graph_manifest(store.manifest_bytes(model_id))
    assert manifest.name == "mine"
    assert all(store.has_blob(blob) for blob in manifest.blobs(0, len(manifest.units)))
    assert seen == [(done, len(manifest.units)) for done in range(len(manifest.units) + 1)]
    assert {path.split("/")[0] for path in left(store)} == {"blobs", "models"}
    assert children() <= before


def test_nothing_is_left_of_what_was_ended(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(made_up.residual().model.SerializeToString())
    store, before = Store(tmp_path / "store"), children()

    def interrupted(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_graph(SourceGraph(path, "mine"), store, interrupted)
    assert left(store) == []
    assert children() <= before


def test_folders_of_killed_imports_are_removed_and_those_of_running_ones_are_not(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    store = Store(tmp_path / "store")
    for process in (ended.pid, os.getpid()):
        (store.root / "tmp" / f"import-{process}-x").mkdir()
        (store.root / "tmp" / f"import-{process}-x" / "file").write_bytes(b"half")
    with pytest.raises(NoSuchModel):
        import_graph(SourceGraph(tmp_path / "nowhere.onnx", "mine"), store)
    assert left(store) == [f"tmp/import-{os.getpid()}-x/file"]


def constant_bomb() -> made_up.Made:
    """Eight gigabytes of one number, once constants are folded."""
    nodes = [node("ConstantOfShape", ["size"], ["many"]), node("Gather", ["many", "x"], ["y"])]
    ports = [("x", INT64, [4])], [("y", FLOAT, [4])]
    return made_up.Made(made_up.built(nodes, *ports, {"size": np.array([1 << 31])}))


def size_bomb() -> made_up.Made:
    """Doubles its input thirty times."""
    nodes = [node("Concat", [f"v{level}", f"v{level}"], [f"v{level + 1}"], axis=0) for level in range(30)]
    ports = [("v0", FLOAT, [16])], [("v30", FLOAT, [None])]
    return made_up.Made(made_up.built(nodes, *ports))


def endless() -> made_up.Made:
    body = made_up.body(
        [node("Identity", ["go"], ["on"]), node("Add", ["v", "v"], ["next"])],
        [("turn", INT64, []), ("go", made_up.BOOL, []), ("v", FLOAT, [4])],
        [("on", made_up.BOOL, []), ("next", FLOAT, [4])],
    )
    nodes = [node("Loop", ["", "always", "x"], ["y"], body=body)]
    ports = [("x", FLOAT, [4])], [("y", FLOAT, [4])]
    return made_up.Made(made_up.built(nodes, *ports, {"always": np.array(True)}))


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (constant_bomb(), "theirs cannot be imported: this took more than 512 MiB of memory"),
        (size_bomb(), "theirs cannot be imported: this took more than 512 MiB of memory"),
        (endless(), "theirs cannot be imported: this took more than 4 s of computing"),
    ],
    ids=["constant", "size", "endless"],
)
def test_what_takes_too_much_is_one_line_and_leaves_nothing(
    tmp_path: Path, made: made_up.Made, says: str
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(made.model.SerializeToString())
    store, before = Store(tmp_path / "store"), children()
    with pytest.raises(CorruptModel) as caught:
        import_graph(SourceGraph(path, "theirs"), store, budget=SMALL)
    assert str(caught.value).startswith(says)
    assert left(store) == []
    assert children() <= before


def test_errors_of_the_file_come_as_they_are(tmp_path: Path) -> None:
    model = made_up.chain().model
    model.graph.node[0].domain = "org.somewhere"
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UnknownArchitecture, match=r"theirs: the operator 'MatMul' of domain org\.somewhere"):
        import_graph(SourceGraph(path, "theirs"), Store(tmp_path / "store"))


def test_who_asks_for_an_import_loads_no_engine() -> None:
    look = "import sys, planner.importers.registry; sys.exit('onnxruntime' in sys.modules)"
    subprocess.run([sys.executable, "-c", look], check=True)
