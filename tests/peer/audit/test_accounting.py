"""What an asker owes for answers that go over plans which the mesh has replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from peer.audit.accounting import Accounts
from peer.audit.step_checks import Checks
from peer.origin.session_host import SessionHost
from peer.replication.mesh_view import MeshView
from peer.state.fairness import Fairness
from peer.state.generated.commands import PlanRecord, PlanStage
from peer.state.work_ledger import Ledger
from peer.transport.peer_links import PeerLinks
from tests.peer.session.toy_mesh import opening

PROMPT = 5


def plan(version: int) -> PlanRecord:
    return PlanRecord(version, (PlanStage(0, 3, "p"), PlanStage(3, 6, "q")), 0, 0)


def accounts() -> tuple[Accounts, Any]:
    """Of an asker, and what it knows of the mesh."""
    state = SimpleNamespace(plan=None, proposed=None, members={}, fairness=Fairness(), ledger=Ledger())
    changed: list[Callable[[], None]] = []
    view = SimpleNamespace(state=state, me="asker", subscribe=changed.append, changed=changed)
    sessions = SessionHost(cast(PeerLinks, None), cast(MeshView, view))
    checks = SimpleNamespace(opened=lambda *_: None, emitted=lambda *_: None)
    return Accounts(cast(MeshView, view), sessions, cast(Checks, checks)), view


def told(view: Any) -> None:
    """The state is another one."""
    for listener in view.changed:
        listener()


@pytest.mark.parametrize("versions", [(7,), (7, 9), (7, 8, 9)])
def test_who_computes_over_a_replaced_plan_is_paid(versions: tuple[int, ...]) -> None:
    kept, view = accounts()
    for version in versions:
        view.state.plan = plan(version)
        told(view)
    asked = replace(opening(bytes(16), ("p", "q"), 0, prompt=PROMPT), plan=7)
    kept.opened(asked)
    kept.emitted(asked.session, PROMPT)
    due = kept.receipts.due(view.state.ledger, view.state.fairness)
    assert {(claim.peer, claim.positions, claim.units) for claim in due} == {
        ("p", (0, PROMPT), (0, 3)),
        ("q", (0, PROMPT), (3, 6)),
    }


def test_a_plan_that_nobody_knows_pays_nobody() -> None:
    kept, view = accounts()
    view.state.plan = plan(7)
    told(view)
    asked = replace(opening(bytes(16), ("p", "q"), 0, prompt=PROMPT), plan=6)
    kept.opened(asked)
    kept.emitted(asked.session, PROMPT)
    assert len(kept.receipts.due(view.state.ledger, view.state.fairness)) == 0
