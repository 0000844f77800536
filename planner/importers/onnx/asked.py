"""Which ONNX file is imported, and how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from planner.importers.onnx.borders import MOST_UNITS
from planner.model.speech import CtcText


@dataclass(frozen=True, slots=True)
class PictureSource:
    """How pictures become an input (planner.model.graph_manifest), the graph that prepares them as bytes."""

    graph: bytes
    input: str
    rows: str | None = None
    vectors: tuple[str, str] | None = None
    scores: str | None = None


@dataclass(frozen=True, slots=True)
class SourceGraph:
    """An ONNX file that is not read yet. `name`: of the model. It is tried with the inputs of the file `sample`
    (.npz), or with made-up ones, whose symbolic sizes can be given. `tokenizer`: a tokenizer.json that belongs to it,
    where there is one; `longest`: most tokens of a text, 0 where only the tokenizer can say it. `named`: paths of
    values are parts that become units. `made`: what wrote the file, with its version, where an import did. `fused`:
    operators may be joined, where that makes the same bits. `pad`: the token that fills up, where the
    tokenizer does not say it. `picture`: how pictures become an input. `labels`: into which it sorts texts, where it
    does. `ctc`: what it writes of sound. `bands`: into how many bands of rows its pictures are cut; 0: they are not.
    """

    source: Path
    name: str
    sample: Path | None = None
    sizes: tuple[tuple[str, int], ...] = ()
    most_units: int = MOST_UNITS
    tokenizer: Path | None = None
    longest: int = 0
    named: bool = False
    made: str = ""
    fused: bool = True
    pad: int | None = None
    picture: PictureSource | None = None
    labels: tuple[str, ...] = ()
    ctc: CtcText | None = None
    bands: int = 0

    @property
    def how(self) -> str:
        """What its import depends on besides files, for the index of imports."""
        text = ["text and vectors"] if self.tokenizer is not None else []
        seen = ["pictures"] if self.picture is not None else []
        made = [self.made] if self.made else []
        bands = [f"{self.bands} bands"] if self.bands else []
        return ",".join(
            ["onnx", *made, *text, *seen, *bands, *(f"{name}={size}" for name, size in sorted(self.sizes))]
        )
