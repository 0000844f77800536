"""A server's whole state as canonical JSON, and a short digest of it by which two languages compare themselves.

Keys are those of the recorded traces, whatever the fields are called. Bytes stand as [length, CRC-32]. The digest is
FNV-1a twice over the UTF-8 of that JSON, each in 32 bits, with the offset bases 0x811c9dc5 and 0xcbf29ce4, as 16 hex
digits.
"""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

from peer.consensus.records import Config, Snapshot
from peer.consensus.server import PendingRead, Progress, RaftServer


def _bytes(value: bytes | bytearray) -> list[int]:
    return [len(value), crc32(value)]


def _config(config: Config) -> list[list[Any]]:
    return [[peer.id, peer.incarnation, peer.voter] for peer in config.servers]


def _snapshot(snapshot: Snapshot | None) -> list[Any] | None:
    if snapshot is None:
        return None
    return [snapshot.index, snapshot.term, _config(snapshot.config), _bytes(snapshot.data)]


def _progress(progress: Progress) -> dict[str, Any]:
    return {
        "acked_seq": progress.acked_seq,
        "asked": progress.offset_unknown,
        "contact_ms": progress.contact_ms,
        "incarnation": progress.incarnation,
        "inflight": progress.inflight,
        "match": progress.match_index,
        "next": progress.next_index,
        "offset": progress.acked_bytes,
        "ok_seq": progress.accepted_seq,
        "paused": progress.probe_sent,
        "sent": progress.sent_bytes,
        "stalled": progress.stalled_heartbeats,
        "snapshot": [progress.snapshot.index, progress.snapshot.term] if progress.snapshot else None,
        "state": progress.state,
    }


def _pending(read: PendingRead) -> list[Any]:
    return [read.ctx, read.origin, read.incarnation, read.index, read.expires_ms]


def image(server: RaftServer) -> dict[str, Any]:
    """Returns what determines how the server goes on."""
    log, incoming = server.log, server.incoming_snapshot
    return {
        "acked": server.acknowledged_index,
        "applied": server.applied_index,
        "by_transfer": server.by_transfer,
        "commit": server.commit_index,
        "durable_token": server.durable_token,
        "election_at": server.election_deadline,
        "forwarded": [[number, _pending(read)] for number, read in sorted(server.reads_forwarded.items())],
        "handed": server.applying_index,
        "hard_token": server.hard_state_token,
        "heard_ms": server.leader_contact_ms,
        "heartbeat_at": server.heartbeat_deadline,
        "held": [[token, send.to, send.message.term] for token, send in server.held_sends],
        "incarnation": server.incarnation,
        "incoming": None
        if incoming is None
        else [incoming.index, incoming.term, incoming.total, incoming.crc, _bytes(incoming.data)],
        "leader": server.leader,
        "leader_incarnation": server.leader_incarnation,
        "leader_seq": server.leader_seq,
        "log": {
            "configs": [[index, _config(config)] for index, config in log.configs],
            "durable": log.durable_index,
            "entries": [[entry.term, entry.kind, *_bytes(entry.data)] for entry in log.entries],
            "first": log.first_index,
            "pending": log.pending_writes,
            "snapshot": _snapshot(log.snapshot),
        },
        "marks": [list(mark) for mark in server.send_times],
        "me": server.id,
        "now": server.now,
        "progress": {peer: _progress(progress) for peer, progress in server.progress.items()},
        "quorum_check_at": server.check_quorum_deadline,
        "random": server.random,
        "read_number": server.last_read_number,
        "read_queue": [_pending(read) for read in server.reads_queued],
        "read_ready": [_pending(read) for read in server.reads_confirmed],
        "read_round": [_pending(read) for read in server.reads_in_round],
        "restore_token": server.restore_token,
        "resumed_ms": server.resumed_ms,
        "role": server.role,
        "round_seq": server.round_seq,
        "seq": server.seq,
        "term": server.term,
        "term_start": server.term_start,
        "token": server.last_token,
        "transfer": [server.transfer_target, server.transfer_ctx, server.transfer_deadline],
        "verified": server.verified_index,
        "vote": server.voted_for,
        "votes": server.votes,
    }


def digest(server: RaftServer) -> str:
    """Returns the 16 hex digits."""
    text = json.dumps(image(server), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    first, second = 0x811C9DC5, 0xCBF29CE4
    for byte in text.encode():
        first = (first ^ byte) * 0x01000193 & 0xFFFFFFFF
        second = (second ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{first:08x}{second:08x}"
