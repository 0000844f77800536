"""Where the log of the mesh is kept: every byte of it damaged in every way, and epochs that are over."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peer.consensus.events import Persist, StoreSnapshot
from peer.consensus.message_codec import config_bytes
from peer.consensus.records import Config, Entry, Server, Snapshot
from peer.replication.log_keeping import LogKeeping, state_of
from peer.state.generated.commands import RoleGiven
from peer.state.member_commands import encode_command
from peer.state.mesh_state import MeshState, encode_state
from peer.storage.log_store import LOG, SNAPSHOTS
from tests.seeds import seeds

MESH = "mesh"
ME = "me"

DAMAGES: dict[str, Callable[[bytes, int], bytes]] = {
    "flipped": lambda data, at: data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :],
    "zeroed": lambda data, at: data[:at] + bytes(1) + data[at + 1 :],
    "zeroed from here": lambda data, at: data[:at] + bytes(len(data) - at),
    "cut": lambda data, at: data[:at],
    "doubled": lambda data, at: data[:at] + data,
}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests look at bytes, not at what the disk was told."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def role(index: int) -> Entry:
    return Entry(index, 1, "command", encode_command(RoleGiven(f"p{index}", "viewer")))


def keeping(folder: Path, told: list[str]) -> LogKeeping:
    return LogKeeping(MESH, ME, folder / "0", told.append)


def made(folder: Path, snapshot_at: int = 4, last: int = 8) -> list[MeshState]:
    """A founder's log with entries 2..last and a snapshot; the states after none of the entries, after one, and on."""
    kept = keeping(folder, [])
    begin = kept.found(MeshState())
    assert kept.store is not None
    assert begin.snapshot is not None
    states = [state_of(begin.snapshot, tuple(role(n) for n in range(2, n + 1))) for n in range(1, last + 1)]
    for index in range(2, last + 1):
        kept.store.persist(Persist(0, 1, ME if index > 3 else "", (role(index),), 0))
        if index == snapshot_at:
            state = encode_state(states[index - 1])
            snapshot = Snapshot(index, 1, begin.snapshot.config, state)
            kept.store.store_snapshot(StoreSnapshot(0, snapshot, index + 1, index))
    kept.close()
    return states


def known(kept: LogKeeping) -> MeshState:
    """What a start goes on from, or could."""
    begin = kept.open(max(kept.epochs(), default=1))
    found = kept.salvage() if begin.is_new else None
    return found.state if found is not None else state_of(begin.snapshot, begin.entries)


def records_before(data: bytes, at: int) -> int:
    """How many records of that log end before byte `at`."""
    return sum(end <= at for end in (*records(data)[1:], len(data)))


def records(data: bytes) -> list[int]:
    """Where the records of that log begin."""
    return [place for place in range(len(data)) if data.startswith(b"\xf5Rec", place)]


def places(size: int) -> Iterator[int]:
    """All in a soak; else as many as its share has, others each in turn."""
    count = seeds(size)
    yield from sorted(random.Random(20261129).sample(range(size), count))


@pytest.mark.series
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", [LOG, *SNAPSHOTS])
def test_damage_anywhere_costs_nothing_that_can_be_read(name: str, how: str, tmp_path: Path) -> None:
    right = tmp_path / "right"
    states = made(right)
    whole = (right / "0-log-1" / name).read_bytes()
    for at in places(len(whole)):
        folder = tmp_path / str(at)
        shutil.copytree(right, folder)
        spoilt = DAMAGES[how](whole, at)
        (folder / "0-log-1" / name).write_bytes(spoilt)
        told: list[str] = []
        kept = keeping(folder, told)
        state = known(kept)
        kept.close()
        least = 4 + max(0, records_before(whole, at) - 1) if name == LOG else 8
        if name == LOG and how == "doubled":
            least = 8 if at == 0 else 4
        assert state in states[least - 1 :], (at, told)
        if state != states[-1] and how not in ("cut", "zeroed from here"):
            assert told, at
        if told:
            assert len(told) == 1
            assert "is damaged" in told[0]
            (aside,) = folder.rglob("*.aside-1")
            assert (aside / name if aside.is_dir() else aside).read_bytes() == spoilt
        again = keeping(folder, told)
        assert known(again) == state, "and so does every start after it"
        again.close()
        shutil.rmtree(folder)


def test_a_snapshot_and_its_copy_damaged_leave_both_files(tmp_path: Path) -> None:
    made(tmp_path)
    log = tmp_path / "0-log-1"
    for name in SNAPSHOTS:
        (log / name).write_bytes(DAMAGES["flipped"]((log / name).read_bytes(), 60))
    told: list[str] = []
    kept = keeping(tmp_path, told)
    assert kept.open(1).is_new
    assert "snapshot is damaged" in told[0]
    assert sorted(each.name for each in (tmp_path / "0-log-1.aside-1").iterdir()) == sorted(
        (LOG, "lock", *SNAPSHOTS)
    )
    kept.close()


@pytest.mark.parametrize(("behind", "alone"), [(False, True), (True, False)])
def test_whether_others_voted_is_read_behind_the_damage_too(
    behind: bool, alone: bool, tmp_path: Path
) -> None:
    """Whoever goes on alone from what can be read must not do so while others have the rest."""
    made(tmp_path)
    kept = keeping(tmp_path, [])
    begin = kept.open(1)
    assert kept.store is not None
    config = Config((Server(ME, begin.incarnation, True), Server("other", 5, True)))
    if behind:
        kept.store.persist(Persist(0, 1, ME, (Entry(9, 1, "config", config_bytes(config)),), 0))
    kept.close()
    log = tmp_path / "0-log-1" / LOG
    data = log.read_bytes()
    log.write_bytes(DAMAGES["flipped"](data, records(data)[2] + 40))
    assert kept.open(1).is_new
    found = kept.salvage()
    assert found is not None
    assert found.alone is alone
    kept.close()


def test_a_damaged_log_is_a_life_that_is_over(tmp_path: Path) -> None:
    """It may lack what this peer acknowledged, so that it neither votes nor counts by it."""
    made(tmp_path)
    kept = keeping(tmp_path, [])
    before = kept.open(1)
    kept.close()
    log = tmp_path / "0-log-1" / LOG
    log.write_bytes(DAMAGES["flipped"](log.read_bytes(), 100))
    begin = kept.open(1)
    assert begin.is_new
    assert begin.incarnation > before.incarnation
    kept.close()


def test_logs_of_epochs_that_are_over_stay(tmp_path: Path) -> None:
    states = made(tmp_path)
    kept = keeping(tmp_path, [])
    assert kept.anew(3).is_new
    assert kept.epochs() == [3]
    found = kept.salvage()
    assert found is not None
    assert (found.state, found.folder.name) == (states[-1], "0-log-1.aside-1")
    kept.anew(3)  # as the leader of that epoch wants it: it has what was committed
    assert sorted(each.name for each in tmp_path.iterdir()) == ["0-log-1.aside-1", "0-log-3"]
    kept.close()


def test_an_epoch_is_whole_before_the_one_before_it_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = made(tmp_path)
    kept = keeping(tmp_path, [])

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("peer.storage.log_store.FileStore.store_snapshot", crash)
        with pytest.raises(KeyboardInterrupt):
            kept.found(states[-1], 2)
    kept.close()
    assert kept.epochs() == [1, 2]
    assert known(keeping(tmp_path, [])) == states[-1]


def test_a_log_into_which_nothing_ever_came_leaves_no_folder(tmp_path: Path) -> None:
    kept = keeping(tmp_path, [])
    kept.open(1)
    kept.found(MeshState(), 2)
    kept.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["0-log-2"]
