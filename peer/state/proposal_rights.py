"""Decides what a member may say in its own name: which commands it may propose for the log.

Pure. What the coordinator alone decides (plans, who is in, who left) is not among them.
"""

from __future__ import annotations

from peer.state.conversation_rights import may_converse
from peer.state.conversations import ConversationCommand
from peer.state.fairness import CheckFailed, FairnessChosen, PeerPardoned
from peer.state.mesh_state import Command, MeshState, ProtectionChosen
from peer.state.plan_goal import PlanWished
from peer.state.roles import InviteRecorded, InviteRevoked, RoleGiven, RoleTaken
from peer.state.upkeep import CutsFixed, SignalingListed, StandbyReady, TransactionBegun, TransactionEnded


def may_say(state: MeshState, peer: str, command: Command) -> str:
    """Why `peer` may not propose `command`; "" when it may."""
    if isinstance(command, ConversationCommand):
        return may_converse(state, peer, command)
    match command:
        case StandbyReady() | TransactionBegun():
            return "" if command.peer == peer else "expected what this peer itself does"
        case CheckFailed():
            return "" if command.by == peer else "expected what this peer itself found"
        case TransactionEnded():
            begun = {each.id: each.peer for each in state.transactions}
            return "" if begun.get(command.id) == peer else "expected the end of an operation of this peer"
        case SignalingListed():
            member = state.members.get(peer)
            return "" if member is not None and member.headless else "expected a peer that is there to stay"
        case (
            CutsFixed()
            | PlanWished()
            | ProtectionChosen()
            | RoleGiven()
            | RoleTaken()
            | InviteRecorded()
            | InviteRevoked()
            | FairnessChosen()
            | PeerPardoned()
        ):
            owns = state.people.roles.get(peer) == "owner"
            return "" if owns else "expected an owner of this mesh, such as its founder"
        case _:
            return f"{type(command).__name__} is the coordinator's to say"
