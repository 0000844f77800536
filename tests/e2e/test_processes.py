"""Real processes with the real model: what `shoal status` says they occupy is what they do, and how answers end."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from peer.runtime.self_benchmark import GROWING_BYTES, MEETING_BYTES
from tests.e2e.command import Running, run, running
from tests.e2e.real_mesh import Models
from tests.patience import WITHIN_S, soon

AGREE = 0.10
QUESTION = "What is the capital of France? Tell me about it in a paragraph."
ENDLESS = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,"  # the likeliest token never ends this


@dataclass
class Pair:
    """A founder and a joined peer, each in a process of its own."""

    home: Path
    store: Path
    link: str
    processes: dict[str, Running]

    def ask(self, *more: object, prompt: str = QUESTION) -> list[object]:
        return ["generate", self.link, prompt, "--temperature", "0", *self.where(), *more]

    def where(self) -> list[object]:
        return ["--store", self.store, "--state", self.home / "asker", "--bind", "127.0.0.1"]

    def status(self) -> dict[str, Any]:
        shown = run(self.home, "status", self.link, "--json", *self.where())
        assert shown.status == 0, shown.err
        found: dict[str, Any] = json.loads(shown.out)
        return found


@pytest.fixture(scope="module")
def pair(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    home = tmp_path_factory.mktemp("pair")
    store = models.store.root
    common: list[object] = ["--store", store, "--memory", "2GiB", "--bind", "127.0.0.1"]
    words: list[object] = ["serve", models.ids["8bit"], "--port", "0", "--name", "founder", "--cuts", "31"]
    with running(home, *words, "--context", "1024", *common) as founder:
        link = founder.until(r"^http://127\.0\.0\.1:\d+/#\S+")[0]
        joins = ["join", link, "--name", "second", "--state", home / "second", *common]
        with running(home, *joins) as second:
            founder.until(r"plan \d+: founder holds units 0-30, second holds units 31-61", WITHIN_S)
            yield Pair(home, store, link, {"founder": founder, "second": second})
            assert second.end().status == 0
        assert founder.end().status == 0


def test_status_agrees_with_what_the_processes_measure(pair: Pair) -> None:
    answer = run(pair.home, *pair.ask("--max-tokens", "60"))
    assert answer.out.startswith("The capital of France is Paris."), answer
    members = {member["name"]: member for member in pair.status()["members"] if member["compute"]}
    assert members.keys() == pair.processes.keys()
    for name, running_one in pair.processes.items():
        planned, report = members[name]["planned"], members[name]["report"]
        expected = planned["weight_bytes"] + planned["overhead_bytes"] + report["kv_bytes"]
        measured = psutil.Process(running_one.process.pid).memory_info().rss
        note = f"{name}: planned {expected >> 20} MiB, measured {measured >> 20} MiB: {planned} {report}"
        assert measured <= (1 + AGREE) * expected, note
        # Connections and long conversations come to fill these.
        assert expected - measured <= AGREE * measured + MEETING_BYTES + GROWING_BYTES, note
        assert abs(report["rss_bytes"] - measured) <= AGREE * measured, note
        assert report["weight_bytes"] == pytest.approx(planned["weight_bytes"], rel=AGREE), note
        assert report["tokens"] > 0 or name == "founder", note
        assert members[name]["hop_us"] > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_in_an_answer_stops_it_on_every_stage(pair: Pair, number: int) -> None:
    with running(pair.home, *pair.ask("--raw", prompt=ENDLESS)) as asking:
        until_active(pair, 1)
        result = asking.end(number, within_s=soon(10))
    assert result.status == 130
    assert result.err == ""
    assert result.out.endswith("\n")
    until_active(pair, 0)


def until_active(pair: Pair, count: int) -> None:
    """Returns once that many sessions are being answered on every stage, and the last one tells at what rate."""
    end = time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        reports = [member["report"] for member in pair.status()["members"] if member["compute"]]
        rates = {report["name"]: report["tokens_per_s_milli"] for report in reports if report}
        if all(report and report["active"] == count for report in reports) and (
            not count or rates["second"] > 0
        ):
            if not count:
                assert all(report["sessions"] == 0 for report in reports)
            return
    raise AssertionError(f"never {count} active sessions on every stage")
