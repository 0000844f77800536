"""A network that goes for some seconds and comes back: it is said, tried again, and over when it is over."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.importers.decoder_units import build_model
from planner.model.store import Store
from tests.e2e.command import running
from tests.e2e.namespaces import can_make, inside, star, unplugged
from tests.e2e.scripted_model import END, scripted_model

ANSWERS = {b"a": b"first", b"b": b"second", b"c": b"third", b"d": b"fourth"}
ENDS = ((END.encode(), 1.0),)


@pytest.fixture
def network() -> Iterator[None]:
    if why := can_make():
        warnings.warn(f"a network that goes is NOT tested here: {why}", stacklevel=1)
        pytest.skip(why)
    with star("ann", "bob"):
        yield


def test_who_was_without_a_network_asks_and_lends_on_when_it_is_back(tmp_path: Path, network: None) -> None:
    """The same processes, without a word from their persons, by the same link."""
    store = Store(tmp_path / "store")
    follows = {asked: ((said, 1.0),) for asked, said in ANSWERS.items()}
    made = scripted_model(
        "scripted",
        "{{ messages[-1].content }}",
        [],
        [],
        {**follows, **dict.fromkeys(ANSWERS.values(), ENDS)},
    )
    model = build_model(made, "f32", store)
    common = ["--store", store.root]
    serving = ["serve", model, "--host", "0.0.0.0", "--port", "0", "--name", "carol", "--memory", "1GiB"]
    with running(tmp_path, *serving, *common, before=inside("middle")) as carol:
        link = carol.until(r"^http://10\.77\.\S+")[0]
        carol.until(r"^plan \d+")
        asking = ["chat", link, "--name", "ann", "--state", tmp_path / "ann", *common]
        lending = ["join", link, "--name", "bob", "--state", tmp_path / "bob", "--memory", "1GiB"]
        kept = ["--store", tmp_path / "bob's"]
        with (
            running(tmp_path, *lending, *kept, before=inside("bob")) as bob,
            running(tmp_path, *asking, typed=True, before=inside("ann")) as ann,
        ):
            carol.until("^bob is here")
            ann.until("talking to scripted")
            ann.type("a")
            ann.until("^first")
            with unplugged(1):
                ann.until(r"the coordinator \(carol\) is gone: no answer meanwhile")
            ann.until("carol coordinates now")
            ann.type("b")
            ann.until("^second")
            carol.err.clear()  # that bob is here
            with unplugged(2):
                bob.until(r"the coordinator \(carol\) is gone: .* \(looking for it, try 1\)")
                carol.until("^bob left")
                ann.type("c")
                ann.until("^third")
            bob.until("carol coordinates now")
            carol.until("^bob is here")
            ann.type("d")
            ann.until("^fourth")
            assert [each.process.poll() for each in (carol, bob)] == [None, None]
