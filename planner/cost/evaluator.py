"""Decides what a placement costs: seconds per token, tokens per second, time to a first token, bytes.

The one evaluator. Every solver reads its times from the functions here, so a plan's figures are those it was
chosen by. All comparisons are made in whole picoseconds: sums do not depend on their order, a tie is a tie.

The model; `rows` is how many sessions one batch carries:
  stage     step_s + sum over units of decode_s + (rows - 1) * batch_s; batch_s defaults to decode_s: no gain
  hop       rtt_s / 2 + overhead_s + rows * bytes / bytes_per_s, with the bytes of the border it crosses
  round     all stages, the hops between them, and the token's hop from the tail back to the first stage
  decode_s  the round of one row. A token crosses each link once. Where the origin is the first stage's peer,
            the hop back is also the delivery. Where it is another peer, the tail sends the token to both at
            once: the stream runs at the round, and delivery is a constant lag of its reader, not a cost per
            token.
  rate      `sessions` streams travel as `m` cohorts of at most `rows`. A session gets one token per round, a
            stage and a link serve every cohort once a round. Seconds per token = max(round, m * slowest stage,
            m * slowest transfer) / sessions, at the best `rows` of `row_choices`. For one peer this is its
            batched rate. `planner.cost.simulator` reaches the same figure by playing it.
A stage of a team (Stage.helpers) costs what team_ps says.
A peer may have several places: handing over to itself costs nothing, its steps add up in the rate, and its pledge
holds all its places (standbys too) with its overhead once.
Where no link is given between two peers, in that direction, they cannot be neighbours. An origin that is not
the first stage's peer needs a link to it for the prompt, and one from the tail unless it is the tail's peer.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from typing import get_args

import numpy as np

from planner.errors import RequestError
from planner.types import Holding, Link, PeerProfile, PlanRequest, Stage, Unit, UnitCut

PICO = 10**12  # picoseconds in a second; fine enough that 1000 roundings stay under a nanosecond
MAX_COHORTS = 16  # more cohorts than this in flight change a predicted rate by less than measurement does
MAX_SECONDS = 1e6  # no single measured time is longer than this
MAX_LOSS = 0.9  # a link that loses more is none
MAX_LOAD_PEAK = 8000  # thousandths of the weights
MAX_REDUNDANCY = 8000  # thousandths: seven standbys of each stage
HOLDINGS: tuple[Holding, ...] = get_args(Holding)
_COUNTS = (
    *("weight_bytes", "flops_per_token", "kv_bytes_per_token", "out_bytes_per_token"),
    *("packed_bytes", "wide_bytes", "kv_positions"),
)
MAX_SUM = 2**58  # picoseconds or bytes a plan may add up to: 80 hours, 256 PiB; keeps 64-bit sums exact


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Predicted figures of one placement."""

    decode_s: float  # one stream, one token, hop back included
    tokens_per_s: float  # all sessions together
    bottleneck_s: float  # slowest stage or link, seconds per token, at `rows`
    rows: int  # sessions per batch at which the rate is reached; the fewest that reach it
    stage_s: tuple[float, ...]  # decode of one row, per stage
    hop_s: tuple[
        float, ...
    ]  # one row; hop i leaves stage i, the last one goes back to the first; () for one stage
    slowest: str  # what limits the rate: "stage 2 (b)", "link b -> a", or "round"
    token_ps: Fraction  # exact 1 / tokens_per_s
    decode_ps: int
    round_ps: int  # one round of a batch of `rows`


def row_choices(sessions: int) -> tuple[int, ...]:
    """Batch sizes that `sessions` can travel in: ceil(sessions / m) for m = 1..16 cohorts, ascending."""
    return tuple(sorted({-(-sessions // m) for m in range(1, min(sessions, MAX_COHORTS) + 1)}))


def picoseconds(seconds: float) -> int:
    """Returns `seconds` as whole picoseconds, the unit of exact sums."""
    return round(seconds * PICO)


def cohorts(sessions: int, rows: int) -> int:
    """How many batches of at most `rows` it takes to serve every session once."""
    return -(-sessions // rows)


def unit_ps(peer: PeerProfile, unit: Unit, rows: int) -> int:
    """Decode of one unit, a batch of `rows`."""
    alone = peer.facts.unit_decode_s.get(unit.name, peer.decode_s[unit.kind])
    return picoseconds(alone) + (rows - 1) * picoseconds(peer.batch_s.get(unit.kind, alone))


def stage_ps(peer: PeerProfile, units: Sequence[Unit], rows: int) -> int:
    """Decode of a run of units, a batch of `rows`."""
    return picoseconds(peer.step_s) + sum(unit_ps(peer, unit, rows) for unit in units)


def transfer_ps(link: Link, row_bytes: int, rows: int) -> int:
    """How long `rows` activations occupy the link."""
    return picoseconds(rows * row_bytes / (link.bytes_per_s * (1 - link.loss)))


def delay_ps(link: Link) -> int:
    """What a frame takes beyond its transfer: half a round trip, software, a round trip for each loss."""
    again = link.rtt_s * link.loss / (1 - link.loss)
    return picoseconds(link.rtt_s / 2) + picoseconds(link.overhead_s) + picoseconds(again)


def hop_ps(link: Link, row_bytes: int, rows: int) -> int:
    """From handing a batch over until the next peer has it."""
    return delay_ps(link) + transfer_ps(link, row_bytes, rows)


def unit_bytes(request: PlanRequest, unit: Unit, holding: Holding = "mapped") -> tuple[int, int]:
    """(weights, KV of every promised session at full context) of one unit."""
    return unit.held_bytes(holding), unit.kv_bytes(request.context) * request.sessions


def stage_bytes(
    request: PlanRequest, peer: PeerProfile, first: int, stop: int, share: int = 1, all_shares: int = 1
) -> tuple[int, int, int]:
    """(weights, KV, overhead) that units [first, stop) take on `peer`, or of a team its slice of them; they fit when
    the sum is within its pledge.
    """
    parts = [unit_bytes(request, unit, peer.holding) for unit in request.units[first:stop]]
    if share < all_shares:
        cuts = [unit.cut for unit in request.units[first:stop]]
        parts = [_sliced(*part, cut, share, all_shares) for part, cut in zip(parts, cuts, strict=True)]
    return sum(w for w, _ in parts), sum(kv for _, kv in parts), peer.overhead_bytes


def _sliced(weights: int, kv: int, cut: UnitCut | None, share: int, all_shares: int) -> tuple[int, int]:
    """At most so much of a unit is in a slice: whole pieces, rounded up. Of an unknown cut, its share."""
    pieces = all_shares if cut is None else max(1, cut.pieces)
    common = 0 if cut is None else min(weights, cut.common_bytes)
    own = -(-pieces * share // all_shares)
    return common + -(-(weights - common) * own // pieces), -(-kv * own // pieces)


def make_stage(request: PlanRequest, peer: PeerProfile, first: int, stop: int) -> Stage:
    """A stage with its bytes filled in."""
    weights, kv, overhead = stage_bytes(request, peer, first, stop)
    return Stage(first, stop, peer.peer, (), weights, kv, overhead)


def make_team(
    request: PlanRequest, team: Sequence[PeerProfile], shares: Sequence[int], first: int, stop: int
) -> Stage:
    """A stage of a team, its lead first, with the bytes of the member with most."""
    sizes = [
        stage_bytes(request, peer, first, stop, share, sum(shares))
        for peer, share in zip(team, shares, strict=True)
    ]
    lead, *helpers = (peer.peer for peer in team)
    return Stage(first, stop, lead, (), *max(sizes, key=sum), tuple(helpers), tuple(shares))


def profiles(request: PlanRequest) -> dict[str, PeerProfile]:
    """Returns the peers of a request by name."""
    return {peer.peer: peer for peer in request.peers}


def link_table(request: PlanRequest) -> dict[tuple[str, str], Link]:
    """Returns the links of a request by (source, destination)."""
    return {(link.src, link.dst): link for link in request.links}


Part = tuple[int, ...]  # units [first, stop); of a slice also the share, and the sum of all shares


def runs_by_peer(stages: Sequence[Stage]) -> dict[str, set[Part]]:
    """Every run [first, stop) that each peer has a place for, as primary or standby, and every slice."""
    runs: dict[str, set[Part]] = {}
    for stage in stages:
        run = (stage.first, stage.stop)
        for name in stage.standbys if stage.helpers else (stage.peer, *stage.standbys):
            runs.setdefault(name, set()).add(run)
        for name, share in zip(stage.team, stage.shares, strict=False):
            runs.setdefault(name, set()).add((*run, share, sum(stage.shares)))
    return runs


def peak_bytes(peer: PeerProfile, weights: int, kv: int) -> int:
    """The most memory that so many weights and KV take: while they load, or with the KV of every session."""
    facts = peer.facts
    loading = -(-weights * facts.load_peak_milli // 1000)
    return peer.overhead_bytes + max(weights + kv + facts.scratch_bytes, loading)


def places_bytes(request: PlanRequest, peer: PeerProfile, runs: Iterable[Part]) -> int:
    """Bytes that all these runs take on `peer`, its overhead once, beside what other models have loaded there."""
    return peak_bytes(peer, *_added_bytes(request, peer, list(runs)))


def _added_bytes(request: PlanRequest, peer: PeerProfile, runs: Sequence[Part]) -> tuple[int, int]:
    """(weights, KV) of all these runs, without weights that other models have loaded on `peer`."""
    sizes = [stage_bytes(request, peer, *run)[:2] for run in runs]
    loaded = sum(
        each.bytes for each in request.shared if each.peer == peer.peer and (each.first, each.stop) in runs
    )
    return sum(w for w, _ in sizes) - loaded, sum(kv for _, kv in sizes)


def unable(peer: PeerProfile, unit: Unit) -> str | None:
    """Why this peer can never serve this unit: a buffer or an operator it lacks; None when it can."""
    facts = peer.facts
    if facts.max_buffer_bytes is not None and unit.largest_tensor_bytes > facts.max_buffer_bytes:
        return (
            f"{unit.name} has a tensor of {unit.largest_tensor_bytes} bytes, "
            f"the largest buffer of {peer.peer} takes {facts.max_buffer_bytes}"
        )
    lacks = [op for op in unit.ops if facts.ops is not None and op not in facts.ops]
    return f"{peer.peer} has no {lacks[0]}, which {unit.name} needs" if lacks else None


def computes_slices(peer: PeerProfile, units: Sequence[Unit]) -> bool:
    """Whether a peer can be of a team for these units: a tab computes no slices yet."""
    return (
        peer.holding == "mapped"
        and all(unit.kind in peer.decode_s for unit in units)
        and all(unable(peer, unit) is None for unit in units)
    )


def overfull(request: PlanRequest, peer: PeerProfile, runs: Iterable[Part]) -> str | None:
    """Which memory of `peer` these runs exceed, and by how much; None when they fit."""
    places = list(runs)
    weights, kv = _added_bytes(request, peer, places)
    need, facts = peak_bytes(peer, weights, kv), peer.facts
    if need > peer.memory_bytes:
        what = "its stage needs" if len(places) == 1 else f"its {len(places)} places need"
        return f"{peer.peer} pledged {peer.memory_bytes} bytes, {what} {need}"
    if facts.weights_bytes is not None and weights > facts.weights_bytes:
        return f"{peer.peer} has {facts.weights_bytes} bytes for weights, its places need {weights}"
    if facts.kv_bytes is not None and kv > facts.kv_bytes:
        return f"{peer.peer} has {facts.kv_bytes} bytes for KV, its places need {kv}"
    return None


def refuse_runs(request: PlanRequest, peer: PeerProfile, runs: Iterable[Part]) -> str | None:
    """Why `peer` cannot hold and serve all these runs; None when it can."""
    places = list(runs)
    refusals = (unable(peer, unit) for run in places for unit in request.units[slice(*run[:2])])
    return overfull(request, peer, places) or next((said for said in refusals if said is not None), None)


def evaluate(request: PlanRequest, stages: Sequence[Stage]) -> Evaluation:
    """Figures of a placement. Raises RequestError, saying why, when the stages cannot run as asked."""
    refusal = refuse(request, stages)
    if refusal is not None:
        raise RequestError(refusal)
    peers, links = profiles(request), link_table(request)
    between = hops(request, stages, links)

    def batch(rows: int) -> tuple[list[int], list[int], list[int]]:
        return (
            [place_ps(request, stage, rows, peers, links) for stage in stages],
            [hop_ps(link, size, rows) for link, size in between],
            [transfer_ps(link, size, rows) for link, size in between],
        )

    best: tuple[Fraction, int] | None = None
    for rows in row_choices(request.sessions):
        busy, wait, transfer = batch(rows)
        slowest_ps = max([*_by_peer(stages, busy), *transfer])
        turns = cohorts(request.sessions, rows)
        token = Fraction(max(sum(busy) + sum(wait), turns * slowest_ps), request.sessions)
        if best is None or token < best[0]:
            best = token, rows
    assert best is not None  # there is at least one choice of rows
    token_ps, rows = best
    busy, wait, transfer = batch(rows)
    together = _by_peer(stages, busy)
    slowest_ps = max([*together, *transfer])
    share = Fraction(cohorts(request.sessions, rows), request.sessions)
    if slowest_ps * share < token_ps:
        slowest = "round"
    elif max(together) == slowest_ps:
        at = together.index(slowest_ps)
        slowest = f"stage {at + 1} ({stages[at].peer})"
    else:
        link = between[transfer.index(slowest_ps)][0]
        slowest = f"link {link.src} -> {link.dst}"
    alone, alone_wait, _ = batch(1)
    decode_ps = sum(alone) + sum(alone_wait)
    return Evaluation(
        decode_s=decode_ps / PICO,
        tokens_per_s=float(PICO / max(token_ps, Fraction(1))),
        bottleneck_s=float(slowest_ps * share) / PICO,
        rows=rows,
        stage_s=tuple(ps / PICO for ps in alone),
        hop_s=tuple(ps / PICO for ps in alone_wait),
        slowest=slowest,
        token_ps=token_ps,
        decode_ps=decode_ps,
        round_ps=sum(busy) + sum(wait),
    )


def _by_peer(stages: Sequence[Stage], busy: Sequence[int]) -> list[int]:
    """For each stage, how long its peer is busy in a round, with all its places."""
    sums: Counter[str] = Counter()
    for stage, ps in zip(stages, busy, strict=True):
        sums.update(dict.fromkeys(stage.team, ps))
    return [max(sums[name] for name in stage.team) for stage in stages]


def place_ps(
    request: PlanRequest,
    stage: Stage,
    rows: int,
    peers: Mapping[str, PeerProfile],
    links: Mapping[tuple[str, str], Link],
) -> int:
    """Decode of a batch of `rows` by whoever computes the stage: its peer, or its team, whose links are there."""
    units = request.units[stage.first : stage.stop]
    if not stage.helpers:
        return stage_ps(peers[stage.peer], units, rows)
    team = [peers[name] for name in stage.team]
    ways = [links[pair] for pair in permutations(stage.team, 2)]
    taken = [[unit_ps(peer, unit, rows) for unit in units] for peer in team]
    return team_ps(team, stage.shares, ways, units, taken, rows)


def place_chunk_ps(
    request: PlanRequest,
    stage: Stage,
    tokens: int,
    peers: Mapping[str, PeerProfile],
    links: Mapping[tuple[str, str], Link],
    *,
    last: bool,
) -> int:
    """The same of one chunk of a prompt; the head runs only on the last."""
    units = request.units[stage.first : stage.stop]
    if not stage.helpers:
        return chunk_ps(peers[stage.peer], units, tokens, last=last)
    units = tuple(unit for unit in units if unit.kind != "head" or last)
    team = [peers[name] for name in stage.team]
    ways = [links[pair] for pair in permutations(stage.team, 2)]
    steps = [picoseconds(peer.step_s) for peer in team]
    taken = [
        [chunk_ps(peer, (unit,), tokens, last=last) - step for unit in units]
        for peer, step in zip(team, steps, strict=True)
    ]
    return team_ps(team, stage.shares, ways, units, taken, tokens)


def team_ps(
    team: Sequence[PeerProfile],
    shares: Sequence[int],
    ways: Sequence[Link],
    units: Sequence[Unit],
    taken: Sequence[Sequence[int]],
    rows: int,
) -> int:
    """What a team takes for `units`, of which each member alone would take the picoseconds `taken`, (members, units).

    The lead hands the rows to all; of each unit everybody computes its share, the slowest last, and then all send their
    part of a sum to one another at once: a sum costs one way, the slowest of the `ways` between two members. Adding up
    is not counted. A head's parts go to the lead alone and are as large as if they went to all.
    """
    total = sum(shares)
    busy = max(picoseconds(peer.step_s) for peer in team)
    busy += max(hop_ps(way, units[0].out_bytes_per_token, rows) for way in ways) if units else 0
    for at, unit in enumerate(units):
        sums, sent = (
            (1, unit.out_bytes_per_token) if unit.cut is None else (unit.cut.sums, unit.cut.sent_bytes)
        )
        each_rows = 1 if unit.kind == "head" else rows
        busy += max(-(-own[at] * share // total) for own, share in zip(taken, shares, strict=True))
        busy += max(sums * delay_ps(way) + transfer_ps(way, sent, each_rows) for way in ways)
    return busy


PreferenceKey = tuple[Fraction | int | tuple[tuple[object, ...], ...], ...]


def preference(request: PlanRequest, stages: Sequence[Stage]) -> PreferenceKey:
    """The stated key of the planner: of two placements, the one with the smaller key is chosen.

    latency:    seconds per token of one stream; fewer stages; then (peer, stop) of each stage from the first.
    throughput: seconds per token of all sessions; fewer rows per batch; shorter round of such a batch; fewer
                stages; then (peer, stop) of each stage from the first.
    """
    found = evaluate(request, stages)
    tail = (len(stages), tuple((stage.peer, stage.stop, stage.helpers, stage.shares) for stage in stages))
    if request.objective == "latency":
        return (found.decode_ps, *tail)
    return (found.token_ps, found.rows, found.round_ps, *tail)


def refuse(request: PlanRequest, stages: Sequence[Stage]) -> str | None:
    """Why these stages cannot run: a gap, no room, no link; None when they can."""
    peers, links, at = profiles(request), link_table(request), 0
    for stage in stages:
        if stage.first != at or stage.stop <= stage.first:
            return (
                f"stage on {stage.peer} holds units {stage.first}-{stage.stop}: expected a run from {at} on"
            )
        for name in stage.team:
            if name not in peers:
                return f"stage on {name}: no such peer in the request"
        if stage.helpers and (refusal := refuse_team(request, stage, links)) is not None:
            return refusal
        at = stage.stop
    if at != len(request.units):
        return f"stages hold units 0-{at}: expected all {len(request.units)}"
    for name, runs in runs_by_peer(stages).items():
        if name not in peers:
            return f"standby {name}: no such peer in the request"
        refusal = refuse_runs(request, peers[name], sorted(runs))
        if refusal is not None:
            return refusal
    names = [stage.peer for stage in stages]
    pairs = [(a, b) for a, b in zip(names, [*names[1:], names[0]], strict=True) if a != b]
    if request.origin not in (None, names[0]):
        pairs.append((request.origin or "", names[0]))
    if request.origin not in (None, names[-1]):
        pairs.append((names[-1], request.origin or ""))
    for pair in pairs:
        if pair not in links:
            return f"no link from {pair[0]} to {pair[1]}"
    return None


def refuse_team(request: PlanRequest, stage: Stage, links: Mapping[tuple[str, str], Link]) -> str | None:
    """Why no team can compute this stage, whatever its memory: a unit that is not cut so often, no link; else None."""
    team = stage.team
    if len({*team}) < len(team) or len(stage.shares) != len(team) or min(stage.shares) < 1:
        return f"the team of {stage.peer}: expected different peers, and a share above 0 of each"
    for unit in request.units[stage.first : stage.stop]:
        if unit.kind == "embed":
            return f"{unit.name} is not cut: its rows are read as they are needed"
        if unit.cut is not None and unit.cut.pieces < len(team):
            return f"{unit.name} comes in {unit.cut.pieces} pieces, too few for {len(team)} members"
    missing = [pair for pair in permutations(team, 2) if pair not in links]
    return f"no link from {missing[0][0]} to {missing[0][1]}, which are of one team" if missing else None


def prefill_s(request: PlanRequest, stages: Sequence[Stage], prompt_tokens: int, chunk_tokens: int) -> float:
    """Seconds until the origin has the first token of a prompt sent in chunks that overlap across the stages."""
    return prefill_ps(request, stages, prompt_tokens, chunk_tokens) / PICO


def prefill_ps(request: PlanRequest, stages: Sequence[Stage], prompt_tokens: int, chunk_tokens: int) -> int:
    """The same in picoseconds.

    A stage starts a chunk when it has it, is done with the one before, and its peer is not at another of its
    places; a link sends one chunk after the other. The head runs once, for the last position. A prompt's token ids
    are taken to cost nothing to send but the delay.
    """
    refusal = refuse(request, stages)
    if refusal is not None:
        raise RequestError(refusal)
    peers, links = profiles(request), link_table(request)
    between = hops(request, stages, links)
    origin = request.origin or stages[0].peer
    arrival = 0 if origin == stages[0].peer else delay_ps(links[origin, stages[0].peer])
    stage_free: Counter[str] = Counter()
    link_free, finished = [0] * len(stages), 0
    for start in range(0, prompt_tokens, chunk_tokens):
        tokens = min(chunk_tokens, prompt_tokens - start)
        ready = arrival
        for at, stage in enumerate(stages):
            last = start + tokens == prompt_tokens
            busy = place_chunk_ps(request, stage, tokens, peers, links, last=last)
            ready = max(ready, *(stage_free[name] for name in stage.team)) + busy
            for name in stage.team:
                stage_free[name] = ready
            if at + 1 < len(stages):
                link, size = between[at]
                link_free[at] = max(ready, link_free[at]) + transfer_ps(link, size, tokens)
                ready = link_free[at] + delay_ps(link)
        finished = ready
    if origin != stages[-1].peer:
        size = request.units[-1].out_bytes_per_token
        finished += hop_ps(links[stages[-1].peer, origin], size, 1)
    return finished


def chunk_ps(peer: PeerProfile, units: Sequence[Unit], tokens: int, *, last: bool) -> int:
    """A run of units over one chunk of a prompt; the head runs only on the last."""
    busy = picoseconds(peer.step_s)
    for unit in units:
        if unit.kind != "head":
            busy += picoseconds(peer.prefill_s[unit.kind] * tokens)
        elif last:
            busy += unit_ps(peer, unit, 1)
    return busy


def hops(
    request: PlanRequest, stages: Sequence[Stage], links: dict[tuple[str, str], Link]
) -> list[tuple[Link, int]]:
    """(link, bytes of one row) of every hop of a round, the one back last; none for a single stage."""
    if len(stages) == 1:
        return []
    after = [*stages[1:], stages[0]]
    return [
        (
            links[stage.peer, follower.peer] if stage.peer != follower.peer else _within(stage.peer),
            request.units[stage.stop - 1].out_bytes_per_token,
        )
        for stage, follower in zip(stages, after, strict=True)
    ]


def _within(peer: str) -> Link:
    """From one place of a peer to another of its own."""
    return Link(peer, peer, 0.0, math.inf)


def check_request(request: PlanRequest) -> None:
    """Raises RequestError unless every number is usable: the solvers take the rest on trust."""
    if not request.units:
        raise RequestError("expected at least one unit, got none")
    if request.context < 1 or request.sessions < 1:
        raise RequestError(
            f"expected context and sessions of at least 1, got {request.context} and {request.sessions}"
        )
    if not 1000 <= request.redundancy <= MAX_REDUNDANCY:
        raise RequestError(f"expected a redundancy from 1000 to {MAX_REDUNDANCY}, got {request.redundancy}")
    check_once("peer", [peer.peer for peer in request.peers])
    for unit in request.units:
        for field in _COUNTS:
            if (getattr(unit, field) or 0) < 0:
                raise RequestError(f"unit {unit.name}: expected {field} >= 0, got {getattr(unit, field)}")
        if unit.cut is not None and min(dataclasses.astuple(unit.cut)) < 0:
            raise RequestError(f"unit {unit.name}: expected a cut of numbers >= 0, got {unit.cut}")
    kinds = sorted({unit.kind for unit in request.units})
    for peer in request.peers:
        if peer.memory_bytes < 0 or peer.overhead_bytes < 0:
            raise RequestError(f"peer {peer.peer}: expected memory and overhead >= 0")
        for field, times in (("decode_s", peer.decode_s), ("prefill_s", peer.prefill_s)):
            for kind in kinds:
                if kind not in times:
                    raise RequestError(
                        f"peer {peer.peer}: expected {field} for every kind of unit, {kind} is missing"
                    )
        _check_facts(peer)
        for value in (
            *peer.decode_s.values(),
            *peer.prefill_s.values(),
            *peer.batch_s.values(),
            peer.step_s,
        ):
            check_seconds(f"peer {peer.peer}", value)
    check_links(request.links)
    _check_shared(request)
    _check_sums(request)


def _check_shared(request: PlanRequest) -> None:
    if not request.shared:
        return
    known = profiles(request)
    check_once("shared run", [f"{each.peer} {each.first}-{each.stop}" for each in request.shared])
    for each in request.shared:
        if not 0 <= each.first < each.stop <= len(request.units):
            raise RequestError(
                f"shared: expected runs of {len(request.units)} units, got {each.first}-{each.stop}"
            )
        if each.peer not in known:
            raise RequestError(f"shared: expected peers of the request, got {each.peer[:80]!r}")
        most = stage_bytes(request, known[each.peer], each.first, each.stop)[0]
        if not 0 <= each.bytes <= most:
            raise RequestError(
                f"shared: expected 0 to {most} bytes of units {each.first}-{each.stop}, got {each.bytes}"
            )


def check_links(links: Sequence[Link]) -> None:
    """Raises RequestError unless links are between different peers, each once, and their numbers are usable."""
    if len({(link.src, link.dst) for link in links}) < len(links):
        check_once("link", [f"{link.src} -> {link.dst}" for link in links])
    for link in () if _links_are_fine(links) else links:
        if link.src == link.dst:
            raise RequestError(f"link {link.src} -> {link.dst}: expected two different peers")
        for value in (link.rtt_s, link.overhead_s):
            check_seconds(f"link {link.src} -> {link.dst}", value)
        if not 0 <= link.loss <= MAX_LOSS:
            raise RequestError(f"link {link.src} -> {link.dst}: expected a loss from 0 to {MAX_LOSS}")
        if not (math.isfinite(link.bytes_per_s) and link.bytes_per_s > 0):
            raise RequestError(
                f"link {link.src} -> {link.dst}: expected bytes_per_s > 0, got {link.bytes_per_s}"
            )


def _links_are_fine(links: Sequence[Link]) -> bool:
    """The checks of single links, all at once: a thousand peers have a million links."""
    if not links:
        return True
    numbers = np.array([(link.rtt_s, link.overhead_s, link.bytes_per_s, link.loss) for link in links])
    times, rates, losses = numbers[:, :2], numbers[:, 2], numbers[:, 3]
    return bool(
        np.all((times >= 0) & (times <= MAX_SECONDS))
        and np.all(np.isfinite(rates) & (rates > 0))
        and np.all((losses >= 0) & (losses <= MAX_LOSS))
        and all(link.src != link.dst for link in links)
    )


def _check_facts(peer: PeerProfile) -> None:
    facts = peer.facts
    sizes = (facts.weights_bytes, facts.kv_bytes, facts.max_buffer_bytes, facts.scratch_bytes)
    if any(size is not None and not 0 <= size <= MAX_SUM for size in sizes):
        raise RequestError(f"peer {peer.peer}: expected sizes from 0 to {MAX_SUM}")
    if not 1000 <= facts.load_peak_milli <= MAX_LOAD_PEAK:
        raise RequestError(f"peer {peer.peer}: expected a load peak from 1000 to {MAX_LOAD_PEAK}")
    if facts.hazard_per_h is not None and not 0 <= facts.hazard_per_h <= MAX_SECONDS:
        raise RequestError(f"peer {peer.peer}: expected a hazard from 0 to {MAX_SECONDS:g} an hour")
    for table in (facts.decode_p90_s, facts.prefill_p90_s, facts.unit_decode_s):
        for value in table.values():
            check_seconds(f"peer {peer.peer}", value)


def check_once(what: str, names: Sequence[str]) -> None:
    """Raises RequestError where a name comes twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise RequestError(f"expected each {what} once, got {min(twice)} more than once")


def check_seconds(where: str, value: float) -> None:
    """Raises RequestError unless `value` is a time that can be measured."""
    if not 0 <= value <= MAX_SECONDS:
        raise RequestError(f"{where}: expected seconds from 0 to {MAX_SECONDS:g}, got {value}")


def _check_sums(request: PlanRequest) -> None:
    size = sum(max(sum(unit_bytes(request, unit, how)) for how in HOLDINGS) for unit in request.units)
    size += sum(peer.overhead_bytes for peer in request.peers)
    if size > MAX_SUM or any(peer.memory_bytes > MAX_SUM for peer in request.peers):
        raise RequestError(f"expected sizes that add up to at most {MAX_SUM} bytes")
    rows, widest = request.sessions, max(unit.out_bytes_per_token for unit in request.units)
    stage = max((stage_ps(peer, request.units, rows) for peer in request.peers), default=0)
    slowest = min((link.bytes_per_s for link in request.links), default=1.0)
    wait = max((link.rtt_s + link.overhead_s for link in request.links), default=0.0)
    hop = wait + (rows * widest / slowest if request.links else 0.0)
    if hop > MAX_SECONDS or (stage + picoseconds(hop)) * (len(request.peers) + 1) > MAX_SUM:
        raise RequestError(
            "expected times that add up to hours at most; a rate is too low or a time too long"
        )
