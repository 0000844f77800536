"""Decides which models answer in words beside the mesh's own, under which names, and what is known of their plans.

Pure; the same in web_peer/src/state/decoders.ts. How the mesh looks to what serves one of them is in
`peer.state.decoder_sight`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, assert_never

from peer.state.generated.commands import (
    MAX_DECODERS,
    Decoder,
    DecoderActivated,
    DecoderCommand,
    DecoderHeld,
    DecoderOffered,
    DecoderPlanned,
    DecoderRefused,
    decoder_codec,
)
from peer.wire.json_codec import Codec, table

MARK_BYTES: Final = 6  # of 16 of a session's id; 6 others are its own, and 4 count its moves

Decoders = Mapping[str, Decoder]  # by name


def deciding(
    decoders: Decoders, taken: Collection[str], members: Collection[str], command: DecoderCommand
) -> Decoders | str:
    """The decoders after `command`, or why it changes nothing. `taken`: names of other models of the mesh."""
    name = command.name
    if isinstance(command, DecoderOffered):
        if name in taken or name in decoders:
            return f"a model of this mesh is called {name} already: offer it under another name"
        if len(decoders) >= MAX_DECODERS:
            return f"{MAX_DECODERS} further models answer in words, which is the most; withdraw one"
        made = Decoder(command.model, command.units, command.context, command.sessions, command.objective)
        return {**decoders, name: made}
    before = decoders.get(name)
    if before is None:
        return f"no model that answers in words is offered under the name {name}"
    after = _after(before, members, command)
    return after if isinstance(after, str) else {**decoders, name: after}


def _after(
    before: Decoder,
    members: Collection[str],
    command: DecoderPlanned | DecoderActivated | DecoderRefused | DecoderHeld,
) -> Decoder | str:
    match command:
        case DecoderPlanned():
            if any(stage.helpers or stage.shares for stage in command.plan.stages):
                return "a stage of a further model is computed by one peer, not by a team"
            return replace(before, proposed=command.plan, refused="")
        case DecoderActivated():
            if before.proposed is None or before.proposed.version != command.version:
                return "this plan is not the one that was proposed last"
            return replace(before, plan=before.proposed, proposed=None, refused="")
        case DecoderRefused():
            return replace(before, proposed=None, refused=command.reason)
        case DecoderHeld():
            if command.peer not in members:
                return "there is no such member"
            return replace(before, held={**before.held, command.peer: command.held})
        case _:
            assert_never(command)


def unheld(decoders: Decoders, peer: str) -> Decoders:
    """The same where `peer` holds nothing: it left, or begins anew."""
    if not any(peer in decoder.held for decoder in decoders.values()):
        return decoders
    return {
        name: replace(decoder, held={each: runs for each, runs in decoder.held.items() if each != peer})
        for name, decoder in decoders.items()
    }


def without_decoder(decoders: Decoders, name: str) -> Decoders:
    """The decoders but that of this name."""
    if name not in decoders:
        return decoders
    return {each: decoder for each, decoder in decoders.items() if each != name}


def mark_of(name: str, model: str) -> bytes:
    """What the ids of sessions begin with of the further model of this name and id."""
    return hashlib.sha256(f"{name} {model}".encode()).digest()[:MARK_BYTES]


# --- wire -------------------------------------------------------------------------------------------------

decoders_codec: Final[Codec[Decoders]] = table(decoder_codec, MAX_DECODERS)
