"""Decides which transport engine carries a connection."""

import importlib.util
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from peer.errors import BindFailed, EngineMissing
from peer.transport.connection import Engine

ENGINES: Final = ("auto", "aiortc", "libdatachannel")
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


def choose_engine(name: str, relay_only: bool = False) -> Callable[[EngineSettings], Engine]:
    """The engine called `name`; "auto" is libdatachannel where it is installed and does what is asked, else aiortc.

    Raises EngineMissing for a name that is not known or not installed.
    """
    if relay_only and name == "libdatachannel":
        raise EngineMissing(
            "aiolibdatachannel cannot keep to a relay: leave out --transport, or --relay-only"
        )
    fast = importlib.util.find_spec("aiolibdatachannel") is not None and not relay_only
    match name:
        case "libdatachannel" | "auto" if fast:
            from peer.transport.engines.libdatachannel import LibdatachannelEngine

            return LibdatachannelEngine
        case "aiortc" | "auto":
            from peer.transport.engines.aiortc import AiortcEngine

            return AiortcEngine
        case "libdatachannel":
            raise EngineMissing(
                "transport libdatachannel is not installed; install shoal-mesh[fast] on CPython 3.12 or newer, "
                "or use --transport aiortc"
            )
        case _:
            raise EngineMissing(f"expected a transport of {', '.join(ENGINES)}, got {name!r}")
