"""Why a mesh cannot answer: what is said is so, and says no ids."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peer.state.generated.commands import Member, MemberStatus, ModelChosen, ModelOffer, RunStage
from peer.state.mesh_state import MeshState
from peer.state.readiness import LOADING, NO_WORDS, NOBODY, NOTHING, PAUSED, runs_any, why_not_ready

ADA, BOB = "a" * 32, "b" * 32
MODEL = ModelChosen("a" * 64, "talker", 4, 128, 2, "latency")


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
    assert why_not_ready(replace(MeshState(), model=MODEL, members=members, refused=refused)) == said


def offered(*stages: tuple[str, int, int]) -> ModelOffer:
    return ModelOffer("b" * 64, 1, tuple(RunStage(first, stop, peer, (), 0) for peer, first, stop in stages))


@pytest.mark.parametrize(
    ("offers", "status", "runs", "said"),
    [
        ({}, "measured", False, f"{NO_WORDS}: {NOTHING}"),
        ({"ocr": offered()}, "measured", False, f"{NO_WORDS}: shoal run asks ocr"),
        ({"ocr": offered((ADA, 0, 2))}, "measured", True, f"{NO_WORDS}: shoal run asks ocr"),
        ({"ocr": offered((ADA, 0, 2))}, "paused", False, f"{NO_WORDS}: shoal run asks ocr"),
        ({"ocr": offered((ADA, 0, 1), (BOB, 1, 2))}, "measured", False, f"{NO_WORDS}: shoal run asks ocr"),
        (
            {"ocr": offered((BOB, 0, 1)), "det": offered((ADA, 0, 1))},
            "measured",
            True,
            f"{NO_WORDS}: shoal run asks det, ocr",
        ),
    ],
)
def test_without_a_model_that_answers_it_is_said_what_runs(
    offers: dict[str, ModelOffer], status: MemberStatus, runs: bool, said: str
) -> None:
    state = replace(MeshState(), members={ADA: Member(ADA, "Ada", True, status)}, offers=offers)
    assert (runs_any(state), why_not_ready(state)) == (runs, said)
