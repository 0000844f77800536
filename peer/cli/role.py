"""`shoal role`: an owner of a mesh says what a member may do in it, such as change how plans are made on the page."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final

from peer.cli.chat import asker
from peer.cli.plan.plan_goal import KNOWN_S
from peer.errors import BadCommand, CannotServe
from peer.launch.terminal import interrupts, out
from peer.member.mesh_member import MeshMember
from peer.state.display_names import names
from peer.state.generated.commands import Role, RoleGiven
from peer.state.mesh_state import MeshState
from peer.state.proposal_rights import may_say
from peer.storage.peer_keys import OWNERS

MAY: Final[Mapping[Role, str]] = {
    "owner": "changes how plans are made, and decides over all conversations",
    "member": "asks",
    "viewer": "reads",
}


async def role(args: argparse.Namespace) -> int:
    """Has the log say it. Raises BadCommand for who may not, and for a name that no member has."""
    args.state = args.state / OWNERS
    with interrupts() as ctrl:
        async with asker(args, ctrl) as mesh:
            with ctrl.cancelling():
                out.print(await give(mesh, args.member, args.role), markup=False)
                return 0


async def give(mesh: MeshMember, called: str, wanted: Role) -> str:
    """For people: what that member is from now on. Raises BadCommand and CannotServe."""
    state = mesh.view.state
    given = RoleGiven(member(state, called, mesh.me), wanted)
    if may_say(state, mesh.me, given):
        raise BadCommand(
            "only an owner gives roles: run this on the machine and with the --state of the founder, which serves "
            "with --keep"
        )
    name = names(state.members)[given.peer]
    if state.people.roles.get(given.peer) != wanted:
        await mesh.propose(given)
        if not await mesh.view.until(lambda now: now.people.roles.get(given.peer) == wanted, KNOWN_S):
            raise CannotServe("the mesh took it, but this peer did not hear of it: run this again to see")
    return f"{name} is {wanted} of this mesh: {MAY[wanted]}"


def member(state: MeshState, called: str, me: str) -> str:
    """The id of the member with that id or name, as shoal status and the page show it. Raises BadCommand."""
    others = {peer: name for peer, name in names(state.members).items() if peer != me}
    found = [peer for peer, name in others.items() if called in (peer, name)]
    if len(found) == 1:
        return found[0]
    have = ", ".join(sorted(others.values()))
    raise BadCommand(f"expected the name of a member, got {called!r:.80}: here are {have:.400}")
