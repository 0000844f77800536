"""What a family of encoders is to an importer: its names, which numbers it has, where its tensors lie in a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from planner.importers.encoders.shape import EncoderShape, ScoreHead
from planner.importers.hf_config import Numbers

Names = Mapping[
    str, tuple[str, ...]
]  # by ours without a block's number: those whose rows stand below one another


def _no_head(said: Numbers) -> ScoreHead | None:
    return None


@dataclass(frozen=True, slots=True)
class EncoderFamily:
    """One family. `title`: which models, for people. `apart`: what sets it apart from BERT. `models`: its names in
    config.json. `prefix`: how names of tensors of the encoder begin where a head stands beside it. `names`: of tensors
    without .weight and .bias, {block} being the block's number; `head` is of those of a cross-encoder. `other`: the
    same in folders of another version, which `other_mark`, a tensor, tells. `gguf`: its name in GGUF files, where these
    are read. `keys`: by the usual key of config.json,
    what it is called here; the first one that is there counts. `features`: what its numbers mean. `ignored`: patterns
    of tensors that take no part.
    """

    title: str
    apart: str
    models: tuple[str, ...]
    prefix: str
    names: Names
    features: Callable[[EncoderShape, Numbers], EncoderShape]
    activation: str
    epsilon: float = 1e-12
    epsilon_key: str = "layer_norm_eps"
    head: Callable[[Numbers], ScoreHead | None] = _no_head
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    other: Names | None = None
    other_mark: str = ""
    gguf: str = ""

    def file_names(self, ours: str, names: Names) -> tuple[str, ...]:
        """Where a tensor of ours lies: the rows of all of them, below one another."""
        name, _, kind = ours.rpartition(".")
        block = ""
        if name.startswith("layer."):
            _, block, name = name.split(".", 2)
            name = f"layer.{name}"
        return tuple(f"{file.replace('{block}', block)}.{kind}" for file in names[name])
