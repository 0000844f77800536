"""Decides with which times a plan is made: what each peer measured of itself, or what many runs of its kind say.

A prediction takes the place of a peer's own measure once MIN_RUNS runs of the same class, kind, shape and provider are
known and agree with it. Where they disagree the peer is not like its class (or is slower now), and its own measure
counts; where runs differ too much to say anything it counts as well. A kind that a peer never measured has the guess of
its class, said as such.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from planner.cost.wording import AGAIN, TIMES
from planner.history.facts import PeerClass, bucket_of
from planner.predict.unit_times import MIN_RUNS, Z90, Prediction, Predictor, ProbeFirst, Query
from planner.types import PeerProfile, Plan, PlanRequest, Unit, UnitKind

Source = Literal["predicted", "measured", "prior"]
ALIKE: Final = (
    2.0  # half widths of its interval by which a measure may differ from a prediction: 1 in 1,000 does
)
TOLD_PEERS: Final = 8  # of a plan whose times are told one by one
_P90: Final = 1.2816 / Z90  # of the half width of an interval of 90 %, up to the 90th percentile
_Known = dict[Query, Prediction | ProbeFirst]


@dataclass(frozen=True, slots=True)
class KindTime:
    """Seconds of one unit of a kind and token, where they come from, and what runs say of it."""

    kind: UnitKind
    source: Source
    seconds: float
    said: Prediction
    why: str = ""  # why it is not the prediction

    @property
    def abstains(self) -> bool:
        """Whether there are runs enough, and they say nothing that could be planned with."""
        return self.source == "measured" and self.said.runs >= MIN_RUNS


@dataclass(frozen=True, slots=True)
class Foreseen:
    """`request` with the times to plan with; of each peer where they come from. `restless`: peers that measured
    themselves often of late, as one that starts again and again does.
    """

    request: PlanRequest
    times: Mapping[str, tuple[KindTime, ...]]
    restless: frozenset[str] = frozenset()

    def doubted(self) -> frozenset[str]:
        """The peers that are worth a fresh measurement: a prediction of theirs abstains."""
        found = {peer for peer, times in self.times.items() if any(time.abstains for time in times)}
        return frozenset(found - self.restless)

    def steers(self) -> bool:
        """Whether any time is another than what the peer measured."""
        return any(time.source != "measured" for times in self.times.values() for time in times)


def foreseen(request: PlanRequest, classes: Mapping[str, PeerClass], predictor: Predictor) -> Foreseen:
    """The request as it is planned with. A peer of no known class keeps what it measured. Raises HistoryUnusable."""
    shapes = {unit.kind: unit for unit in request.units}
    known: _Known = {}
    peers: list[PeerProfile] = []
    times: dict[str, tuple[KindTime, ...]] = {}
    for peer in request.peers:
        peer_class = classes.get(peer.peer)
        if peer_class is None:
            peers.append(peer)
            continue
        found = [_time(peer, peer_class, unit, predictor, known) for unit in shapes.values()]
        times[peer.peer] = tuple(found)
        peers.append(_with(peer, found))
    return Foreseen(replace(request, peers=tuple(peers)), times)


def _time(
    peer: PeerProfile, peer_class: PeerClass, unit: Unit, predictor: Predictor, known: _Known
) -> KindTime:
    query = Query(
        peer_class, unit.kind, bucket_of(unit.weight_bytes), unit.flops_per_token, unit.weight_bytes
    )
    if query not in known:
        known[query] = predictor.predict(query)
    found = known[query]
    said, own_s = (found.guess if isinstance(found, ProbeFirst) else found), peer.decode_s.get(unit.kind)
    if own_s is None:
        return KindTime(unit.kind, "prior", said.seconds, said)
    if said.runs < MIN_RUNS:
        return KindTime(unit.kind, "measured", own_s, said, f"{_runs(said.runs)}, {MIN_RUNS} are needed")
    if not said.steers:
        return KindTime(unit.kind, "measured", own_s, said, f"{_runs(said.runs)} differ: {_between(said)}")
    if not _alike(own_s, said):
        return KindTime(unit.kind, "measured", own_s, said, f"{_runs(said.runs)} say {_between(said)}")
    return KindTime(unit.kind, "predicted", said.seconds, said)


def _alike(own_s: float, said: Prediction) -> bool:
    """Whether a measure may be one of these runs: it is one measurement, and has errors of its own."""
    half = math.log(said.high_s / said.seconds)
    return own_s > 0 and abs(math.log(own_s / said.seconds)) <= ALIKE * half


def _with(peer: PeerProfile, times: Sequence[KindTime]) -> PeerProfile:
    """The peer with the times that are not its own."""
    other = [time for time in times if time.source != "measured"]
    if not other:
        return peer
    p90 = {time.kind: time.seconds * (time.said.high_s / time.seconds) ** _P90 for time in other}
    return replace(
        peer,
        decode_s={**peer.decode_s, **{time.kind: time.seconds for time in other}},
        facts=replace(peer.facts, decode_p90_s={**peer.facts.decode_p90_s, **p90}),
    )


def explained(plan: Plan, found: Foreseen, again: Collection[str] = ()) -> Plan:
    """The plan, which also says of its peers where their times come from. `again`: those that were asked to measure
    themselves once more, and did.
    """
    route = list(dict.fromkeys(stage.peer for stage in plan.stages))
    told = [_sentence(peer, found.times[peer], peer in again) for peer in route if peer in found.times]
    more = len(told) - TOLD_PEERS
    rest = (f"{TIMES}{more} more peers are not told.",) if more > 0 else ()
    return replace(plan, why=(*plan.why, *told[:TOLD_PEERS], *rest))


def _sentence(peer: str, times: Sequence[KindTime], again: bool = False) -> str:
    """Of one peer: "Times of den: attn 2.1 ms predicted (1.9 ms to 2.4 ms in 90 %, 14 runs); embed, head measured"."""
    by_reason: dict[tuple[Source, str], list[str]] = {}
    for time in times:
        match time.source:
            case "predicted":
                what = (
                    f"{_ms(time.seconds)} predicted ({_between(time.said)} in 90 %, {_runs(time.said.runs)})"
                )
            case "prior":
                what = f"{_ms(time.seconds)} by the prior ({_between(time.said)})"
            case "measured":
                what = f"measured by itself ({time.why})"
        by_reason.setdefault((time.source, what), []).append(time.kind)
    parts = [f"{', '.join(kinds)} {what}" for (_, what), kinds in by_reason.items()]
    parts += [AGAIN] if again else []
    return f"{TIMES}{peer}: {'; '.join(parts)}."


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"


def _between(said: Prediction) -> str:
    return f"{_ms(said.low_s)} to {_ms(said.high_s)}"


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count != 1)} of its kind"
