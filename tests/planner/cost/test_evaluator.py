"""The evaluator: figures of hand-made placements, batching, prompts in chunks, and why stages are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.cost import evaluator
from planner.errors import RequestError
from planner.types import Link, PeerProfile, PlanRequest, Stage, Unit

MS = 1e-3
UNITS = (
    Unit("embed", "embed", 1000, 0, 0, 2000),
    Unit("attn.0", "attn", 100, 1, 8, 3000),
    Unit("ffn.0", "ffn", 200, 1, 0, 4000),
    Unit("head", "head", 1000, 1, 0, 4),
)


def peer(name: str, scale: float = 1.0, *, gain: float | None = None, memory: int = 10_000) -> PeerProfile:
    """1, 2, 3 and 4 ms for embed, attn, ffn and head, times `scale`; a further row costs `gain` of the first."""
    decode = {"embed": 1 * MS * scale, "attn": 2 * MS * scale, "ffn": 3 * MS * scale, "head": 4 * MS * scale}
    prefill = {kind: seconds / 4 for kind, seconds in decode.items()}
    rows = {} if gain is None else {kind: seconds * gain for kind, seconds in decode.items()}
    return PeerProfile(name, memory, 50, decode, prefill, 0.5 * MS, rows)  # type: ignore[arg-type]


def request_of(*peers: PeerProfile, sessions: int = 1, origin: str | None = None) -> PlanRequest:
    names = [*(one.peer for one in peers), *([] if origin is None else [origin])]
    links = tuple(Link(a, b, (20 if a < b else 30) * MS, 1e6, 1 * MS) for a in names for b in names if a != b)
    return PlanRequest(UNITS, peers, links, 10, sessions, "throughput", origin)


ONE = (Stage(0, 4, "a"),)
TWO = (Stage(0, 2, "a"), Stage(2, 4, "b"))
THREE = (Stage(0, 1, "a"), Stage(1, 2, "b"), Stage(2, 4, "c"))


@pytest.mark.parametrize(
    ("stages", "stage_ms", "hop_ms"),
    [
        (ONE, [10.5], []),
        (TWO, [3.5, 14.5], [20 / 2 + 1 + 3, 30 / 2 + 1 + 0.004]),
        (THREE, [1.5, 4.5, 21.5], [10 + 1 + 2, 10 + 1 + 3, 15 + 1 + 0.004]),
        ((Stage(0, 2, "b"), Stage(2, 4, "a")), [6.5, 7.5], [15 + 1 + 3, 10 + 1 + 0.004]),
    ],
)
def test_decode_is_stages_plus_hops_plus_the_hop_back(
    stages: tuple[Stage, ...], stage_ms: list[float], hop_ms: list[float]
) -> None:
    """Links are not symmetric: 20 ms up the alphabet, 30 ms down; 1 MB/s; 1 ms of software."""
    found = evaluator.evaluate(request_of(peer("a"), peer("b", 2), peer("c", 3)), stages)
    assert found.stage_s == pytest.approx([ms * MS for ms in stage_ms])
    assert found.hop_s == pytest.approx([ms * MS for ms in hop_ms])
    assert found.decode_s == pytest.approx(sum(stage_ms + hop_ms) * MS)
    assert found.tokens_per_s == pytest.approx(1 / found.decode_s)


@pytest.mark.parametrize("origin", ["a", "b", "z"])
def test_the_origin_does_not_change_the_cost_per_token(origin: str) -> None:
    """First stage, tail, or neither: the tail sends to the first stage and the origin at once."""
    base = request_of(peer("a"), peer("b"), origin="z")
    assert evaluator.evaluate(replace(base, origin=origin), TWO) == evaluator.evaluate(
        replace(base, origin=None), TWO
    )


@pytest.mark.parametrize(
    ("sessions", "gain", "rows", "rate"),
    [
        (1, 0.2, 1, 1000 / 10.5),
        (8, 0.2, 8, 8000 / (10.5 + 7 * 2)),  # one step of eight rows
        (8, None, 8, 8000 / 80.5),  # no gain but the fixed cost of a step
        (8, 0.0, 8, 8000 / 10.5),
    ],
)
def test_one_peer_batches_all_its_sessions(sessions: int, gain: float | None, rows: int, rate: float) -> None:
    found = evaluator.evaluate(request_of(peer("a", gain=gain), sessions=sessions), ONE)
    assert (found.rows, found.slowest) == (rows, "stage 1 (a)")
    assert found.tokens_per_s == pytest.approx(rate)
    assert found.bottleneck_s == pytest.approx(1 / rate)


def test_few_sessions_over_slow_links_are_limited_by_the_round() -> None:
    found = evaluator.evaluate(request_of(peer("a", gain=0.1), peer("b", gain=0.1), sessions=2), TWO)
    assert found.slowest == "round"
    assert found.rows == 1
    assert found.tokens_per_s == pytest.approx(2 / found.decode_s)


def test_many_sessions_are_limited_by_the_slowest_stage_or_link() -> None:
    many = request_of(peer("a", gain=0.1), peer("b", gain=0.1), sessions=64)
    found = evaluator.evaluate(many, TWO)
    assert found.slowest == "link a -> b"  # 3000 bytes a token over 1 MB/s
    assert found.tokens_per_s == pytest.approx(1000 / 3)
    fast = replace(many, links=tuple(replace(link, bytes_per_s=1e9) for link in many.links))
    found = evaluator.evaluate(fast, TWO)
    assert found.slowest == "stage 2 (b)"
    turns = evaluator.cohorts(64, found.rows)  # the last batch of a round may be smaller, and takes as long
    assert found.tokens_per_s == pytest.approx(64 / turns / (7.5 + (found.rows - 1) * 0.7) * 1000)


@pytest.mark.parametrize(
    ("sessions", "choices"),
    [
        (1, (1,)),
        (2, (1, 2)),
        (8, (1, 2, 3, 4, 8)),
        (64, (4, 5, 6, 7, 8, 10, 11, 13, 16, 22, 32, 64)),
    ],
)
def test_row_choices(sessions: int, choices: tuple[int, ...]) -> None:
    assert set(choices) <= set(evaluator.row_choices(sessions))
    assert evaluator.row_choices(sessions)[-1] == sessions
    assert len(evaluator.row_choices(sessions)) <= evaluator.MAX_COHORTS


@pytest.mark.parametrize(("chunks", "chunk"), [(1, 32), (2, 32), (5, 32), (7, 1)])
def test_prompt_chunks_overlap(chunks: int, chunk: int) -> None:
    """sum of stages and hops, plus (m - 1) times the slowest stage or transfer; the head runs once."""
    request = request_of(peer("a"), peer("b", 2))
    first, second = 0.5 + chunk * 3 / 4, 0.5 + chunk * 6 / 4
    transfer, delay = chunk * 3.0, 11.0
    expected = first + transfer + delay + second + (chunks - 1) * max(first, second, transfer) + 8
    back = 15 + 1 + 0.004
    found = evaluator.prefill_s(request, TWO, chunks * chunk, chunk)
    assert found == pytest.approx((expected + back) * MS)


def test_a_prompt_on_one_peer_takes_its_own_time_and_the_way_of_another_origin() -> None:
    request = request_of(peer("a"))
    alone = evaluator.prefill_s(request, ONE, 100, 64)
    assert alone == pytest.approx((2 * 0.5 + 100 * 6 / 4 + 4) * MS)
    far = request_of(peer("a"), origin="z")
    assert evaluator.prefill_s(far, ONE, 100, 64) == pytest.approx(alone + (15 + 1 + 10 + 1 + 0.004) * MS)


def test_memory_of_a_stage() -> None:
    request = request_of(peer("a"), sessions=3)
    assert evaluator.stage_bytes(request, request.peers[0], 0, 2) == (1100, 8 * 10 * 3, 50)
    assert evaluator.make_stage(request, request.peers[0], 1, 4) == Stage(1, 4, "a", (), 1300, 240, 50)


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        ((), "expected all 4"),
        ((Stage(0, 3, "a"),), "stages hold units 0-3: expected all 4"),
        ((Stage(0, 2, "a"), Stage(3, 4, "b")), "expected a run from 2 on"),
        ((Stage(0, 2, "a"), Stage(2, 2, "b"), Stage(2, 4, "c")), "expected a run from 2 on"),
        ((Stage(0, 2, "a"), Stage(2, 4, "x")), "no such peer"),
        ((Stage(0, 2, "a", ("small",)), Stage(2, 4, "b")), "small pledged 1000 bytes, its stage needs 1230"),
        ((Stage(0, 2, "mid"), Stage(2, 4, "mid")), "mid pledged 2000 bytes, its 2 places need 2"),
        ((Stage(0, 2, "mid"), Stage(2, 4, "b", ("mid",))), "mid pledged 2000 bytes, its 2 places need 2"),
        ((Stage(0, 2, "small"), Stage(2, 4, "a")), "small pledged 1000 bytes, its stage needs 1230"),
        ((Stage(0, 2, "a"), Stage(2, 4, "lone")), "no link from a to lone"),
    ],
)
def test_stages_that_cannot_run_are_refused(stages: tuple[Stage, ...], says: str) -> None:
    request = request_of(
        peer("a"), peer("b"), peer("c"), peer("small", memory=1000), peer("mid", memory=2000)
    )
    request = replace(request, peers=(*request.peers, peer("lone")))
    with pytest.raises(RequestError, match=says):
        evaluator.evaluate(request, stages)


def test_places_of_one_peer_hand_over_for_nothing_and_share_its_time() -> None:
    request = request_of(peer("a"), peer("b"), sessions=4)
    two = evaluator.evaluate(request, (Stage(0, 2, "a"), Stage(2, 3, "a"), Stage(3, 4, "b")))
    one = evaluator.evaluate(request, (Stage(0, 3, "a"), Stage(3, 4, "b")))
    assert two.hop_s[0] == 0
    assert two.hop_s[1:] == one.hop_s
    step_ps = evaluator.picoseconds(request.peers[0].step_s)
    assert two.decode_ps == one.decode_ps + step_ps
    assert sum(two.stage_s[:2]) == pytest.approx(one.stage_s[0] + step_ps / evaluator.PICO)
    assert two.token_ps >= one.token_ps


@pytest.mark.parametrize(
    ("have", "says"),
    [
        ([("z", "a")], "no link from b to z"),
        ([("b", "z")], "no link from z to a"),
        ([("z", "a"), ("b", "z")], None),
    ],
)
def test_an_origin_must_reach_the_first_stage_and_be_reached(
    have: list[tuple[str, str]], says: str | None
) -> None:
    request = request_of(peer("a"), peer("b"))
    links = (*request.links, *(Link(src, dst, 0.01, 1e6) for src, dst in have))
    assert evaluator.refuse(replace(request, links=links, origin="z"), TWO) == says
