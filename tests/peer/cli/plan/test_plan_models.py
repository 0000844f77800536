"""`shoal plan` of models that are graphs of units: of a mesh, of the store beside them, on the peers of a file."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from peer.cli import status_plan
from peer.cli.main import main
from peer.cli.plan import plan_models
from peer.cli.plan.plan_models import ModelPlan, of_mesh
from peer.cli.status_plan import Described
from peer.errors import BadCommand, CannotServe
from peer.state.generated.commands import ModelPlaced, Protection, ProtectionChosen, RunStage
from peer.state.mesh_state import MeshState
from planner.model.graph_manifest import GraphManifest
from planner.model.store import Store
from planner.types import PeerProfile, PlanRequest, Unit
from tests.e2e.graph_model import put_towers
from tests.peer.coordination.offered_models import ASK, LEND, MIB, grown, manifest, mesh, offered

CLUSTER = str(Path(__file__).parents[4] / "examples" / "cluster.json")


class Member:
    """As much of a member as `of_mesh` looks at; `manifests` by id, or why one cannot be had."""

    manifest = None

    def __init__(self, state: MeshState, manifests: dict[str, GraphManifest | str]) -> None:
        self.view = SimpleNamespace(state=state)
        self._manifests = manifests

    async def graph_manifest(self, model: str) -> GraphManifest:
        found = self._manifests[model]
        if isinstance(found, str):
            raise CannotServe(found)
        return found


def offering() -> MeshState:
    """A and B lend; x runs on both, y nowhere yet."""
    state = grown(offered(mesh(a=100, b=100), "x"), ProtectionChosen(Protection(1000, False)))
    stages = (RunStage(0, 1, "a", (), 5 * MIB), RunStage(1, 2, "b", (), 5 * MIB))
    state = grown(state, ModelPlaced("x", state.index + 2, stages, 1, 1, ("a is fast",)))
    return offered(state, "y", model=LEND)


async def plans(member: Member, chosen: str | None, store: Store) -> tuple[ModelPlan, ...]:
    return await of_mesh(member, chosen, store)  # type: ignore[arg-type]


async def test_every_offer_of_a_mesh_is_drawn_with_names(tmp_path: Path) -> None:
    store = Store(tmp_path)
    member = Member(offering(), {ASK: manifest(5, 5), LEND: "the server is gone"})
    x, y = await plans(member, None, store)
    assert x.lines[0] == "x: It runs so now."
    assert [line.split()[0] for line in x.lines[2:4]] == ["A", "B"]
    assert x.lines[-1] == "a is fast"
    assert x.fields["runs"]
    assert [stage["peer"] for stage in x.fields["schedule"]["stages"]] == ["A", "B"]
    assert y.lines == ("y runs nowhere: its manifest cannot be had: the server is gone",)
    assert y.fields["schedule"] is None
    assert await plans(member, "x", store) == (x,)


async def test_a_model_of_the_store_is_placed_beside_what_runs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    model, _ = put_towers(store)
    member = Member(offering(), {})
    [towers] = await plans(member, model, store)
    assert (towers.name, towers.when, towers.fields["runs"]) == ("towers", plan_models.WOULD, False)
    assert towers.found is not None
    with pytest.raises(BadCommand, match=r"--model: the mesh offers x, y; and of the store: .*nothing-such"):
        await plans(member, "nothing-such", store)


def test_a_model_of_the_store_on_the_peers_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, _ = put_towers(Store(tmp_path / "store"))
    common = ["plan", CLUSTER, "--store", str(tmp_path / "store"), "--model", model[:12]]
    assert main([*common, "--html", str(tmp_path / "towers.html")]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("towers: So it would be placed on these peers")
    assert "critical path, " in told.out
    html = (tmp_path / "towers.html").read_text("utf-8")
    assert 'role="img" aria-label="Which peer computes which stage of towers, in time"' in html
    assert "<script" not in html
    assert main([*common, "--json", "--goal", "throughput"]) == 0
    assert json.loads(capsys.readouterr().out)["schedule"]["stages"][0]["first"] == 0
    assert main([*common, "--goal", "memory"]) == 1
    assert "only --goal latency or throughput" in capsys.readouterr().err


def test_what_no_peer_of_a_file_can_hold_is_refused_with_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, _ = put_towers(Store(tmp_path / "store"))
    asked: dict[str, Any] = json.loads(Path(CLUSTER).read_bytes())
    for peer in asked["peers"]:
        peer["memory_bytes"] = peer["overhead_bytes"]
    (tmp_path / "full.json").write_text(json.dumps(asked))
    common = ["plan", str(tmp_path / "full.json"), "--store", str(tmp_path / "store"), "--model", model]
    assert main([*common, "--html", str(tmp_path / "full.html")]) == 1
    said = capsys.readouterr().out
    assert said.startswith("towers runs nowhere: needs 64 KiB more")
    assert "needs 64 KiB more" in (tmp_path / "full.html").read_text("utf-8")


def test_the_plan_of_a_mesh_has_its_offers_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peer = PeerProfile("c", 100, 1, {"embed": 0.1}, {"embed": 0.1})
    request = PlanRequest((Unit("embed", "embed", 10, 1, 0, 4),), (peer,), (), 8, 1)
    nowhere = ModelPlan("ocr", plan_models.RUNS, None, ("needs 5 MiB more on Cy",))

    async def described(_: object) -> Described:
        return Described(request, None, {"c": "Cy"}, offering(), (nowhere,))

    monkeypatch.setattr(status_plan, "_of_mesh", described)
    link = "http://127.0.0.1:1/#x.y"
    assert main(["plan", link, "--html", str(tmp_path / "plan.html")]) == 0
    assert capsys.readouterr().out.endswith("\n\nocr runs nowhere: needs 5 MiB more on Cy\n")
    assert "needs 5 MiB more on Cy" in (tmp_path / "plan.html").read_text("utf-8")
    assert main(["plan", link, "--json"]) == 0
    [told] = json.loads(capsys.readouterr().out)["models"]
    assert told == {"name": "ocr", "runs": False, "schedule": None, "why": ["needs 5 MiB more on Cy"]}
