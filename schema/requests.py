"""What peers ask of one another: requests.toml as values, as modules of both languages and as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from schema.definitions import Number, Reader, SchemaError, load
from schema.layout import jsdoc, used
from schema.protocol_tables import record_field, row
from schema.python_code import HEAD
from schema.python_records import KIT as PYTHON_KIT
from schema.python_records import record_class, snake
from schema.python_records import record_codec as python_codec
from schema.python_records import values_head as python_values
from schema.python_records import wire_head as python_wire
from schema.records import Record, Vocabulary, check_types, read_record, read_vocabulary
from schema.request_bytes import max_bytes
from schema.typescript_records import KIT as TYPESCRIPT_KIT
from schema.typescript_records import record_codec as typescript_codec
from schema.typescript_records import record_interface, value_name
from schema.typescript_records import values_head as typescript_values
from schema.typescript_records import wire_head as typescript_wire

SENDERS: Final = ("anyone", "members", "leader")
RECEIVERS: Final = ("peer", "leader")


@dataclass(frozen=True, slots=True)
class Request:
    """One request: its body is `record`, which has no fields where the request says nothing. `answer` is None where
    the answer says only that it was done.
    """

    record: Record
    answer: Record | None
    max_body_bytes: int
    max_answer_bytes: int
    method: str
    sender: str
    receiver: str
    effect: str

    @property
    def spoken(self) -> tuple[Record, ...]:
        """What is said in it: its body, where that has fields, and its answer."""
        return tuple(each for each in (self.record, self.answer) if each is not None and each.fields)

    @property
    def constant(self) -> str:
        """The name of the request in both languages: `LeaderRequest` is `LEADER`."""
        return snake(self.record.name.removesuffix("Request")).upper()


@dataclass(frozen=True, slots=True)
class Requests(Vocabulary):
    """All requests, and what their fields are made of."""

    requests: tuple[Request, ...]


def read_requests(limits: Mapping[str, Number]) -> Requests:
    """Returns the requests. Raises SchemaError, as for a method that stands there twice."""
    source = load("requests")
    words, reader = read_vocabulary("requests", source, limits)
    known = {**limits, **{limit.name: limit.number for limit in words.limits}}
    requests = tuple(
        _request(words, reader, known, name, given) for name, given in source["requests"].items()
    )
    for request in requests:
        if request.sender not in SENDERS or request.receiver not in RECEIVERS:
            raise SchemaError(f"{request.record.name}: expected `from` {SENDERS} and `to` {RECEIVERS}")
    if len({request.method for request in requests}) != len(requests):
        raise SchemaError("requests: a method stands there twice")
    return Requests(
        words.limits, words.words, words.patterns, words.by_hand, words.records, requests=requests
    )


def _request(
    words: Vocabulary, reader: Reader, limits: Mapping[str, Number], name: str, given: Mapping[str, Any]
) -> Request:
    said = given.get("answer", {"doc": ""})
    record = read_record(reader, name, given)
    answer = read_record(reader, f"{name.removesuffix('Request')}Answer", said)
    check_types(words, (record, answer))
    return Request(
        record,
        answer if "answer" in given else None,
        max_bytes(words, limits, record, given),
        max_bytes(words, limits, answer, said),
        given["method"],
        given["from"],
        given["to"],
        given["effect"],
    )


def python_module(requests: Requests, limits: Iterable[str]) -> str:
    """Returns peer/wire/generated/requests.py."""
    spoken = [record for request in requests.requests for record in request.spoken]
    body = "".join(
        [
            python_values(requests),
            "# --- requests and their answers " + "-" * 75 + "\n\n\n",
            *(record_class(requests, record) for record in spoken),
            "\n# --- on the wire " + "-" * 90 + "\n\n",
            python_wire(requests),
            *(python_codec(requests, record) for record in requests.records),
            *(python_codec(requests, record) for record in spoken),
            "\n",
            *(
                f'{request.constant}: Final = RequestKind("{request.method}", Sender.{request.sender.upper()}, '
                f"{_python_name(request.record)}, {request.max_body_bytes}, "
                f"{_python_name(request.answer)}, {request.max_answer_bytes})\n"
                for request in requests.requests
            ),
            "\n# What is asked of whoever leads.\nLEADER_REQUESTS: Final[tuple[RequestKind[Any, Any], ...]] = (",
            *(f"{request.constant}, " for request in requests.requests if request.receiver == "leader"),
            ")\n",
        ]
    )
    return (
        '"""What peers ask of one another by REQUEST (docs/protocol.md, chapter Mesh state). Pure.\n\n'
        f'{HEAD.format(source="schema/requests.toml")}\n"""\n\n'
        "from __future__ import annotations\n\n"
        "from collections.abc import Mapping\n"
        "from dataclasses import dataclass\n"
        "from typing import Any, Final, Literal\n\n"
        f"from peer.limits import {', '.join(used(body, limits))}\n"
        f"from peer.wire.json_codec import {', '.join(used(body, PYTHON_KIT))}\n"
        "from peer.wire.request_kind import RequestKind, Sender, nothing\n\n" + body
    )


def _python_name(record: Record | None) -> str:
    return f"{snake(record.name)}_codec" if record is not None and record.fields else "nothing"


def typescript_module(requests: Requests, limits: Iterable[str]) -> str:
    """Returns web_peer/src/wire/generated/requests.ts."""
    spoken = [record for request in requests.requests for record in request.spoken]
    body = "".join(
        [
            typescript_values(requests),
            "// --- requests and their answers\n\n",
            *(record_interface(requests, record, "") for record in spoken),
            "// --- on the wire\n\n",
            typescript_wire(requests),
            *(typescript_codec(requests, record, None) for record in spoken),
            "\n",
            *(_typescript_kind(request) for request in requests.requests),
            "\n" + jsdoc("What is asked of whoever leads."),
            "export const LEADER_REQUESTS: readonly RequestKind<unknown, unknown>[] = [",
            *(f"\n  {request.constant}," for request in requests.requests if request.receiver == "leader"),
            "\n];\n",
        ]
    )
    return (
        "/*\n * What peers ask of one another by REQUEST (docs/protocol.md, chapter Mesh state). Pure.\n *\n"
        f" * {HEAD.format(source='schema/requests.toml')}\n */\n\n"
        f"import {{ {', '.join(used(body, limits))} }} from '../../limits';\n"
        "import {\n"
        + "".join(f"  type {name},\n" for name in used(body, ("Codec",)))
        + "".join(f"  {name},\n" for name in used(body, TYPESCRIPT_KIT))
        + "  type Span,\n} from '../json_codec';\n"
        + "import { nothing, type RequestKind } from '../request_kind';\n\n"
        + body
    )


def _typescript_kind(request: Request) -> str:
    said, answer = (
        (record.name, f"{value_name(record.name)}Codec")
        if record is not None and record.fields
        else ("null", "nothing")
        for record in (request.record, request.answer)
    )
    return (
        f"export const {request.constant}: RequestKind<{said[0]}, {answer[0]}> = {{\n"
        f"  method: '{request.method}',\n  sender: '{request.sender}',\n"
        f"  codec: {said[1]},\n  maxBodyBytes: {request.max_body_bytes},\n"
        f"  answer: {answer[1]},\n  maxAnswerBytes: {request.max_answer_bytes},\n}};\n"
    )


def request_tables(requests: Requests) -> dict[str, str]:
    """Returns the tables of requests by name: those to any peer, and those to whoever leads."""
    return {
        f"requests to {receiver}": "| method | from | body | answer | bytes | effect |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        + "".join(
            row(
                f"`{request.method}`",
                request.sender,
                *(
                    ", ".join(record_field(requests, field) for field in (record.fields if record else ()))
                    for record in (request.record, request.answer)
                ),
                f"{request.max_body_bytes}, {request.max_answer_bytes}",
                request.effect,
            )
            for request in requests.requests
            if request.receiver == receiver
        )
        for receiver in RECEIVERS
    }
