"""The consensus log on disk: crashes at every byte, killed writers, full disks, damage, and two processes at once."""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgpack
import pytest

from peer.consensus.core import Core
from peer.consensus.events import (
    Applied,
    Apply,
    Boot,
    Compact,
    Entry,
    Event,
    HardState,
    Persist,
    Persisted,
    Propose,
    Reject,
    Snapshot,
    SnapshotStored,
    StoreSnapshot,
    Tick,
    founding,
)
from peer.errors import DamagedStore, DiskFull, DiskRefuses, LogInUse, StateUnusable
from peer.storage import log_folder
from peer.storage.log_folder import Folder
from peer.storage.log_records import MARK, SNAPSHOT_MARK, Beginning, Group, _record, group_bytes, log_bytes
from peer.storage.log_store import (
    LOG,
    MAX_VOID_BYTES,
    SNAPSHOT,
    SNAPSHOTS,
    FileStore,
    MemoryStore,
    new_incarnation,
)
from peer.storage.stored_log import MIN_SNAPSHOT_BYTES, Kept
from planner.model.durable_files import DISK_FULL
from tests.peer.storage.stored_logs import Step, do, entry, persist, random_steps, snapshot

ROOT = Path(__file__).parents[3]
SEED = 20261128
KILLS = 4


STEPS: tuple[Step, ...] = (
    persist(1, ""),
    snapshot(1, 1, 2, 1),
    persist(1, "pa", entry(2), entry(3)),
    persist(2, "", entry(3, 2), entry(4, 2, bytes(1500)), truncate_from=3),
    snapshot(3, 2, 2, 4, b"later"),
    persist(3, "pb"),
    snapshot(9, 3, 10, 9),
    persist(3, "pb", entry(10, 3), entry(11, 3)),
)


def seen(kept: Kept) -> tuple[HardState, Snapshot | None, tuple[Entry, ...]]:
    return kept.hard_state, kept.snapshot, kept.entries


def stored(path: Path) -> Kept:
    """What a fresh process reads there."""
    store = FileStore(Folder(path))
    try:
        return store.load()
    finally:
        store.close()


def made(path: Path, steps: tuple[Step, ...], *more: Step) -> Kept:
    store = FileStore(Folder(path))
    store.load()
    for step in (*steps, *more):
        do(store, step)
    store.close()
    return stored(path)


def after(steps: tuple[Step, ...]) -> Any:
    """What `steps` come to, by the store that has no files."""
    store = MemoryStore()
    for step in steps:
        do(store, step)
    return seen(store.load())


@pytest.fixture(name="no_waiting")
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests look at bytes, not at what the disk was told."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.parametrize("count", range(len(STEPS) + 1))
def test_what_was_stored_is_there_after_a_restart(count: int, tmp_path: Path) -> None:
    path = tmp_path / "peers" / "0-consensus"
    kept = made(path, STEPS[:count])
    assert seen(kept) == after(STEPS[:count])
    assert sorted(each.name for each in path.iterdir()) == sorted(
        [LOG, "lock", *(SNAPSHOTS if count > 1 else [])]
    )
    if os.name == "posix":
        assert path.stat().st_mode & 0o077 == 0
    again = made(path, STEPS[count:])  # it goes on where it was
    assert seen(again) == after(STEPS)
    assert again.incarnation == kept.incarnation


def test_the_last_step_reads_as_written_here(tmp_path: Path) -> None:
    kept = made(tmp_path, STEPS)
    assert kept.hard_state == HardState(3, "pb")
    assert kept.entries == (entry(10, 3), entry(11, 3))
    assert isinstance(STEPS[6], StoreSnapshot)
    assert kept.snapshot == STEPS[6].snapshot
    four = made(tmp_path / "four", STEPS[:4])
    assert four.entries == (entry(2), entry(3, 2), entry(4, 2, bytes(1500)))
    assert made(tmp_path / "five", STEPS[:5]).entries == four.entries


def test_a_snapshot_of_a_later_term_says_that_nothing_was_voted_in_it(tmp_path: Path) -> None:
    assert made(tmp_path, (persist(2, "pa"), snapshot(5, 4, 6, 5))).hard_state == HardState(4, "")


def test_every_life_has_an_incarnation_of_its_own_that_rises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(time.time_ns(), 1_000_000)
    monkeypatch.setattr(time, "time_ns", lambda: next(clock))
    first = made(tmp_path / "a", ()).incarnation
    assert made(tmp_path / "a", ()).incarnation == first
    (tmp_path / "a").rename(tmp_path / "lost")
    second = made(tmp_path / "a", ()).incarnation
    third = MemoryStore().load().incarnation
    assert 0 < first < second < third < new_incarnation() < 2**53


@pytest.mark.usefixtures("no_waiting")
def test_the_core_lives_on_it(tmp_path: Path) -> None:
    """Three lives of a mesh of one: what was committed in each is there in the next, by log or by snapshot."""
    committed = 0
    for life in range(3):
        store = FileStore(Folder(tmp_path))
        kept = store.load()
        if kept.snapshot is None:
            store.persist(persist(1, ""))
            store.store_snapshot(StoreSnapshot(0, founding("pa", kept.incarnation), 2, 1))
            kept = store.load()
        core = Core()
        boot = Boot(kept.hard_state, kept.snapshot, kept.entries, "mesh", 1, "pa", kept.incarnation, life + 1)
        run(core, store, 0, boot)
        for now_ms in range(500, 15_000, 500):
            run(core, store, now_ms, Tick())
        for number in range(20):
            run(core, store, 15_000, Propose(b"x" * 100, number))
        status = core.status()
        assert status.role == "leader"
        assert status.commit >= committed + 20
        committed = status.commit
        run(core, store, 15_000, Compact(committed - 5, b"state"))
        store.close()
        again = stored(tmp_path)
        assert again.hard_state == HardState(status.term, "pa")
        assert again.snapshot is not None
        assert again.snapshot.index == committed - 5
        assert again.entries[-1].index == status.last


def run(core: Core, store: FileStore, now_ms: int, event: Event) -> None:
    waiting = [event]
    while waiting:
        for effect in core.step(now_ms, waiting.pop(0)):
            match effect:
                case Persist():
                    store.persist(effect)
                    waiting.append(Persisted(effect.token))
                case StoreSnapshot():
                    store.store_snapshot(effect)
                    waiting.append(SnapshotStored(effect.token))
                case Apply():
                    waiting.append(Applied(effect.entries[-1].index))
                case Reject():
                    pytest.fail(str(effect))
                case _:
                    pass


# --- crashes


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("big", [False, True])
def test_a_crash_at_every_byte_of_a_record_leaves_the_state_before(big: bool, tmp_path: Path) -> None:
    before = made(tmp_path, STEPS[:3])
    log = tmp_path / LOG
    start = log.read_bytes()
    step = persist(9, "pb", entry(3, 9, b"w" * 1300 if big else b"x"), truncate_from=3)
    done = made(tmp_path, (), step)
    record = log.read_bytes()[len(start) :]
    lengths = range(len(record)) if not big else range(0, len(record), 97)
    for length in lengths:
        log.write_bytes(start + record[:length])
        assert seen(stored(tmp_path)) == seen(before), length
        assert log.read_bytes() == start
    log.write_bytes(start + record[:40])
    assert seen(made(tmp_path, (), step)) == seen(done)


@pytest.mark.usefixtures("no_waiting")
def test_sectors_that_were_not_written_are_a_crash_too(tmp_path: Path) -> None:
    before = made(tmp_path, STEPS[:3])
    log = tmp_path / LOG
    start = log.read_bytes()
    made(tmp_path, (), persist(9, "", entry(4, 9, b"y" * 1700)))
    whole = log.read_bytes()
    edges = [len(start), *range((len(start) // 512 + 1) * 512, len(whole), 512), len(whole)]
    parts = list(itertools.pairwise(edges))
    assert len(parts) >= 4
    for lost in range(1, 1 << len(parts)):
        spoilt = bytearray(whole)
        for number, (begin, end) in enumerate(parts):
            if lost >> number & 1:
                spoilt[begin:end] = bytes(end - begin)
        log.write_bytes(spoilt)
        assert seen(stored(tmp_path)) == seen(before), bin(lost)


class PowerLoss(Exception):
    pass


class CrashingFolder(Folder):
    """Loses power at the given moment of writing anew: so many drafts whole, the next cut short, or so many renamed."""

    def __init__(self, path: Path, drafts: int, cut: int, renamed: int) -> None:
        super().__init__(path)
        self._moment = (drafts, cut, renamed)
        self.armed = False

    def draft(self, files: Mapping[str, bytes]) -> None:
        if not self.armed:
            return super().draft(files)
        drafts, cut, renamed = self._moment
        for number, (name, data) in enumerate(files.items()):
            if number <= drafts or renamed:
                (self.path / f"{name}.new").write_bytes(data[:cut] if number == drafts else data)
        for name in list(files)[:renamed]:
            os.replace(self.path / f"{name}.new", self.path / name)
        raise PowerLoss


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("count", [2, 5, 7])
@pytest.mark.parametrize(
    "moment",
    [
        *((drafts, cut, 0) for drafts in (0, 1, 2) for cut in (0, 1, 50, 10**6)),
        *((3, 0, renamed) for renamed in (1, 2, 3)),
    ],
)
def test_a_crash_while_a_snapshot_is_stored_leaves_it_whole_or_not_there(
    count: int, moment: tuple[int, int, int], tmp_path: Path
) -> None:
    steps = STEPS[: count - 1]
    last = STEPS[count - 1]
    before = made(tmp_path, steps)
    folder = CrashingFolder(tmp_path, *moment)
    store = FileStore(folder)
    store.load()
    folder.armed = True
    with pytest.raises(PowerLoss):
        do(store, last)
    store.close()
    kept = stored(tmp_path)
    assert seen(kept) == (after((*steps, last)) if moment[2] else seen(before))
    assert kept.incarnation == before.incarnation
    assert seen(made(tmp_path, (), *STEPS[count if moment[2] else count - 1 :])) == after(STEPS)


WRITER = """
import sys
from pathlib import Path
from peer.storage.log_folder import Folder
from peer.storage.log_store import FileStore
from tests.peer.storage.stored_logs import do, random_steps
store = FileStore(Folder(Path(sys.argv[1])))
store.load()
for number, step in enumerate(random_steps(int(sys.argv[2]), 5000)):
    do(store, step)
    print(number + 1, flush=True)
"""


@pytest.mark.parametrize("number", range(KILLS))
def test_a_kill_at_any_moment_loses_nothing_that_was_said_to_be_durable(number: int, tmp_path: Path) -> None:
    rng = random.Random(SEED + number)
    seed, enough = SEED + 10 * number, rng.randint(1, 300)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert writer.stdout is not None
    said = 0
    with writer.stdout:
        for line in writer.stdout:
            said = int(line)
            if said == enough:
                writer.kill()
    writer.wait()
    assert said >= enough, "the writer ended by itself"
    held = seen(stored(tmp_path))
    steps = tuple(random_steps(seed, said + 1))
    assert held in (after(steps[:said]), after(steps))


# --- refusals


@pytest.mark.parametrize("count", [4, 5])
def test_a_full_disk_changes_nothing_and_may_be_tried_again(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, last = STEPS[: count - 1], STEPS[count - 1]
    store = FileStore(Folder(tmp_path))
    store.load()
    for step in steps:
        do(store, step)
    real = vars(log_folder)["write_all"]

    def full(fd: int, data: bytes, offset: int | None = None) -> None:
        real(fd, data[:30], offset)
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(log_folder, "write_all", full)
    for _ in range(2):
        with pytest.raises(DiskFull, match="free some space"):
            do(store, last)
    monkeypatch.undo()
    assert list(tmp_path.glob("*.new")) == []
    do(store, last)
    store.close()
    assert seen(stored(tmp_path)) == after((*steps, last))


def test_what_a_full_disk_left_of_a_long_record_does_not_follow_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(Folder(tmp_path))
    store.load()
    real = vars(log_folder)["write_all"]

    def full(fd: int, data: bytes, offset: int | None = None) -> None:
        real(fd, data[:900], offset)
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(log_folder, "write_all", full)
    with pytest.raises(DiskFull):
        store.persist(persist(1, "pa", entry(1, 1, b"r" * 1000)))
    monkeypatch.undo()
    store.persist(persist(1, "pb"))
    store.close()
    assert seen(stored(tmp_path)) == after((persist(1, "pb"),))


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="mounts a file system of 256 KiB, which takes root"
)
def test_a_disk_that_is_full_indeed_has_room_again(tmp_path: Path) -> None:
    disk, steps = tmp_path / "disk", (persist(1, "", entry(1)), persist(1, "pa", entry(2, 1, b"z" * 5000)))
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        store = FileStore(Folder(disk / "log"))
        store.load()
        do(store, steps[0])
        fill = disk / "fill"
        with fill.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))
        for _ in range(3):
            with pytest.raises(DiskFull, match="free some space"):
                do(store, steps[1])
        fill.unlink()
        do(store, steps[1])
        store.close()
        assert seen(stored(disk / "log")) == after(steps)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


LIMITED = """
import resource, sys
from pathlib import Path
from peer.errors import DiskFull
from peer.storage.log_folder import Folder
from peer.storage.log_store import FileStore
from tests.peer.storage.stored_logs import entry, persist
store = FileStore(Folder(Path(sys.argv[1])))
store.load()
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
try:
    for index in range(1, 99):
        store.persist(persist(1, "", entry(index, 1, bytes([index]) * 300)))
except DiskFull:
    print(index - 1)
"""


@pytest.mark.skipif(os.name != "posix", reason="limits of one file are of POSIX")
def test_a_limit_on_the_size_of_a_file_is_a_full_disk(tmp_path: Path) -> None:
    count = int(
        subprocess.run(
            [sys.executable, "-c", LIMITED, str(tmp_path)],
            capture_output=True,
            check=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ).stdout
    )
    assert 5 < count < 15
    assert len(stored(tmp_path).entries) == count
    assert (tmp_path / LOG).stat().st_size < 4000


# What a machine around a peer refuses for a while: where, and with which error.
PASSING = (
    ("write_all", OSError(errno.ENOSPC, "no space")),
    ("write_all", OSError(errno.EACCES, "forbidden")),
    ("write_all", OSError(errno.EROFS, "read-only")),
    ("write_all", MemoryError()),
    ("_sync", OSError(errno.EIO, "input/output error")),
    ("_sync", OSError(errno.EDQUOT, "quota")),
    ("rename_durably", OSError(errno.EIO, "input/output error")),
    ("os.open", OSError(errno.EMFILE, "too many files")),
)


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("step", [STEPS[3], STEPS[4], STEPS[6]])
@pytest.mark.parametrize("tries", [1, 3])
@pytest.mark.parametrize(("where", "error"), PASSING)
def test_what_refuses_for_a_while_loses_nothing_and_is_over_when_it_is_over(
    where: str, error: Exception, tries: int, step: Step, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any moment of it a restart finds what was stored, with or without the step that was refused."""
    if where == "rename_durably" and isinstance(step, Persist):
        return  # appends only
    steps, later = STEPS[: STEPS.index(step)], STEPS[STEPS.index(step) + 1 :]
    store = FileStore(Folder(tmp_path / "store"))
    store.load()
    for each in steps:
        do(store, each)
    if where == "os.open":
        store._folder._let_go()  # the log is opened again after each snapshot

    def refuse(*_: object) -> None:
        raise error

    for number in range(tries):
        with monkeypatch.context() as patch:
            patch.setattr(log_folder, where, refuse) if "." not in where else patch.setattr(
                os, "open", refuse
            )
            with pytest.raises(DiskRefuses, match="full" if number_of(error) in DISK_FULL else "now"):
                do(store, step)
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(tmp_path / "store", copy)
        assert seen(stored(copy)) in (after(steps), after((*steps, step)))
    for each in (step, *later):
        do(store, each)
    store.close()
    assert seen(stored(tmp_path / "store")) == after(STEPS)


def number_of(error: Exception) -> int | None:
    return error.errno if isinstance(error, OSError) else None


def test_a_step_that_does_not_follow_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    store = FileStore(Folder(tmp_path))
    store.load()
    do(store, persist(1, "", entry(1), entry(2)))
    for wrong in (
        persist(2, "", entry(4)),
        persist(2, "", entry(2)),
        persist(2, "", entry(3, 2), truncate_from=2),
        snapshot(2, 1, 1, 5),
    ):
        with pytest.raises(ValueError):
            do(store, wrong)
    store.close()
    assert seen(stored(tmp_path)) == after((persist(1, "", entry(1), entry(2)),))


def test_one_process_at_a_time_uses_a_folder(tmp_path: Path) -> None:
    store = FileStore(Folder(tmp_path / "0"))
    store.load()
    with pytest.raises(LogInUse, match="another process uses"):
        Folder(tmp_path / "0")
    script = (
        "import sys; from pathlib import Path; "
        "from peer.storage.log_folder import Folder; Folder(Path(sys.argv[1]))"
    )
    other = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "0")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert "LogInUse" in other.stderr
    store.close()
    with pytest.raises(StateUnusable):
        store.persist(persist(1, ""))
    Folder(tmp_path / "0").close()


def test_a_path_that_is_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateUnusable, match="file"):
        Folder(tmp_path / "file" / "below")


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="they sync in ways of their own")
def test_what_is_durable_was_synced_file_first_folder_after_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(Folder(tmp_path))
    told: list[str] = []
    real_replace, real_fsync = os.replace, os.fsync

    def replace(old: Path, new: Path) -> None:
        told.append(f"name {new.name}")
        real_replace(old, new)

    def fsync(fd: int) -> None:
        told.append(f"fsync {'folder' if stat.S_ISDIR(os.fstat(fd).st_mode) else 'file'}")
        real_fsync(fd)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "fsync", fsync)
    store.load()
    assert told == ["fsync file", "name log", "fsync folder"]
    told.clear()
    do(store, STEPS[0])
    assert told == ["fsync file"]
    told.clear()
    do(store, STEPS[1])
    names = [*SNAPSHOTS, LOG]
    assert told == [*["fsync file"] * 3, *(each for n in names for each in (f"name {n}", "fsync folder"))]
    store.close()


# --- damage


@pytest.mark.usefixtures("no_waiting")
def test_a_changed_byte_anywhere_of_a_log_is_told_and_the_files_stay(tmp_path: Path) -> None:
    made(tmp_path, STEPS)
    file = tmp_path / LOG
    right = file.read_bytes()
    for at in range(len(right)):
        spoilt = bytearray(right)
        spoilt[at] ^= 0xFF
        file.write_bytes(spoilt)
        with pytest.raises(DamagedStore, match=r"log is damaged \("):
            stored(tmp_path)
        assert file.read_bytes() == spoilt
    file.write_bytes(right)
    assert seen(stored(tmp_path)) == after(STEPS)


@pytest.mark.usefixtures("no_waiting")
def test_a_hole_in_the_middle_is_no_crash(tmp_path: Path) -> None:
    made(tmp_path, (), *(persist(1, "", entry(index, 1, b"z" * 400)) for index in range(1, 9)))
    log = tmp_path / LOG
    right = log.read_bytes()
    for sector in range(1, len(right) // 512 - 1):
        log.write_bytes(right[: sector * 512] + bytes(512) + right[(sector + 1) * 512 :])
        with pytest.raises(DamagedStore):
            stored(tmp_path)


@pytest.mark.usefixtures("no_waiting")
def test_a_lost_sector_that_begins_with_a_record_is_no_crash_when_others_follow(tmp_path: Path) -> None:
    made(tmp_path, ())
    log = tmp_path / LOG
    start = log.stat().st_size
    made(tmp_path, (), persist(1, "", entry(1, 1, b"")))
    frame = log.stat().st_size - start + 2  # two bytes more for the length of longer data
    made(tmp_path, (), persist(1, "", entry(2, 1, b"z" * (1024 - log.stat().st_size - frame + 1))))
    assert log.stat().st_size == 1024
    before = stored(tmp_path)
    made(tmp_path, (), persist(2, "", entry(3, 2, b"z" * 600)))
    last = log.read_bytes()
    made(tmp_path, (), persist(3, "pa"))
    log.write_bytes(last[:1024] + bytes(512) + log.read_bytes()[1536:])
    with pytest.raises(DamagedStore, match="record 3 at byte 1024"):
        stored(tmp_path)
    log.write_bytes(last[:1024] + bytes(512) + last[1536:])  # the same, and nothing follows
    assert seen(stored(tmp_path)) == seen(before)


@pytest.mark.parametrize(
    ("lost", "says"),
    [
        ([LOG], "log is gone"),
        (SNAPSHOTS, "expected number 3"),
    ],
)
def test_half_a_store_is_damage(lost: Sequence[str], says: str, tmp_path: Path) -> None:
    made(tmp_path, STEPS)
    for name in lost:
        (tmp_path / name).unlink()
    with pytest.raises(DamagedStore, match=says):
        stored(tmp_path)


def test_an_older_snapshot_put_back_is_damage(tmp_path: Path) -> None:
    made(tmp_path, STEPS[:5])
    old = (tmp_path / SNAPSHOT).read_bytes()
    made(tmp_path, STEPS[5:])
    for name in SNAPSHOTS:
        (tmp_path / name).write_bytes(old)
    with pytest.raises(DamagedStore, match="expected number 3"):
        stored(tmp_path)


SALT = b"12345678"
GOOD = log_bytes(SALT, Beginning(5, 0, 1, HardState(1, ""), (entry(1),)))


@pytest.mark.parametrize(
    "log",
    [
        b"",
        MARK,
        MARK + SALT,
        b"\0" * 4096,
        random.Random(SEED).randbytes(300),
        MARK + SALT + random.Random(SEED).randbytes(300),
        *(
            MARK + SALT + _record(SALT, 0, value)
            for value in (
                [],
                [2, 5, 0, 1, 1, "", []],
                [1, 0, 0, 1, 1, "", []],
                [1, 2**53, 0, 1, 1, "", []],
                [1, 5, 0, 0, 1, "", []],
                [1, 5, 0, 1, -1, "", []],
                [1, 5, 0, 1, True, "", []],
                [1, 5, 0, 1, 1.0, "", []],
                [1, 5, 0, 1, 1, b"", []],
                [1, 5, 0, 1, 1, "a" * 129, []],
                [1, 5, 0, 1, 1, "", {}],
                [1, 5, 0, 1, 1, "", [[1, 1, "oops", b""]]],
                [1, 5, 0, 1, 1, "", [[1, 1, "noop", "text"]]],
                [1, 5, 0, 1, 1, "", [[2, 1, "noop", b""]]],
            )
        ),
        *(
            GOOD + _record(SALT, 1, value)
            for value in ([], [1, "", 0], [1, "", 0, [[3, 1, "noop", b""]]], [1, "", -1, []], {"term": 1})
        ),
        GOOD + _record(SALT, 2, [1, "", 0, []]),
        GOOD + _record(b"87654321", 1, [1, "", 0, []]),
    ],
    ids=itertools.count(),
)
def test_a_log_that_no_peer_wrote_is_refused(log: bytes, tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(log)
    with pytest.raises(DamagedStore, match="log is damaged"):
        stored(tmp_path)
    assert (tmp_path / LOG).read_bytes() == log


def test_bytes_of_a_peer_cannot_pass_for_a_record(tmp_path: Path) -> None:
    """An entry that holds what a record looks like, in a record that a crash cut short."""
    fake = group_bytes(b"another!", 5, Group(HardState(9, "pb"), 0, ()))
    before = made(tmp_path, STEPS[:3])
    log = tmp_path / LOG
    start = log.read_bytes()
    made(tmp_path, (), persist(2, "", entry(4, 2, b"q" * 600 + fake + b"q" * 600)))
    spoilt = bytearray(log.read_bytes())
    spoilt[len(start) : (len(start) // 512 + 1) * 512] = bytes((len(start) // 512 + 1) * 512 - len(start))
    log.write_bytes(spoilt)
    assert seen(stored(tmp_path)) == seen(before)


@pytest.mark.parametrize(
    "value",
    [
        [1, 0, 2, 1, 1, 1, [], b""],
        [1, 1, 2, 1, 0, 1, [], b""],
        [1, 1, 2, 1, 1, 1, [["b", 1, True], ["a", 1, True]], b""],
        [1, 1, 2, 1, 1, 1, [["a", 1, 1]], b""],
        [1, 1, 2, 1, 1, 1, {}, b""],
        [1, 1, 2, 1, 1, 1, [], "text"],
        [1, 1, 2, 5, 1, 1, [], b""],
        {"index": 1},
    ],
)
def test_a_snapshot_that_no_peer_wrote_is_refused(value: Any, tmp_path: Path) -> None:
    made(tmp_path, STEPS[:1])
    payload = msgpack.packb(value)
    (tmp_path / SNAPSHOT).write_bytes(SNAPSHOT_MARK + sha256(payload).digest() + payload)
    with pytest.raises(DamagedStore, match="snapshot is damaged"):
        stored(tmp_path)


# --- size


@pytest.mark.usefixtures("no_waiting")
def test_the_folder_stays_within_its_bound(tmp_path: Path) -> None:
    store = FileStore(Folder(tmp_path))
    store.load()
    data, index, term, snapshots = b"v" * 20_000, 0, 1, 0
    for number in range(600):
        cut = index if number % 3 == 0 and index > 1 else 0  # written over again and again
        term += 1
        index = cut or index + 1
        store.persist(persist(term, "pa", entry(index, term, data), truncate_from=cut))
        if store.wants_snapshot:
            store.store_snapshot(snapshot(index, term, max(1, index - 9), index, b"s" * 5000))
            snapshots += 1
        kept = MIN_SNAPSHOT_BYTES + 12 * len(data)
        assert sum(each.stat().st_size for each in tmp_path.iterdir()) < 2 * kept + MAX_VOID_BYTES + 30_000
    store.close()
    assert snapshots > 3
    assert stored(tmp_path).entries[-1] == entry(index, term, data)


@pytest.mark.usefixtures("no_waiting")
def test_terms_alone_do_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peer.storage.log_store.MAX_VOID_BYTES", 2000)
    store = FileStore(Folder(tmp_path))
    store.load()
    for term in range(1, 500):
        store.persist(persist(term, "pa"))
        assert (tmp_path / LOG).stat().st_size < 2200
    store.close()
    assert stored(tmp_path).hard_state == HardState(499, "pa")


def test_no_room_to_tidy_up_is_no_reason_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peer.storage.log_store.MAX_VOID_BYTES", 2000)
    store = FileStore(Folder(tmp_path))
    store.load()
    tried: list[object] = []

    def full(files: Mapping[str, bytes]) -> None:
        tried.append(files)
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(store._folder, "draft", full)
    for term in range(1, 200):
        store.persist(persist(term, "pa"))
    assert 1 < len(tried) < 8
    store.close()
    assert stored(tmp_path).hard_state == HardState(199, "pa")
