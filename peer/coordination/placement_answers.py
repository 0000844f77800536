"""What a planning service answers to a tab that coordinates: where the units of offered models run.

Tabs have no planner of graphs. One that leads says what placements depend on, and gets the commands for its log that a
process would propose in its place. Edge: manifests come from the store of the server that is asked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from peer.coordination.offer_placement import placed, settle, wanted_in
from peer.errors import BadCommand
from peer.state.member_commands import encode_command
from peer.state.mesh_state import decode_state
from peer.wire.json_codec import dump, load, table, uint
from planner.errors import PlannerError, RequestError
from planner.model.graph_manifest import decode_graph_manifest
from planner.model.graph_work import work_of
from planner.model.store import Store
from planner.service.planning_jobs import PlanningJobs
from planner.types import GraphWork

FIELDS: Final = frozenset({"state", "speaks", "flops"})
_NUMBERS: Final = table(uint)


async def answered(store: Store, jobs: PlanningJobs, body: bytes) -> bytes:
    """`placements` in a process of its own. Raises RequestError, JobError."""
    return await jobs.made(placements, body, store.root)


def placements(body: bytes, store: Path) -> bytes:
    """JSON of `state`, as snapshots have it, with nothing in it but what placements depend on; the versions of the
    protocol that members speak; the operations of a token in a unit of each kind of the mesh's own model. The answer is
    a list of commands ModelPlaced: nothing of what stays. Raises RequestError.
    """
    try:
        said = load(body)
        if said.keys() != FIELDS:
            raise RequestError(f"expected {', '.join(sorted(FIELDS))}, got {', '.join(sorted(said))[:80]!r}")
        state = decode_state(dump(said["state"]))
        speaks, flops = _NUMBERS.decode(said["speaks"], "speaks"), _NUMBERS.decode(said["flops"], "flops")
    except BadCommand as error:
        raise RequestError(str(error)) from None
    wanted = wanted_in(state, lambda peer: speaks.get(peer, 0), flops)
    if wanted is None:
        return b"[]"
    models = sorted({offer.model for offer in wanted.offers.values()})
    found = settle(wanted, {model: _work(Store(store), model) for model in models})
    commands = [placed(state, name, wanted.offers[name], each) for name, each in sorted(found.items())]
    return b"[" + b",".join(encode_command(each) for each in commands if each is not None) + b"]"


def _work(store: Store, model: str) -> GraphWork | str:
    """One run of the model, or why that is not known."""
    try:
        return work_of(decode_graph_manifest(store.manifest_bytes(model)))
    except (PlannerError, OSError) as error:
        return f"its manifest cannot be had: {error}"
