"""Which tokens may come when speech is written, and what is said when, as tables."""

from __future__ import annotations

import numpy as np
import pytest

from peer.model.speech_rules import Said, Writing, allowed, language_of, log_share, parts_of
from planner.model.blob_ref import BlobRef
from planner.model.speech import Speech

END, START, NO_TIMES, ZERO, VOCAB = 10, 11, 19, 20, 40
SPEECH = Speech(
    encoder="0" * 64,
    spectrogram=BlobRef("0" * 64, 0, ()),
    rows=1500,
    mels=80,
    frames=3000,
    start=START,
    languages={"en": 12, "de": 13},
    transcribe=14,
    translate=15,
    no_timestamps=NO_TIMES,
    suppressed=(3,),
    begin_suppressed=(END, 4),
    max_initial=5,
)


def may_follow(before: list[int], *, times: bool = True, loud: int | None = None) -> list[int]:
    logits = np.zeros(VOCAB, np.float32)
    logits[:NO_TIMES] = 9  # words are likelier than all times together, unless a test says otherwise
    if loud is not None:
        logits[loud] = 20
    found = allowed(logits, Writing(SPEECH, END, 12, times=times), before)
    return np.flatnonzero(np.isfinite(found)).tolist()


WORDS = [token for token in range(NO_TIMES) if token != 3]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([], [*range(ZERO, ZERO + 6)]),  # a time comes first, and an early one
        ([22], WORDS),  # then words
        ([22, 5], [*WORDS, *range(23, VOCAB)]),  # times do not fall
        ([22, 5, 25], [*range(END, NO_TIMES), *range(25, VOCAB)]),  # the second of a pair, or the end
        ([22, 5, 25, 25], WORDS),
    ],
)
def test_times_come_in_pairs_and_never_fall(before: list[int], expected: list[int]) -> None:
    assert may_follow(before) == expected


def test_a_time_comes_where_all_times_are_likelier_than_any_word() -> None:
    assert may_follow([22, 5], loud=30) == [*range(23, VOCAB)]


def test_without_times_neither_a_time_comes_nor_what_is_suppressed() -> None:
    assert may_follow([], times=False, loud=30) == [t for t in WORDS if t not in (4, END)]
    assert may_follow([5], times=False, loud=30) == WORDS


def test_a_prompt_says_language_task_and_whether_there_are_times() -> None:
    assert Writing(SPEECH, END, 12).prompt == (START, 12, 14)
    assert Writing(SPEECH, END, 13, translated=True, times=False).prompt == (START, 13, 15, NO_TIMES)
    assert Writing(SPEECH, END).prompt == (START,)


def test_the_likeliest_language_is_one_of_those_it_knows() -> None:
    logits = np.zeros(VOCAB, np.float32)
    logits[[5, 13]] = 9, 2
    assert language_of(logits, SPEECH) == 13


def test_a_share_is_that_of_the_softmax() -> None:
    logits = np.array([1.0, 2.0, -np.inf], np.float32)
    assert log_share(logits, 1) == pytest.approx(np.log(np.exp(2) / (np.exp(1) + np.exp(2))))


@pytest.mark.parametrize(
    ("tokens", "expected", "later"),
    [
        # a pair of times ends a part; what follows the last one is written again
        ([20, 5, 30, 30, 6], [(1000, 1200, [20, 5, 30, 30])], 20),
        ([20, 5, 30, 30, 6, 35, 35], [(1000, 1200, [20, 5, 30]), (1200, 1300, [30, 6, 35, 35])], 30),
        # a last time that stands alone: nothing is said after it
        ([20, 5, 30, 30, 6, 35], [(1000, 1200, [20, 5, 30]), (1200, 1300, [30, 6, 35])], 3000),
        ([20, 5, 30], [(1000, 1200, [20, 5, 30])], 3000),
        ([20, 5], [(1000, 31000, [20, 5])], 3000),
        ([5, 6], [(1000, 31000, [5, 6])], 3000),
        ([], [(1000, 31000, [])], 3000),
        ([20, 20], [(1000, 1000, [20, 20])], 1),  # it goes on in any case
    ],
)
def test_parts_end_at_pairs_of_times(
    tokens: list[int], expected: list[tuple[int, int, list[int]]], later: int
) -> None:
    parts, found = parts_of(tokens, SPEECH, 100, 3000)
    assert parts == [Said(start, end, tuple(inside)) for start, end, inside in expected]
    assert found == later
