"""Decides how a member's own word on itself is shown to people: names are plain and short, odd breakers are refused."""

from __future__ import annotations

from typing import Any, Final, get_args

from peer.errors import BadCommand
from peer.state.display_names import plain
from peer.transport.circuit_breakers import State
from peer.wire.generated.requests import STATUS, StatusAnswer

MAX_SHOWN: Final = 128  # characters of what a member calls itself


def shown_report(answer: StatusAnswer) -> dict[str, Any]:
    """A member's answer to `status`, by the names of its fields; of checks it tells people nothing. Raises BadCommand
    for breakers without a peer and a state.
    """
    for _, state in answer.breakers:
        if state not in get_args(State):
            raise BadCommand(f"breakers: expected a peer and one of {', '.join(get_args(State))}")
    said = STATUS.answer_body(answer)
    said.pop("checks", None)
    return {
        **said,
        "name": plain(answer.name[:MAX_SHOWN]),
        "agent": plain(answer.agent[:MAX_SHOWN]),
        "fresh": [plain(peer[:MAX_SHOWN]) for peer in answer.fresh],
        "breakers": [[plain(key[: 2 * MAX_SHOWN + 1]), state] for key, state in answer.breakers],
    }
