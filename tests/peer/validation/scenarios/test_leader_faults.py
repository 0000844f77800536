"""Figures about the coordinator: what fails a scenario, and the relay's one-way links and counts."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest

from peer.validation.scenarios.figures import Judged
from peer.validation.scenarios.leader_faults import Kept, Led, figures, moment
from peer.validation.scenarios.link_conditions import CUT
from peer.validation.world.relay_client import Relayed, relay
from tests.patience import WITHIN_S
from tests.peer.validation.udp_stand_in import StandIn, talker

GOOD = Judged(True, -1, True, 0.1, 0.2, 1.0)
RUN = Led((GOOD,), (0.2,), True, 1.5, 1.6, 5.0)
KEPT = Kept(100, 99, 0, 1, 50, 2, 0, 0)


def test_moments_repeat_and_leave_tokens_to_lose() -> None:
    seen = {moment(4, 48, random.Random(number).random) for number in range(200)}
    assert seen == {moment(4, 48, random.Random(number).random) for number in range(200)}
    assert {when.session for when in seen} == {0, 1, 2, 3}
    assert all(1 <= when.after_token < 40 for when in seen)


@pytest.mark.parametrize(
    ("runs", "kept", "within_ms", "held"),
    [
        ([RUN], [KEPT], None, True),
        ([RUN], [KEPT], 1500.0, True),
        ([RUN], [KEPT], 1400.0, False),
        ([], [KEPT], None, False),
        ([RUN], [], None, False),
        ([RUN], [replace(KEPT, lost=1)], None, False),
        ([RUN], [KEPT, replace(KEPT, stale_reads=1)], None, False),
        ([RUN], [replace(KEPT, old_orders=1)], None, False),
        ([replace(RUN, judged=(replace(GOOD, equal=False),))], [KEPT], None, False),
        ([replace(RUN, trouble="nobody coordinates")], [KEPT], None, False),
        ([replace(RUN, restored_s=None)], [KEPT], None, False),
    ],
)
def test_a_scenario_holds_only_when_nothing_was_lost_stale_or_late(
    runs: list[Led], kept: list[Kept], within_ms: float | None, held: bool
) -> None:
    assert figures(runs, kept, [0.1], within_ms)["held"] is held


def test_pauses_of_answers_that_did_not_need_the_coordinator_stand_apart() -> None:
    found = figures([RUN, replace(RUN, served=False, pauses_s=(0.05,))], [KEPT], [0.04], None)
    assert (found["served_pause_p50_ms"], found["bystander_pause_p50_ms"]) == (200.0, 50.0)
    assert found["calm_pause_p50_ms"] == 40.0


async def test_a_link_is_cut_one_way_and_its_bytes_are_counted(tmp_path: Path) -> None:
    one, two = await talker(), await talker()
    try:
        async with relay(tmp_path, 1) as way, asyncio.timeout(WITHIN_S):
            offer = await Relayed(StandIn(one.port), way.path, "peer 1").offer()
            answer = await Relayed(StandIn(two.port), way.path, "peer 2").accept(offer)
            to_two = ("127.0.0.1", int(answer.split()[6]))
            one.transport.sendto(b"first", to_two)
            _, seen_from = await two.heard.get()
            await way.set_links(CUT, [("peer 1", "peer 2")], one_way=True)
            one.transport.sendto(b"lost", to_two)
            two.transport.sendto(b"back", seen_from)
            assert (await one.heard.get())[0] == b"back"
            while (await way.set_links(CUT, []))["lost"] < 1:  # orders and datagrams are taken in turn
                pass
            assert two.heard.empty()
            assert await way.sent_bytes() == {("peer 1", "peer 2"): 5, ("peer 2", "peer 1"): 4}
    finally:
        one.transport.close()
        two.transport.close()
        await asyncio.sleep(0)  # they close on the loop's next turn
