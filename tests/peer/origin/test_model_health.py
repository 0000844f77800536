"""Which models of a mesh can answer, for programs: who is missing is said by name, and only where that is so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peer.origin.model_health import UNPLACED, answers, healths
from peer.state.generated.commands import (
    Decoder,
    Member,
    MemberStatus,
    ModelChosen,
    ModelOffer,
    PlanRecord,
    PlanStage,
    RunStage,
)
from peer.state.mesh_state import MeshState
from peer.state.readiness import LOADING

ADA, BOB = "a" * 32, "b" * 32
RUN = (0, 4)
PLAN = PlanRecord(1, (PlanStage(*RUN, ADA, (BOB,)),), 0, 0)
OWN = ModelChosen("c" * 64, "talker", 4, 128, 2, "latency")


def mesh(ada: MemberStatus = "measured", *, standby: bool = False, refused: str = "") -> MeshState:
    """One with a model of its own, a further one and an offered one, all computed by Ada."""
    held = (RUN,)
    behind = {BOB: held} if standby else {}
    decoder = Decoder("d" * 64, 4, 64, 1, "latency", plan=PLAN, held={ADA: held, **behind}, refused=refused)
    members = {
        ADA: Member(ADA, "Ada", True, ada, held=held),
        BOB: Member(BOB, "Bob", True, "measured", held=held if standby else ()),
    }
    offer = ModelOffer("e" * 64, 1, (RunStage(*RUN, ADA, (), 0),))
    return replace(
        MeshState(), model=OWN, members=members, plan=PLAN, decoders={"other": decoder}, offers={"ocr": offer}
    )


GONE = "not reached of its peers: Ada"


@pytest.mark.parametrize(
    ("state", "lost", "whys"),
    [
        (mesh(), (), ("", "", "")),
        (mesh(), (BOB,), ("", "", "")),
        (mesh(), (ADA,), (GONE, GONE, GONE)),
        (mesh(standby=True), (ADA,), ("", "", GONE)),
        (mesh("paused"), (), (GONE, GONE, GONE)),
        (mesh("paused", refused=f"too little on {ADA}"), (), (GONE, "too little on Ada", GONE)),
    ],
)
def test_who_is_missing_is_said_of_each_model(state: MeshState, lost: tuple[str, ...], whys: object) -> None:
    found = healths(state, frozenset(lost))
    assert [(each.name, each.kind) for each in found] == [
        ("talker", "words"),
        ("other", "words"),
        ("ocr", "arrays"),
    ]
    assert tuple(each.why for each in found) == whys


def test_what_has_no_place_yet_says_so() -> None:
    state = replace(mesh(), plan=None, offers={"ocr": ModelOffer("e" * 64), "det": ModelOffer("f" * 64, 1)})
    state = replace(state, decoders={"other": Decoder("d" * 64, 4, 64, 1, "latency")})
    state = replace(
        state, offers={**state.offers, "rec": ModelOffer("f" * 64, 1, why=(f"{ADA} lends too little",))}
    )
    assert [(each.name, each.why) for each in healths(state, frozenset())] == [
        ("talker", LOADING),
        ("other", LOADING),
        ("det", UNPLACED),
        ("ocr", UNPLACED),
        ("rec", "Ada lends too little"),
    ]


def test_one_that_is_asked_counts_alone_and_else_the_own_one() -> None:
    found = healths(replace(mesh(), offers={}), frozenset((BOB,)))
    waits = healths(replace(mesh(refused="no room"), plan=None, offers={}), frozenset((ADA,)))
    runs = healths(replace(mesh("paused"), model=None, plan=None, decoders={}), frozenset())
    for each, asked, own, ok in (
        (found, None, True, True),
        (found, "other", True, True),
        (found, "d" * 64, True, True),
        (found, "nobody", True, None),
        (waits, None, True, False),
        (waits, "other", True, False),
        (runs, None, False, False),
        (found[1:], None, False, True),
        ((), None, False, False),
    ):
        assert answers(each, asked, own) is ok
