"""Decides how a peer that `shoal validate` started disturbs itself: a stalled or failing runtime, a relay in between.

Edge. `shoal join --inject FILE` is for validation only: FILE lies in a private folder of the process that validates,
and is read once, at the start. Nothing that comes over a connection leads here.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from peer.member.peer_options import Disturbance
from peer.transport.connection import Engine
from peer.validation.world.relay_client import Relayed


@dataclass(frozen=True, slots=True)
class Injection:
    """What FILE says: where orders for the runtime are left, and the socket of the relay ("": none)."""

    orders: Path
    relay: str
    name: str

    def to_json(self) -> str:
        """The text of FILE."""
        return json.dumps({"orders": str(self.orders), "relay": self.relay, "name": self.name})


class InjectedError(RuntimeError):
    """A step that fails because validation wants it to."""


def read_injection(file: Path) -> Disturbance:
    """The disturbance that FILE describes. Raises OSError or ValueError: only validation writes such files."""
    said = json.loads(file.read_text())
    return disturbance(Injection(Path(said["orders"]), str(said["relay"]), str(said["name"])))


def disturbance(injection: Injection) -> Disturbance:
    """Orders are looked for before each call of the model."""

    def engine(made: Engine) -> Engine:
        return Relayed(made, injection.relay, injection.name) if injection.relay else made

    return Disturbance(obedient(injection.orders, time.sleep), engine)


def obedient(orders: Path, sleep: Callable[[float], None]) -> Callable[[], None]:
    """Does what the file `orders` says, once: `stall SECONDS` or `fail`."""

    def before_call() -> None:
        if not orders.exists():
            return
        order = orders.read_text().split()
        with suppress(FileNotFoundError):  # another run of this peer took it
            orders.unlink()
        match order:
            case ["stall", seconds]:
                sleep(float(seconds))
            case ["fail"]:
                raise InjectedError("validation lets this step fail")
            case _:
                raise InjectedError(f"an order of validation was expected, got {order}")

    return before_call


def leave_order(orders: Path, order: str) -> None:
    """Leaves an order for a peer's runtime, whole or not at all."""
    fresh = orders.with_suffix(".new")
    fresh.write_text(order)
    os.replace(fresh, orders)
