"""Decides what a member may say in its own name: which commands it may propose for the log.

Pure. What the coordinator alone decides (plans, who is in, who left) is not among them.
"""

from __future__ import annotations

from peer.state.conversation_rights import may_converse
from peer.state.generated.commands import PROPOSED_BY, ConversationCommand, TransactionEnded
from peer.state.member_commands import Command
from peer.state.mesh_state import MeshState


def may_say(state: MeshState, peer: str, command: Command) -> str:
    """Returns why `peer` may not propose `command`; "" when it may."""
    if isinstance(command, ConversationCommand):
        return may_converse(state, peer, command)
    if isinstance(command, TransactionEnded):
        begun = {each.id: each.peer for each in state.transactions}
        return "" if begun.get(command.id) == peer else "expected the end of an operation of this peer"
    match PROPOSED_BY.get(type(command), "leader"):
        case "owner":
            owns = state.people.roles.get(peer) == "owner"
            return "" if owns else "expected an owner of this mesh, such as its founder"
        case "headless":
            member = state.members.get(peer)
            return "" if member is not None and member.headless else "expected a peer that is there to stay"
        case "leader" | "rules":
            return f"{type(command).__name__} is the coordinator's to say"
        case field:
            does = "found" if field == "by" else "does"
            return "" if getattr(command, field) == peer else f"expected what this peer itself {does}"
