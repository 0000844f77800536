"""Wrong command lines: the reason comes first, and no option is passed over in silence."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from peer.cli.arguments.combinations import RULES, check_combinations, given_options
from peer.cli.main import main, parser
from peer.errors import BadCommand

LINK = "http://127.0.0.1:1/#x.y"
IDLE = (
    "serve --state folder",
    "serve --no-history",
    "signaling --state=folder",
    "serve --signaling http://127.0.0.1:1 --host 0.0.0.0",
    "serve --signaling http://127.0.0.1:1 --stun stun:example.org:3478",
    "serve --goal latency --objective throughput",
    "serve --turn-lifetime 1h",
    "serve --allowance 10",
    "serve --api-host ::1",
    "join LINK --api-key-file keys",
    "join LINK --memory 0 --provider cuda",
    "api LINK --embedding-threads 2",
    "invite --list --uses 3",
    "invite --revoke abc --role guest",
    "generate LINK why --raw --system kind",
    "generate LINK why --temperature 0 --top-k 3",
    "conversations LINK --json --export file",
    "plan cluster.json --state folder",
    "plan cluster.json --bind 127.0.0.1",
    "plan cluster.json --store folder",
    "plan cluster.json --model x.onnx --strategy layer",
    "plan cluster.json --model x.onnx --compare",
    "plan cluster.json --compare --html page.html",
    "plan cluster.json --seed 3",
    "plan cluster.json --placement annealing --population 9",
    "demo --headless",
    "history --days 3",
    "history sql q --rows 100",
    "history report folder --json",
    "history --file f --state folder",
    "validate --out folder",
    "validate report --seed 1",
    "validate --no-results --results file",
    "validate --rounds 2",
    "bench single --loss 0.1",
    "bench planner --tokens 3",
    "bench pipeline --quick",
)
GOOD = (
    "serve --keep --state folder --no-history",
    "signaling --keep --state folder",
    "serve --signaling http://127.0.0.1:1 --keep --public-url https://example.org",
    "serve --api --api-host ::1",
    "invite --uses 3 --role guest",
    "generate LINK why --raw --temperature 1 --top-k 3",
    "plan LINK --state folder --name ada",
    "plan cluster.json --goal latency --html page.html",
    "plan cluster.json --placement genetic --population 9 --iterations 100 --seed 3",
    "plan cluster.json --compare --json --seed 3",
    "plan cluster.json --model x.onnx --store folder --goal throughput",
    "history forget --days 3 --state folder",
    "validate report --out folder --results file",
    "bench wan --loss 0.1 --rounds 1",
)


def check(line: str) -> None:
    words = line.replace("LINK", LINK).split()
    check_combinations(parser().parse_args(words), given_options(words))


@pytest.mark.parametrize("line", IDLE)
def test_an_option_without_effect_is_refused(line: str) -> None:
    with pytest.raises(BadCommand, match=r"^--[a-z-]+ (is|and|belongs) "):
        check(line)


@pytest.mark.parametrize("line", GOOD)
def test_options_with_an_effect_are_taken(line: str) -> None:
    check(line)


def test_every_rule_names_options_that_its_commands_have() -> None:
    choices = next(a.choices for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    for rule in RULES:
        known = {option for command in rule.commands for option in choices[command]._option_string_actions}
        assert set(rule.options) <= known, rule


@pytest.mark.parametrize(
    ("words", "reason", "usage"),
    [
        (
            ["chat"],
            "shoal chat: the following arguments are required: LINK",
            "usage: shoal chat LINK [options]; ",
        ),
        (
            ["serve", "--port", "x"],
            "shoal serve: argument --port: ",
            "usage: shoal serve MODEL MODEL… [options]; ",
        ),
        (["nosuch"], "shoal: argument COMMAND: invalid choice: 'nosuch'", "usage: shoal COMMAND [options]; "),
        ([], "shoal: the following arguments are required: COMMAND", "usage: shoal COMMAND"),
    ],
)
def test_the_reason_comes_first(
    words: list[str], reason: str, usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(reason)
    assert second.startswith(usage)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["generate", LINK, ""], "expected a question, got nothing"),
        (["generate", LINK, " \n"], "expected a question, got nothing"),
        (["plan", "nosuch.json"], "No such file or directory; a sample is examples/cluster.json"),
        (["history"], "`shoal serve --keep` writes one"),
        (["bench", "single"], "pip install 'shoal-mesh[bench]'"),
        (["demo", "--headless"], "--headless is about tabs of browsers"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_a_status(
    words: list[str],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("peer.cli.chat.parse_link", lambda _: None)
    monkeypatch.setattr("peer.cli.main.parse_link", lambda _: None)
    monkeypatch.setattr("peer.bench.single.find_spec", lambda _: None)
    state = ["--state", str(tmp_path)] if words == ["history"] else []
    assert main([*words, *state]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    assert reason in line


def test_a_file_that_is_no_request_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.json"
    file.write_text("{")
    assert main(["plan", str(file)]) == 1
    assert capsys.readouterr().err.startswith(f"shoal: {file}: expected a plan request in JSON: ")


def test_the_sample_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(Path(__file__).parents[4] / "examples" / "cluster.json")]) == 0
    assert "Ana's desktop" in capsys.readouterr().out
