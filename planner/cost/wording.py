"""Decides the sentences by which a plan says why it was chosen, or what is missing for one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.cost import evaluator
from planner.types import PlanRequest, Stage

MIB = 2**20
NAMED = 4  # peers or links that a sentence lists
TIMES = "Times of "  # how a sentence begins that says where the times of a peer come from
ONCE_MORE = "once more, since a prediction abstained"
AGAIN = f"measured by itself {ONCE_MORE}"  # the last that is said of them


def mib(size: int) -> str:
    """Bytes for people, rounded up so that a need is never understated."""
    if size < 1024:
        return f"{size} bytes"
    unit, name = (MIB, "MiB") if size >= MIB else (1024, "KiB")
    tenths = -(-size * 10 // unit)
    return f"{tenths / 10:.1f} {name}" if tenths < 100 and tenths % 10 else f"{-(-size // unit)} {name}"


def ms(seconds: float) -> str:
    """Returns `seconds` as milliseconds with three digits or so, for people."""
    value = seconds * 1000
    return f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"


def chain(stages: Sequence[Stage]) -> str:
    """Returns the peers of the stages in order, for people."""
    return " > ".join("+".join(stage.team) for stage in stages)


def units_text(request: PlanRequest, first: int, stop: int) -> str:
    """Units [first, stop) as people say them: "embed, blocks 0-14, attn.15"."""
    parts: list[str] = []
    at = first
    while at < stop:
        whole = at
        while whole + 1 < stop and _is_block(request, whole):
            whole += 2
        if whole > at:
            low, high = (request.units[place].name.split(".")[-1] for place in (at, whole - 1))
            parts.append(f"block {low}" if low == high else f"blocks {low}-{high}")
            at = whole
        else:
            parts.append(request.units[at].name)
            at += 1
    return ", ".join(parts)


def _is_block(request: PlanRequest, at: int) -> bool:
    attn, ffn = request.units[at], request.units[at + 1]
    same = attn.name.split(".")[1:] == ffn.name.split(".")[1:]
    return (attn.kind, ffn.kind) == ("attn", "ffn") and same and "." in attn.name


def reasons(
    request: PlanRequest, stages: Sequence[Stage], rival: Sequence[Stage] | None, *, exact: bool
) -> tuple[str, ...]:
    """Why these stages: against the best of the other sort (one peer, or a split), and what limits them."""
    found = evaluator.evaluate(request, stages)
    latency = request.objective == "latency"

    def figure(of: evaluator.Evaluation) -> str:
        return f"{ms(of.decode_s)} a token" if latency else f"{of.tokens_per_s:.1f} tokens/s"

    other = None if rival is None else evaluator.evaluate(request, rival)
    lines: list[str] = []
    if len(stages) == 1:
        lines.append(
            f"Not split: {stages[0].peer} alone needs {ms(found.decode_s)} a token"
            if latency
            else f"Not split: {stages[0].peer} alone gives {found.tokens_per_s:.1f} tokens/s"
        )
        if rival is not None and other is not None and latency:
            lines[0] += f"; the best split ({chain(rival)}) needs {figure(other)}"
        elif exact and rival is not None:
            lines[0] += "; no split gives more"
        elif exact and len(request.peers) > 1:
            lines[0] += "; no linked peers have room for a split"
        lines[0] += "."
    elif rival is not None and other is not None:
        lines.append(
            f"Split over {len(stages)} peers: {figure(found)}, "
            f"against {figure(other)} on {rival[0].peer} alone."
        )
    else:
        short, name = min(
            (sum(evaluator.stage_bytes(request, peer, 0, len(request.units))) - peer.memory_bytes, peer.peer)
            for peer in request.peers
        )
        lines.append(
            f"Split over {len(stages)} peers: none has room for all units; "
            f"{name} comes closest, {mib(short)} short."
            if short > 0
            else f"Split over {len(stages)} peers: no peer with room for all units may serve them alone."
        )
    if request.sessions > 1:
        limit = (
            f"the round of {ms(found.round_ps / evaluator.PICO)} that a batch of {found.rows} takes"
            if found.slowest == "round"
            else f"{found.slowest} at {ms(found.bottleneck_s)} a token in batches of {found.rows}"
        )
        lines.append(
            f"{request.sessions} sessions get {found.tokens_per_s:.1f} tokens/s together; limit: {limit}."
        )
    if request.origin is not None and request.origin not in (stages[0].peer, stages[-1].peer):
        link = evaluator.link_table(request)[stages[-1].peer, request.origin]
        lag = evaluator.hop_ps(link, request.units[-1].out_bytes_per_token, 1) / evaluator.PICO
        lines.append(
            f"{stages[-1].peer} sends each token to {request.origin} as well, {ms(lag)} away; "
            "the stream does not wait for that."
        )
    return tuple(lines)


def method(considered: int, peers: int, *, exact: bool) -> str:
    """How sure the plan is."""
    left = peers - considered
    aside = f" ({left} more could serve no unit)" if left > 0 else ""
    if exact:
        return f"The best of all choices and orders of {considered} peer{'s' * (considered != 1)}{aside}."
    return f"Found by beam search over {considered} peers{aside}: good, not proven best."


def no_peers(request: PlanRequest) -> str:
    """Returns what is missing where no peer is there, for people."""
    total = sum(sum(evaluator.unit_bytes(request, unit)) for unit in request.units)
    return (
        f"no peer has joined; the model needs {mib(total)} for weights and KV, and each peer's own overhead"
    )


def unreachable(request: PlanRequest) -> str:
    """Returns what is missing where links are, for people."""
    return (
        f"no memory would help: {request.origin} has no link to a first stage and back from a tail; "
        "connect it to a peer that has room"
    )


def barred(request: PlanRequest, limits: Sequence[str], *, linked: bool) -> str:
    """Why no memory would help, where peers have other limits. `linked`: every link there would not help either."""
    more = f"; and {len(limits) - NAMED} more like that" if len(limits) > NAMED else ""
    links = "" if linked else f"; to share the units, links are missing ({_missing_text(request)})"
    return f"no larger pledge would help: {'; '.join(limits[:NAMED])}{more}{links}"


def lacking(request: PlanRequest, extra: Iterable[tuple[str, int]], *, exact: bool, together: bool) -> str:
    """What a plan lacks. `together`: with every link there, no memory would be missing."""
    pairs = tuple(extra)
    total = sum(size for _, size in pairs)
    where = ", ".join(f"{mib(size)} on {peer}" for peer, size in pairs)
    on = f"on {pairs[0][0]}" if len(pairs) == 1 else f"in total ({where})"
    need = f"needs {'' if exact else 'at most '}{mib(total)} more {on}"
    purpose = f"for {request.sessions} session{'s' * (request.sessions != 1)} of {request.context} tokens"
    if together:
        return (
            f"the peers have the room {purpose} together, but links are missing ({_missing_text(request)}); "
            f"without them a plan {need}"
        )
    return f"{need}, {purpose}; or fewer sessions, a shorter context, or another peer"


def _missing_text(request: PlanRequest) -> str:
    pairs = missing_links(request)
    more = f" and {len(pairs) - NAMED} more" if len(pairs) > NAMED else ""
    return ", ".join(f"{a} to {b}" for a, b in pairs[:NAMED]) + more


def missing_links(request: PlanRequest) -> list[tuple[str, str]]:
    """Ordered pairs of peers (and origin) without a link, sorted."""
    links = evaluator.link_table(request)
    names = sorted({peer.peer for peer in request.peers} | ({request.origin} if request.origin else set()))
    return [(a, b) for a in names for b in names if a != b and (a, b) not in links]
