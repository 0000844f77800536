"""`shoal wish`: changes by what the plans of a running mesh are made, and says which plan followed."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from typing import Any, Final

from peer.cli.arguments.plan_goal import wish_of
from peer.cli.chat import asker
from peer.cli.serve_join import plan_line
from peer.coordination.planner_goal import wish_line, wished
from peer.errors import BadCommand, CannotServe
from peer.launch.terminal import interrupts, out, say
from peer.member.mesh_member import MeshMember
from peer.state.display_names import named, names, plain
from peer.state.generated.commands import PlanRecord, PlanWished
from peer.state.mesh_state import MeshState
from peer.state.plan_goal import check_wish
from peer.state.proposal_rights import may_say
from peer.storage.peer_keys import OWNERS

KNOWN_S: Final = 30.0  # until this peer's own log has what was committed
MOST_WAIT_S: Final = 3600.0
LOADED_S: Final = 60.0  # that a proposed plan is waited for


async def wish(args: argparse.Namespace) -> int:
    """Has the log say it. Raises BadCommand for who may not, and for what the model cannot do."""
    if wish_of(args) is None:
        raise BadCommand("nothing is wished for: give --goal, --strategy or --component")
    if not 0 <= args.wait <= MOST_WAIT_S:
        raise BadCommand(f"--wait: expected seconds from 0 to {MOST_WAIT_S:.0f}, got {args.wait:g}")
    args.state = args.state / OWNERS
    with interrupts() as ctrl:
        async with asker(args, ctrl) as mesh:
            with ctrl.cancelling():
                return await _wish(args, mesh)


async def _wish(args: argparse.Namespace, mesh: MeshMember) -> int:
    state = mesh.view.state
    model, before = state.model, wished(state)
    wanted = with_ids(changed(args, before), state)
    if may_say(state, mesh.me, wanted):
        raise BadCommand(
            "only an owner changes by what plans are made: run this on the machine and with the --state of the "
            "founder, which serves with --keep"
        )
    check_wish(wanted, model.units if model is not None else 0)
    if state.cuts is not None:
        say("the borders are fixed by hand (--cuts): plans go by the wish once they are not")
    for line in not_here(state, wanted):
        say(line)
    version = state.last_version
    if wanted != state.wish:
        await mesh.propose(wanted)
        if not await mesh.view.until(lambda now: now.wish == wanted, KNOWN_S):
            raise CannotServe(
                "the mesh took the wish, but this peer did not hear of it: look with shoal status"
            )
    if model is None:
        return _of_offers(args, mesh.view.state)
    followed = wanted != before and await mesh.view.until(lambda now: _moved(now, version), args.wait)
    if followed:
        await mesh.view.until(lambda now: now.proposed is None, LOADED_S)
    said = outcome(mesh.view.state, version, asked=wanted != before)
    if args.json:
        out.print_json(json.dumps(told(mesh.view.state, version, said)), ensure_ascii=True)
    else:
        out.print(wish_line(mesh.view.state), markup=False)
        out.print(said, markup=False)
    return 0


def _of_offers(args: argparse.Namespace, state: MeshState) -> int:
    """Where no model answers in words there is no plan to wait for; offered models move as it pays off."""
    said = f"models are placed for {wished(state).goal} from now on: shoal status LINK shows where"
    if args.json:
        out.print_json(json.dumps(told(state, state.last_version, said)), ensure_ascii=True)
    else:
        out.print(said, markup=False)
    return 0


def changed(args: argparse.Namespace, before: PlanWished) -> PlanWished:
    """What the arguments change in the wish that holds; groups go with their strategy."""
    strategy = args.strategy or ("component" if args.component else before.strategy)
    kept = before.components if strategy == "component" else ()
    least = before.min_tensor_bytes if args.min_tensor is None else args.min_tensor
    least = least if strategy == "tensor" else 0
    return PlanWished(strategy, args.goal or before.goal, tuple(args.component) or kept, least)


def with_ids(wanted: PlanWished, state: MeshState) -> PlanWished:
    """The same with ids in place of names that only tell members apart, as shoal status shows them."""
    bare = {member.name for member in state.members.values()}
    ids = {name: peer for peer, name in names(state.members).items() if name not in bare}
    groups = (replace(group, prefers=ids.get(group.prefers, group.prefers)) for group in wanted.components)
    return replace(wanted, components=tuple(groups))


def not_here(state: MeshState, wanted: PlanWished) -> list[str]:
    """For people: of groups that are to be held by somebody who is not a member now."""
    known = {*state.members, *(member.name for member in state.members.values())}
    return [
        f"no member is called {plain(group.prefers)[:80]!r} now: others hold {plain(group.name)} until one is"
        for group in wanted.components
        if group.prefers and group.prefers not in known
    ]


def _moved(state: MeshState, version: int) -> bool:
    return state.last_version > version or bool(state.refused)


def outcome(state: MeshState, version: int, *, asked: bool) -> str:
    """For people: which plan followed."""
    serving, proposed = state.serving(), state.proposed
    if proposed is not None and proposed.version > version:
        return f"plan {proposed.version} is being loaded: {plan_line(state, proposed)}"
    if serving is not None and serving.version > version:
        return f"plan {serving.version} followed: {plan_line(state, serving)}"
    if serving is not None and asked:
        return f"plan {serving.version} stays, no other is better by enough: {plan_line(state, serving)}"
    if serving is not None:
        return f"that was the wish before; plan {serving.version} stays: {plan_line(state, serving)}"
    why = named(state.refused, state.members)
    return f"no plan: {why or 'nobody who could serve has measured yet'}"


def told(state: MeshState, version: int, said: str) -> dict[str, Any]:
    """The same for programs."""
    shown: PlanRecord | None = state.proposed or state.plan
    return {
        "wish": asdict(wished(state)),
        "plan": None if shown is None else shown.version,
        "followed": shown is not None and shown.version > version,
        "serves": state.serving() is not None,
        "said": said,
    }
