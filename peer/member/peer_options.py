"""What people may set on the command line, checked: sizes, durations, cuts, sampling. Pure."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, get_args

from peer.state.fairness import OPEN
from peer.state.generated.commands import FairnessChosen, PlanWished, Protection
from peer.state.protection import MAX_REDUNDANCY, MIN_REDUNDANCY, STANDARD
from planner.types import Objective, WeightFormat
from signaling.invites import MAX_USES

if TYPE_CHECKING:  # a command line is read before any engine is imported
    from peer.transport.connection import Engine

INTERRUPTED = 130  # exit status after Ctrl-C, as shells expect
BROKEN_PIPE = 141  # exit status when nobody reads standard output any more, as shells expect
TRANSPORTS = (
    "auto",
    "aiortc",
    "libdatachannel",
)  # those of peer.transport.engines, which takes long to import
PROVIDER_NAMES = ("cpu", "cuda", "coreml", "dml", "openvino")  # those of peer.runtime.execution, likewise
BROWSERS = ("chromium", "firefox")
LEAST_SIZE = 1 << 20  # less is a number whose unit was forgotten
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)?", re.IGNORECASE)
MAX_KNOWN_AS = 64  # characters of the name of an owner or a machine
MAX_SPAN_S = 36_500 * 86_400
_NO_TEXT = re.compile("[\ud800-\udfff]")
_SPAN_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Faults that `shoal validate` puts into peers which it started itself; no frame and no request leads here."""

    before_call: Callable[[], None]  # of the model, on the worker: takes its time, or raises
    engine: Callable[[Engine], Engine]  # may lead the connection's datagrams through a relay


@dataclass(frozen=True, slots=True)
class Lent:
    """Memory that a peer lends. `beside_program`: beside what the program itself is measured to occupy, else in all."""

    bytes: int
    beside_program: bool = False

    @property
    def words(self) -> str:
        """As `lent` reads it."""
        return f"+{self.bytes}" if self.beside_program else str(self.bytes)


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """What one peer brings: its name, room and way to the network."""

    name: str
    memory_bytes: int
    threads: int
    provider: str
    transport: str
    bind: tuple[str, ...]
    relay_only: bool = False  # others see the address of the mesh's relay, never one of this machine
    disturbance: Disturbance | None = None
    pin_ends: bool = False  # embedding, head and sampling of what it asks stay with it
    owner: str = ""  # who may take it away; "": nobody is named
    machine: str | None = None  # what it runs on, where several machines are one; None: as the system says
    older: bool = False  # speaks the older version of the protocol alone, as a peer that was not updated yet
    beside_program: bool = (
        False  # `memory_bytes` do not count what the program itself occupies, until it is measured
    )

    def measured(self, overhead_bytes: int) -> PeerOptions:
        """The same, with all that is lent in `memory_bytes`, now that the program is known to occupy so much."""
        if not self.beside_program:
            return self
        return replace(self, memory_bytes=self.memory_bytes + overhead_bytes, beside_program=False)


@dataclass(frozen=True, slots=True)
class MeshOptions:
    """What the founder promises for the whole mesh."""

    context: int
    sessions: int
    objective: Objective
    cuts: tuple[int, ...] | None
    protection: Protection = STANDARD
    fairness: FairnessChosen = OPEN
    wish: PlanWished | None = None  # None: the strategy `optimal`, by the objective


def address(text: str) -> tuple[str, int]:
    """Host and port of "127.0.0.1:9464", "[::1]:9464" or "9464" (this machine only). Raises ArgumentTypeError."""
    host, mark, number = text.strip().rpartition(":")
    try:
        found = port(number)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT such as 127.0.0.1:9464, got {text!r}") from None
    return (host.strip("[]") if mark else "127.0.0.1"), found


def size(text: str) -> int:
    """Bytes of "512MiB", "2G", "1048576". Raises ArgumentTypeError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a size such as 512MiB or 2GiB, got {text!r}")
    found = int(float(match[1]) * _UNITS[match[2].upper()])
    if 0 < found < LEAST_SIZE:
        raise argparse.ArgumentTypeError(
            f"expected at least {LEAST_SIZE} bytes, or 0, got {text!r}: a size has a unit, such as 512MiB or 2GiB"
        )
    return found


def lent(text: str) -> Lent:
    """What "2GiB" lends in all, or "+300MiB" beside what the program itself occupies. Raises ArgumentTypeError."""
    beside = text.strip().startswith("+")
    return Lent(size(text.strip()[1:] if beside else text), beside)


def span(text: str) -> int:
    """Seconds of "90", "30m", "24h", "7d". Raises ArgumentTypeError."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a duration such as 30m, 24h or 7d, got {text!r}")
    seconds = int(float(match[1]) * _SPAN_S[(match[2] or "s").lower()])
    if not 0 < seconds <= MAX_SPAN_S:
        raise argparse.ArgumentTypeError(f"expected a duration from 1s to 36500d, got {text!r}")
    return seconds


def text(given: str) -> str:
    """What a person typed; bytes that are no text in this machine's encoding become U+FFFD."""
    return _NO_TEXT.sub("\ufffd", given)


def browsers(text: str) -> list[str]:
    """The browsers of "chromium,firefox"; one named twice is opened twice. Raises ArgumentTypeError."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found or any(name not in BROWSERS for name in found):
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(BROWSERS)}, with commas, got {text!r}")
    return found


def words(text: str) -> list[str]:
    """The words of "135m,4b". Raises ArgumentTypeError when there is none."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise argparse.ArgumentTypeError(f"expected words with commas between, got {text!r}")
    return found


def forms(text: str) -> list[WeightFormat]:
    """Forms of weights, of "8bit,4bit". Raises ArgumentTypeError."""
    known: dict[str, WeightFormat] = {each: each for each in get_args(WeightFormat)}
    found = words(text)
    if any(each not in known for each in found):
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(known)}, with commas, got {text!r}")
    return [known[each] for each in found]


def cuts(text: str) -> tuple[int, ...]:
    """Unit borders of "20,41". Raises ArgumentTypeError."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected unit borders such as 20,41, got {text!r}") from None


def redundancy(text: str) -> int:
    """Thousandths of copies of "1.5". Raises ArgumentTypeError."""
    try:
        milli = round(float(text) * 1000)
    except (ValueError, OverflowError):
        milli = 0
    if not MIN_REDUNDANCY <= milli <= MAX_REDUNDANCY:
        raise argparse.ArgumentTypeError(
            f"expected copies from {MIN_REDUNDANCY // 1000} (none) to {MAX_REDUNDANCY // 1000}, "
            f"such as 1.5: half of the stages doubled; got {text!r:.60}"
        )
    return milli


def unit_names(text: str) -> tuple[str, ...]:
    """The units of "embed,head". Raises ArgumentTypeError."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"expected units with commas, such as embed,head; got {text!r:.60}")
    return found


def known_as(text: str) -> str:
    """The name of an owner or a machine. Raises ArgumentTypeError."""
    found = text.strip()
    if not 0 < len(found) <= MAX_KNOWN_AS or not found.isprintable():
        raise argparse.ArgumentTypeError(
            f"expected a name of 1 to {MAX_KNOWN_AS} printable characters, got {text!r:.80}"
        )
    return found


def positive(text: str) -> int:
    """A whole number above 0. Raises ArgumentTypeError."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}")
    return int(text)


def port(text: str) -> int:
    """A TCP port, or 0. Raises ArgumentTypeError."""
    if not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, got {text!r}")
    return int(text)


def uses(text: str) -> int:
    """How many peers a link is for; 0: any number. Raises ArgumentTypeError."""
    if not text.isdigit() or int(text) > MAX_USES:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 (any) to {MAX_USES}, got {text!r}")
    return int(text)
