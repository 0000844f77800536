"""The codec: vectors, truncation, wrong types, 10,000 random mutations. Nothing but named errors comes out."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from signaling.errors import MessageError, SignalingError, code_of, from_wire
from signaling.generated.messages import ClientMessage, ServerMessage
from signaling.message_fields import is_clean
from signaling.messages import decode_client, decode_server, encode


def _vectors() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "signaling_vectors", Path(__file__).parents[1] / "vectors" / "make_signaling.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


V = _vectors()
FILED: dict[str, Any] = json.loads(V.FILE.read_text("ascii"))
ALL = [("client", t) for t in FILED["client"]] + [("server", t) for t in FILED["server"]]


def decode(side: str, text: str) -> ClientMessage | ServerMessage:
    return decode_client(text) if side == "client" else decode_server(text)


def test_the_file_is_what_the_code_makes() -> None:
    assert V.build() == FILED


@pytest.mark.parametrize(
    ("side", "message"), [("client", m) for m in V.CLIENT] + [("server", m) for m in V.SERVER], ids=repr
)
def test_every_message_comes_back_as_it_went(side: str, message: ClientMessage) -> None:
    assert decode(side, encode(message)) == message


@pytest.mark.parametrize("case", FILED["reject"], ids=lambda c: str(c["text"][:30]))
def test_rejects(case: dict[str, str]) -> None:
    with pytest.raises(MessageError) as error:
        decode(case["side"], case["text"])
    assert code_of(error.value) == case["error"]
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(("text", "code"), V.long_rejects(), ids=lambda v: v[:12])
def test_rejects_too_long_for_the_file(text: str, code: str) -> None:
    with pytest.raises(MessageError) as error:
        decode_client(text)
    assert code_of(error.value) == code


@pytest.mark.parametrize(("side", "text"), ALL)
def test_truncated_at_every_character(side: str, text: str) -> None:
    for cut in range(len(text)):
        with pytest.raises(MessageError):
            decode(side, text[:cut])


@pytest.mark.parametrize(("side", "text"), ALL)
def test_every_field_of_every_wrong_type(side: str, text: str) -> None:
    """A value of another JSON type in any place is refused, save null where a field may be empty."""
    raw = json.loads(text)

    def places(value: Any) -> list[tuple[Any, Any]]:
        if isinstance(value, dict):
            return [p for k in value for p in [(value, k), *places(value[k])]]
        if isinstance(value, list):
            return [p for i in range(len(value)) for p in [(value, i), *places(value[i])]]
        return []

    for holder, place in places(raw):
        kept = holder[place]
        for wrong in (None, 7, -1, True, "?" * 9, [], {}, [None], "\u0007"):
            if type(wrong) is type(kept) or (place in ("grant", "membership", "vouch") and wrong is None):
                continue
            if isinstance(wrong, int) and isinstance(kept, int) and not isinstance(kept, bool):
                continue
            holder[place] = wrong
            with pytest.raises(MessageError):
                decode(side, json.dumps(raw))
        holder[place] = kept


def test_ten_thousand_mutations() -> None:
    rng = random.Random(20240607)
    accepted = 0
    for _ in range(10_000):
        side, text = ALL[rng.randrange(len(ALL))]
        chars = list(text)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(chars))
            match rng.randrange(4):
                case 0:
                    chars[at] = chr(rng.choice((rng.randrange(128), rng.randrange(0x11000))))
                case 1:
                    del chars[at]
                case 2:
                    chars.insert(at, rng.choice('{}[]",:0\\'))
                case _:
                    stop = min(len(chars), at + rng.randrange(40))
                    chars[at:at] = chars[at:stop]
        try:
            made = decode(side, "".join(chars))
        except MessageError:
            continue
        accepted += 1  # a mutation inside a name or a signature is still a message
        assert decode(side, encode(made)) == made
    assert 0 < accepted < 9000


def test_errors_travel_by_name() -> None:
    for kind in _tree(SignalingError):
        again = from_wire(code_of(kind("why")), "why")
        assert type(again) is kind
        assert str(again) == "why"
    assert type(from_wire("Nonsense", "why")) is SignalingError


def _tree(root: type[SignalingError]) -> list[type[SignalingError]]:
    return [root] + [k for child in root.__subclasses__() for k in _tree(child)]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("ok ü 漢", True),
        ("a\nb", False),
        ("\x7f", False),
        ("\x9b", False),
        ("\ud800", False),
        ("\u202e", False),
    ],
)
def test_clean_text(text: str, clean: bool) -> None:
    assert is_clean(text) is clean
