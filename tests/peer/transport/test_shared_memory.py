"""Files between processes of one machine: what is left is taken once, and nothing else is read, written or removed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from peer.errors import BadCommand, CannotServe
from peer.transport.shared_memory import ENDS, NEW_S, Inbox, leave, remove_leftovers

DATA = bytes(range(256)) * 16


def test_what_is_left_is_taken_once(tmp_path: Path) -> None:
    taker, sender = Inbox("taker", tmp_path), Inbox("sender", tmp_path)
    name = taker.folder("sender")
    assert taker.folder("sender") == name
    folder = sender.outbox(name, "taker")
    assert folder is not None
    file = leave(folder, DATA)
    assert file is not None
    assert taker.take("sender", file.name, len(DATA)) == DATA
    assert [each.name for each in folder.iterdir()] == [ENDS]
    with pytest.raises(BadCommand, match="cannot be read"):
        taker.take("sender", file.name, len(DATA))
    taker.close()
    assert list(tmp_path.iterdir()) == []
    assert leave(folder, DATA) is None


def spoil_mode(folder: Path) -> None:
    folder.chmod(0o755)


def spoil_ends(folder: Path) -> None:
    (folder / ENDS).write_text("somebody\ntaker\n")


def spoil_kind(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


@pytest.mark.parametrize("spoil", [spoil_mode, spoil_ends, spoil_kind])
def test_a_folder_that_others_reach_or_that_is_for_others_is_not_used(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    name = Inbox("taker", tmp_path).folder("sender")
    sender = Inbox("sender", tmp_path)
    assert sender.outbox(name, "taker") == tmp_path / name
    assert sender.outbox(name, "other") is None
    spoil(tmp_path / name)
    assert sender.outbox(name, "taker") is None


@pytest.mark.parametrize("name", ["", "..", "shoal-", "/etc", f"shoal-{'0' * 32}", f"../x/shoal-{'0' * 32}"])
def test_names_that_nobody_drew_lead_nowhere(tmp_path: Path, name: str) -> None:
    assert Inbox("sender", tmp_path).outbox(name, "taker") is None


def linked(path: Path) -> None:
    path.with_name("secret").write_bytes(DATA)
    path.symlink_to(path.with_name("secret"))


@pytest.mark.parametrize(
    "make",
    [linked, os.mkfifo, os.mkdir, lambda path: path.write_bytes(DATA[:-1]), lambda path: path.write_bytes(DATA * 2)],
    ids=["link", "pipe", "folder", "short", "long"],
)  # fmt: skip
def test_what_no_peer_leaves_is_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    taker = Inbox("taker", tmp_path)
    file = tmp_path / taker.folder("sender") / ("0" * 32)
    make(file)
    with pytest.raises(BadCommand, match="run_left"):
        taker.take("sender", file.name, len(DATA))
    assert file.is_dir() or not file.exists()


@pytest.mark.parametrize("file", ["", ENDS, "../secret", "0" * 31, "0" * 33, f"{'0' * 31}\n"])
def test_only_names_of_left_files_are_read_or_removed(tmp_path: Path, file: str) -> None:
    taker = Inbox("taker", tmp_path)
    folder = tmp_path / taker.folder("sender")
    with pytest.raises(BadCommand, match="expected"):
        taker.take("sender", file, 1)
    taker.drop("sender", file)
    assert (folder / ENDS).exists()
    with pytest.raises(BadCommand, match="expected"):
        taker.take("somebody", "0" * 32, 1)  # has no folder


def test_folders_of_processes_that_ended_are_removed(tmp_path: Path) -> None:
    alive, ended, young = Inbox("alive", tmp_path), Inbox("ended", tmp_path), Inbox("young", tmp_path)
    names = [inbox.folder("sender") for inbox in (alive, ended, young)]
    for inbox in (ended, young):
        os.close(inbox._folders.pop("sender")[1])  # as the kernel does for a process that is killed
    other = tmp_path / "shoal-of-somebody-else"
    other.mkdir()
    for path in (tmp_path / names[0], tmp_path / names[1], other):
        before = path.stat().st_mtime - 2 * NEW_S
        os.utime(path, (before, before))
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {names[0], names[2], other.name}


def test_a_machine_without_such_memory_says_so(tmp_path: Path) -> None:
    with pytest.raises(CannotServe, match="no memory that processes share"):
        Inbox("taker", tmp_path / "missing").folder("sender")
