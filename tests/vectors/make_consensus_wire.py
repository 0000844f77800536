"""Writes consensus_wire.json: messages between cores as bytes, good ones and damaged ones, and what comes of them.

Each row is [bytes in hex, the message as peer.consensus.trace_json spells it, or "error " and the text of BadMessage].
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import msgpack

from peer.consensus import messages as m
from peer.consensus.errors import BadMessage
from peer.consensus.message_codec import config_bytes, decode, encode
from peer.consensus.records import Config, Entry, Server
from peer.consensus.trace_json import text_of

TARGET = Path(__file__).parent / "consensus_wire.json"
GOOD = 132
NUMBERS = (0, 1, 2, 5, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**53 - 1)
IDS = ("a", "b", "zoë", "x" * 128, "é" * 64, "\U0001f40b", "\uffff")
CONFIGS = (
    b'{"servers":[["a",1,true]]}',
    b'{"servers":[["a",1,true]] }',
    b'{"servers":[["\\ud800",1,true]]}',
    b'{"servers":[["\\u0061",1,true]]}',
    b'{"servers":[["a",1,true]],"x":1}',
    b'{"servers":[["a",1,true]],"servers":[]}',
    b'{"servers":[["b",1,true],["a",1,true]]}',
    b'{"servers":[["a",1,false]]}',
    b'{"servers":[["a",1]]}',
    b'{"servers":{}}',
    b"[]",
    b"nul",
    b"\xff",
)
ODD: tuple[Any, ...] = (
    *(None, True, -1, 1.5, 2.0, 2**53, 2**64 - 1, -(2**40), 12),
    *("", "a", "x" * 129, b"a", [], [[]], {}, {"a": 1}),
    *([["a", 1, True], ["a", 1, True]], [["b", 1, False]], [["a", 1]], [[1, 1, b"{}"]], [[0, 1, b""]]),
    *([[1, 3, b""]], [[1, 0, b"a"]]),
)


class Maker:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def number(self) -> int:
        return self.rng.choice(NUMBERS)

    def flag(self) -> bool:
        return self.rng.random() < 0.5

    def data(self) -> bytes:
        return self.rng.randbytes(self.rng.choice((0, 1, 3, 40, 300)))

    def config(self) -> Config:
        names = sorted({self.rng.choice(IDS) for _ in range(self.rng.randint(1, 3))})
        servers = [Server(name, self.number(), place == 0 or self.flag()) for place, name in enumerate(names)]
        return Config(tuple(servers))

    def entry(self, index: int) -> Entry:
        match self.rng.randrange(3):
            case 0:
                return Entry(index, 2, "noop", b"")
            case 1:
                return Entry(index, 2, "command", self.data())
            case _:
                return Entry(index, 2, "config", config_bytes(self.config()))

    def append(self) -> m.Append:
        before = self.rng.choice((0, 3, 2**53 - 8))
        entries = [self.entry(before + 1 + place) for place in range(self.rng.randint(0, 3))]
        return m.Append(self.number(), before, 2 if before else 0, self.number(), tuple(entries))

    def install(self) -> m.Install:
        data, offset = self.data(), self.rng.choice((0, 9))
        return m.Install(
            self.number(), 7, 2, self.config(), len(data) + 9, self.number() % 2**32, offset, data
        )

    def bodies(self) -> tuple[m.Body, ...]:
        number, flag = self.number, self.flag
        return (
            m.PreVote(number(), number(), number()),
            m.PreVoteReply(number(), flag()),
            m.Vote(number(), number(), flag()),
            m.VoteReply(flag()),
            self.append(),
            m.AppendReply(number(), flag(), number(), number(), number()),
            self.install(),
            m.InstallReply(number(), number(), number(), number()),
            m.TimeoutNow(),
            m.ReadIndex(number()),
            m.ReadIndexReply(number(), flag(), number()),
        )

    def message(self, kind: int) -> bytes:
        ids = self.rng.sample(IDS, 2)
        term = self.rng.choice((2, 3, 2**53 - 1))
        body = self.bodies()[kind]
        return encode(m.Message(ids[0], self.number(), ids[1], self.number(), self.number(), term, body))

    def damaged(self, data: bytes) -> bytes:
        rng, found = self.rng, bytearray(data)
        place = rng.randrange(len(found))
        match rng.randrange(6):
            case 0:
                found[place] = rng.randrange(256)
            case 1:
                del found[place:]
            case 2:
                found.insert(place, rng.randrange(256))
            case _:
                wire = msgpack.unpackb(data, raw=False)
                wire[rng.choice([*wire, "zz"])] = rng.choice(ODD)
                if "e" in wire and rng.random() < 0.6:
                    wire["e"] = [[2, 2, rng.choice(CONFIGS)]]
                found = bytearray(msgpack.packb(wire))
        return bytes(found)


def says(data: bytes) -> str:
    try:
        return text_of(decode(data))
    except BadMessage as error:
        return f"error {error}"


def rows() -> list[list[str]]:
    maker = Maker(5)
    found: list[bytes] = []
    for number in range(GOOD):
        good = maker.message(number % 11)
        found += [good, maker.damaged(good), maker.damaged(good)]
    found += [b"", b"\xc1", b"\x80", b"\x90", msgpack.packb({"k": 11})]
    found += [b"\x91" * 600, b"\xdf\xff\xff\xff\xff"]
    return [[data.hex(), says(data)] for data in found]


def main() -> int:
    lines = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows())
    TARGET.write_text(f'{{"rows": [\n{lines}\n]}}\n')
    print(f"{TARGET.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
