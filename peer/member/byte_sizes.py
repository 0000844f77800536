"""Sizes in bytes, as people read them. Pure."""

from __future__ import annotations


def bytes_text(count: float) -> str:
    """A size for people: "98.2 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")
