"""Rounds with a peer that lies: honest answers, wrong ones until it is convicted, and answers without it.

Edge that puts rig and streams together; what a round shows is decided in `peer.validation.scenarios.liar_figures`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from peer.errors import CannotServe, PeerError
from peer.state.mesh_state import MeshState
from peer.state.work_ledger import Balance
from peer.validation.runs.loss_runner import Load
from peer.validation.scenarios.liar_figures import MOST_STEPS, Lied, balances
from peer.validation.scenarios.workload import questions
from peer.validation.world.answer_streams import answer_all
from peer.validation.world.child_processes import Child, How, JoinedProcess, LyingProcess
from peer.validation.world.mesh import WHOLE_WITHIN_S, Rig, Shape, rig
from peer.validation.world.wrong_results import Lie
from planner.model.store import Store

TWICE: Final = 2000  # copies of stages: what one peer alone holds is not checked
EARNED_WITHIN_S: Final = 60.0


async def lie_round(
    shape: Shape,
    store: Store,
    load: Load,
    lie: Lie,
    number: int,
    last_words: list[Callable[[], None]],
) -> Lied:
    """A mesh of its own, whose peer for stage `number` (of so many, counted round) lies. Never raises PeerError."""
    protection = shape.mesh.protection
    protection = replace(protection, redundancy_milli=max(TWICE, protection.redundancy_milli))
    shape = replace(shape, mesh=replace(shape.mesh, protection=protection), browsers=())
    place = number % (len(shape.mesh.cuts or ()) + 1)

    def process(count: int, name: str, how: How) -> Child:
        return LyingProcess(name, how, lie.value) if count == place + 1 else JoinedProcess(name, how)

    entering = rig(
        shape,
        store,
        relayed=False,
        seed=load.seed,
        last_words=last_words,
        process=process,
        in_order=place + 1,
    )
    try:
        async with entering as made:
            return await _round(made, load, lie, number, f"peer {place + 1}")
    except PeerError as error:
        return Lied(lie.value, -1, None, 0, 0, 0, 0, False, False, str(error))
    finally:
        last_words.clear()


async def _round(made: Rig, load: Load, lie: Lie, number: int, name: str) -> Lied:
    founder, view = made.founder, made.founder.view
    await made.need([name])
    liar = next(peer for peer, member in made.state.members.items() if member.name == name)
    route = [stage.primary for stage in made.plan().stages]
    child = made.children[name]
    assert isinstance(child, LyingProcess)
    asked = questions(load.sessions, load.tokens, random.Random(f"{load.seed}/lies/{number}").random)
    known = await answer_all(founder, asked, digests=False)
    for answered in known:
        if answered.stream.error:
            raise CannotServe(f"an answer failed before anybody lied: {answered.stream.error}")

    def earned(state: MeshState) -> bool:
        return state.ledger.balances.get(liar, Balance()).earned > 0

    if not await view.until(earned, EARNED_WITHIN_S):
        raise CannotServe(f"{name} earned nothing within {EARNED_WITHIN_S:.0f} s")
    steps, convicted = 0, False

    def on_token(_: int, count: int) -> None:
        nonlocal steps, convicted
        convicted = liar in view.state.fairness.quarantined
        if count and not convicted:
            steps += 1

    child.begin()
    while not convicted and steps < MOST_STEPS:
        await answer_all(founder, asked, on_token, digests=False)
    verdict = made.state.fairness.quarantined.get(liar)
    trouble = ""
    same = False
    try:
        await founder.until_serving(WHOLE_WITHIN_S)
        again = await answer_all(founder, asked, digests=False)
        same = all(
            not b.stream.error and liar not in b.stream.route and a.stream.tokens == b.stream.tokens
            for a, b in zip(known, again, strict=True)
        )
    except (PeerError, TimeoutError) as error:
        trouble = str(error) or "no plan came after the conviction"
    fairness, ledger = made.state.fairness, made.state.ledger
    others = {*fairness.quarantined, *(each.peer for each in fairness.findings)} - {liar}
    lost = verdict.lost_milli if verdict is not None else 0
    return Lied(
        lie=lie.value,
        stage=route.index(liar) if liar in route else -1,
        steps=steps if verdict is not None else None,
        lost_milli=lost,
        kept_milli=ledger.balances.get(liar, Balance()).earned,
        marked=len(verdict.sessions) if verdict is not None else 0,
        accused=len(others),
        balanced=balances(ledger, sum(each.lost_milli for each in fairness.quarantined.values())),
        answered=same,
        trouble=trouble,
    )
