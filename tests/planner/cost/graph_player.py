"""Runs of a graph played event by event: a queue, peers and links that do one thing at a time, no formula."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence

from planner.cost import evaluator
from planner.cost.graph_cost import GraphRequest, GraphStage

Job = tuple[tuple[int, int, int], int, Callable[[], None]]  # who goes first, how long, what follows


def finished_ps(request: GraphRequest, stages: Sequence[GraphStage], items: int = 1) -> list[int]:
    """When each of so many runs is done, all of which begin at 0; peers take the oldest run first."""
    peers = {peer.peer: peer for peer in request.peers}
    links = {(link.src, link.dst): link for link in request.links}
    units, edges = request.work.units, request.work.edges
    stage_of = {unit: at for at, stage in enumerate(stages) for unit in range(stage.first, stage.stop)}
    needs: dict[int, set[int]] = {
        at: {
            number
            for number, edge in enumerate(edges)
            if any(stage_of[unit] == at for unit in edge.users)
            and (edge.source is None or stage_of[edge.source] != at)
        }
        for at in range(len(stages))
    }
    events: list[tuple[int, int, Callable[[], None]]] = []
    queues: dict[object, list[Job]] = defaultdict(list)
    busy: set[object] = set()
    at_peer: dict[tuple[int, str], set[int]] = defaultdict(set)  # values there, by run and peer
    left = [len(stages) + sum(edge.returned for edge in edges)] * items
    done = [0] * items
    begun: set[tuple[int, int]] = set()
    now, count = 0, 0

    def after(delay: int, then: Callable[[], None]) -> None:
        nonlocal count
        count += 1
        heapq.heappush(events, (now + delay, count, then))

    def serve() -> None:
        for station, queue in list(queues.items()):
            if queue and station not in busy:
                job = min(queue, key=lambda job: job[0])
                queue.remove(job)
                busy.add(station)

                def free(station: object = station, then: Callable[[], None] = job[2]) -> None:
                    busy.discard(station)
                    then()

                after(job[1], free)

    def over(item: int) -> None:
        left[item] -= 1
        if not left[item]:
            done[item] = now

    def send(item: int, number: int, src: str | None, dst: str) -> None:
        if src is None or src == dst:
            arrive(item, number, dst)
            return
        link = links[src, dst]
        order = (now, item, number)
        transfer = evaluator.transfer_ps(link, edges[number].bytes, 1)
        delay = evaluator.delay_ps(link)
        queues[src, dst].append((order, transfer, lambda: after(delay, lambda: arrive(item, number, dst))))

    def arrive(item: int, number: int, peer: str) -> None:
        at_peer[item, peer].add(number)
        if peer == request.origin and edges[number].returned:
            over(item)
        start(item)

    def start(item: int) -> None:
        for at, stage in enumerate(stages):
            if (item, at) not in begun and needs[at] <= at_peer[item, stage.peer]:
                begun.add((item, at))
                peer = peers[stage.peer]
                work = sum(
                    evaluator.picoseconds(unit.flops / peer.flops_per_s)
                    for unit in units[stage.first : stage.stop]
                )
                length = evaluator.picoseconds(peer.step_s) + work
                queues[stage.peer].append(((item, now, at), length, lambda at=at: end(item, at)))  # type: ignore[misc]

    def end(item: int, at: int) -> None:
        stage = stages[at]
        for number, edge in enumerate(edges):
            if edge.source is None or stage_of[edge.source] != at:
                continue
            to = {stages[stage_of[unit]].peer for unit in edge.users if stage_of[unit] != at}
            if edge.returned and request.origin is None:
                over(item)
            if edge.returned and request.origin is not None:
                to.add(request.origin)
            for peer in sorted(to):
                send(item, number, stage.peer, peer)
        over(item)

    for item in range(items):
        for number, edge in enumerate(edges):
            if edge.source is None:
                for peer in sorted({stages[stage_of[unit]].peer for unit in edge.users}):
                    send(item, number, request.origin, peer)
        start(item)
    while True:
        serve()
        if not events:
            assert not any(left), "a run that never ends"
            return done
        now = events[0][0]
        while events and events[0][0] == now:
            heapq.heappop(events)[2]()
