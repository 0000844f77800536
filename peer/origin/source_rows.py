"""A source text as what its decoder begins with: rows that the encoder makes of its tokens, by a run. Edge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from peer.dataflow.value_codec import Array
from peer.errors import CannotServe, ContextOverflow, NoPlan, RunFailed
from peer.origin.run_client import RunClient
from peer.session.given_rows import GivenRows
from peer.state.mesh_state import MeshState
from peer.wire.tensors import tensor_of
from planner.model.manifest import Manifest
from planner.model.source_text import ENCODED, MASK, TOKENS, SourceText

OpenRun = Callable[[str], Awaitable[RunClient]]  # by the name of an offer

_INPUTS: Final = sorted((TOKENS, MASK))


@dataclass(frozen=True, slots=True)
class Sourced:
    """What a session is asked with: `prompt` token ids, of which the first ones stand for `rows`."""

    prompt: tuple[int, ...]
    rows: tuple[GivenRows, ...]


async def sourced(
    tokens: Sequence[int], manifest: Manifest, source: SourceText, state: MeshState, open_run: OpenRun
) -> Sourced:
    """The tokens of a source text, without the marks around it, as the decoder is to be asked. Raises ContextOverflow
    for one that is too long, NoPlan, RunFailed or CannotServe where the mesh cannot encode it.
    """
    read = (*source.before, *tokens, *source.behind)
    if len(read) > source.longest:
        raise ContextOverflow(
            f"{manifest.name} reads source texts of at most {source.longest} tokens, the marks at their ends "
            f"included; this one has {len(read)}: shorten it, or ask for parts of it"
        )
    run = await open_run(_offer_of(state, manifest, source))
    try:
        if sorted(run.manifest.inputs) != _INPUTS:
            raise CannotServe(f"the encoder of {manifest.name} takes no {TOKENS} and {MASK}")
        given: dict[str, Array] = {
            TOKENS: np.array([read], np.int64),
            MASK: np.ones((1, len(read)), np.float32),
        }
        made = (await run.run(given)).get(ENCODED)
    finally:
        await run.close()
    expected = (1, len(read), manifest.hidden)
    if made is None or made.shape != expected or not np.isfinite(made).all():
        raise RunFailed(f"the encoder of {manifest.name} made no finite numbers of shape {expected}")
    rows = np.ascontiguousarray(made[0], np.float32)
    return Sourced((*[source.token] * len(read), *source.start), (GivenRows(0, tensor_of(rows)),))


def _offer_of(state: MeshState, manifest: Manifest, source: SourceText) -> str:
    """The name under which the mesh offers the encoder. Raises NoPlan."""
    found = sorted(name for name, offer in state.offers.items() if offer.model == source.encoder)
    if not found:
        raise NoPlan(f"this mesh does not run the encoder of {manifest.name}: shoal offer has it run both")
    return found[0]
