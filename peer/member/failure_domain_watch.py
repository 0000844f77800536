"""What this process knows of its surroundings: its machine, its power, its public address; and tells when they change.

Edge. Nothing of it leaves the machine but hashes, and how likely this peer leaves.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import psutil

from peer.errors import PeerError
from peer.member.peer_options import PeerOptions
from peer.replication.mesh_view import MeshView
from peer.state.failure_domains import UNKNOWN, Surroundings, Telling, hashed, hazard_milli, public_address
from peer.state.generated.commands import MemberMeasured, Profile
from peer.transport.peer_links import PeerLinks
from peer.transport.ticker import After

LOOK_S: Final = 1.0
POWER_EVERY_S: Final = 5.0
THROTTLED_FOR_S: Final = 60.0  # after the processor was last slowed down for heat
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_THROTTLED: Final = Path("/sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count")

log = logging.getLogger(__name__)


def machine_name() -> str:
    """The same for all processes of this machine until it starts anew, containers included; "" where nobody says."""
    system: str = sys.platform
    with suppress(OSError, subprocess.SubprocessError):
        if system == "darwin":
            asked = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
            return subprocess.run(asked, capture_output=True, text=True, timeout=2, check=True).stdout.strip()
        if _BOOT.exists():
            return _BOOT.read_text(encoding="ascii").strip()
    return ""


def on_battery() -> bool:
    """Whether this machine runs on its battery, as far as its system says so."""
    sensors: Callable[[], object] | None = getattr(psutil, "sensors_battery", None)
    try:
        found = sensors() if sensors is not None else None
    except Exception:  # psutil reads files that some systems lack, or fill in their own way
        return False
    return getattr(found, "power_plugged", None) is False


def throttle_count() -> int:
    """How often the processor was slowed down for heat since it started; 0 where the system does not say."""
    try:
        return int(_THROTTLED.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


class Power:
    """Conditions that make this peer likelier to leave. `battery()`, `throttles()`: what the system says now."""

    def __init__(
        self, battery: Callable[[], bool] = on_battery, throttles: Callable[[], int] = throttle_count
    ) -> None:
        self._battery = battery
        self._throttles = throttles
        self._count = throttles()
        self._throttled_until = self._looked = float("-inf")
        self._found: frozenset[str] = frozenset()

    def conditions(self, now: float) -> frozenset[str]:
        """Those that hold, looked at every POWER_EVERY_S."""
        if now - self._looked < POWER_EVERY_S:
            return self._found
        self._looked = now
        count = self._throttles()
        if count > self._count:
            self._count, self._throttled_until = count, now + THROTTLED_FOR_S
        found = {"battery"} if self._battery() else set()
        found |= {"throttled"} if now < self._throttled_until else set()
        self._found = frozenset(found)
        return self._found


class Around:
    """The surroundings of a peer with these options in `mesh`."""

    def __init__(
        self,
        mesh: str,
        options: PeerOptions,
        links: PeerLinks,
        view: MeshView,
        power: Power | None = None,
    ) -> None:
        name = machine_name() if options.machine is None else options.machine
        self._mesh = mesh
        self._options = options
        self._links = links
        self._view = view
        self._machine = hashed("machine", mesh, name)
        self._owner = hashed("owner", mesh, options.owner)
        self._address = ""  # the last one that was known
        self._power = power or Power()
        self._telling = Telling()

    def seen(self, now: float) -> Surroundings:
        """What this peer says of itself; an older one says nothing."""
        if self._options.older:
            return UNKNOWN
        return Surroundings(
            hazard_milli("process", self._power.conditions(now)),
            self._machine,
            hashed("network", self._mesh, self._found()),
            self._owner,
        )

    def _found(self) -> str:
        """Its public address, as a STUN server sees it or this machine has it; none of one that keeps to a relay."""
        if self._options.relay_only:
            return ""
        dialer = self._links.dialer
        all_of_them = "\n".join(dialer.own_description(peer) for peer in dialer.connected_peers())
        self._address = public_address(all_of_them) or self._address
        return self._address

    def due(self, now: float) -> MemberMeasured | None:
        """What is to be told again, now that something has changed for a while."""
        member = self._view.state.members.get(self._view.me)
        if member is None or member.profile is None or member.status != "measured":
            return None  # it says so when it measures
        seen = self.seen(now)
        if not self._telling.due(int(now * 1000), member.profile.surroundings, seen):
            return None
        return MemberMeasured(self._view.me, replace(member.profile, surroundings=seen), ())

    async def follow(self, after: After) -> None:
        """Looks now and then, for as long as this peer lends."""
        while True:
            await after(LOOK_S)
            command = self.due(time.monotonic())
            if command is None:
                continue
            log.info("says anew what may take it away: hazard %s", command.profile.surroundings.hazard_milli)
            try:
                await self._view.measured(command)
            except (PeerError, TimeoutError) as error:
                log.info("the coordinator did not hear of it: %s", error)


def with_surroundings(profile: Profile, around: Around) -> Profile:
    """What was measured, with what is known of this peer's surroundings now."""
    return replace(profile, surroundings=around.seen(time.monotonic()))
