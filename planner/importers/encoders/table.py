"""The table of families of encoders that can be imported, and what a model of any other one is told."""

from __future__ import annotations

from typing import Final

from planner.errors import UnknownArchitecture
from planner.importers.encoders.bert import BERT, DISTILBERT, MPNET, ROBERTA
from planner.importers.encoders.family import EncoderFamily
from planner.importers.encoders.modernbert import MODERNBERT, NOMIC_BERT
from planner.importers.families.table import nearest_to

ENCODERS: Final[tuple[EncoderFamily, ...]] = (BERT, ROBERTA, DISTILBERT, MPNET, MODERNBERT, NOMIC_BERT)

_KNOWN: Final = {called: family for family in ENCODERS for called in family.models}


def is_known(called: object) -> bool:
    """Whether config.json means a family of encoders by this model_type."""
    return isinstance(called, str) and called in _KNOWN


def encoder_family(called: object, where: str) -> EncoderFamily:
    """The family of a model_type. Raises UnknownArchitecture for one outside the table, naming the nearest."""
    name = called if isinstance(called, str) else ""
    if name in _KNOWN:
        return _KNOWN[name]
    nearest = f"; the nearest that is: {nearest_to(name[:80], tuple(_KNOWN))}" if name else ""
    raise UnknownArchitecture(
        f"{where}: an encoder of model_type {str(called)[:80]!r} is not supported{nearest}; `shoal models --families` "
        "lists all"
    )


def encoder_rows() -> list[tuple[str, str, str, str]]:
    """For people, of each family: its models, its names in GGUF files and in config.json, what sets it apart."""
    return [(each.title, each.gguf, ", ".join(each.models), each.apart) for each in ENCODERS]
