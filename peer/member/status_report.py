"""What a peer says of itself when it is asked: figures for people.

Edge: it reads the clock and this process. Nothing of what people ask or get is in a report.
"""

from __future__ import annotations

import asyncio
import time

import psutil

from peer.member.lending import Lending
from peer.member.peer_parts import PeerParts
from peer.version import VERSION
from peer.wire.generated.requests import MAX_REPORTED, CheckReport, StatusAnswer


def report_of(parts: PeerParts, lending: Lending | None, checks: CheckReport | None) -> StatusAnswer:
    """The answer to `status`. `lending` None: this peer only asks; `checks` None: it has none made."""
    core, serving = parts.stage.core, parts.stage.units
    options = lending.options if lending is not None else None
    me = parts.view.state.members.get(parts.me)
    hosts = [parts.stage, *(each.parts.stage for each in parts.decoders)]
    memories = [stage.units.memory_bytes() for stage in hosts if stage.units is not None]
    memory = {what: sum(each[what] for each in memories) for what in ("weights", "kv", "fronts")}
    if parts.teams.slices is not None:
        for what, size in parts.teams.slices.memory_bytes().items():
            memory[what] += size
    replica = parts.view.replica
    logged = replica.status() if replica is not None else None
    return StatusAnswer(
        name=me.name if me is not None else "",
        agent=f"shoal/{VERSION}",
        runs=tuple(serving.runs) if serving is not None else (),
        rss_bytes=psutil.Process().memory_info().rss,
        weight_bytes=memory["weights"] + parts.flow.weight_bytes,
        kv_bytes=memory["kv"] + memory["fronts"],
        step_us=tuple(serving.step_times.medians_us()) if serving is not None else (),
        pledge_bytes=options.memory_bytes if options is not None else 0,
        sessions=sum(stage.core.sessions() for stage in hosts),
        active=sum(stage.core.active() for stage in hosts),
        steps=sum(stage.core.steps_run for stage in hosts),
        tokens=sum(stage.core.tokens_sampled for stage in hosts),
        tokens_per_s_milli=round(lending.meter.per_second(time.monotonic()) * 1000)
        if lending is not None
        else 0,
        tasks=len(asyncio.all_tasks()),
        replayed_bytes=core.replayed_bytes,
        term=logged.term if logged is not None else None,
        commit=logged.commit if logged is not None else None,
        applied=logged.applied if logged is not None else None,
        log_bytes=core.log_bytes + core.prefixes.log_bytes,
        taken_over=core.taken_over,
        copied=core.copied,
        breakers=_breakers(parts),
        fresh=_fresh(parts),
        rtt_us={
            other: round((connection.rtt_s or 0) * 1e6)
            for other in parts.links.dialer.connected_peers()
            if (connection := parts.links.dialer.connection(other)) is not None
        },
        checks=checks,
    )


def _breakers(parts: PeerParts) -> tuple[tuple[str, str], ...]:
    """Whom this peer leaves alone: peers, and links as "src>dst", with the state of each breaker."""
    now, leading = int(time.monotonic() * 1000), parts.leadership.current
    found = dict(leading.breakers() if leading is not None else [])
    found |= dict(parts.sessions.breakers.shown(now))
    return tuple(sorted(found.items())[:MAX_REPORTED])


def _fresh(parts: PeerParts) -> tuple[str, ...]:
    """Where this peer coordinates: who measured itself once more because it was asked, and is planned with by that."""
    leading = parts.leadership.current
    return tuple(leading.fresh()[:MAX_REPORTED]) if leading is not None else ()
