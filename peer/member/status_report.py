"""Decides what a peer says of itself when it is asked: figures for people, and digests of what it caches for the asker.

Edge: it reads the clock and this process. Nothing of what people ask or get is in a report.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import psutil

from peer.errors import BadCommand
from peer.member.report_checks import MAX_REPORTED
from peer.version import VERSION
from peer.wire.json_codec import Body, whole

if TYPE_CHECKING:
    from peer.member.mesh_member import Mesh


def report_of(mesh: Mesh) -> dict[str, Any]:
    """The body of `status`."""
    core, options, serving = mesh.node.core, mesh.options, mesh.serving
    memory = serving.memory_bytes() if serving is not None else {"weights": 0, "kv": 0, "fronts": 0}
    return {
        "name": options.name if options is not None else "",
        "agent": f"shoal/{VERSION}",
        "runs": [list(run) for run in serving.runs] if serving is not None else [],
        "rss_bytes": psutil.Process().memory_info().rss,
        "weight_bytes": memory["weights"],
        "kv_bytes": memory["kv"] + memory["fronts"],
        "step_us": [list(each) for each in serving.step_times.medians_us()] if serving is not None else [],
        "pledge_bytes": options.memory_bytes if options is not None else 0,
        "sessions": core.sessions(),
        "active": core.active(),
        "steps": core.steps_run,
        "tokens": core.tokens_sampled,
        "tokens_per_s_milli": round(mesh.meter.per_second(time.monotonic()) * 1000),
        "tasks": len(asyncio.all_tasks()),
        "replayed_bytes": core.replayed_bytes,
        **_log_counts(mesh),
        "log_bytes": core.log_bytes + core.prefixes.log_bytes,
        "taken_over": core.taken_over,
        "copied": core.copied,
        "breakers": _breakers(mesh),
        "fresh": _fresh(mesh),
        "rtt_us": {
            other: round((connection.rtt_s or 0) * 1e6)
            for other in mesh.node.dialer.connected_peers()
            if (connection := mesh.node.dialer.connection(other)) is not None
        },
    }


def _log_counts(mesh: Mesh) -> dict[str, int]:
    replica = mesh.node.replica
    if replica is None:
        return {}
    status = replica.status()
    return {"term": status.term, "commit": status.commit, "applied": status.applied}


def _breakers(mesh: Mesh) -> list[list[str]]:
    """Whom this peer leaves alone: peers, and links as "src>dst", with the state of each breaker."""
    now, node = int(time.monotonic() * 1000), mesh.node
    found = dict(node.coordinating.breakers() if node.coordinating is not None else [])
    found |= dict(node.breakers.shown(now))
    return [[key, state] for key, state in sorted(found.items())][:MAX_REPORTED]


def _fresh(mesh: Mesh) -> list[str]:
    """Where this peer coordinates: who measured itself once more because it was asked, and is planned with by that."""
    coordinating = mesh.node.coordinating
    if coordinating is None or coordinating.freshening is None:
        return []
    return sorted(coordinating.freshening.due.fresh(coordinating.state))[:MAX_REPORTED]


async def kv_digest(mesh: Mesh, peer: str, body: Body) -> Body:
    """What this peer caches of a session at positions [first, stop), for its asker only. Raises BadCommand."""
    first, stop = whole(body, "first"), whole(body, "stop")
    try:
        session = bytes.fromhex(str(body.get("session")))
    except ValueError:
        raise BadCommand("session: expected hex digits") from None
    if mesh.serving is None or mesh.node.core.asker(session) != peer:
        raise BadCommand("kv_digest: expected a session of the asker's own")
    runs = []
    for run in mesh.serving.runs:
        found = await mesh.serving.digest(run, session, first, stop)
        if found is not None and found.have:
            runs.append({"run": list(run), "have": found.have, "arrays": dict(found.arrays)})
    return {"runs": runs}
