"""Where an engine may send and receive, and the servers that help it through routers."""

import ipaddress
import socket
from dataclasses import dataclass
from typing import Final

from peer.errors import BindFailed

LOOPBACK: Final = ("127.0.0.1",)


@dataclass(frozen=True, slots=True)
class IceServer:
    """A STUN or TURN server, as in WebRTC's RTCIceServer."""

    urls: tuple[str, ...]
    username: str | None = None
    credential: str | None = None


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Where an engine may send and receive.

    `bind` are the addresses of this machine that may carry traffic, 127.0.0.1 included; empty: every address, and
    127.0.0.1 when there is no other. `relay_only`: nothing but the addresses of TURN relays is told to the other side.
    """

    bind: tuple[str, ...] = ()
    ice_servers: tuple[IceServer, ...] = ()
    relay_only: bool = False


def check_bind(addresses: tuple[str, ...]) -> None:
    """Raises BindFailed unless a UDP socket can be bound to each address."""
    for address in addresses:
        try:
            family = socket.AF_INET if ipaddress.ip_address(address).version == 4 else socket.AF_INET6
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.bind((address, 0))
        except (ValueError, OSError) as error:
            raise BindFailed(
                f"--bind: expected an IP address of this machine, got {address!r}: {error}"
            ) from None
