"""Mapped files are let go of while no session maps or unmaps any."""

from __future__ import annotations

import mmap
import sys
import threading
from pathlib import Path

import pytest

from peer.runtime import huge_pages
from peer.runtime.huge_pages import giving_back, let_go_of_files
from tests.patience import WITHIN_S

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="other systems map files elsewhere"
)


def mapped(folder: Path) -> mmap.mmap:
    path = folder / "blob"
    path.write_bytes(bytes(range(256)) * 64)
    with path.open("rb") as file:
        found = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert found[300] == 44
    return found


def test_a_mapped_file_is_let_go_and_read_again(tmp_path: Path) -> None:
    with mapped(tmp_path) as found:
        assert let_go_of_files(tmp_path) == len(found)
        assert found[300] == 44
    assert let_go_of_files(tmp_path) == 0


def test_nothing_is_let_go_while_a_session_loads(tmp_path: Path) -> None:
    done = threading.Event()

    def let_go() -> None:
        let_go_of_files(tmp_path)
        done.set()

    with mapped(tmp_path), giving_back():
        thread = threading.Thread(target=let_go)
        thread.start()
        assert not done.wait(0.2)
    assert done.wait(WITHIN_S)
    thread.join()


def test_what_was_unmapped_meanwhile_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = mapped(tmp_path)
    ranges = huge_pages._unchanged_ranges

    def slow(inside: str) -> list[tuple[int, int]]:
        """The file is unmapped once its place is known, as by a session that ends in another thread."""
        places = ranges(inside)
        found.close()
        return places

    monkeypatch.setattr(huge_pages, "_unchanged_ranges", slow)
    assert let_go_of_files(tmp_path) == 0
