"""The transaction log on disk: killed writers, damaged and locked files, disks that refuse."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from peer.errors import LogInUse
from peer.storage.journal import Journal, TransactionFile, open_log, salvage
from peer.storage.journal_core import Recovered, Standing, recover
from peer.storage.journal_records import Begun, Committed, Load, Run, Unload, encode_record
from tests.patience import WITHIN_S
from tests.seeds import seeds

A, B = Run(0, 31), Run(31, 62)
SEED = 20261128
KILLS = 12
ROOT = Path(__file__).parents[3]


def opened(path: Path) -> tuple[Journal, list[str]]:
    """A journal on `path` as a fresh process has it, closed again, and what people were told."""

    async def look() -> tuple[Journal, list[str]]:
        told: list[str] = []
        journal = await Journal.open(path, told.append)
        await journal.close()
        await asyncio.sleep(0)
        return journal, told

    return asyncio.run(look())


async def hold(path: Path, *runs: Run) -> None:
    journal = await Journal.open(path)
    for run in runs:
        await journal.begin(Load(run))
        journal.commit(Load(run))
    journal.opened(bytes(16))
    journal.tokens(7)
    await journal.close()


def test_what_was_held_is_known_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "peers" / "0.db"
    asyncio.run(hold(path, A, B))
    journal, told = opened(path)
    assert journal.recovered.held == (A, B)
    assert [place.session for place in journal.recovered.places] == ["00" * 16]
    assert journal.recovered.tokens == 7
    assert told == []
    if os.name == "posix":
        assert path.stat().st_mode & 0o077 == 0
    assert [each.name for each in path.parent.iterdir()] == ["0.db"]


@pytest.mark.parametrize("number", range(KILLS))
def test_a_kill_at_any_moment_leaves_nothing_half_done(number: int, tmp_path: Path) -> None:
    """The same file is killed over and over in the middle of writes."""
    rng = random.Random(SEED + number)
    path = tmp_path / "0.db"
    expected: set[Run] = set()
    for life in range(2):
        steps = killed_after(path, SEED + 10 * number + life, rng.randint(1, 400))
        expected, unsure = after_steps(steps)
        file, core, recovered = open_log(path, lambda text: pytest.fail(text))
        assert file is not None
        assert not core.begun
        assert core.held == ()
        assert set(core.kept) == set(recovered.held)
        surely = {run for run in expected if run not in unsure}
        assert surely <= set(recovered.held) <= expected | unsure, steps[-6:]
        file.close()


def killed_after(path: Path, seed: int, lines: int) -> list[list[str]]:
    """Starts a writer and kills it once it said so many lines; what it said."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(Path(__file__).with_name("journal_writer.py")), str(path), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        assert writer.stdout is not None
        said = []
        for line in writer.stdout:
            said.append(line)
            if len(said) == lines:
                writer.kill()
        assert writer.wait(30) != 0
    return [line.split() for line in said if line.endswith("\n")]


def after_steps(steps: list[list[str]]) -> tuple[set[Run], set[Run]]:
    """The runs that are held after these steps, and those whose last step may not have come to the file."""
    held: set[Run] = set()
    unsure: set[Run] = set()
    for what, kind, first, stop in steps:
        run = Run(int(first), int(stop))
        if what == "begun":  # it is on the disk, and with it every step before
            unsure = set()
        elif what == "begin":
            unsure = unsure | {run} if kind == "Load" else unsure
        else:
            unsure = {run}
            if (kind == "Load") is (what == "committed"):
                held.add(run)
            else:
                held.discard(run)
    return held, unsure | ({Run(int(steps[-1][2]), int(steps[-1][3]))} if steps else set())


@pytest.mark.parametrize("seed", range(SEED, SEED + 25))
def test_a_damaged_file_is_never_fatal(seed: int, tmp_path: Path) -> None:
    """Bytes flipped, cut off or made up, in the file or in its write-ahead log."""
    rng = random.Random(seed)
    path, living = tmp_path / "0.db", tmp_path / "living.db"
    file, core, _ = open_log(living, lambda text: pytest.fail(text))
    assert file is not None
    core_effects = [effect for number in range(200) for effect in core.step(_load(number))]
    for at in range(0, len(core_effects), 10):
        file.write(core_effects[at : at + 10])
    shutil.copy(living, path)
    shutil.copy(f"{living}-wal", f"{path}-wal")
    file.close()
    victim = path if rng.random() < 0.5 else Path(f"{path}-wal")
    body = bytearray(victim.read_bytes())
    match rng.choice(("cut", "flip", "noise")):
        case "cut":
            body = body[: rng.randrange(len(body) + 1)]
        case "flip":
            for _ in range(rng.randint(1, 40)):
                body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
        case _:
            body = bytearray(rng.randbytes(len(body)))
    victim.write_bytes(body)
    journal, told = opened(path)
    assert len(told) <= 1, told
    runs = [operation.run for operation in journal.recovered.undone if isinstance(operation, Load)]
    if told:
        assert (tmp_path / "0.db.aside-1").exists()
        assert set(runs) <= {Run(number, number + 1) for number in range(200)}
    else:  # a torn tail: what is before it holds
        assert runs == [Run(number, number + 1) for number in range(len(runs))]
    assert opened(path)[1] == []


DAMAGES: dict[str, Callable[[bytes, int], bytes]] = {
    "flipped": lambda data, at: data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :],
    "zeroed": lambda data, at: data[:at] + bytes(1) + data[at + 1 :],
    "zeroed from here": lambda data, at: data[:at] + bytes(len(data) - at),
    "cut": lambda data, at: data[:at],
    "doubled": lambda data, at: data[:at] + data,
}


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that look at bytes, not at what the disk was told."""
    begin = TransactionFile._begin_to_use

    def begin_to_use(file: TransactionFile) -> None:
        begin(file)
        file._database.execute("PRAGMA synchronous = OFF")

    monkeypatch.setattr(TransactionFile, "_begin_to_use", begin_to_use)


@pytest.mark.series
@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("how", DAMAGES)
def test_damage_anywhere_is_told_or_changes_nothing(how: str, tmp_path: Path) -> None:
    right = tmp_path / "right"
    written(right)
    whole = right.read_bytes()
    records, known = salvage(right), opened_copy(right, tmp_path / "known")
    used = [at for at, byte in enumerate(whole) if byte]  # the rest is room between the records
    for at in sorted(random.Random(SEED).sample(used, min(len(used), seeds(len(used))))):
        folder = tmp_path / str(at)
        folder.mkdir()
        spoilt = DAMAGES[how](whole, at)
        (folder / "0.db").write_bytes(spoilt)
        file, core, recovered = open_log(folder / "0.db", (told := list[str]()).append)
        assert file is not None, (at, told)
        file.close()
        if told:
            assert len(told) == 1, (at, told)
            assert "0.db is damaged" in told[0]
            assert (folder / "0.db.aside-1").read_bytes()[100:] == spoilt[100:]
            assert set(recovered.held) <= {A, B, *SMALL}
        else:
            assert recovered == known or not spoilt, at
        assert open_log_again(folder / "0.db") == (core.kept, [])
        shutil.rmtree(folder)
    assert records == salvage(right)


@pytest.mark.usefixtures("unsynced")
def test_a_damaged_record_costs_only_itself(tmp_path: Path) -> None:
    right = tmp_path / "right"
    written(right)
    whole, records = right.read_bytes(), salvage(right)
    for number, record in enumerate(records):
        text = encode_record(record).encode()
        at = whole.index(text) + len(text) - 2
        path = tmp_path / f"{number}.db"
        path.write_bytes(DAMAGES["flipped"](whole, at))
        file, core, recovered = open_log(path, (told := list[str]()).append)
        assert file is not None
        file.close()
        left = records[:number] + records[number + 1 :]
        assert recovered == recover(left, gaps=True)[1]
        assert f"goes on with the {len(left)} records" in told[0]
        assert f"record {number + 1} fails its checksum" in told[0]
        assert open_log_again(path) == (core.kept, [])


def test_a_file_of_the_format_before_is_read_and_sealed(tmp_path: Path) -> None:
    path = tmp_path / "0.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE records (number INTEGER PRIMARY KEY, record TEXT NOT NULL) STRICT")
        for number, record in ((3, Begun(Load(A))), (4, Committed(Load(A)))):
            database.execute("INSERT INTO records VALUES (?, ?)", (number, encode_record(record)))
        database.execute("PRAGMA user_version = 1")
        database.commit()
    file, _, recovered = open_log(path, lambda text: pytest.fail(text))
    assert file is not None
    assert recovered.held == (A,)
    assert len(file.read()) == 1
    file.close()


SMALL = [Run(number, number + 1) for number in range(100, 110)]


def written(path: Path) -> None:
    """A file with a checkpoint and some twenty records behind it, as a process leaves it that was killed."""
    file, core, _ = open_log(path, lambda text: pytest.fail(text))
    assert file is not None
    for run in (A, B, *SMALL):
        for event in (Begun(Load(run)), Committed(Load(run))):
            file.write(core.step(event))
        if run == B:
            file.write([core.compacted()])
    file.close()


def opened_copy(path: Path, to: Path) -> Recovered:
    """What a fresh process makes of a copy of that file."""
    shutil.copy(path, to)
    file, _, recovered = open_log(to, lambda text: pytest.fail(text))
    assert file is not None
    file.close()
    return recovered


def open_log_again(path: Path) -> tuple[tuple[Run, ...], list[str]]:
    """What the start after that knows, and what it says."""
    file, _, recovered = open_log(path, (told := list[str]()).append)
    assert file is not None
    file.close()
    return recovered.held, told


def _load(number: int) -> Begun:
    return Begun(Load(Run(number, number + 1)))


@pytest.mark.parametrize(
    "content",
    [
        b"this is no database, but somebody's notes about shoals\n" * 40,
        "CREATE TABLE records (id INTEGER)",
        "PRAGMA user_version = 99",
        "CREATE TABLE records (number INTEGER PRIMARY KEY, record TEXT); INSERT INTO records VALUES (1, 'hello')",
        "CREATE TABLE records (number INTEGER PRIMARY KEY, record TEXT); INSERT INTO records VALUES (1, x'00ff')",
        "CREATE TABLE records (number INTEGER PRIMARY KEY, record TEXT);"
        """INSERT INTO records VALUES (1, '["committed","load",0,31]')""",
    ],
)
def test_a_file_of_another_kind_is_set_aside(content: bytes | str, tmp_path: Path) -> None:
    path = tmp_path / "0.db"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with closing(sqlite3.connect(path)) as database:
            database.executescript(content)
    before = path.read_bytes()
    journal, told = opened(path)
    assert len(told) == 1
    assert f"{path} is damaged" in told[0]
    assert "it is 0.db.aside-1 now" in told[0]
    assert journal.recovered.held == ()
    assert (tmp_path / "0.db.aside-1").read_bytes()[100:] == before[100:]  # the header tells of the WAL now
    asyncio.run(hold(path, A))
    assert opened(path)[0].recovered.held == (A,)


def test_a_second_process_goes_on_without_the_file(tmp_path: Path) -> None:
    path = tmp_path / "0.db"
    first = TransactionFile(path)
    with pytest.raises(LogInUse, match="another process uses"):
        TransactionFile(path)
    journal, told = opened(path)
    assert not journal.kept
    assert len(told) == 1
    assert "what this peer holds is not kept over a restart" in told[0]
    first.close()
    assert opened(path)[1] == []


def test_a_folder_that_cannot_be_written_means_memory_only(tmp_path: Path) -> None:
    (tmp_path / "peers").write_text("a file")
    journal, told = opened(tmp_path / "peers" / "0.db")
    assert not journal.kept
    assert len(told) == 1


@pytest.mark.parametrize("before", [False, True])
def test_a_file_that_can_be_used_later_gets_all_that_is_held(
    before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many open files, a folder of somebody else, another process: for a while."""
    path = tmp_path / "0.db"
    if before:
        asyncio.run(hold(path, B))
    monkeypatch.setattr("peer.storage.journal.AGAIN_S", 0.0)
    refuses = True
    connect = sqlite3.connect

    def refusing(*given: Any, **named: Any) -> sqlite3.Connection:
        if refuses:
            raise sqlite3.OperationalError("unable to open database file")
        return connect(*given, **named)

    monkeypatch.setattr(sqlite3, "connect", refusing)

    async def go() -> list[str]:
        nonlocal refuses
        told: list[str] = []
        journal = await Journal.open(path, told.append)
        await journal.begin(Load(A))
        journal.commit(Load(A))
        assert not journal.kept
        refuses = False
        async with asyncio.timeout(WITHIN_S):
            while not journal.kept:
                journal.opened(bytes(16))
                journal.closed(bytes(16))
                await asyncio.sleep(0)
        await journal.close()
        await asyncio.sleep(0)
        return told

    told = asyncio.run(go())
    assert len(told) == 2
    assert "unable to open" in told[0]
    assert told[1] == f"{path} is written again"
    assert opened(path)[0].recovered.held == (A,)
    if before:
        assert salvage(tmp_path / "0.db.aside-1")


def test_a_disk_that_refuses_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "0.db"

    async def fill() -> list[str]:
        told: list[str] = []
        journal = await Journal.open(path, told.append)
        assert journal._file is not None
        assert journal._writer is not None
        limited = journal._file._database.execute
        await asyncio.get_running_loop().run_in_executor(
            journal._writer, limited, "PRAGMA max_page_count = 3"
        )
        for number in range(4000):
            journal.opened(number.to_bytes(16, "big"))
        for run in (A, B):
            await journal.begin(Load(run))
            journal.commit(Load(run))
        assert journal.core.held == (A, B)
        await journal.close()
        await asyncio.sleep(0)
        return told

    (line,) = asyncio.run(fill())
    assert "full" in line
    assert "until it can, what this peer holds is not kept" in line
    assert opened(path)[1] == []


def test_a_disk_that_has_room_again_gets_all_that_waited(tmp_path: Path) -> None:
    path = tmp_path / "0.db"

    async def fill() -> list[str]:
        told: list[str] = []
        journal = await Journal.open(path, told.append)
        assert journal._file is not None
        assert journal._writer is not None
        limit = journal._file._database.execute
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(journal._writer, limit, "PRAGMA max_page_count = 3")
        for number in range(4000):
            journal.opened(number.to_bytes(16, "big"))
        await journal.begin(Load(A))
        journal.commit(Load(A))
        assert len(told) == 1
        assert len(journal._waiting) < 1000, "a checkpoint makes what was before it void"
        await loop.run_in_executor(journal._writer, limit, "PRAGMA max_page_count = 100000")
        await journal.begin(Load(B))
        await asyncio.sleep(0)
        await loop.run_in_executor(journal._writer, journal._file.close)  # as if the process ended here
        return told

    told = asyncio.run(fill())
    assert told[1:] == [f"{path} is written again"]
    recovered = opened(path)[0].recovered
    assert recovered.held == (A,)
    assert recovered.undone == (Load(B),)


def test_nothing_but_units_waits_for_the_disk(tmp_path: Path) -> None:
    """The writer is held up: sessions and tokens are noted all the same; a load waits."""

    async def go() -> None:
        journal = await Journal.open(tmp_path / "0.db")
        assert journal._writer is not None
        gate = threading.Event()
        journal._writer.submit(gate.wait, 30)
        for number in range(500):
            journal.opened(number.to_bytes(16, "big"))
            journal.tokens(50)
        loading = asyncio.ensure_future(journal.begin(Load(A)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not loading.done()
        gate.set()
        await loading
        await journal.close()

    asyncio.run(go())
    recovered = opened(tmp_path / "0.db")[0].recovered
    assert recovered.undone == (Load(A),)
    assert recovered.tokens == 25_000
    assert len(recovered.places) == 500


def test_off_forgets_what_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "0.db"

    async def off(again: bool) -> None:
        journal = await Journal.open(path)
        await journal.begin(Load(A))
        journal.commit(Load(A))
        journal.turn(False)
        await journal.begin(Load(B))
        journal.commit(Load(B))
        if again:
            journal.turn(True)
        await journal.close()

    asyncio.run(off(again=False))
    assert opened(path)[0].recovered.held == ()
    asyncio.run(off(again=True))
    assert opened(path)[0].recovered.held == (A, B)


def test_a_step_that_does_not_follow_harms_nobody(tmp_path: Path) -> None:
    async def go() -> None:
        journal = await Journal.open(tmp_path / "0.db")
        journal.closed(bytes(16))
        journal.commit(Load(A))
        await journal.begin(Unload(A))
        journal.opened(bytes(16))
        journal.opened(bytes(16))
        journal.took_over(bytes(16))
        assert journal.core.standing(A) is Standing.ABSENT
        assert len(journal.core.places) == 1
        await journal.close()

    asyncio.run(go())
