"""What people read for peers: no two are alike, whatever they call themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peer.launch import defaults
from peer.state.display_names import GONE, name_of, named, names, plain
from peer.state.generated.commands import Member

CASES = json.loads((Path(__file__).parents[2] / "vectors" / "display_names.json").read_text("utf-8"))["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{len(case['members'])} members")
def test_no_two_members_are_called_alike(case: dict[str, list[dict[str, str]]]) -> None:
    members = {each["peer"]: Member(each["peer"], each["name"], True, "measured") for each in case["members"]}
    called = names(members)
    assert len({name.lower() for name in called.values()}) == len(members)


def test_a_name_that_looks_told_apart_is_told_apart_itself() -> None:
    """Else a peer could call itself as another is shown."""
    members = {
        p * 32: Member(p * 32, n, True, "measured") for p, n in (("a", "x"), ("b", "x"), ("c", "x (aaaa)"))
    }
    assert list(names(members).values()) == ["x (aaaa)", "x (bbbb)", "x (aaaa) (cccc)"]


def test_who_left_has_no_bare_id() -> None:
    assert name_of("c" * 32, {}) == f"{GONE} (cccc)"
    assert named(f"waits for {'c' * 32}", {}) == f"waits for {GONE} (cccc)"
    assert plain("a\ud83d") == "a\ufffd"


@pytest.mark.parametrize(
    ("user", "host", "expected"),
    [
        ("ada", "laptop.example.org", "ada@laptop"),
        ("ada", "", "ada@here"),
        (None, "vm", "peer@vm"),
        ("é" * 40, "vm", "é" * 24),
    ],
)
def test_a_process_is_called_by_user_and_host(
    user: str | None, host: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def getuser() -> str:
        if user is None:
            raise KeyError("uid not found")
        return user

    monkeypatch.setattr("getpass.getuser", getuser)
    monkeypatch.setattr("socket.gethostname", lambda: host)
    assert defaults.default_name() == expected
