"""Decides what of a member's own word on itself is believed: the known fields, bounded."""

from __future__ import annotations

from typing import Final, get_args

from peer.errors import BadCommand
from peer.state.display_names import plain
from peer.transport.circuit_breakers import State
from peer.wire.json_codec import Body, whole

MAX_REPORTED: Final = 1024  # runs and round trips in a member's status
MAX_SHOWN: Final = 128  # characters of what a member calls itself
_COUNTS: Final = (
    *("rss_bytes", "weight_bytes", "kv_bytes", "pledge_bytes"),
    *("sessions", "active", "steps", "tokens", "tokens_per_s_milli"),
)
_MORE_COUNTS: Final = (
    "tasks",
    "replayed_bytes",
    "copied",
    "term",
    "commit",
    "applied",
)  # that not every kind of peer has


def checked_report(body: Body) -> Body:
    """A member's answer to `status`, of which only the known fields are kept. Raises BadCommand."""
    runs, rtts = body.get("runs"), body.get("rtt_us")
    if not isinstance(runs, list) or not isinstance(rtts, dict) or len(runs) + len(rtts) > MAX_REPORTED:
        raise BadCommand(f"status: expected at most {MAX_REPORTED} runs and round trips")
    spans = [dict(zip(("first", "stop"), run, strict=False)) for run in runs if isinstance(run, list)]
    return {
        **{name: plain(str(body.get(name, ""))[:MAX_SHOWN]) for name in ("name", "agent")},
        **{name: whole(body, name) for name in _COUNTS},
        **{name: whole(body, name) for name in _MORE_COUNTS if name in body},
        "runs": [[whole(span, "first"), whole(span, "stop")] for span in spans],
        "rtt_us": {peer: whole(rtts, peer) for peer in rtts},
        "step_us": _checked_steps(body.get("step_us", [])),
        "breakers": _checked_breakers(body.get("breakers", [])),
        "fresh": _checked_peers(body.get("fresh", [])),
    }


def _checked_peers(value: object) -> list[str]:
    if not isinstance(value, list) or len(value) > MAX_REPORTED:
        raise BadCommand(f"fresh: expected at most {MAX_REPORTED} peers")
    if not all(isinstance(peer, str) for peer in value):
        raise BadCommand("fresh: expected ids of peers")
    return [plain(peer[:MAX_SHOWN]) for peer in value]


def _checked_steps(value: object) -> list[list[int]]:
    if not isinstance(value, list) or len(value) > MAX_REPORTED:
        raise BadCommand(f"step_us: expected at most {MAX_REPORTED} runs")
    names = ("first", "stop", "us")
    found = [dict(zip(names, each, strict=False)) for each in value if isinstance(each, list)]
    return [[whole(each, name) for name in names] for each in found]


def _checked_breakers(value: object) -> list[list[str]]:
    if not isinstance(value, list) or len(value) > MAX_REPORTED:
        raise BadCommand(f"breakers: expected at most {MAX_REPORTED} pairs")
    found: list[list[str]] = []
    for pair in value:
        key, state = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
        if not isinstance(key, str) or state not in get_args(State):
            raise BadCommand(f"breakers: expected pairs of a peer and one of {', '.join(get_args(State))}")
        found.append([plain(key[: 2 * MAX_SHOWN + 1]), str(state)])
    return found
