"""The scenario `ledger` of `shoal validate`, on a mesh of its own."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from peer.errors import PeerError
from peer.launch.terminal import Interrupts, out, say
from peer.validation.runs.ledger_runner import MEANING, SCENARIO, Kills, run_kills
from peer.validation.runs.loss_runner import Load
from peer.validation.world.mesh import Shape
from peer.validation.world.voter_mesh import voters
from planner.model.store import Store

VOTERS: Final = 5


async def run_ledger(
    args: argparse.Namespace,
    store: Store,
    shape: Shape,
    load: Load,
    kills: Kills,
    until_s: float,
    ctrl: Interrupts,
    level: str,
) -> None:
    """All kills, on one mesh of five voters: its balances are those of all of them."""
    shape = replace(shape, peers=VOTERS, browsers=())
    say(f"starting {VOTERS} voters")
    words = ["--protection", *level.split()]
    entering = voters(
        shape, store, relayed=False, seed=load.seed, protection=words, last_words=ctrl.last_words
    )
    try:
        async with entering as made:
            await run_kills(made, load, args.first, kills, until_s, say)
    except PeerError as error:
        kills.trouble = kills.trouble or str(error)
    ctrl.last_words.clear()


def tell_ledger(shown: Mapping[str, Any]) -> None:
    """One line for people."""
    held = "held  " if shown["held"] else "FAILED"
    work = f"{shown.get('positions', 0)} positions computed, {shown.get('earned_milli', 0) / 1000:g} credits earned"
    kills = f"{shown['kills']} kills, {shown['leaders_killed']} of them of leaders"
    out.print(f"{SCENARIO:20} {held}, {kills}, {work} {shown['trouble']}   {MEANING}", markup=False)
