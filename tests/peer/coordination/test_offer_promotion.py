"""Who takes over the units of offered models: those who stand by, in their order, and nobody else."""

from __future__ import annotations

from peer.coordination.offer_promotion import promoted, stands
from peer.state.generated.commands import MemberLeft, ModelOffered, ModelPlaced, RunStage
from tests.peer.coordination.offered_models import MIB, grown, mesh

ASK = "b" * 64


def test_the_first_standby_that_is_here_takes_over_what_was_lost() -> None:
    placed = ModelPlaced(
        "ask", 40, (RunStage(0, 2, "b", ("c", "d"), MIB), RunStage(2, 3, "a", (), 5)), 1, 2, ()
    )
    state = grown(mesh(a=30, b=30, c=30, d=30), ModelOffered(ASK, "ask"), placed)
    assert promoted(state) is None
    lost = grown(state, MemberLeft("c", "lost"), MemberLeft("b", "lost"))
    found = promoted(lost)
    assert found is not None
    assert not stands(lost, "b")
    assert found.stages == (RunStage(0, 2, "d", (), MIB), RunStage(2, 3, "a", (), 5))
    assert found.why == ("d has taken over what was lost.",)
    assert found.version > 40
    assert promoted(grown(lost, found)) is None
    assert promoted(grown(lost, MemberLeft("d", "lost"))) is None, "nobody is left who stands by"
