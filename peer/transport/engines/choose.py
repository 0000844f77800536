"""Decides which transport engine carries a connection."""

import importlib.util
from collections.abc import Callable
from typing import Final

from peer.errors import EngineMissing
from peer.transport.connection import Engine
from peer.transport.engines.settings import EngineSettings

ENGINES: Final = ("auto", "aiortc", "libdatachannel")


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
