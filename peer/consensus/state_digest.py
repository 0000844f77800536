"""A server's whole state as canonical JSON, and a short digest of it by which two languages compare themselves.

Bytes stand as [length, CRC-32]. The digest is FNV-1a twice over the UTF-8 of that JSON, each in 32 bits, with the
offset bases 0x811c9dc5 and 0xcbf29ce4, as 16 hex digits.
"""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

from peer.consensus.records import Config, Snapshot
from peer.consensus.server import Node, Progress, Waiting


def _bytes(value: bytes | bytearray) -> list[int]:
    return [len(value), crc32(value)]


def _config(config: Config) -> list[list[Any]]:
    return [[server.id, server.incarnation, server.voter] for server in config.servers]


def _snapshot(snapshot: Snapshot | None) -> list[Any] | None:
    if snapshot is None:
        return None
    return [snapshot.index, snapshot.term, _config(snapshot.config), _bytes(snapshot.data)]


def _progress(progress: Progress) -> dict[str, Any]:
    return {
        "acked_seq": progress.acked_seq,
        "asked": progress.asked,
        "contact_ms": progress.contact_ms,
        "incarnation": progress.incarnation,
        "inflight": progress.inflight,
        "match": progress.match,
        "next": progress.next,
        "offset": progress.offset,
        "ok_seq": progress.ok_seq,
        "paused": progress.paused,
        "sent": progress.sent,
        "stalled": progress.stalled,
        "snapshot": [progress.snapshot.index, progress.snapshot.term] if progress.snapshot else None,
        "state": progress.state,
    }


def _waiting(wait: Waiting) -> list[Any]:
    return [wait.ctx, wait.origin, wait.incarnation, wait.index, wait.expires_ms]


def image(node: Node) -> dict[str, Any]:
    """What decides how the server goes on."""
    log, incoming = node.log, node.incoming
    return {
        "acked": node.acked,
        "applied": node.applied,
        "by_transfer": node.by_transfer,
        "commit": node.commit,
        "durable_token": node.durable_token,
        "election_at": node.election_at,
        "forwarded": [[number, _waiting(wait)] for number, wait in sorted(node.forwarded.items())],
        "handed": node.handed,
        "hard_token": node.hard_token,
        "heard_ms": node.heard_ms,
        "heartbeat_at": node.heartbeat_at,
        "held": [[token, send.to, send.message.term] for token, send in node.held],
        "incarnation": node.incarnation,
        "incoming": None
        if incoming is None
        else [incoming.index, incoming.term, incoming.total, incoming.crc, _bytes(incoming.data)],
        "leader": node.leader,
        "leader_incarnation": node.leader_incarnation,
        "leader_seq": node.leader_seq,
        "log": {
            "configs": [[index, _config(config)] for index, config in log.configs],
            "durable": log.durable,
            "entries": [[entry.term, entry.kind, *_bytes(entry.data)] for entry in log.entries],
            "first": log.first,
            "pending": log.pending,
            "snapshot": _snapshot(log.snapshot),
        },
        "marks": [list(mark) for mark in node.marks],
        "me": node.me,
        "now": node.now,
        "progress": {peer: _progress(progress) for peer, progress in node.progress.items()},
        "quorum_check_at": node.quorum_check_at,
        "random": node.random,
        "read_number": node.read_number,
        "read_queue": [_waiting(wait) for wait in node.read_queue],
        "read_ready": [_waiting(wait) for wait in node.read_ready],
        "read_round": [_waiting(wait) for wait in node.read_round],
        "restore_token": node.restore_token,
        "resumed_ms": node.resumed_ms,
        "role": node.role,
        "round_seq": node.round_seq,
        "seq": node.seq,
        "term": node.term,
        "term_start": node.term_start,
        "token": node.token,
        "transfer": [node.transfer_to, node.transfer_ctx, node.transfer_until],
        "verified": node.verified,
        "vote": node.vote,
        "votes": node.votes,
    }


def digest(node: Node) -> str:
    text = json.dumps(image(node), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    first, second = 0x811C9DC5, 0xCBF29CE4
    for byte in text.encode():
        first = (first ^ byte) * 0x01000193 & 0xFFFFFFFF
        second = (second ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{first:08x}{second:08x}"
