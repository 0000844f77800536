"""Decides what a member may say in its own name: which commands it may propose for the log.

Pure. What the coordinator alone decides (plans, who is in, who left) is not among them.
"""

from __future__ import annotations

from peer.mesh_conversations import ConversationCommand
from peer.mesh_fairness import CheckFailed, FairnessChosen, PeerPardoned
from peer.mesh_people import InviteRecorded, InviteRevoked, RoleGiven, RoleTaken
from peer.mesh_state import Command, MeshState, ProtectionChosen
from peer.mesh_upkeep import CutsFixed, SignalingListed, StandbyReady, TransactionBegun, TransactionEnded
from peer.mesh_wish import PlanWished
from peer.speaking import may_converse


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
