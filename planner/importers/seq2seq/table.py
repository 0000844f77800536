"""The table of families of encoder-decoder models that can be imported."""

from __future__ import annotations

from typing import Final

from planner.errors import UnknownArchitecture
from planner.importers.hf_config import Json
from planner.importers.seq2seq.bart import BART, MARIAN
from planner.importers.seq2seq.family import Seq2SeqFamily
from planner.importers.seq2seq.t5 import T5, T5_GATED

SEQ2SEQ: Final[tuple[Seq2SeqFamily, ...]] = (T5, BART, MARIAN)

_KNOWN: Final = {called: family for family in SEQ2SEQ for called in family.models}


def is_known(called: object) -> bool:
    """Whether config.json means a family of encoder-decoder models by this model_type."""
    return isinstance(called, str) and called in _KNOWN


def family_of_seq2seq(config: Json, where: str) -> Seq2SeqFamily:
    """The family of a config. Raises UnknownArchitecture for one outside the table."""
    called = config.get("model_type")
    if not isinstance(called, str) or called not in _KNOWN:
        raise UnknownArchitecture(
            f"{where}: model_type {str(called)[:80]!r} is no encoder-decoder model of texts that is supported; "
            f"known are {', '.join(_KNOWN)}"
        )
    if called in T5.models and str(config.get("feed_forward_proj", "relu")).startswith("gated"):
        return T5_GATED
    return _KNOWN[called]


def seq2seq_rows() -> list[tuple[str, str, str, str]]:
    """For people, of each family: its models, its names in GGUF files (it has none) and in config.json, what sets it
    apart.
    """
    return [(each.title, "-", ", ".join(each.models), each.apart) for each in SEQ2SEQ]
