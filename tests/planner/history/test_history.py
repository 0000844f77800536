"""The file of a history: one writer, readers on a copy, crashes, damage, migrations, questions, Parquet, retention."""

from __future__ import annotations

import dataclasses
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from planner.errors import HistoryBusy, HistoryUnusable, QueryRefused
from planner.history import reading
from planner.history.facts import (
    TABLES,
    Benchmark,
    Fact,
    LinkMeasured,
    PeerMeasured,
    PlanEvent,
    Recovery,
    SessionTimes,
    Stay,
    UnitTime,
    class_named,
    class_of,
    columns,
)
from planner.history.files import NAME, beside
from planner.history.parquet import export_parquet, import_parquet
from planner.history.reading import ask
from planner.history.schema import MIGRATIONS, missing
from planner.history.writing import FLUSH_S, HistoryWriter
from tests.patience import WITHIN_S
from tests.seeds import seeds

ROOT = Path(__file__).parents[3]
START = datetime(2026, 1, 1)
NEVER_S = 3600.0  # the thread of the writer stays out of the way

CHROME = class_of("Chrome/140", "webgpu", 1)
ONE_OF_EACH: tuple[Fact, ...] = (
    PeerMeasured("m", "p", CHROME.name, "Chrome", "140", "webgpu", 1, "computer", 1 << 40, 2, 0.1),
    UnitTime("m", "x", "p", CHROME.name, "Chrome", "webgpu", "attn", 20, "decode", 2, 1, 0.01),
    LinkMeasured("m", "a", "b", "", "", 0.1, 1e6, 0.0),
    SessionTimes("m", "x", 1, 2, CHROME.name, 3, 1.0, 0.1, 0.1, 0.2, None, 1),
    PlanEvent("m", "x", 1, "refused", 0, 0, 1, None, None, "", "y"),
    Recovery("m", "p", CHROME.name, True, 1, None, None),
    Stay("m", "p", CHROME.name, "background", 3.0, False),
    Benchmark("single", "ratio", 1.5, "times", "here"),
)


def figure(value: float) -> Benchmark:
    return Benchmark("count", "n", value, "", "")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.duckdb"


@pytest.fixture
def writer(path: Path) -> Iterator[HistoryWriter]:
    made = HistoryWriter(path, flush_s=NEVER_S)
    yield made
    if not made._stop.is_set():
        made.close()


def values(path: Path) -> list[float]:
    return [row[0] for row in ask(path, "select value from benchmarks order by value").rows]


# --- what is kept -----------------------------------------------------------------------------------------


def test_every_fact_is_a_row_of_its_table_and_comes_back_as_it_was(path: Path, writer: HistoryWriter) -> None:
    writer.record(ONE_OF_EACH)
    writer.close()
    for table, shape in TABLES.items():
        (fact,) = (fact for fact in ONE_OF_EACH if type(fact) is shape)
        found = ask(path, f"select * from {table}")
        assert found.names == columns(table)
        assert found.rows[0][1:] == dataclasses.astuple(fact)


def test_no_column_could_hold_what_was_said() -> None:
    names = {column for table in TABLES for column in columns(table)}
    assert not names & {"prompt", "text", "answer", "token", "message", "name_of_peer", "activation"}


@pytest.mark.parametrize(
    ("agent", "provider", "name"),
    [
        ("shoal/0.1.0 (aiortc)", "cpu", "Python 0.1 cpu x2 computer"),
        ("shoal/0.1.0 (Chrome/140)", "webgpu", "Chrome 140 webgpu x2 computer"),
        ("Mozilla/5.0 (X11) Chrome/140.0 Safari/537.36 Edg/140.0", "webgpu", "Edge 140 webgpu x2 computer"),
        ("Mozilla/5.0 (X11; rv:130.0) Gecko Firefox/130.0", "wasm", "Firefox 130 wasm x2 computer"),
        (
            "Mozilla/5.0 (iPhone) AppleWebKit/605 Version/18.1 Mobile/15E1 Safari/604",
            "webgpu",
            "Safari 18 webgpu x2 phone",
        ),
        (
            "Mozilla/5.0 (Linux; Android 15) Chrome/140.0 Mobile Safari/537.36",
            "wasm",
            "Chrome 140 wasm x2 phone",
        ),
        ("shoal/0.1.0 (browser)", "wasm", "browser wasm x2 computer"),
        ("", "cpu", "Python cpu x2 computer"),
    ],
)
def test_a_class_is_what_predictions_may_generalise_over(agent: str, provider: str, name: str) -> None:
    found = class_of(agent, provider, 2)
    assert found.name == name
    assert class_named(name) == found


# --- one writer, many readers ------------------------------------------------------------------------------


def test_a_second_writer_is_refused_and_told_who_writes(path: Path, writer: HistoryWriter) -> None:
    with pytest.raises(HistoryBusy, match=r"expected to be the only writer, but process \d+"):
        HistoryWriter(path)
    writer.close()
    HistoryWriter(path).close()


def test_another_process_reads_while_one_writes_and_cannot_write(path: Path, writer: HistoryWriter) -> None:
    writer.record([figure(7)])
    writer.flush()
    script = (
        "import sys; from pathlib import Path; from planner.history.reading import ask\n"
        "from planner.history.writing import HistoryWriter\n"
        "print(ask(Path(sys.argv[1]), 'select value from benchmarks').rows)\n"
        "try: HistoryWriter(Path(sys.argv[1]))\n"
        "except Exception as error: print(type(error).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n") == ["((7.0,),)", "HistoryBusy", ""]
    writer.record([figure(8)])
    writer.close()
    assert values(path) == [7, 8]


def test_the_process_that_writes_reads_through_its_writer(path: Path, writer: HistoryWriter) -> None:
    writer.record([figure(1)])
    with pytest.raises(HistoryBusy, match="ask the writer"):
        ask(path, "select 1")
    with writer.view() as view:
        assert reading.sizes(view)["benchmarks"][0] == 1


@pytest.mark.skipif(os.name != "posix", reason="Windows has no modes")
def test_only_its_owner_gets_at_the_files_also_in_a_state_folder_of_everybody(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o755)
    mask = os.umask(0o022)
    try:
        path = state / NAME
        writer = HistoryWriter(path, flush_s=NEVER_S)
        writer.record([figure(1)])
        writer.flush()
        assert beside(path, "wal").exists()
        assert os.umask(0o022) == 0o022  # nobody else's files change
        writer.close()
    finally:
        os.umask(mask)
    assert [entry.name for entry in state.iterdir()] == [path.parent.name]
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert values(path) == [1]


def test_the_thread_commits_by_itself_within_a_second(path: Path) -> None:
    assert FLUSH_S <= 0.5
    writer = HistoryWriter(path, flush_s=0.01)
    try:
        writer.record([figure(1)])
        deadline = time.monotonic() + WITHIN_S
        while writer._waiting and time.monotonic() < deadline:
            time.sleep(0.01)
        shutil.copy(path, path.with_name("copy.duckdb"))
        shutil.copy(beside(path, "wal"), path.with_name("copy.duckdb.wal"))
        assert values(path.with_name("copy.duckdb")) in ([1], [])  # taken just before the commit: nothing
        writer.flush()
    finally:
        writer.close()
    assert values(path) == [1]


def test_a_disk_that_refuses_stops_nobody_and_loses_nothing(path: Path, writer: HistoryWriter) -> None:
    writer.record([figure(1)])
    whole, writer._connection = writer._connection, None
    with pytest.raises(AttributeError):
        writer.flush()
    writer.record([figure(2)])
    writer._connection = whole
    writer.close()
    assert values(path) == [1, 2]


# --- crashes and damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("settling", [False, True], ids=["log", "moving the log"])
def test_a_killed_writer_loses_nothing_that_was_committed(path: Path, settling: bool) -> None:
    script = (
        "import sys; from pathlib import Path; from planner.history.facts import Benchmark\n"
        "from planner.history.writing import HistoryWriter\n"
        "writer = HistoryWriter(Path(sys.argv[1]), flush_s=3600.0)\n"
        "count = int(sys.argv[2])\n"
        "while True:\n"
        "    count += 1; writer.record([Benchmark('count', 'n', count, '', '')]); writer.flush()\n"
        "    print(count, flush=True)\n"
        "    if sys.argv[3] == 'True': writer._settle()\n"
    )
    said = 0
    for after in (3, 11):
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(path), str(said), str(settling)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        for _ in range(after):
            said = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        child.wait()
        said = max([said, *map(int, child.stdout.read().split("\n")[:-1])])  # said before it was killed
        child.stdout.close()
        found = values(path)
        assert found == [*range(1, len(found) + 1)]
        assert said <= len(found) <= said + 1
        said = len(found)
    HistoryWriter(path).close()
    assert len(values(path)) == said


def test_a_log_that_ends_anywhere_gives_a_prefix_of_what_was_committed(tmp_path: Path, path: Path) -> None:
    writer = HistoryWriter(path, flush_s=NEVER_S)
    for count in range(4):
        writer.record([figure(count)])
        writer.flush()
    log = beside(path, "wal").read_bytes()
    base = path.read_bytes()
    writer.close()
    found = []
    for cut in range(0, len(log) + 1, max(1, len(log) // 12)):
        copy = tmp_path / f"cut-{cut}" / "history.duckdb"
        copy.parent.mkdir()
        copy.write_bytes(base)
        beside(copy, "wal").write_bytes(log[:cut])
        try:
            found.append(values(copy))
        except (HistoryUnusable, QueryRefused):  # the tables themselves were not in the log yet
            continue
    assert all(rows == [*map(float, range(len(rows)))] for rows in found)
    assert found[-1] in ([0, 1, 2, 3], [0, 1, 2])


DAMAGES: dict[str, Callable[[bytes, int], bytes]] = {
    "flipped": lambda data, at: data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :],
    "zeroed": lambda data, at: data[:at] + bytes(512) + data[at + 512 :],
    "cut": lambda data, at: data[:at],
    "doubled": lambda data, at: data[:at] + data,
}


@pytest.mark.series
@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_history_is_set_aside_and_what_can_be_read_goes_on(
    how: str, tmp_path: Path, path: Path, writer: HistoryWriter
) -> None:
    for first in range(0, 3000, 1000):
        writer.record([figure(first + number) for number in range(1000)])
        writer.flush()
    writer.record([Stay("m", "p", "c", "calm", 1.0, True)])
    writer.close()
    whole = path.read_bytes()
    used = [at for at, byte in enumerate(whole) if byte]
    lost = 0
    for at in random.Random(20261129).sample(used, min(len(used), seeds(50))):
        folder = tmp_path / str(at)
        folder.mkdir()
        file, told = folder / path.name, list[str]()
        spoilt = DAMAGES[how](whole, at)
        file.write_bytes(spoilt)
        again = HistoryWriter(file, mend=told.append, flush_s=NEVER_S)
        again.record([figure(-1)])
        again.close()
        kept = values(file)
        assert set(kept) <= {-1.0, *map(float, range(3000))}
        assert len(kept) == len(set(kept))
        assert -1.0 in kept
        if told:
            assert len(told) == 1
            assert f"it is kept as {path.name}.aside-1, and" in told[0]
            assert (folder / f"{path.name}.aside-1").read_bytes() == spoilt
        else:
            assert len(kept) == 3001 or not spoilt, at
        lost += len(kept) < 3001
        shutil.rmtree(folder)
    assert lost or how == "doubled"


def test_one_damaged_block_costs_its_own_rows_only(tmp_path: Path, path: Path, writer: HistoryWriter) -> None:
    rows = 150_000
    with writer.transaction() as connection:
        connection.execute(
            "insert into benchmarks (seen, name, value) select timestamp '2026-01-01', 'n' || hash(n), n "
            f"from range({rows}) found(n)"
        )
    writer.record([Stay("m", "p", "c", "calm", 1.0, True)])
    writer.close()
    data = bytearray(path.read_bytes())
    at = len(data) // 2
    data[at : at + 64] = bytes(64)
    path.write_bytes(data)
    told: list[str] = []
    HistoryWriter(path, mend=told.append, flush_s=NEVER_S).close()
    with _raw(path) as connection:
        (left,) = connection.execute("select count(*) from benchmarks").fetchone() or (0,)
        assert connection.execute("select count(*) from stays").fetchone() == (1,)
    assert rows // 3 < left < rows
    assert f"and {left + 1} rows that can be read" in told[0]


def test_a_connection_that_an_error_ended_for_good_is_opened_anew(
    path: Path,
) -> None:
    writer = HistoryWriter(path, flush_s=0.01)
    for value in (1, 2):
        writer.record([figure(value)])
        until(lambda: not writer._waiting)
        with writer._writing:
            writer._connection.close()  # as after a fatal error, no question is answered any more
    with writer.view() as view:
        assert view.execute("select count(*) from benchmarks").fetchone() == (2,)
    writer.close()
    assert values(path) == [1, 2]


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="mounting a small disk needs root on Linux"
)
def test_a_disk_that_was_full_takes_all_that_waited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this container may not mount")
    caplog.set_level("WARNING")
    try:
        path = disk / "history.duckdb"
        writer = HistoryWriter(path, flush_s=0.01)
        (disk / "fill").write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - 8192))
        for number in range(3000):
            writer.record([Benchmark(f"{number}" * 20, "n", number, "", "")])
        until(lambda: "the history cannot be kept now" in caplog.text)
        assert caplog.text.count("cannot be kept") == 1
        (disk / "fill").unlink()
        until(lambda: "the history is kept again" in caplog.text)
        writer.close()
        assert values(path) == [*map(float, range(3000))]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def until(holds: Callable[[], bool]) -> None:
    patience = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < patience
        time.sleep(0.01)


@pytest.mark.parametrize("kind", ["garbage", "another database", "newer"])
def test_what_is_no_history_is_refused_and_left_as_it_is(path: Path, kind: str) -> None:
    if kind == "garbage":
        path.write_bytes(b"no database at all" * 1000)
    else:
        with duckdb.connect(str(path)) as other:
            other.execute(
                "create table meta as select 99 as version" if kind == "newer" else "create table t (a int)"
            )
    before = path.read_bytes()
    with pytest.raises(HistoryUnusable, match="newer" if kind == "newer" else "expected a history"):
        HistoryWriter(path)
    assert path.read_bytes() == before
    with pytest.raises(HistoryUnusable):
        ask(path, "select 1")


def test_a_missing_history_says_who_writes_one(path: Path) -> None:
    with pytest.raises(HistoryUnusable, match="shoal serve"):
        ask(path, "select 1")


def test_an_older_history_becomes_one_of_today_and_keeps_its_rows(path: Path, writer: HistoryWriter) -> None:
    writer.record([figure(1)])
    writer.close()
    more = (*MIGRATIONS, ("alter table benchmarks add column place varchar default 'here'",))
    HistoryWriter(path, migrations=more).close()
    with _raw(path) as connection:
        assert connection.execute("select value, place from benchmarks").fetchall() == [(1.0, "here")]
    with pytest.raises(HistoryUnusable, match="newer"):
        HistoryWriter(path)


def test_the_first_version_becomes_one_of_today_and_its_export_can_be_imported(
    tmp_path: Path, path: Path
) -> None:
    old, folder = tmp_path / "old.duckdb", tmp_path / "out"
    first = HistoryWriter(old, migrations=MIGRATIONS[:1])
    with first.transaction() as connection:
        connection.execute("insert into peers (seen, peer) values (timestamp '2026-01-01', 'p')")
    first.close()
    export_parquet(old, folder)  # before anybody wrote it again
    HistoryWriter(old).close()
    writer = HistoryWriter(path, flush_s=NEVER_S)
    assert [import_parquet(writer, folder)["peers"] for _ in range(2)] == [1, 0]
    writer.close()
    assert ask(path, "select peer, again from peers").rows == ask(old, "select peer, again from peers").rows


def test_who_measured_itself_often_of_late_is_found(path: Path, writer: HistoryWriter) -> None:
    measured = next(fact for fact in ONE_OF_EACH if isinstance(fact, PeerMeasured))
    writer.record([dataclasses.replace(measured, peer=peer) for peer in ("a", "b", "a", "a", "b")])
    writer.flush()
    now = datetime.now(UTC).replace(tzinfo=None)
    with writer.view() as view:
        assert reading.measured_often(view, 3, now - timedelta(hours=1)) == {"a"}
        assert reading.measured_often(view, 2, now - timedelta(hours=1)) == {"a", "b"}
        assert reading.measured_often(view, 1, now + timedelta(hours=1)) == set()


def test_a_migration_that_fails_changes_nothing(path: Path, writer: HistoryWriter) -> None:
    writer.close()
    broken = (*MIGRATIONS, ("create table half (a int)", "this is no statement"))
    with pytest.raises(HistoryUnusable):
        HistoryWriter(path, migrations=broken)
    HistoryWriter(path).close()
    assert ask(path, "select count(*) from duckdb_tables() where table_name = 'half'").rows == ((0,),)


def test_versions_only_grow() -> None:
    assert missing(0) == MIGRATIONS
    assert missing(len(MIGRATIONS)) == ()
    assert missing(len(MIGRATIONS) + 1) is None


def _raw(path: Path) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(str(path), read_only=True)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history that is only read, with a file beside it that is nobody's business."""
    path = tmp_path_factory.mktemp("asked") / "history.duckdb"
    writer = HistoryWriter(path, flush_s=NEVER_S)
    writer.record(ONE_OF_EACH)
    writer.close()
    path.with_name("secret.txt").write_text("not for you")
    return path


# --- questions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "select 1; select 2",
        "drop table units",
        "delete from units",
        "insert into units select * from units",
        "update meta set version = 0",
        "create temp table t as select 1",
        "copy units to '{folder}/out.csv'",
        "copy units from '{folder}/secret.txt'",
        "export database '{folder}/out'",
        "import database '{folder}'",
        "attach '{folder}/other.duckdb' as other",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "reset lock_configuration",
        "pragma database_list",
        "call pragma_version()",
        "checkpoint",
        "vacuum",
        "begin",
        "prepare p as select 1",
        "select * from read_text('{folder}/secret.txt')",
        "select * from read_csv('{folder}/secret.txt')",
        "select * from read_blob('{folder}/secret.txt')",
        "select * from '{folder}/secret.txt'",
        "select * from glob('{folder}/*')",
        "select * from read_parquet('http://127.0.0.1:1/x')",
        "select * from query('select * from read_text(''{folder}/secret.txt'')')",
        "select * from secret",  # a variable of this module, were it looked up
        "explain analyze insert into units select * from units",
        "select nonsense from units",
        "no sql at all",
        "select '" + "x" * 30_000 + "'",
    ],
)
def test_a_question_only_reads_and_reaches_no_other_file(asked: Path, sql: str) -> None:
    path = asked
    before = sorted(each.name for each in path.parent.iterdir())
    with pytest.raises(QueryRefused) as refused:
        ask(path, sql.format(folder=path.parent))
    assert "not for you" not in str(refused.value)
    assert sorted(each.name for each in path.parent.iterdir()) == before


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) from units",
        "from units",
        "with few as (select 1 as a) select a from few",
        "describe units",
        "show tables",
        "explain select 1",
        "values (1)",
    ],
)
def test_what_only_reads_is_answered(asked: Path, sql: str) -> None:
    assert ask(asked, sql).rows


def test_a_question_without_end_is_ended_and_a_long_answer_is_cut(path: Path, writer: HistoryWriter) -> None:
    writer.close()
    with pytest.raises(QueryRefused, match="ask for less"):
        ask(path, "select count(*) from range(100000000000) a, range(100000) b", most_s=0.2)
    found = ask(path, "select * from range(100)", most_rows=10)
    assert found.more
    assert len(found.rows) == 10


def test_the_planner_asks_how_units_ran_lately(path: Path) -> None:
    clock = iter([START, START + timedelta(days=200)])
    writer = HistoryWriter(path, flush_s=NEVER_S, clock=lambda: next(clock))
    unit = UnitTime("m", "x", "p", CHROME.name, "Chrome", "webgpu", "attn", 20, "decode", 2, 1, 0.01)
    writer.record([unit] * 5)
    others = [dataclasses.replace(unit, phase="prefill"), dataclasses.replace(unit, device_class="else")]
    writer.record([unit, dataclasses.replace(unit, seconds=0.02), *others])
    with writer.view() as view:
        (cell,) = reading.cells(view, [CHROME.name])
        assert (cell.runs, cell.kind, cell.bucket) == (2, "attn", 20)
        assert len(reading.cells(view)) == 2
        assert reading.cells(view, []) == []
        assert reading.cells(view, [CHROME.name], days=400)[0].runs == 7
    writer.close()


# --- travelling and forgetting -----------------------------------------------------------------------------


def test_an_exported_history_comes_back_whole_and_only_once(
    tmp_path: Path, path: Path, writer: HistoryWriter
) -> None:
    writer.record([*ONE_OF_EACH, *ONE_OF_EACH])
    writer.close()
    folder = tmp_path / "it's here"
    assert set(export_parquet(path, folder).values()) == {2}
    other = HistoryWriter(tmp_path / "other.duckdb", flush_s=NEVER_S)
    assert set(import_parquet(other, folder).values()) == {2}
    assert set(import_parquet(other, folder).values()) == {0}
    other.close()
    for table in TABLES:
        sql = f"select * from {table}"
        assert ask(tmp_path / "other.duckdb", sql).rows == ask(path, sql).rows


@pytest.mark.parametrize("fault", ["no note", "newer", "a table that is none", "a column is missing"])
def test_a_folder_that_is_no_export_adds_nothing(
    tmp_path: Path, path: Path, writer: HistoryWriter, fault: str
) -> None:
    writer.record(ONE_OF_EACH)
    writer.close()
    folder = tmp_path / "out"
    export_parquet(path, folder)
    match fault:
        case "no note":
            (folder / "history.json").unlink()
        case "newer":
            (folder / "history.json").write_text('{"shoal_history": 999}')
        case "a table that is none":
            (folder / "stays.parquet").write_bytes(b"PAR1 but not really PAR1")
        case _:
            shutil.copy(folder / "peers.parquet", folder / "stays.parquet")
    other = HistoryWriter(tmp_path / "other.duckdb", flush_s=NEVER_S)
    with pytest.raises(HistoryUnusable):
        import_parquet(other, folder)
    with other.view() as view:
        assert {count for count, _, _ in reading.sizes(view).values()} == {0}
    other.close()


def test_what_is_old_or_too_much_goes(path: Path) -> None:
    days = iter(range(100))
    writer = HistoryWriter(path, flush_s=NEVER_S, clock=lambda: START + timedelta(days=next(days)))
    for count in range(10):  # on days 0 to 9
        writer.record([figure(count)])
    writer.flush()
    assert writer.forget(keep_days=6, keep_rows=100) == 4  # it is day 10
    assert writer.forget(keep_days=100, keep_rows=2) == 4  # of six
    writer.close()
    assert values(path) == [8, 9]


def test_a_broken_connection_at_the_start_leaves_the_lock_free(path: Path) -> None:
    path.write_bytes(b"x" * 5000)
    with pytest.raises(HistoryUnusable):
        HistoryWriter(path)
    path.unlink()
    HistoryWriter(path).close()
    assert re.fullmatch(r"\d+\n", beside(path, "lock").read_text())
