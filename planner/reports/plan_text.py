"""Decides how a plan is shown to people: lines with stages, hops, predicted figures and reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from planner.cost import evaluator
from planner.cost.objectives import CHUNK_TOKENS, PROMPT_TOKENS
from planner.cost.wording import mib, ms, units_text
from planner.model.arithmetic_class import shown
from planner.types import Infeasible, Plan, PlanRequest, Stage

HEADINGS = ("stage", "peer", "units", "weights", "KV", "overhead", "of pledge", "decode", "standbys")
SHOWN_CHARS = 24  # of a failure domain's name; a hash is told by its beginning


def explain(request: PlanRequest, answer: Plan | Infeasible) -> tuple[str, ...]:
    """Lines that say what an answer to this request means. RequestError when the plan is not one for it."""
    match answer:
        case Infeasible():
            return (f"No plan: {answer.reason}.",)
        case Plan():
            return _plan_lines(request, answer)
        case _:
            assert_never(answer)


def _plan_lines(request: PlanRequest, plan: Plan) -> tuple[str, ...]:
    found = evaluator.evaluate(request, plan.stages)
    pledged = {peer.peer: peer.memory_bytes for peer in request.peers}
    rows = [HEADINGS]
    for number, (stage, seconds) in enumerate(zip(plan.stages, found.stage_s, strict=True), start=1):
        used = stage.weight_bytes + stage.kv_bytes + stage.overhead_bytes
        rows.append(
            (
                str(number),
                " + ".join(stage.team),
                units_text(request, stage.first, stage.stop),
                mib(stage.weight_bytes),
                mib(stage.kv_bytes),
                mib(stage.overhead_bytes),
                f"{100 * used / max(1, pledged[stage.peer]):.0f}% of {mib(pledged[stage.peer])}",
                ms(seconds),
                ", ".join(stage.standbys) or "-",
            )
        )
    teams = [
        line
        for number, stage in enumerate(plan.stages, start=1)
        for line in team_lines(request, stage, number)
    ]
    names = [stage.peer for stage in plan.stages]
    hops = [
        f"hop {src} -> {dst}: {ms(seconds)}, {request.units[stage.stop - 1].out_bytes_per_token} bytes"
        + (" (the token, back to the first stage)" if number == len(names) else "")
        for number, (src, dst, stage, seconds) in enumerate(
            zip(names, [*names[1:], names[0]], plan.stages, found.hop_s, strict=False), start=1
        )
    ]
    first = evaluator.prefill_s(request, plan.stages, PROMPT_TOKENS, CHUNK_TOKENS)
    figures = (
        f"one stream: {ms(plan.decode_s)} a token, {_rate(plan.decode_s)} tokens/s; "
        f"first token of a {PROMPT_TOKENS}-token prompt after {ms(first)}",
        f"{request.sessions} session{'s' * (request.sessions != 1)} of {request.context} tokens: "
        f"{plan.tokens_per_s:.1f} tokens/s in total; slowest part {ms(plan.bottleneck_s)} a token",
    )
    return (*table(rows), *teams, *hops, *figures, *_surroundings(request), *plan.why)


def team_lines(request: PlanRequest, stage: Stage, number: int) -> tuple[str, ...]:
    """What each member of a stage's team computes and holds; nothing of a stage of one peer."""
    peers, total = evaluator.profiles(request), sum(stage.shares)
    found = []
    for name, share in zip(stage.team, stage.shares, strict=False):
        sizes = evaluator.stage_bytes(request, peers[name], stage.first, stage.stop, share, total)
        pledged = max(1, peers[name].memory_bytes)
        place = "leads" if name == stage.peer else "helps"
        found.append(
            f"stage {number}: {name} {place} with {share} of {total} shares, {mib(sizes[0])} of weights, "
            f"{mib(sizes[1])} of KV, {100 * sum(sizes) / pledged:.0f}% of {mib(peers[name].memory_bytes)}"
        )
    return tuple(found)


def _surroundings(request: PlanRequest) -> tuple[str, ...]:
    """What is known of how peers fail, and of how they compute; nothing where nobody says."""
    lines: list[str] = []
    for peer in sorted(request.peers, key=lambda peer: peer.peer):
        hazard = peer.facts.hazard_per_h
        known = [] if hazard is None else [f"leaves {hazard:.2g} times an hour"]
        known += [
            f"{kind} {name[:SHOWN_CHARS]}".rstrip()
            for kind, _, name in (domain.partition(" ") for domain in sorted(peer.facts.domains))
        ]
        known += [f"arithmetic {shown(peer.facts.arithmetic)}"] if peer.facts.arithmetic else []
        lines += [f"{peer.peer}: {', '.join(known)}"] if known else []
    ways = sorted({" and ".join(sorted((link.src, link.dst))) for link in request.links if link.relayed})
    return (*lines, *(f"between {way}: through a relay" for way in ways))


def _rate(seconds: float) -> str:
    return f"{1 / seconds:.1f}" if seconds else "unlimited"


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows of cells as lines, with columns as wide as their widest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
