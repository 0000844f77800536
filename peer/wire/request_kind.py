"""One kind of request between peers: its method, who may send it, and how it and its answer stand in JSON. Pure.

The same in web_peer/src/wire/request_kind.ts. peer/wire/generated/requests.py has all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from peer.wire.json_codec import Body, Codec

T = TypeVar("T")
A = TypeVar("A")


class Sender(Enum):
    """Who may send a request: any peer that is connected, members of the mesh, or the member that leads."""

    ANYONE = "anyone"
    MEMBERS = "members"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class RequestKind(Generic[T, A]):
    """`codec` is of its bodies, `answer` of the answers to it; each with how many bytes of JSON it may have."""

    method: str
    sender: Sender
    codec: Codec[T]
    max_body_bytes: int
    answer: Codec[A]
    max_answer_bytes: int

    def read(self, body: Body) -> T:
        """Returns what `body` says. Raises BadCommand for one that is no such request."""
        return self.codec.decode(body, self.method)

    def body(self, said: T) -> Body:
        """Returns the body that says this."""
        made: Body = self.codec.encode(said)
        return made

    def read_answer(self, body: Body) -> A:
        """Returns what the answer `body` says. Raises BadCommand for one that is no answer to this."""
        return self.answer.decode(body, f"the answer to {self.method}")

    def answer_body(self, answer: A) -> Body:
        """Returns the body of this answer."""
        made: Body = self.answer.encode(answer)
        return made


def _pass_over(_: Any, __: str) -> None:
    return None


nothing: Final[Codec[None]] = Codec(_pass_over, lambda _: {})  # of what says no more than its method
