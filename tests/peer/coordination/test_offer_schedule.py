"""One run of an offered model in time, from the log: where it runs, where it would, and why neither can be said."""

from __future__ import annotations

from dataclasses import replace

from peer.coordination.offer_schedule import WAITS, running, would_be
from peer.state.generated.commands import MemberLeft, ModelPlaced, Protection, ProtectionChosen, RunStage
from peer.state.mesh_state import MeshState
from tests.peer.coordination.offered_models import ASK, FLOPS, LEND, MIB, chain, grown, mesh, offered

BARE = ProtectionChosen(Protection(1000, False))


def placed(*stages: RunStage) -> MeshState:
    state = offered(mesh(a=100, b=100), "x")
    return grown(state, BARE, ModelPlaced("x", state.index + 2, stages, 1, 1, ("it was",)))


def test_a_model_that_runs_is_drawn_where_the_log_has_it() -> None:
    state = placed(RunStage(0, 1, "b", ("a",), 5 * MIB), RunStage(1, 2, "a", (), 5 * MIB))
    shown = running(state, "x", chain(5, 5), FLOPS)
    assert shown.found is not None
    assert [(span.peer, span.first, span.stop) for span in shown.found.stages] == [("b", 0, 1), ("a", 1, 2)]
    assert shown.found.stages[0].standbys == ("a",)
    assert [(each.src, each.dst) for each in shown.found.transfers] == [("b", "a")]
    assert shown.why == ("it was",)


def test_why_a_model_is_not_drawn() -> None:
    waits = offered(mesh(a=100), "x")
    assert running(waits, "x", chain(5), FLOPS).why == ("the mesh has found no place for it yet",)
    runs = placed(RunStage(0, 1, "b", (), 5 * MIB))
    assert running(grown(runs, MemberLeft("b", "lost")), "x", chain(5), FLOPS).why == (
        "units 0-1: b is not there",
    )
    assert running(runs, "x", chain(5, 5), FLOPS).why == ("its stages hold 1 units, its manifest 2",)
    assert running(replace(runs, plan=None, proposed=None), "x", chain(5), FLOPS).why == (WAITS,)


def test_a_model_that_is_not_offered_is_placed_beside_what_runs() -> None:
    state = placed(RunStage(0, 1, "a", (), 60 * MIB))
    shown = would_be(state, LEND, chain(60), FLOPS)
    assert shown.found is not None
    assert shown.found.peers == ("b",), "a holds x"
    lacks = would_be(state, LEND, chain(150), FLOPS)
    assert lacks.found is None
    assert "MiB more on b" in lacks.why[0]
    assert would_be(mesh(a=100), ASK, chain(5), FLOPS).found is not None, "nothing is offered yet"
