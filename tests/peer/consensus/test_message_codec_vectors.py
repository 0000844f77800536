"""Bytes of messages between cores, good and damaged, come to what the vectors say; so do they in the other language."""

from __future__ import annotations

import json

from peer.consensus.message_codec import encode
from peer.consensus.trace_json import message_of
from tests.vectors.make_consensus_wire import TARGET, rows, says

ROWS = [(bytes.fromhex(data), said) for data, said in json.loads(TARGET.read_text())["rows"]]


def test_the_vectors_are_what_their_script_writes() -> None:
    assert json.loads(TARGET.read_text())["rows"] == rows()


def test_bytes_come_to_a_message_or_an_error() -> None:
    assert len(ROWS) > 390
    for data, said in ROWS:
        assert says(data) == said


def test_a_message_comes_to_its_bytes_again() -> None:
    good = [(data, said) for data, said in ROWS if not said.startswith("error")]
    assert sum(encode(message_of(said)) == data for data, said in good) > 120
    for _, said in good:
        assert says(encode(message_of(said))) == said
