"""Writes answers.json: answers to requests as peers read them, those with one odd or missing field included."""

from __future__ import annotations

from typing import Any

from tracing import beside, written

from peer.errors import BadCommand
from peer.wire.generated.requests import (
    CHECK,
    JOIN,
    KV_COPY,
    KV_DIGEST,
    LEADER,
    MEASURE,
    MEASURE_LINK,
    RELAY,
    RUN_FOLDER,
    STATUS,
    WAIT,
    WITNESS,
)
from peer.wire.json_codec import checksum, dump
from peer.wire.request_kind import RequestKind

PATH = beside(__file__, "answers.json")
ODD: tuple[Any, ...] = (None, -1, 1.5, 2**53, "x", True, [], [0, 4], [[0, 4]], [["a", "b"]], {}, {"a": 1})
COUNTS = {"same": 1, "differs": 0, "disputed": 2, "unable": 0}
STATUS_BODY: dict[str, Any] = {
    "name": "ann",
    "agent": "shoal",
    "runs": [[0, 4], [6, 9]],
    "rtt_us": {"b": 1500},
    "rss_bytes": 1,
    "weight_bytes": 2,
    "kv_bytes": 3,
    "pledge_bytes": 4,
    "sessions": 5,
    "active": 6,
    "steps": 7,
    "tokens": 8,
    "tokens_per_s_milli": 9,
    "step_us": [[0, 4, 99]],
    "tasks": 3,
    "copied": 2,
    "replayed_bytes": 0,
    "term": 4,
    "commit": 90,
    "applied": 89,
    "log_bytes": 12,
    "taken_over": 1,
    "breakers": [["b", "open"], ["a>b", "half-open"]],
    "fresh": ["b"],
    "checks": {"made": COUNTS, "got": COUNTS, "kept": 1, "positions": 45, "worst_ppm": 3},
}
ANSWERS: tuple[tuple[RequestKind[Any, Any], dict[str, Any]], ...] = (
    (STATUS, STATUS_BODY),
    (LEADER, {"leader": "a", "term": 7, "epoch": 1, "voters": ["a", "b"]}),
    (MEASURE_LINK, {"rtt_us": 1500, "bytes_per_s": 2**20, "overhead_us": 30, "relayed": True}),
    (RELAY, {"hosts": ["192.0.2.1", "2001:db8::1"], "mine": 7, "theirs": 65535}),
    (WAIT, {"place": 2, "wait_ms": 900}),
    (WAIT, {"place": -1, "wait_ms": -1, "why": "it is full"}),
    (KV_DIGEST, {"runs": [{"run": [0, 4], "have": 9, "arrays": {"key.3": "ab", "value.3": "cd"}}]}),
    (KV_COPY, {"have": 9, "sha256": "ab" * 32}),
    (RUN_FOLDER, {"folder": "/dev/shm/x"}),
    (CHECK, {"verdict": "differs"}),
    (WITNESS, {"units": [2, 9], "before": "p", "after": "", "spans": [5, 2]}),
    (WITNESS, {"tokens": [7, -1], "rows": "AAAA", "marks": "ab" * 16, "token": 3, "same": False}),
    (MEASURE, {"measured": True, "busy": False}),
    (JOIN, {"index": 2**53 - 1}),
)


def read(kind: RequestKind[Any, Any], body: dict[str, Any]) -> str | None:
    """The checksum of what is read, as this side would say it; None: it is refused."""
    try:
        return checksum(dump(kind.answer_body(kind.read_answer(body))))
    except BadCommand:
        return None


def rows() -> list[dict[str, Any]]:
    """Each answer, and what becomes of it with a field that is odd, and with one that is missing."""
    return [
        {
            "method": kind.method,
            "body": body,
            "read": read(kind, body | {"newer": 1}),
            "odd": {name: [read(kind, body | {name: each}) for each in ODD] for name in body},
            "missing": {name: read(kind, {n: body[n] for n in body if n != name}) for name in body},
        }
        for kind, body in ANSWERS
    ]


def text() -> str:
    return written("answers to requests, as they are read", {"odd": list(ODD), "answers": rows()})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
