"""Writes sampling_defaults.json: what a manifest may say of sampling, and how an answer is drawn of that and of what
its asker says, for both languages.
"""

from __future__ import annotations

import copy
import itertools
import json
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from tracing import beside, written

from peer.errors import BadSampling
from peer.session.sampling import AskedSampling, sampling_for
from planner.errors import CorruptStore
from planner.model.manifest import decode_manifest
from planner.model.sampling_defaults import LIKELIEST, OPENAI, USUAL, SamplingDefaults

PATH = beside(__file__, "sampling_defaults.json")
DECODERS = beside(__file__, "lowering.json")
OWN: Final = SamplingDefaults(0.6, 20, 0.9, 0.05, 1.1)
SAYS: Final[dict[str, Any]] = {
    "temperature": 600_000,
    "top_k": 20,
    "top_p": 950_000,
    "min_p": 50_000,
    "repetition_penalty": 1_050_000,
}
WRONG: Final[dict[str, tuple[Any, ...]]] = {
    "temperature": (-1, 100_000_001, 0.5, "1", True, None),
    "top_k": (-1, 2**31, 1.5),
    "top_p": (0, 1_000_001),
    "min_p": (-1, 1_000_001),
    "repetition_penalty": (0, 9_999, 100_000_001),
}
RIGHT: Final[dict[str, tuple[int, ...]]] = {
    "temperature": (0, 1, 100_000_000),
    "top_k": (0, 2**31 - 1),
    "top_p": (1, 1_000_000),
    "min_p": (0, 1_000_000),
    "repetition_penalty": (10_000, 100_000_000),
}
ASKED: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"temperature": 0},
    {"temperature": 0, "repetition_penalty": 1.2},
    {"temperature": 1e-7},
    {"temperature": 1.5},
    {"top_k": 0},
    {"top_p": 1.0, "min_p": 0},
    {"repetition_penalty": 1},
    {"frequency_penalty": 0.5, "presence_penalty": -0.5},
    {"temperature": -1},
    {"top_p": 0},
)


def manifests() -> list[dict[str, Any]]:
    """What stands in the field, and what is read of it: null where the manifest is refused."""
    says: list[Any] = [SAYS, None, [], "0.7", {}]
    says += [{**SAYS, name: value} for name, values in (*RIGHT.items(), *WRONG.items()) for value in values]
    says += [{other: SAYS[other] for other in SAYS if other != name} for name in SAYS]
    whole = json.loads(json.loads(DECODERS.read_text(encoding="utf-8"))["cases"][0]["manifest"])
    rows = []
    for said in says:
        document = copy.deepcopy(whole)
        document["decoder"]["sampling"] = said
        try:
            found = decode_manifest(json.dumps(document).encode()).sampling
        except CorruptStore:
            found = None
        rows.append({"says": said, "found": None if found is None else asdict(found)})
    return rows


def drawn() -> list[dict[str, Any]]:
    """The settings as they travel; null where they are refused."""
    rows = []
    greedy = SamplingDefaults(0.0, repetition_penalty=1.1)
    for defaults, asked in itertools.product((USUAL, OPENAI, LIKELIEST, OWN, greedy), ASKED):
        wire: list[int] | None = None
        with suppress(BadSampling):
            wire = sampling_for(defaults, AskedSampling(**asked), 7).to_wire()
        rows.append({"defaults": asdict(defaults), "asked": asked, "wire": wire})
    return rows


def text() -> str:
    about = (
        "`manifests`: the field `sampling` of a manifest, and what it means, null where it is refused. `drawn`: "
        "settings as they travel, of what a model has and what its asker says, with seed 7; null where they are "
        "refused. `usual`: what a model has that says nothing."
    )
    return written(about, {"usual": [asdict(USUAL)], "manifests": manifests(), "drawn": drawn()})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
