"""Why a mesh cannot answer: what is said is so, and says no ids."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peer.state.generated.commands import Member, MemberStatus
from peer.state.mesh_state import MeshState
from peer.state.readiness import LOADING, NOBODY, PAUSED, why_not_ready

ADA, BOB = "a" * 32, "b" * 32


@pytest.mark.parametrize(
    ("statuses", "refused", "said"),
    [
        ((), "", NOBODY),
        (("paused",), "", PAUSED),
        (("paused", "paused"), "nobody is here", PAUSED),
        (("paused", "joining"), "", LOADING),
        (("measured",), "", LOADING),
        (("measured", "paused"), f"needs 5 MiB more on {ADA}", "needs 5 MiB more on Ada"),
    ],
)
def test_it_is_said_who_is_waited_for(statuses: tuple[MemberStatus, ...], refused: str, said: str) -> None:
    peers = [(ADA, "Ada"), (BOB, "Bob")]
    members = {
        peer: Member(peer, name, True, status) for (peer, name), status in zip(peers, statuses, strict=False)
    }
    members["q" * 32] = Member("q" * 32, "asker", False, "measured")
    assert why_not_ready(replace(MeshState(), members=members, refused=refused)) == said
