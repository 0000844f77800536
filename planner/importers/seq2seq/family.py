"""What a family of encoder-decoder models is to an importer: names, numbers, where its tensors lie in a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from planner.importers.architecture import Architecture
from planner.importers.encoders.family import EncoderFamily
from planner.importers.encoders.shape import EncoderShape
from planner.importers.hf_config import Numbers


@dataclass(frozen=True, slots=True)
class Seq2SeqFamily:
    """One family. `title`: which models, for people; `apart`: what sets it apart. `models`: its names in config.json.
    `prefix`: how names of most tensors begin. `encoder`: the encoder's tensors, the embedding apart. `decoder`: by ours
    without a block's number and without "_bias", those of the decoder without .weight and .bias, {block} being the
    number. `words`: of the embedding that both have, the first one that is there; all others must equal it.
    `numbers`: what config.json and the names of tensors say. `opens`: whether a source text begins with the token that
    begins texts. `computed`: positions are computed where no tensor has them.
    """

    title: str
    apart: str
    models: tuple[str, ...]
    prefix: str
    encoder: EncoderFamily
    decoder: Mapping[str, str]
    words: tuple[str, ...]
    numbers: Callable[[Numbers], tuple[EncoderShape, Architecture]]
    opens: bool = False
    computed: bool = False

    def file_name(self, ours: str) -> str:
        """Where a tensor of the decoder lies, without the prefix."""
        parts = ours.split(".")
        name, block = ".".join((parts[0], parts[-1])), parts[1]
        if name == "head.bias":
            return self.decoder[name]
        kind = "bias" if name.endswith("_bias") else "weight"
        return f"{self.decoder[name.removesuffix('_bias')].replace('{block}', block)}.{kind}"
