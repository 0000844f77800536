"""Two browsers and two terminals in conversations of a real mesh: the founder and the asker may go in mid-answer."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from tests.browsers.harness import Driver, Models
from tests.browsers.together import together

MESSAGES = 8  # each of the four speaks twice, and each conversation has something that is said to people only


@pytest.mark.timeout(1500)  # ten processes, two of them browsers
async def test_four_people_two_conversations_and_who_is_killed(
    driver: Driver, app: Path, models: Models, tmp_path: Path
) -> None:
    figures = await together(
        *(driver, app, models.store, models.ids["8bit"], tmp_path), messages=MESSAGES, tokens=8
    )
    assert figures.held, asdict(figures)
    assert figures.messages >= MESSAGES + 2  # and those of the third conversation
    assert figures.conversations == 3
    assert figures.transcripts == 3 * 4  # of those who were left and of one who came late
