"""What is said when, by the likeliest token of each frame, and how a long recording is cut."""

from __future__ import annotations

import numpy as np
import pytest

from peer.model.ctc_rules import (
    MARGIN_S,
    MOST_MS,
    PAUSE_MS,
    WINDOW_S,
    Frames,
    likeliest,
    parts_of,
    windows_of,
)
from peer.model.speech_asked import Segment, Word
from planner.model.speech import RATE, CtcText

TEXT = CtcText("sound", "logits", ("", "", "a", "b", "c", ""), blank=0, space=1, hop=320, seen=400)
NONE = CtcText("sound", "logits", ("", "x", "a", "b", "c", ""), blank=0, space=None, hop=320, seen=400)
SIGNS = {"_": 0, "|": 1, "a": 2, "b": 3, "c": 4, "?": 5}


def frames(signs: str, first: int = 0) -> Frames:
    ids = np.array([SIGNS[sign] for sign in signs], np.int64)
    return Frames(first, ids, np.full(len(ids), -0.5, np.float32))


def words(signs: str, text: CtcText = TEXT) -> list[Word]:
    return [word for part in parts_of(frames(signs), text, over=True)[0] for word in part.words]


@pytest.mark.parametrize(
    ("signs", "said"),
    [
        ("", []),
        ("____", []),
        ("||_|", []),
        ("aab", [("ab", 0, 60)]),
        ("_a_ab_", [("aab", 20, 100)]),
        ("a|b", [("a", 0, 20), ("b", 40, 60)]),
        ("|aa__|_|b|", [("a", 20, 60), ("b", 160, 180)]),
        ("a?b", [("ab", 0, 60)]),
        ("ab___", [("ab", 0, 40)]),
    ],
)
def test_words_have_the_times_of_their_tokens(signs: str, said: list[tuple[str, int, int]]) -> None:
    assert [(word.text, word.start_ms, word.end_ms) for word in words(signs)] == said


def test_without_a_token_between_words_each_token_is_one() -> None:
    assert [word.text for word in words("ab_b", NONE)] == ["a", "b", "b"]
    (part,), _ = parts_of(frames("ab_b"), NONE, over=True)
    assert part.text == "abb"


def test_a_part_is_what_stands_between_pauses() -> None:
    pause = "_" * (PAUSE_MS // 20)
    parts, left = parts_of(frames(f"a|b|{pause}c"), TEXT, over=True)
    assert [(part.text, part.start_ms, part.end_ms) for part in parts] == [
        (" a b", 0, 60),
        (" c", 80 + PAUSE_MS, 100 + PAUSE_MS),
    ]
    assert not len(left.ids)
    assert parts[0] == Segment(0, 60, " a b", (2, 3), -0.5, (Word(0, 20, "a"), Word(40, 60, "b")))
    together, _ = parts_of(frames(f"a|b|{pause[4:]}c"), TEXT, over=True)
    assert [part.text for part in together] == [" a b c"]


def test_a_part_that_is_long_ends_with_a_word() -> None:
    parts, _ = parts_of(frames("a|" * (MOST_MS // 40 + 3)), TEXT, over=True)
    assert [len(part.words) for part in parts] == [MOST_MS // 40, 3]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40, 200])
def test_windows_one_after_the_other_write_what_the_whole_does(size: int) -> None:
    rng = np.random.default_rng(size)
    signs = "".join(rng.choice(list("__|abc?"), 300)) + "_" * 60 + "ab|c" + "_" * 50 + "c"
    expected, _ = parts_of(frames(signs), TEXT, over=True)
    found: list[Segment] = []
    left = frames("")
    for first in range(0, len(signs), size):
        left = left.behind(frames(signs[first : first + size], first))
        parts, left = parts_of(left, TEXT, over=first + size >= len(signs))
        found += parts
    assert found == expected


def test_the_likeliest_token_has_its_probability() -> None:
    logits = np.log(np.array([[0.25, 0.5, 0.25], [0.1, 0.1, 0.8]], np.float32)) + 900
    found = likeliest(logits, 3)
    assert (found.first, found.ids.tolist()) == (3, [1, 2])
    np.testing.assert_allclose(np.exp(found.log_shares), [0.5, 0.8], rtol=1e-4)


@pytest.mark.parametrize("samples", [0, 1, 399, 400, 16_000, 480_000])
def test_a_short_recording_is_one_window(samples: int) -> None:
    (window,) = windows_of(samples, TEXT)
    assert (window.first, window.stop, window.kept_first) == (0, samples, 0)
    assert window.kept_stop == TEXT.frames(max(samples, 400))


@pytest.mark.parametrize("seconds", [31, 35, 50, 50.01, 179.3, 3600])
def test_of_a_long_recording_each_frame_counts_once(seconds: float) -> None:
    samples = int(seconds * RATE)
    windows = windows_of(samples, TEXT)
    kept = [
        (window.first // 320 + window.kept_first, window.first // 320 + window.kept_stop)
        for window in windows
    ]
    assert kept[0][0] == 0
    assert [stop for _, stop in kept[:-1]] == [first for first, _ in kept[1:]]
    assert kept[-1][1] == TEXT.frames(samples)
    for window in windows:
        assert window.first % 320 == 0
        assert 2 * MARGIN_S * RATE <= window.stop - window.first <= WINDOW_S * RATE
        assert window.kept_first == (MARGIN_S * RATE // 320 if window.first else 0)
        assert window.kept_stop <= TEXT.frames(window.stop - window.first)
