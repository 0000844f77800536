"""What an asker owes for answers that go over plans which the mesh has replaced."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from peer.audit.accounting import Accounts
from peer.member.mesh_member import Mesh
from peer.origin.session_host import Askings, Surroundings
from peer.state.fairness import Fairness
from peer.state.mesh_state import PlanRecord, PlanStage
from peer.state.work_ledger import Ledger
from peer.transport.circuit_breakers import Breakers

from .test_pipeline import opening

PROMPT = 5


def plan(version: int) -> PlanRecord:
    return PlanRecord(version, (PlanStage(0, 3, "p"), PlanStage(3, 6, "q")), 0, 0)


def accounts() -> tuple[Accounts, Any]:
    """Of an asker, and what it knows of the mesh."""
    state = SimpleNamespace(plan=None, proposed=None, members={}, fairness=Fairness(), ledger=Ledger())
    node = SimpleNamespace(state=state, me="asker", answer_more=None)
    node.askings = Askings(cast(Surroundings, node), Breakers())
    return Accounts(cast(Mesh, SimpleNamespace(node=node, start=lambda step: step.close()))), node


@pytest.mark.parametrize("versions", [(7,), (7, 9), (7, 8, 9)])
def test_who_computes_over_a_replaced_plan_is_paid(versions: tuple[int, ...]) -> None:
    kept, node = accounts()
    for version in versions:
        node.state.plan = plan(version)
        node.askings.state_changed()
    asked = replace(opening(bytes(16), ("p", "q"), 0, prompt=PROMPT), plan=7)
    kept.opened(asked)
    kept.emitted(asked.session, PROMPT)
    due = kept.receipts.due(node.state.ledger, node.state.fairness)
    assert {(claim.peer, claim.positions, claim.units) for claim in due} == {
        ("p", (0, PROMPT), (0, 3)),
        ("q", (0, PROMPT), (3, 6)),
    }


def test_a_plan_that_nobody_knows_pays_nobody() -> None:
    kept, node = accounts()
    node.state.plan = plan(7)
    node.askings.state_changed()
    asked = replace(opening(bytes(16), ("p", "q"), 0, prompt=PROMPT), plan=6)
    kept.opened(asked)
    kept.emitted(asked.session, PROMPT)
    assert len(kept.receipts.due(node.state.ledger, node.state.fairness)) == 0
