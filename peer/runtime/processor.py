"""Which processor this is: its name, its cores, and the instructions that make a difference to kernels. Edge."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Final

import numpy as np

_NAMED: Final = ("vendor_id", "cpu family", "model", "model name", "stepping", "CPU implementer", "CPU part")


def processor() -> str:
    """For reports of measurements, such as "AMD EPYC, avx512_vnni, 2 cores"."""
    named = _facts().get("model name") or platform.processor() or platform.machine()
    return f"{named}, {instruction_set()}, {os.cpu_count()} cores"


def instruction_set() -> str:
    """The widest instructions of this processor that make a difference to kernels, as numpy finds them by asking the
    processor itself; emulators and containers show those of their host in files.
    """
    machine = platform.machine().lower()
    # "found": what numpy uses at run time beyond what it was built for; the key is missing where there is nothing
    names = set(np.show_config(mode="dicts")["SIMD Extensions"].get("found", ()))
    if machine in ("arm64", "aarch64"):
        return "neon_dotprod" if "ASIMDDP" in names else "neon"
    if machine not in ("x86_64", "amd64"):
        return "".join(one for one in machine if one.isalnum() or one == "_") or "unknown"
    if names & {"AVX512_CLX", "AVX512_CNL", "AVX512_ICL", "AVX512_SPR"}:
        return "avx512_vnni"
    if names & {"X86_V4", "AVX512_SKX"}:
        return "avx512"
    return "avx2" if names & {"X86_V3", "AVX2"} else "sse4"


def processor_name() -> str:
    """The processor's name, as far as this system tells it."""
    return " ".join(_facts().values()) or platform.processor() or platform.machine()


def _facts() -> dict[str, str]:
    """What Linux tells of the first core; empty elsewhere."""
    found: dict[str, str] = {}
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() in _NAMED:
                    found.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    return found
