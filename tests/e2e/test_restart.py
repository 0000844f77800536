"""A peer that is killed and started again is the same peer, and serves the units it held before, without a fetch."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.e2e.command import run, running
from tests.e2e.real_mesh import Models
from tests.patience import WITHIN_S

QUESTION = "What is the capital of France?"


def test_a_killed_peer_holds_its_units_again(models: Models, tmp_path: Path) -> None:
    state, store = tmp_path / "second", tmp_path / "store"
    local = ["--bind", "127.0.0.1"]
    serving = ["serve", models.ids["8bit"], "--port", "0", "--name", "founder", "--cuts", "31"]
    with running(tmp_path, *serving, "--store", models.store.root, "--memory", "2GiB", *local) as founder:
        link = founder.until(r"^http://127\.0\.0\.1:\d+/#\S+")[0]
        joining = ["join", link, "--name", "second", "--state", state, "--store", store]
        ask = ["generate", link, QUESTION, "--max-tokens", "12", "--temperature", "0"]
        ask += ["--store", models.store.root, "--state", tmp_path / "asker", *local]
        with running(tmp_path, *joining, "--memory", "2GiB", *local) as second:
            founder.until(r"second holds units 31-61", WITHIN_S)
            first_answer = run(tmp_path, *ask)
            second.process.kill()
            second.process.wait()
        (log,) = state.rglob("*.transactions")
        loads = [made for made in record_of(log) if made[1] == "load"]
        assert loads[-1] == ["committed", "load", 31, 62]
        print("BEFORE", record_of(log))
        record(log, ["begun", "load", 0, 31])  # it was killed while it loaded these, too
        blobs = {path: path.stat().st_mtime_ns for path in (store / "blobs").iterdir()}
        assert blobs
        with running(tmp_path, *joining, "--memory", "2GiB", *local) as again:
            again.until(r"units 31-61 were held before", WITHIN_S)
            answer = run(tmp_path, *ask, within_s=WITHIN_S)
            assert answer.status == 0, answer.err
            assert answer.out == first_answer.out
            shown = json.loads(run(tmp_path, "status", link, "--json", *ask[7:]).out)
            (member,) = [each for each in shown["members"] if each["name"] == "second"]
            assert member["report"]["runs"] == [[31, 62]]
            assert again.end(signal.SIGINT).status == 0
        assert {path: path.stat().st_mtime_ns for path in (store / "blobs").iterdir()} == blobs
        print("RECORDS", record_of(log))
        (checkpoint,) = record_of(log)
        assert checkpoint[:3] == ["checkpoint", [[31, 62]], []]
        assert founder.end().status == 0


def record_of(path: Path) -> list[list[object]]:
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT record FROM records ORDER BY number").fetchall()
    return [json.loads(text) for (text,) in rows]


def record(path: Path, made: list[object]) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO records (record) VALUES (?)", (json.dumps(made),))
