"""How fast peers run models of units that form a graph, by what they measured of a decoder; and what they cannot run.

Pure. A prompt is the closer guide of the two: like a run it computes many rows at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planner.cost.graph_cost import Engine, GraphPeer
from planner.types import PeerProfile, PlanRequest, UnitKind

UNTIMED_FLOPS_PER_S: Final = 1e9  # of a peer that measured nothing of the kind: a slow processor
ELSEWHERE: Final = "webgpu"  # a provider that computes no graph: its tab does that on WebAssembly
IN_TABS: Final = ("wasm", "webgpu")  # providers that only tabs have
_INTEGERS: Final = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
TAB_ENGINE: Final = (
    Engine(  # of the pages of this version: onnxruntime-web 1.30, and the values that tabs hand over
        newest_opset=26, types=("float32", "float64", "float16", *_INTEGERS, "bool", "string")
    )
)
_TIMED: Final[tuple[UnitKind, ...]] = (
    "attn",
    "ffn",
    "head",
)  # speed is known by these, the most telling one first


def flops_per_s(profile: PeerProfile, provider: str, flops: Mapping[str, int]) -> float:
    """How fast a peer is; `flops` of a token in a unit of each kind of the decoder that it measured itself with."""
    if provider == ELSEWHERE:
        return UNTIMED_FLOPS_PER_S
    took_s = profile.prefill_s
    for kind in _TIMED:
        if flops.get(kind, 0) and took_s.get(kind, 0):
            return flops[kind] / took_s[kind]
    return UNTIMED_FLOPS_PER_S


def graph_peer(
    profile: PeerProfile, provider: str, flops: Mapping[str, int], taken_bytes: int = 0
) -> GraphPeer:
    """The same peer for graphs; `taken_bytes` of its memory are not theirs."""
    return GraphPeer(
        profile.peer,
        max(0, profile.memory_bytes - profile.overhead_bytes - taken_bytes),
        flops_per_s(profile, provider, flops),
        profile.step_s,
        profile.facts,
        TAB_ENGINE if provider in IN_TABS else Engine(),
    )


def graph_peers(request: PlanRequest) -> tuple[GraphPeer, ...]:
    """The peers of a request for a decoder, with all the memory that they lend."""
    flops: dict[str, int] = {unit.kind: unit.flops_per_token for unit in request.units}
    return tuple(graph_peer(peer, peer.facts.provider, flops) for peer in request.peers)
