"""What `shoal status` says about protection: the level, who could take over, and whom members leave alone."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from peer.cli import status_plan
from peer.cli.main import main
from peer.cli.status_plan import Described, running_lines, snapshot, view
from peer.errors import CannotServe
from peer.member.mesh_member import MeshMember
from peer.state.generated.commands import (
    MemberJoined,
    MemberMeasured,
    ModelChosen,
    ModelOffered,
    ModelPlaced,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanStage,
    Profile,
    ProtectionChosen,
    RunStage,
    UnitsHeld,
)
from peer.state.mesh_state import MeshState, apply
from peer.state.protection import PRESETS, chosen
from planner.model.graph_manifest import GraphManifest
from planner.types import PeerProfile, PlanRequest, Unit
from tests.peer.coordination.offered_models import manifest

OFFERED = "b" * 64
REPORT = {
    **dict.fromkeys(("rss_bytes", "weight_bytes", "kv_bytes", "pledge_bytes", "sessions", "active"), 1 << 20),
    "tokens_per_s_milli": 0,
    "runs": [[0, 2]],
    "rtt_us": {},
    "breakers": [],
}


class Watched:
    """As much of a member as `snapshot` looks at."""

    manifest = None

    def __init__(
        self, state: MeshState, reports: dict[str, Any], unreached: frozenset[str] = frozenset()
    ) -> None:
        self.view = SimpleNamespace(state=state, replica=None)
        self.links = SimpleNamespace(unreached=unreached)
        self.serves = not unreached
        self.me, self._reports = "a", reports

    async def status(self) -> dict[str, Any]:
        return self._reports

    async def graph_manifest(self, model: str) -> GraphManifest:
        if model != OFFERED:
            raise CannotServe("the server is gone")
        return manifest(3, 5)


def mesh_state() -> MeshState:
    profile = Profile(1 << 30, 0, {}, {}, {}, 1, "cpu", 1)
    stages = (PlanStage(0, 2, "a", ("b", "c")), PlanStage(2, 4, "b"))
    state = apply(MeshState(term=1), ModelChosen("m" * 64, "toy", 4, 128, 2, "latency"))
    for peer in "abc":
        state = apply(state, MemberJoined(peer, {"a": "Ada", "b": "Bo", "c": "Cy"}[peer], True))
        state = apply(state, MemberMeasured(peer, profile, ()))
    for command in (
        PlanProposed(PlanRecord(1, stages, 1, 1)),
        UnitsHeld("a", ((0, 2),)),
        UnitsHeld("b", ((0, 2), (2, 4))),
        PlanActivated(1),
    ):
        state = apply(state, command)
    return state


async def shown(
    state: MeshState, reports: dict[str, Any], unreached: frozenset[str] = frozenset()
) -> tuple[dict[str, Any], str]:
    data = await snapshot(Watched(state, reports, unreached))  # type: ignore[arg-type]
    console = Console(file=io.StringIO(), width=200)
    console.print(view(data))
    return data, console.file.getvalue()  # type: ignore[attr-defined]


async def test_protection_standbys_and_breakers_are_shown() -> None:
    assert hasattr(MeshMember, "status")  # what Watched stands for
    alone = {**REPORT, "breakers": [["c", "open"], ["a>b", "half-open"]]}
    data, text = await shown(mesh_state(), {"a": alone, "b": {**REPORT, "breakers": [["c", "open"]]}})
    assert data["protection"]["level"] == "standard"
    assert data["plan"]["stages"][0]["ready"] == ["b"]
    assert [member["stage"] for member in data["members"]] == ["1", "1 standby", "2, 1 standby"]
    for line in (
        "protection standard: 1.5 copies, spare peers stand by; standbys keep activations; "
        "a loss goes to the standby, then to a new plan",
        "stage 1 stands by: Bo ready, Cy not ready",
        "stage 2 stands by: nobody",
        "Ada to Bo is being tried again by Ada",
        "Cy is left alone by Ada, Bo",
    ):
        assert line in text


async def test_whom_the_coordinator_asked_to_measure_again_is_shown_as_it_says_it() -> None:
    said = {**REPORT, "fresh": ["c", "nobody"]}
    data, text = await shown(mesh_state(), {"a": said, "b": {**REPORT, "fresh": ["b"]}})
    assert "once more" not in text  # nobody leads here
    data["consensus"]["leader"] = "a"
    console = Console(file=io.StringIO(), width=200)
    console.print(view(data))
    (line,) = (line for line in console.file.getvalue().splitlines() if "once more" in line)  # type: ignore[attr-defined]
    assert line.strip() == "times of Cy: measured by itself once more, since a prediction abstained"


async def test_classes_of_arithmetic_are_shown_short_and_whole_for_programs() -> None:
    _, text = await shown(mesh_state(), {})
    assert "arithmetic" not in text, "nobody says one"
    one, other = "cpu/avx512_vnni/rows-1/9f3ac1d2e4b07755", "cpu/avx2/rows-1/0123456789abcdef"
    state = mesh_state()
    for peer, arithmetic in (("a", one), ("b", other), ("c", one)):
        profile = state.members[peer].profile
        assert profile is not None
        state = apply(state, MemberMeasured(peer, replace(profile, arithmetic=arithmetic), ()))
    data, text = await shown(state, {})
    assert {member["peer"]: member["arithmetic"] for member in data["members"]} == {
        "a": one,
        "b": other,
        "c": one,
    }
    assert "arithmetic cpu avx512_vnni rows-1 9f3a: Ada, Cy; cpu avx2 rows-1 0123: Bo" in text


async def test_what_a_peer_occupies_stands_beside_what_is_planned_for_it() -> None:
    state = mesh_state()
    stages = (PlanStage(0, 2, "a", ("b",), 300 << 20, 40 << 20, 120 << 20), PlanStage(2, 4, "b"))
    state = apply(apply(state, PlanProposed(PlanRecord(2, stages, 1, 1))), UnitsHeld("b", ((0, 2), (2, 4))))
    state = apply(state, PlanActivated(2))
    report = {**REPORT, "rss_bytes": 433 << 20, "pledge_bytes": 500 << 20}
    data, text = await shown(state, {"a": report})
    (ada,) = (member for member in data["members"] if member["name"] == "Ada")
    assert ada["planned"] == {
        "weight_bytes": 300 << 20,
        "kv_bytes": 40 << 20,
        "overhead_bytes": 120 << 20,
    }
    heading, row = (
        next(line.split() for line in text.splitlines() if line.startswith(word)) for word in ("peer", "Ada")
    )
    assert heading[3:6] == ["memory", "planned", "lent"]
    assert row[3:9] == ["433", "MiB", "460", "MiB", "500", "MiB"]


async def test_a_name_is_whole_on_a_terminal_of_80_columns() -> None:
    large = {**REPORT, "pledge_bytes": 10155 << 20, "weight_bytes": 320 << 20, "runs": [[0, 36], [36, 62]]}
    report = {**large, "rtt_us": dict.fromkeys("abc", 2800), "active": 3, "tokens_per_s_milli": 31250}
    data, _ = await shown(mesh_state(), dict.fromkeys("abc", report))
    for member in data["members"]:
        member["name"] = "joiner"
    console = Console(file=io.StringIO(), width=80)
    console.print(view(data))
    rows = [line for line in console.file.getvalue().splitlines() if line.startswith("joiner ")]  # type: ignore[attr-defined]
    assert len(rows) >= 3
    assert not any("…" in row for row in rows), rows


async def test_every_level_and_settings_given_alone_are_said_in_words() -> None:
    for level in PRESETS:
        _, text = await shown(apply(mesh_state(), ProtectionChosen(PRESETS[level])), {})
        assert f"protection {level}: " in text
    own = chosen("high", 1250, priority=("head",))
    _, text = await shown(apply(mesh_state(), ProtectionChosen(own)), {})
    assert "protection of its own: 1.25 copies; standbys compute along" in text
    assert "first head" in text


# --- shoal plan LINK


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> str:
    """Leads to a mesh that computes with Ada and Bo, where a plan made now would take Cy alone."""
    peer = PeerProfile("c", 100, 1, {"embed": 0.1}, {"embed": 0.1})
    request = PlanRequest((Unit("embed", "embed", 10, 1, 0, 4),), (peer,), (), 8, 1)

    async def of_mesh(_: object) -> Described:
        return Described(request, None, {"c": "Cy"}, mesh_state())

    monkeypatch.setattr(status_plan, "_of_mesh", of_mesh)
    return "http://127.0.0.1:1/#x.y"


def test_the_running_plan_and_the_one_that_would_be_are_two_parts(
    link: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", link, "--html", str(tmp_path / "plan.html")]) == 0
    told = capsys.readouterr()
    running, _, would_be = told.out.partition("\n\n")
    assert running.startswith("running now: plan 1, expected ")
    assert "stage 1: Ada holds units 0-1\nstage 2: Bo holds units 2-3" in running
    assert would_be.startswith("would be, if it were made now: strategy optimal, for latency\n")
    assert "Cy" in would_be
    assert "Ada" not in would_be
    assert "drawn in" in told.err
    page = (tmp_path / "plan.html").read_text("utf-8")
    assert "The plan that would be made now" in page
    assert "Running now" in page
    assert "Ada holds units 0-1" in page


def test_programs_get_the_two_plans_by_name(link: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", link, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [stage["primary"] for stage in told["running"]["stages"]] == ["a", "b"]
    assert "c" in json.dumps(told["would_be"])


def test_a_mesh_without_a_plan_says_why() -> None:
    state = replace(mesh_state(), plan=None, refused=f"needs 1 MiB more on {'z' * 32}")
    assert running_lines(state) == ["running now: no plan, needs 1 MiB more on somebody who left (zzzz)"]
    assert running_lines(replace(state, refused="")) == ["running now: no plan, its peers are still loading"]


async def test_peers_that_are_called_alike_are_told_apart_in_every_line() -> None:
    state = mesh_state()
    members = {peer: replace(member, name="root@vm") for peer, member in state.members.items()}
    data, text = await shown(replace(state, members=members), {"a": REPORT})
    assert sorted(member["name"] for member in data["members"]) == [f"root@vm ({peer})" for peer in "abc"]
    assert "stage 1 stands by: root@vm (b) ready, root@vm (c) not ready" in text
    assert "stage 1: root@vm (a) holds units 0-1" in running_lines(replace(state, members=members))


async def test_a_stage_without_a_connection_is_no_answer() -> None:
    data, text = await shown(mesh_state(), {}, frozenset("b"))
    assert not data["serving"]
    assert data["unreached"] == ["Bo"]
    assert "not answering: no connection to Bo" in text


async def test_models_beside_the_mesh_s_own_are_shown() -> None:
    data, text = await shown(mesh_state(), {})
    assert data["offers"] == []
    state = apply(mesh_state(), ModelOffered("b" * 64, "ocr"))
    state = apply(
        state, ModelPlaced("ocr", 99, (RunStage(0, 2, "b", ("c",), 3 << 20),), 5000, 9000, ("b is fast",))
    )
    state = apply(state, ModelOffered("c" * 64, "gone"))
    data, text = await shown(state, {})
    assert data["saved"] == {"stored_bytes": 0, "sent_bytes": 0, "loaded_bytes": 0, "unknown": ["gone"]}
    assert "share" not in text
    assert "offers ocr: Bo runs units 0-1 (3.0 MiB, standby Cy); 5.0 ms a run, 9.0 runs/s" in text
    assert data["offers"][1:] == [
        {
            "name": "ocr",
            "model_id": "b" * 64,
            "version": 99,
            "stages": [{"first": 0, "stop": 2, "primary": "b", "standbys": ["c"], "bytes": 3 << 20}],
            "predicted_ms": 5.0,
            "predicted_runs_per_s": 9.0,
            "why": ["b is fast"],
        }
    ]


async def test_what_equal_weights_of_several_models_save_is_shown() -> None:
    state = mesh_state()
    for at, name in enumerate(("ocr", "again")):
        state = apply(state, ModelOffered(OFFERED, name))
        stages = (RunStage(0, 2, "b", ("c",), 8 << 20),)
        state = apply(state, ModelPlaced(name, 99 + at, stages, 5000, 9000, ()))
    data, text = await shown(state, {})
    assert data["saved"] == {
        "stored_bytes": 1,  # of the one blob of both
        "sent_bytes": 2,  # to b and c
        "loaded_bytes": 2 * (8 << 20),
        "unknown": [],
    }
    assert "weights that models share save 1 B stored, 2 B sent, 16.0 MiB loaded" in text
