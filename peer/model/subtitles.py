"""What was said as text, as subtitles (SubRip, WebVTT) and as lines for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Spoken(Protocol):
    """A part of what was said, with its times from the beginning of the recording."""

    @property
    def start_ms(self) -> int:
        """When it begins."""

    @property
    def end_ms(self) -> int:
        """When it ends."""

    @property
    def text(self) -> str:
        """Its words."""


def plain(parts: Iterable[Spoken]) -> str:
    """All words."""
    return "".join(part.text for part in parts).strip()


def srt(parts: Iterable[Spoken]) -> str:
    """SubRip: numbered, with a comma before thousandths."""
    return "".join(
        f"{number}\n{clock(part.start_ms, ',')} --> {clock(part.end_ms, ',')}\n{_line(part.text)}\n\n"
        for number, part in enumerate(_with_words(parts), 1)
    )


def vtt(parts: Iterable[Spoken]) -> str:
    """WebVTT."""
    cues = (
        f"{clock(part.start_ms, '.')} --> {clock(part.end_ms, '.')}\n{_escaped(_line(part.text))}\n\n"
        for part in _with_words(parts)
    )
    return "WEBVTT\n\n" + "".join(cues)


def clock(ms: int, point: str) -> str:
    """Hours, minutes, seconds and thousandths."""
    seconds, thousandths = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{thousandths:03}"


def _with_words(parts: Iterable[Spoken]) -> Iterable[Spoken]:
    return (part for part in parts if part.text.strip())


def _line(text: str) -> str:
    """On one line: an empty one would end it, and an arrow would begin another."""
    return " ".join(text.split()).replace("-->", "->")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
