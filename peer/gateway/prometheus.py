"""A peer's figures for Prometheus, over HTTP: what `shoal status` shows of this peer, and who leads. Edge.

Nothing about persons is in them: no name, no address, nothing of what is asked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from peer.errors import CannotServe
from peer.version import VERSION
from signaling.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from peer.member.mesh_member import MeshMember

GAUGES: Final = {
    "rss_bytes": "Memory of this process",
    "weight_bytes": "Weights that are loaded",
    "kv_bytes": "KV cache that is in use",
    "pledge_bytes": "Memory that this peer lends",
    "sessions": "Sessions that are open on this peer",
    "active": "Sessions with work here now",
    "tasks": "Tasks of the event loop",
    "log_bytes": "Activations kept for peers that may be lost",
    "term": "Term of the mesh's log",
    "commit": "Index of the last committed entry of the mesh's log that this peer knows",
    "applied": "Index of the last entry of the mesh's log that this peer applied",
}
COUNTERS: Final = {
    "steps": "Steps computed",
    "tokens": "Tokens sampled",
    "replayed_bytes": "Activations sent again after a loss",
    "taken_over": "Sessions taken over from peers that were lost",
    "copied": "Positions that answers which moved here did not compute anew",
}


class Figures(Collector):
    """Read anew from the mesh at each scrape."""

    def __init__(self, mesh: MeshMember) -> None:
        self._mesh = mesh

    def collect(self) -> Iterator[Metric]:
        """Yields the figures of this peer and of its mesh, as they are now."""
        report: dict[str, Any] = self._mesh.report_of_self()
        view = self._mesh.view
        replica, state = view.replica, view.state
        yield _labelled("shoal_peer_info", "Version of this peer", ("version",), {(VERSION,): 1})
        for key, text in GAUGES.items():
            if key in report:
                yield GaugeMetricFamily(f"shoal_peer_{key}", text, report[key])
        for key, text in COUNTERS.items():
            yield CounterMetricFamily(f"shoal_peer_{key}", text, report[key])
        yield GaugeMetricFamily("shoal_peer_units", "Units held", sum(b - a for a, b in report["runs"]))
        yield GaugeMetricFamily("shoal_peer_connections", "Connections to other peers", len(report["rtt_us"]))
        leads = replica is not None and replica.leads
        votes = replica is not None and view.me in replica.config.voters
        yield GaugeMetricFamily("shoal_peer_leads", "1: this peer coordinates the mesh", int(leads))
        yield GaugeMetricFamily("shoal_peer_votes", "1: this peer votes on who coordinates", int(votes))
        yield GaugeMetricFamily("shoal_mesh_members", "Members of the mesh", len(state.members))
        yield GaugeMetricFamily("shoal_mesh_leader_known", "1: somebody coordinates", int(bool(view.leader)))
        yield GaugeMetricFamily(
            "shoal_mesh_plan_serving",
            "1: a plan serves, and each of its stages is reached; where no model answers in words: one can be run",
            int(self._mesh.serves),
        )
        rtts = {(peer,): micros / 1e6 for peer, micros in report["rtt_us"].items()}
        yield _labelled("shoal_peer_rtt_seconds", "Round trip to another peer", ("peer",), rtts)


def _labelled(
    name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str], float]
) -> GaugeMetricFamily:
    made = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        made.add_metric(key, value)
    return made


@asynccontextmanager
async def serving_metrics(mesh: MeshMember, host: str, port: int) -> AsyncIterator[str]:
    """`GET /metrics` and `GET /healthz` until the block ends; gives the address. Raises CannotServe."""
    registry = CollectorRegistry()
    registry.register(Figures(mesh))

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE})

    async def health(_: web.Request) -> web.Response:
        return web.json_response({"ok": not mesh.ended.is_set()}, status=503 if mesh.ended.is_set() else 200)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", health)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise CannotServe(f"--metrics: cannot listen on {host} port {port}: {error.strerror}") from error
        yield f"http://{host}:{runner.addresses[0][1]}/metrics"
    finally:
        await runner.cleanup()
