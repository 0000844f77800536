"""Models of pictures that are imported in bands of rows: each band units of its own, equal at every border."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planner.errors import UnknownArchitecture
from planner.importers.onnx.asked import SourceGraph
from planner.importers.onnx.importing import import_graph
from planner.importers.onnx.proof import part
from planner.model.graph_manifest import decode_graph_manifest
from planner.model.store import Store
from tests.planner.slices.picture_nets import Net, picture, residual, session

SIZES = (("height", 64), ("width", 20))


@pytest.mark.parametrize("bands", [2, 3])
def test_bands_are_units_side_by_side(tmp_path: Path, bands: int) -> None:
    model, path, store = residual().model(), tmp_path / "net.onnx", Store(tmp_path / "store")
    path.write_bytes(model.SerializeToString())
    whole = import_graph(SourceGraph(path, "net", sizes=SIZES), store)
    apart = import_graph(SourceGraph(path, "net", sizes=SIZES, bands=bands), store)
    assert apart != whole
    manifest = decode_graph_manifest(store.manifest_bytes(apart))
    components = [unit.component for unit in manifest.units]
    assert components[0] == "rows"
    assert {*components} == {"rows", *(f"band{number}" for number in range(bands))}
    for height in (64, 77):
        x = picture(height, 20)
        (expected,) = session(model).run(None, {"x": x})
        (made,) = part(manifest, store, 0, len(manifest.units), {"x": x}).values()
        assert np.abs(made - expected).max() <= 1e-5 * np.abs(expected).max()


def test_what_has_no_bands_is_refused_in_one_line(tmp_path: Path) -> None:
    net, path, store = Net(), tmp_path / "net.onnx", Store(tmp_path / "store")
    net.add("Relu")
    path.write_bytes(net.model().SerializeToString())
    with pytest.raises(UnknownArchitecture, match="net cannot be cut into bands of rows: no convolution"):
        import_graph(SourceGraph(path, "net", sizes=SIZES, bands=2), store)
    assert not store.models()
