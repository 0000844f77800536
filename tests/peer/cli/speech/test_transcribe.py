"""Where subtitles go, decided before anything is computed."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from peer.cli.speech.transcribe import subtitles_of
from peer.errors import BadCommand


def args(*files: Path, subtitles: str = "srt", overwrite: bool = False) -> argparse.Namespace:
    return argparse.Namespace(files=files, subtitles=subtitles, overwrite=overwrite)


def test_subtitles_lie_beside_each_file(tmp_path: Path) -> None:
    talk = tmp_path / "talk.mp3"
    talk.touch()
    assert subtitles_of(args(talk)) == {talk: tmp_path / "talk.srt"}
    assert subtitles_of(args(talk, subtitles="none")) == {talk: None}


def test_no_file_is_written_over_unless_asked_for(tmp_path: Path) -> None:
    talk, film, there = (tmp_path / name for name in ("talk.mp3", "talk.mp4", "talk.srt"))
    talk.touch()
    with pytest.raises(BadCommand, match="a file expected"):
        subtitles_of(args(film))
    film.touch()
    with pytest.raises(BadCommand, match="which is another file"):
        subtitles_of(args(talk, film))
    there.touch()
    with pytest.raises(BadCommand, match="is there already: --overwrite"):
        subtitles_of(args(talk))
    assert subtitles_of(args(talk, overwrite=True)) == {talk: there}
