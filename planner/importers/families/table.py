"""The table of families that can be imported, and what a model of any other one is told."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Final, Literal

from planner.errors import UnknownArchitecture
from planner.importers.families.cohere import COHERE, COHERE2
from planner.importers.families.deepseek import DEEPSEEK2, DEEPSEEK3
from planner.importers.families.experts import MIXTRAL, OLMOE, QWEN2_MOE, QWEN3_MOE
from planner.importers.families.falcon import FALCON
from planner.importers.families.family import Family
from planner.importers.families.gemma import GEMMA2, GEMMA3
from planner.importers.families.gpt2 import GPT2
from planner.importers.families.gpt_neox import GPT_NEOX
from planner.importers.families.gpt_oss import GPT_OSS
from planner.importers.families.granite import GRANITE
from planner.importers.families.llama import LLAMA, QWEN2, QWEN3
from planner.importers.families.llama4 import LLAMA4
from planner.importers.families.olmo2 import OLMO2, OLMO3
from planner.importers.families.phi3 import PHI3
from planner.importers.families.starcoder2 import STARCODER2

FAMILIES: Final[tuple[Family, ...]] = (
    LLAMA,
    QWEN2,
    QWEN3,
    PHI3,
    OLMO2,
    OLMO3,
    GRANITE,
    STARCODER2,
    GPT_NEOX,
    GPT2,
    FALCON,
    COHERE,
    COHERE2,
    MIXTRAL,
    OLMOE,
    QWEN2_MOE,
    QWEN3_MOE,
    GEMMA2,
    GEMMA3,
    GPT_OSS,
    DEEPSEEK2,
    DEEPSEEK3,
    LLAMA4,
)

SPEECH: Final = (  # planner.importers.speech
    (
        "Whisper",
        "-",
        "whisper",
        "writes what is said: an encoder of sound, and attention to its rows in each block",
    ),
    (
        "Wav2Vec2 (for CTC)",
        "-",
        "wav2vec2",
        "writes what is said, with times of words: convolutions over sound, and the likeliest letter of each 20 ms",
    ),
)

Kind = Literal["gguf", "folder"]


def family_of(name: object, kind: Kind, where: str) -> Family:
    """The family that a file calls itself. Raises UnknownArchitecture for one outside the table, naming the nearest."""
    known: dict[str, Family] = {}
    for each in FAMILIES:
        source = each.gguf if kind == "gguf" else each.folder
        for called in source.families:
            known.setdefault(called, each)  # a file of Mixtral is one of Llama with experts
    family = name if isinstance(name, str) else ""
    if family in known:
        return known[family]
    called = "architecture" if kind == "gguf" else "model_type"
    nearest = "" if not family else f"; the nearest that is: {nearest_to(family[:80], tuple(known))}"
    raise UnknownArchitecture(
        f"{where}: {called} {str(name)[:80]!r} is not supported{nearest}; `shoal models --families` lists all"
    )


def nearest_to(family: str, known: tuple[str, ...]) -> str:
    """Which of the names is most like `family`; the longest common beginning counts first, then what is alike."""

    def likeness(name: str) -> tuple[int, float]:
        same = 0
        while same < min(len(name), len(family)) and name[same] == family[same].lower():
            same += 1
        return same, SequenceMatcher(None, family.lower(), name).ratio()

    return max(known, key=likeness)


def rows() -> list[tuple[str, str, str, str]]:
    """For people, of each family: its models, its names in GGUF files and in config.json, what sets it apart."""
    return [
        (each.title, ", ".join(each.gguf.families), ", ".join(each.folder.families), each.apart)
        for each in FAMILIES
    ] + [*SPEECH]
