"""The bytes of a command of the log. Pure.

Which commands there are stands in schema/commands.toml; `peer.state.mesh_state` says what they mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

from peer.state.generated.commands import CODECS, KnownCommand
from peer.wire.json_codec import dump, load, text


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    """A command of a newer version: kept as it came and skipped."""

    kind: str
    body: bytes


Command = KnownCommand | UnknownCommand
COMMANDS: Final[tuple[type[Any], ...]] = tuple(CODECS)
_BY_KIND: Final = {variant.__name__: codec for variant, codec in CODECS.items()}


def encode_command(command: Command) -> bytes:
    """Canonical JSON of one command: {"kind": name, ...fields}. A command of a newer version is as it came."""
    if isinstance(command, UnknownCommand):
        return command.body
    variant = type(command)
    return dump({"kind": variant.__name__, **CODECS[variant].encode(command)})


def decode_command(data: bytes) -> Command:
    """The command in `data`; what this build does not know is an UnknownCommand. Raises BadCommand."""
    body = load(data)
    kind = text.decode(body.get("kind"), "kind")
    codec = _BY_KIND.get(kind)
    return UnknownCommand(kind, data) if codec is None else cast(Command, codec.decode(body, kind))


def check_command(command: Command) -> None:
    """Raises BadCommand, naming the field, when `command` breaks a bound: to be asked before it is proposed."""
    decode_command(encode_command(command))
