"""Writes surroundings.json: what peers say of their surroundings, and when they say it again, for both languages."""

from __future__ import annotations

import random
from dataclasses import asdict
from itertools import combinations, product
from typing import Any, get_args

from tracing import beside, written

from peer.state.failure_domains import (
    AGAIN_MS,
    BETTER_MS,
    UNKNOWN,
    WORSE_MS,
    End,
    Place,
    Platform,
    Surroundings,
    Telling,
    agreed,
    hashed,
    hazard_milli,
    is_relayed,
    public_address,
)
from planner.predict.hazard import CONDITIONS

PATH = beside(__file__, "surroundings.json")
SEED = 20261128
TRACES = 6
OPS = 40
PAUSES = (500, 1000, WORSE_MS - 1, WORSE_MS, AGAIN_MS, BETTER_MS)
OFTEN = (4, 6, 2, 6, 6, 8)
SEEN = (
    Surroundings(21, "a2" * 16),
    Surroundings(42, "a2" * 16),
    Surroundings(83, "a2" * 16),
    Surroundings(42, "a2" * 16, "b3" * 16),
    Surroundings(None, "", "", "c4" * 16),
)
MESH = "mfrggzdfmztwq2lkmfrggzdfmztwq2lk"
ADDRESSES = (
    *("192.0.2.7", "203.0.113.9", "10.0.0.1", "127.0.0.1", "0.1.2.3", "100.64.0.1", "100.128.0.1"),
    *("169.254.1.1", "172.15.0.1", "172.16.0.1", "172.31.255.255", "172.32.0.1", "192.168.1.1", "198.18.0.1"),
    *(
        "198.19.255.255",
        "198.20.0.1",
        "223.255.255.255",
        "224.0.0.1",
        "255.255.255.255",
        "256.1.1.1",
        "1.2.3",
    ),
    *("01.2.3.4", "1.2.3.4.5", "f2c0.local", "2001:db8:1:2:3:4:5:6", "2001:DB8::1", "2001:db8::", "3fff::1"),
    *(
        "4000::1",
        "fe80::1",
        "fd00::1",
        "::1",
        "::",
        "2001::1::2",
        "2001:db8:1:2:3:4:5",
        "20011::1",
        "1:2:3:4::5",
    ),
    *("2001:db8:1:2:3:4:5:6:7", "2001:db8:0:0:ffff:ffff:ffff:ffff", ":2001:db8::1", "2001:db8:1:2:3:4:5::"),
)


def line(host: str, kind: str = "host", port: int = 5000, name: str = "1") -> str:
    more = " raddr 198.51.100.1 rport 9" if kind != "host" else ""
    return f"a=candidate:{name} 1 udp 2122317823 {host} {port} typ {kind}{more}"


def described(*lines: str) -> str:
    return "\r\n".join(["v=0", "m=application 9 UDP/DTLS/SCTP webrtc-datachannel", *lines, ""])


def addresses() -> list[dict[str, Any]]:
    sdps = [described(line(host, kind)) for host, kind in product(ADDRESSES, ("srflx",))]
    sdps += [
        "",
        described(),
        described(line("192.0.2.7", "relay")),
        described(line("192.0.2.7", "prflx")),
        described(line("192.168.1.5"), line("203.0.113.9", "srflx")),
        described(line("203.0.113.9", "srflx"), line("192.0.2.7"), line("203.0.113.10", "srflx")),
        described(line("2001:db8:9::1"), line("203.0.113.9", "srflx"), line("2001:db8:1::1")),
        described(line("2001:db8:9::1"), line("2001:db8:1::1"), line("fd00::1")),
    ]
    return [{"sdp": sdp, "address": public_address(sdp)} for sdp in sdps]


def relays() -> list[dict[str, Any]]:
    direct = described(line("192.168.1.5"), line("203.0.113.9", "srflx", 6000))
    turn = described(line("192.168.1.6"), line("192.0.2.1", "relay", 7000))
    third = described(line("192.168.1.6"), line("192.168.1.9", "host", 8000, "third0"))
    pairs: list[tuple[End, End] | None] = [
        None,
        (End("192.168.1.5", 5000, "host"), End("192.168.1.6", 5000, "host")),
        (End("192.168.1.5", 5000, "host"), End("192.0.2.1", 7000, "relay")),
        (End("192.168.1.5", 5000, "host"), End("192.0.2.1", 7000, "prflx")),
        (End("192.168.1.5", 5000, "host"), End("192.0.2.1", 7001, "prflx")),
        (End("192.0.2.2", 7000, "relay"), End("", 0, "prflx")),
        (End("192.168.1.5", 5000, "host"), End("192.168.1.9", 8000, "host")),
    ]
    rows = []
    for sdps, pair in product(((direct, direct), (direct, turn), (direct, third)), pairs):
        ends = None if pair is None else [asdict(end) for end in pair]
        rows.append({"descriptions": list(sdps), "pair": ends, "relayed": is_relayed(sdps, pair)})
    return rows


def trace(number: int) -> dict[str, Any]:
    rng = random.Random(SEED + number)
    telling, now, said, seen = Telling(), rng.randrange(10**6), rng.choice((UNKNOWN, *SEEN)), SEEN[0]
    steady, kept = rng.choice((0.6, 0.9, 0.97)), rng.choice((1.0, 1.0, 0.4))
    ops = []
    for _ in range(OPS):
        now += rng.choices(PAUSES, OFTEN)[0]
        seen = seen if rng.random() < steady else rng.choice(SEEN)
        due = telling.due(now, said, seen)
        ops.append({"now": now, "said": asdict(said), "seen": asdict(seen), "due": due})
        if due and rng.random() < kept:
            said = seen
    return {"name": f"random changes of seed {SEED + number}", "ops": ops}


def text() -> str:
    about = (
        "hazards: of a platform under conditions. hashes: names of places in a mesh. addresses: the public one in a "
        "description. relays: whether a connection with these descriptions, own first, and this pair of addresses is "
        "relayed. agreed: of what both ends say. traces: whether `seen` is to be told at `now` (ms), where the log has "
        "`said`."
    )
    conditions = [
        each for size in range(len(CONDITIONS) + 1) for each in combinations(sorted(CONDITIONS), size)
    ]
    flags = (None, True, False)
    return written(
        about,
        {
            "hazards": [
                {"platform": kind, "conditions": list(held), "milli": hazard_milli(kind, held)}
                for kind, held in product(get_args(Platform), conditions)
            ],
            "hashes": [
                {"what": what, "mesh": mesh, "name": name, "hash": hashed(what, mesh, name)}
                for what, mesh, name in product(get_args(Place), (MESH, "b" * 32), ("", "192.0.2.7", "ä😀"))
            ],
            "addresses": addresses(),
            "relays": relays(),
            "agreed": [{"mine": a, "theirs": b, "relayed": agreed(a, b)} for a, b in product(flags, flags)],
            "traces": [trace(number) for number in range(TRACES)],
        },
    )


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
