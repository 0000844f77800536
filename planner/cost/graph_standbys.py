"""Decides who stands by for the stages of a graph, by the rules of `planner.cost.standbys`.

Stages whose loss costs most choose first: likely and large ones. Of those with room and links, a peer that fails with
nobody who holds the stage comes first, then one whose arithmetic is of the primary's class, then who is lost rarely and
has few places, then the faster, then by name. Standbys of the plan that serves stay where they count as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.cost.graph_cost import GraphPeer, GraphStage
from planner.cost.graph_evaluator import Board, Way, unable
from planner.cost.independent_copies import hazard, shared
from planner.cost.standbys import HELD_WORTH
from planner.model.arithmetic_class import unlike


def with_standbys(board: Board, stages: Sequence[GraphStage]) -> tuple[GraphStage, ...]:
    """`stages` with as many standbys as are wanted, and as there is room for. `stages` must fit."""
    peers = {peer.peer: peer for peer in board.request.peers}
    left = dict(zip(board.names, board.free, strict=True))
    places = dict.fromkeys(board.names, 0)
    size = [board.stage_bytes(stage.first, stage.stop) for stage in stages]
    for stage, taken in zip(stages, size, strict=True):
        left[stage.peer] -= taken
        places[stage.peer] += 1
    serving = frozenset(stage.peer for stage in stages)
    held = {(stage.first, stage.stop, name) for stage in board.request.keep for name in stage.standbys}
    order = sorted(range(len(stages)), key=lambda at: (-hazard(peers[stages[at].peer]) * size[at], at))
    chosen: list[list[str]] = [[] for _ in stages]
    for _ in range(board.request.standbys):
        for at in order:
            stage, primary = stages[at], peers[stages[at].peer]
            holders = [primary, *(peers[name] for name in chosen[at])]

            def liking(
                peer: GraphPeer, stage: GraphStage = stage, holders: Sequence[GraphPeer] = holders
            ) -> tuple[int, int, float, bool, float, str]:
                lacks = (stage.first, stage.stop, peer.peer) not in held
                often = hazard(peer) * (1 + places[peer.peer]) * (HELD_WORTH if lacks else 1)
                kinds = unlike(holders[0].facts.arithmetic, peer.facts.arithmetic)
                common = len(shared(peer, holders))
                return common, kinds, often, peer.peer in serving, -peer.flops_per_s, peer.peer

            able = [
                peer
                for peer in peers.values()
                if peer not in holders
                and left[peer.peer] >= size[at]
                and unable(board.request, peer.peer, stage.first, stage.stop) is None
                and _linked(board, stages, at, peer.peer)
            ]
            if able:
                pick = min(able, key=liking).peer
                chosen[at].append(pick)
                left[pick] -= size[at]
                places[pick] += 1
    return tuple(replace(stage, standbys=tuple(names)) for stage, names in zip(stages, chosen, strict=True))


def _linked(board: Board, stages: Sequence[GraphStage], at: int, name: str) -> bool:
    """Whether `name` in the place of stage `at` has all the links that this needs."""
    return _ways(board, stages, at, name) <= board.links.keys()


def _ways(board: Board, stages: Sequence[GraphStage], at: int, name: str) -> set[Way]:
    stage, origin = stages[at], board.origin
    here = range(stage.first, stage.stop)
    place = {peer: number for number, peer in enumerate(board.names)}
    peer_of = [place[each.peer] for each in stages for _ in range(each.first, each.stop)]
    me, found = place[name], set[Way]()
    for edge in board.request.work.edges:
        src = origin if edge.source is None else peer_of[edge.source]
        inside = edge.source is not None and edge.source in here
        if any(unit in here for unit in edge.users) and not inside and src is not None:
            found.add((src, me))
        if inside:
            found |= {(me, peer_of[unit]) for unit in edge.users if unit not in here}
            if edge.returned and origin is not None:
                found.add((me, origin))
    return {way for way in found if way[0] != way[1]}
