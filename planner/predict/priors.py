"""Decides what is believed of a machine before anything was measured: weak priors, which measurements override.

Pure. The figures are round on purpose; they only order machines until probes and runs are there. That one browser is
better at one kind of model is said in the field, and nothing was found that supports it: it counts as much as one run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from planner.history.facts import PeerClass

Modality = Literal["text", "vision", "audio"]
GIGA: Final = 1e9


@dataclass(frozen=True, slots=True)
class Roof:
    """What bounds a unit: arithmetic, or reading its weights. A probe of the machine measures both."""

    flops_per_s: float
    bytes_per_s: float

    def seconds(self, flops: float, weight_bytes: float) -> float:
        """Least time for one token through a unit."""
        return max(flops / self.flops_per_s, weight_bytes / self.bytes_per_s, 1e-9)


_PER_THREAD: Final = {"cpu": Roof(20 * GIGA, 8 * GIGA), "wasm": Roof(4 * GIGA, 3 * GIGA)}
_WHOLE: Final = {
    "cuda": Roof(5000 * GIGA, 300 * GIGA),
    "coreml": Roof(800 * GIGA, 60 * GIGA),
    "dml": Roof(800 * GIGA, 60 * GIGA),
    "openvino": Roof(200 * GIGA, 30 * GIGA),
    "webgpu": Roof(300 * GIGA, 30 * GIGA),
}
_UNKNOWN: Final = Roof(10 * GIGA, 5 * GIGA)
MOST_BYTES_PER_S: Final = 40 * GIGA  # of a processor's memory, however many threads read it
PHONE_SHARE: Final = 1 / 3
LEANING_GAIN: Final = 0.97  # of the time that a browser's favoured modality is said to take
LEANING_RUNS: Final = 1  # what was said counts as much as so many runs
_LEANINGS: Final[dict[str, Modality]] = {"Chrome": "vision", "Firefox": "audio", "Edge": "text"}


def roof_of(peer: PeerClass) -> Roof:
    """The prior of a class without a probe."""
    if peer.provider in _PER_THREAD:
        one = _PER_THREAD[peer.provider]
        threads = max(1, peer.threads)
        roof = Roof(one.flops_per_s * threads, min(one.bytes_per_s * threads, MOST_BYTES_PER_S))
    else:
        roof = _WHOLE.get(peer.provider, _UNKNOWN)
    share = PHONE_SHARE if peer.device == "phone" else 1.0
    return Roof(roof.flops_per_s * share, roof.bytes_per_s * share)


def leaning(peer: PeerClass, modality: Modality, runs: int) -> tuple[float, str]:
    """(factor on the prior's time, sentence): what the field says of this browser, fading as runs come in."""
    if peer.browser == "Safari" and peer.device == "phone":
        said = "Safari is said to suit phones"
    elif _LEANINGS.get(peer.browser) == modality:
        said = f"{peer.browser} is said to suit {modality}"
    else:
        return 1.0, ""
    factor = float(LEANING_GAIN ** (LEANING_RUNS / (LEANING_RUNS + runs)))
    weight = f"counts as {LEANING_RUNS} run against {runs} measured" if runs else "nothing was measured yet"
    return factor, f"{said} ({100 * (1 - factor):.1f} % off; {weight})"
