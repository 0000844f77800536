"""How links name a server that listens on every address: by one that others reach, of the kind that it listens on."""

from __future__ import annotations

import socket
from collections import namedtuple

import aiohttp
import psutil
import pytest

from signaling import reachable_host
from signaling.reachable_host import local_host
from signaling.server import ServerOptions, serve

Address = namedtuple("Address", "family address")
INTERFACES = {
    "lo": [Address(socket.AF_INET, "127.0.0.1"), Address(socket.AF_INET6, "::1")],
    "eth0": [
        Address(socket.AF_PACKET, "02:00:00:00:00:01"),
        Address(socket.AF_INET, "169.254.3.4"),
        Address(socket.AF_INET, "10.1.2.3"),
        Address(socket.AF_INET6, "fe80::1%eth0"),
        Address(socket.AF_INET6, "fd00::3"),
    ],
}


@pytest.mark.parametrize("bound", ["127.0.0.1", "::1", "192.0.2.7", "localhost", "mesh.example.org"])
def test_one_address_is_its_own_name(bound: str) -> None:
    assert reachable_host.reachable_host(bound) == bound
    assert local_host(bound) == bound


@pytest.mark.parametrize(
    ("bound", "interfaces", "reachable", "local"),
    [
        ("0.0.0.0", INTERFACES, "10.1.2.3", "127.0.0.1"),
        ("::", INTERFACES, "fd00::3", "::1"),
        ("0.0.0.0", {"lo": INTERFACES["lo"]}, "127.0.0.1", "127.0.0.1"),
        ("::", {"lo": INTERFACES["lo"]}, "::1", "::1"),
    ],
)
def test_without_a_default_route_the_interfaces_tell(
    monkeypatch: pytest.MonkeyPatch, bound: str, interfaces: object, reachable: str, local: str
) -> None:
    monkeypatch.setattr(reachable_host, "_by_route", lambda family: "")
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: interfaces)
    assert reachable_host.reachable_host(bound) == reachable
    assert local_host(bound) == local


async def test_a_server_on_every_address_and_any_port_has_a_name_that_leads_to_it() -> None:
    async with serve(ServerOptions(host="0.0.0.0", port=0)) as server, aiohttp.ClientSession() as http:
        assert "0.0.0.0" not in server.url
        assert not server.url.endswith(":0")
        assert server.local_url == f"http://127.0.0.1:{server.port}"
        for url in (server.url, server.local_url):
            async with http.get(f"{url}/healthz") as answer:
                assert answer.status == 200
