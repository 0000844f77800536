"""Subtitles of what was said."""

from __future__ import annotations

from peer.model.speech_asked import Segment
from peer.model.subtitles import plain, srt, vtt

PARTS = [
    Segment(0, 1500, " Hello <you>.", (1,), 0.0),
    Segment(1500, 1500, "  ", (2,), 0.0),
    Segment(3_723_004, 3_724_000, " a --> b\n\n2\nc ", (3,), 0.0),
]


def test_all_words_are_one_text() -> None:
    assert plain(PARTS[:1]) == "Hello <you>."


def test_a_part_is_a_numbered_line_that_no_word_can_end() -> None:
    assert srt(PARTS) == (
        "1\n00:00:00,000 --> 00:00:01,500\nHello <you>.\n\n2\n01:02:03,004 --> 01:02:04,000\na -> b 2 c\n\n"
    )


def test_webvtt_escapes_marks() -> None:
    assert vtt(PARTS[:1]) == "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello &lt;you&gt;.\n\n"
