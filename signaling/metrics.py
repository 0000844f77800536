"""Decides what the server counts. One registry per server, nothing global, nothing about persons."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from signaling.room import Hub

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counters of one server, in Prometheus' text form."""

    def __init__(self, hub: Callable[[], Hub]) -> None:
        self._registry = CollectorRegistry()
        rooms = Gauge("shoal_rooms", "Rooms with at least one member", registry=self._registry)
        rooms.set_function(lambda: hub().occupied())
        members = Gauge("shoal_members", "Members in all rooms", registry=self._registry)
        members.set_function(lambda: hub().members())
        self.sockets = Gauge("shoal_sockets", "Open WebSockets, joined or not", registry=self._registry)
        self.relayed = Counter(
            "shoal_relayed_messages",
            "Offers, answers and candidates relayed",
            ["kind"],
            registry=self._registry,
        )
        self.rejected = Counter(
            "shoal_rejected", "Messages, joins and requests refused", ["reason"], registry=self._registry
        )
        self.served = Counter(
            "shoal_served_bytes", "Bytes of blobs and manifests sent", registry=self._registry
        )
        self.planning = Histogram("shoal_plan_seconds", "Time to answer POST /plan", registry=self._registry)

    def text(self) -> bytes:
        """Returns the figures in the text format of Prometheus."""
        return generate_latest(self._registry)
