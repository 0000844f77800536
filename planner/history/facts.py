"""Decides which facts a history keeps, and the class that a peer counts as.

Pure. Every fact is a row of one table, its fields the columns after `seen` (when it was recorded). Nothing of prompts,
answers or activations is among them, and no name that a person chose.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from planner.types import UnitKind

PROCESS: Final = "Python"  # the browser of a peer that is none
_BROWSERS: Final = (  # in this order: the later ones name themselves in the user agents of the earlier
    ("Edge", re.compile(r"\bEdg(?:e|A|iOS)?/(\d+)")),
    ("Opera", re.compile(r"\bOPR/(\d+)")),
    ("Firefox", re.compile(r"\b(?:Firefox|FxiOS)/(\d+)")),
    ("Chrome", re.compile(r"\b(?:Chrome|CriOS|Chromium|HeadlessChrome)[/ ](\d+)")),
    ("Safari", re.compile(r"\bVersion/(\d+)[.\d]* (?:Mobile/\w+ )?Safari/")),
)
_SHOAL: Final = re.compile(r"shoal/(\d+(?:\.\d+)?)")
_PHONE: Final = re.compile(r"\b(?:Mobile|iPhone|Android|phone)\b")
MAX_FIELD: Final = 64  # characters of what a peer says of itself


@dataclass(frozen=True, slots=True)
class PeerClass:
    """What predictions may generalise over: peers of one class are taken to be alike."""

    browser: (
        str  # "Chrome", "Firefox", "Safari", "Edge"; "Python" for a process; "browser" when it does not say
    )
    version: str  # the major version
    provider: str  # "cpu", "cuda", "wasm", "webgpu"
    threads: int
    device: str  # "computer" or "phone"

    @property
    def name(self) -> str:
        """The key of the class: "Chrome 140 webgpu x1 computer"."""
        called = f"{self.browser} {self.version}".strip()
        return f"{called} {self.provider} x{self.threads} {self.device}"


def class_of(agent: str, provider: str, threads: int) -> PeerClass:
    """The class of a peer that calls its software `agent`: "shoal/0.1.0 (aiortc)", or with a browser in it."""
    provider = provider[:MAX_FIELD]
    device = "phone" if _PHONE.search(agent) else "computer"
    for browser, pattern in _BROWSERS:
        if (found := pattern.search(agent)) is not None:
            return PeerClass(browser, found[1], provider, threads, device)
    if provider in ("wasm", "webgpu"):
        return PeerClass("browser", "", provider, threads, device)
    version = _SHOAL.search(agent)
    return PeerClass(PROCESS, version[1] if version is not None else "", provider, threads, device)


_NAME: Final = re.compile(r"([A-Za-z]{1,20})(?: (\S{1,20}))? (\S{1,64}) x(\d{1,4}) (computer|phone)")


def class_named(name: str) -> PeerClass | None:
    """The class whose name this is."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    return PeerClass(found[1], found[2] or "", found[3], int(found[4]), found[5])


def bucket_of(weight_bytes: int) -> int:
    """The shape bucket of a unit: units whose weights differ by less than a factor of two are taken to be alike."""
    return max(0, weight_bytes).bit_length()


@dataclass(frozen=True, slots=True)
class PeerMeasured:
    """A peer measured itself."""

    mesh: str
    peer: str  # its id; no name
    device_class: str
    browser: str
    version: str
    provider: str
    threads: int
    device: str
    memory_bytes: int
    overhead_bytes: int
    step_s: float
    again: bool = False  # because it was asked to, since a prediction of its times abstained


@dataclass(frozen=True, slots=True)
class UnitTime:
    """How long one unit takes for one token on one peer. `phase`: "decode", "prefill" or "batch" (one more row)."""

    mesh: str
    model: str
    peer: str
    device_class: str
    browser: str
    provider: str
    kind: UnitKind
    bucket: int
    phase: str
    flops: int
    weight_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LinkMeasured:
    """The path from `src` to `dst`. `relayed` is None where nobody knows."""

    mesh: str
    src: str
    dst: str
    src_class: str
    dst_class: str
    rtt_s: float
    bytes_per_s: float
    overhead_s: float
    relayed: bool | None = None


@dataclass(frozen=True, slots=True)
class SessionTimes:
    """One answer as a stage saw it: how many tokens, and the seconds between them."""

    mesh: str
    model: str
    plan: int
    stages: int
    classes: str  # of the peers on its route, sorted, with commas
    tokens: int
    seconds: float
    token_s: float  # the median
    p90_s: float
    longest_s: float
    predicted_s: float | None  # by the plan, for one session alone
    sessions: int  # computed at some moment meanwhile, this one included


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """A plan was "proposed", "activated" or "refused"."""

    mesh: str
    model: str
    version: int
    event: str
    stages: int
    standbys: int
    peers: int  # that could compute
    predicted_s: float | None
    predicted_per_s: float | None
    layout: str  # "0-20 CLASS; 20-62 CLASS"
    reason: str


@dataclass(frozen=True, slots=True)
class Recovery:
    """A peer that served was lost, and when the mesh could serve again. `seconds` None: it never could."""

    mesh: str
    peer: str
    device_class: str
    polite: bool
    plan_before: int
    plan_after: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Stay:
    """How long a peer stayed under one condition. `ended` False: it was still there."""

    mesh: str
    peer: str
    device_class: str
    condition: str  # "", "background" or "battery"
    seconds: float
    ended: bool


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One figure of a benchmark."""

    name: str
    figure: str
    value: float
    unit: str
    machine: str


Fact = PeerMeasured | UnitTime | LinkMeasured | SessionTimes | PlanEvent | Recovery | Stay | Benchmark
TABLES: Final[Mapping[str, type[Fact]]] = {
    "peers": PeerMeasured,
    "units": UnitTime,
    "links": LinkMeasured,
    "sessions": SessionTimes,
    "plans": PlanEvent,
    "recoveries": Recovery,
    "stays": Stay,
    "benchmarks": Benchmark,
}
TABLE_OF: Final[Mapping[type[Fact], str]] = {shape: table for table, shape in TABLES.items()}


def columns(table: str) -> tuple[str, ...]:
    """The columns of a table in order, `seen` first."""
    return ("seen", *(field.name for field in fields(TABLES[table])))
