"""A peer that another program started ends with that program."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.command import running


def test_a_command_ends_when_the_program_that_started_it_is_gone(tmp_path: Path) -> None:
    with running(tmp_path, "signaling", "--port", "0", "--store", tmp_path) as meeting:
        meeting.until(r"^http://")
        assert meeting.process.stdin is not None
        meeting.process.stdin.close()  # as the system does when that program is killed
        assert meeting.end(0).status == 0
