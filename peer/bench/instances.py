"""Decides the instances the planner is held to: those that others published, with their values, and seeded meshes.

EdgeShard: block times of Llama-2 7B as its authors published them (Zhang et al. 2024). Helix: tokens/s with k layers on
a node, 60 layers (Mei et al. 2024).
"""

from __future__ import annotations

import numpy as np

from planner.solvers.network import Bools
from planner.solvers.seeded_random import Draws
from planner.types import Link, PeerFacts, PeerProfile, PlanRequest, Unit, UnitKind

KINDS: tuple[UnitKind, ...] = ("embed", "attn", "ffn", "head")
MIB = 2**20

# -- Helix: name -> (tables of each node, best known tokens/s of one chain)

_T4 = (1988, 902, 539, 404, 285.3, 331.3, 231.1)
_L4 = (2485.5, 1145, 763.5, 481, 384.9, 286.6, 245.7, 189.1, 168.2, 212.6, 193.5)
_A100 = (23833.9, 11384.3, 7201.4, 5264.6, 4096.7, 3124.1, 2595.7, 2045.6, 1754.4, 1392.6, 1212.2, 952.1)
_L4_C24 = (7557.9, 3625.7, 2171.9, 1476.1, 1017.6, 747.8, 531.7)
_T4_C24 = (5709.2, 2434.4, 1347.9, 757.9)
HELIX_LAYERS = 60
HELIX_C10: tuple[tuple[float, ...], ...] = (_T4,) * 6 + (_L4,) * 4
HELIX_C24S: tuple[tuple[float, ...], ...] = (_A100,) * 4 + (_L4_C24,) * 8 + (_T4_C24,) * 12
HELIX_KNOWN = {"c10": 286.58, "c24s": 2045.6}

# -- EdgeShard, milliseconds of each unit: embedding, 32 blocks, norm and head

_ORIN_NX: tuple[float, ...] = (
    0.476,
    *(5.759, 6.402, 6.133, 6.333, 5.662, 6.071, 6.056, 5.691, 6.029, 5.955, 6.012, 6.09, 6.15),
)
_ORIN_NX += (
    5.979,
    6.095,
    5.981,
    5.981,
    5.84,
    6.074,
    6.218,
    6.052,
    5.625,
    5.985,
    5.912,
    6.145,
    6.063,
    6.027,
    6.082,
)
_ORIN_NX += (6.067, 6.019, 6.016, 6.093, 5.482)
_AGX: tuple[float, ...] = (
    0.627,
    *(5.498, 5.48, 5.454, 5.402, 5.376, 5.36, 5.439, 5.357, 5.261, 5.207, 5.25, 5.276, 5.27, 5.334),
)
_AGX += (
    5.242,
    5.288,
    5.226,
    5.22,
    5.16,
    5.211,
    5.206,
    5.167,
    5.168,
    5.158,
    5.229,
    5.23,
    5.164,
    5.199,
    5.272,
    5.201,
)
_AGX += (5.304, 5.255, 4.482)
_RTX: tuple[float, ...] = (
    0.077,
    *(0.766, 0.819, 0.797, 0.804, 0.798, 0.784, 0.801, 0.782, 0.779, 0.832, 0.799, 0.793, 0.788, 0.79),
)
_RTX += (
    0.78,
    0.783,
    0.761,
    0.815,
    0.8,
    0.797,
    0.788,
    0.784,
    0.779,
    0.781,
    0.817,
    0.818,
    0.798,
    0.783,
    0.785,
    0.783,
)
_RTX += (0.783, 0.782, 0.648)
EDGESHARD_DEVICES = {"1 nx": _ORIN_NX, "2 nx": _ORIN_NX, "3 agx": _AGX, "4 agx": _AGX, "5 rtx": _RTX}
EDGESHARD_MS = {  # memory in GB of each device -> exact optimum, milliseconds a token
    (14, 14, 29, 29, 22): 55.64,
    (4, 4, 8, 8, 6): 159.22,
    (3, 3, 8, 8, 8): 141.99,
    (6, 6, 6, 6, 6): 163.75,
}


def edgeshard(memory_gb: tuple[int, ...]) -> PlanRequest:
    """The request; the source asks and must hold the embedding (edgeshard_allowed)."""
    units = (
        Unit("embed", "embed", 488_000_000, 0, 0, 65_536),
        *(Unit(f"block.{at}", "ffn", 754_000_000, 0, 0, 65_536) for at in range(32)),
        Unit("head", "head", 488_000_000, 0, 0, 512_000),
    )
    peers = tuple(
        PeerProfile(
            name,
            gigabytes * 10**9,
            0,
            dict.fromkeys(KINDS, 0.0),
            dict.fromkeys(KINDS, 0.0),
            facts=PeerFacts(
                unit_decode_s={unit.name: ms / 1000 for unit, ms in zip(units, times, strict=True)}
            ),
        )
        for (name, times), gigabytes in zip(EDGESHARD_DEVICES.items(), memory_gb, strict=True)
    )
    names = list(EDGESHARD_DEVICES)
    slow = {("1 nx", "5 rtx"), ("5 rtx", "1 nx")}
    links = tuple(
        Link(a, b, 0.0, (10e6 if (a, b) in slow else 950e6) / 8, 2.1e-3)
        for a in names
        for b in names
        if a != b
    )
    return PlanRequest(units, peers, links, 1, 1)


def edgeshard_allowed() -> Bools:
    """(N, L) who may serve what: the source alone the embedding."""
    allowed = np.ones((len(EDGESHARD_DEVICES), 34), dtype=np.bool_)
    allowed[1:, 0] = False
    return allowed


# -- seeded meshes


def mesh(
    seed: int, peers: int, blocks: int | None = None, tight: float = 1.0, sessions: int = 1
) -> PlanRequest:
    """Peers in a square: delay by distance, rates 1-64 MB/s, speeds and memories over a factor of eight.

    `tight` scales every pledge: below 1, chains grow longer.
    """
    draws = Draws(seed * 1_000_003 + peers)
    count = 16 + draws.below(33) if blocks is None else blocks
    units = [Unit("embed", "embed", 200 * MIB, 0, 0, 8192)]
    for block in range(count):
        units.append(Unit(f"attn.{block}", "attn", 40 * MIB, 1, 2048, 8192))
        units.append(Unit(f"ffn.{block}", "ffn", 110 * MIB, 1, 0, 8192))
    units.append(Unit("head", "head", 220 * MIB, 1, 0, 4))
    total = sum(unit.weight_bytes + 2048 * sessions * unit.kv_bytes_per_token for unit in units)
    places = [(draws.uniform(), draws.uniform()) for _ in range(peers)]
    names = [f"p{at:04}" for at in range(peers)]
    made: list[PeerProfile] = []
    for name in names:
        pace = 2.0 ** draws.uniform(-1, 2)
        times: dict[UnitKind, float] = {
            "embed": 0.2e-3 * pace,
            "attn": 1e-3 * pace,
            "ffn": 1.8e-3 * pace,
            "head": 3e-3 * pace,
        }
        made.append(
            PeerProfile(
                name,
                20 * MIB + int(total * tight * draws.uniform(0.06, 0.45)),
                20 * MIB,
                times,
                {kind: seconds / 8 for kind, seconds in times.items()},
                0.2e-3,
                {kind: seconds / 4 for kind, seconds in times.items()},
                facts=PeerFacts(
                    hazard_per_h=2.0 ** draws.uniform(-4, 1), domains=(f"nat{draws.below(peers)}",)
                ),
            )
        )
    links = tuple(
        Link(
            names[a],
            names[b],
            0.001
            + 0.08
            * ((places[a][0] - places[b][0]) ** 2 + (places[a][1] - places[b][1]) ** 2) ** 0.5
            * draws.uniform(0.8, 1.3),
            1e6 * 2.0 ** draws.uniform(0, 6),
            1e-4,
        )
        for a in range(peers)
        for b in range(peers)
        if a != b
    )
    return PlanRequest(tuple(units), tuple(made), links, 2048, sessions)
