"""How others of the network name a machine whose server listens on all of its addresses. Edge: reads its routes."""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

import psutil

# Addresses of documentation: only the route to them is looked up.
_ELSEWHERE: Final = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
_HERE: Final = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


def reachable_host(bound_to: str) -> str:
    """`bound_to`; where that is every address, one of this machine that others reach, and without a network loopback.

    Of its kind: a server on :: takes no connection to an IPv4 address. Nothing is sent.
    """
    family = _every_address(bound_to)
    return bound_to if family is None else _by_route(family) or _by_interface(family) or _HERE[family]


def local_host(bound_to: str) -> str:
    """`bound_to`; where that is every address, loopback of its kind."""
    family = _every_address(bound_to)
    return bound_to if family is None else _HERE[family]


def _every_address(bound_to: str) -> socket.AddressFamily | None:
    """The family of 0.0.0.0 or ::; None for anything else."""
    try:
        address = ipaddress.ip_address(bound_to)
    except ValueError:  # a name
        return None
    if not address.is_unspecified:
        return None
    return socket.AF_INET if address.version == 4 else socket.AF_INET6


def _by_route(family: socket.AddressFamily) -> str:
    """That of the interface with the default route; "" without one."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_ELSEWHERE[family], 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def _by_interface(family: socket.AddressFamily) -> str:
    """The first that leads further than this machine: of two that share a cable, neither has a default route."""
    for _, addresses in sorted(psutil.net_if_addrs().items()):
        for each in addresses:
            if each.family == family and not _stays_here(each.address):
                return str(each.address)
    return ""


def _stays_here(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    return address.is_loopback or address.is_link_local
