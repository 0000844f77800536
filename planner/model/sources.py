"""What an opened foreign model hands over: its tensors, in the form of its file, and its tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class TokenizerSource:
    """`tokenizer_json`: a Hugging Face tokenizer.json. `end_tokens`: ids that end an answer (EOS, end of turn)."""

    tokenizer_json: bytes
    chat_template: str | None  # Jinja source, as in the model file; None also where that says nothing
    bos_token: int | None
    end_tokens: tuple[int, ...]
    add_bos: bool

    def __post_init__(self) -> None:
        if self.chat_template is not None and not self.chat_template.strip():
            object.__setattr__(self, "chat_template", None)


@dataclass(frozen=True, slots=True)
class BlockQuantized:
    """A weight of shape (rows, columns) whose file form is `d * q + m` per block of 32 columns, exactly.

    q: uint8 (rows, columns), values 0..15 for bits=4 and 0..255 for bits=8 (zero point added); d: float32
    (rows, columns/32); m: float32 (rows, columns/32) or None where w = d * (q - 2**(bits-1)) (Q4_0, Q8_0).
    """

    bits: int
    q: npt.NDArray[np.uint8]
    d: npt.NDArray[np.float32]
    m: npt.NDArray[np.float32] | None


class SourceTensor(Protocol):
    """One weight: (rows=outputs, columns=inputs), or (n,) for vectors; rows already in half-split rotary order."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows first, as `tensor_shapes` counts them."""

    @property
    def kind(self) -> str:
        """File type, e.g. "Q4_1", "Q8_0", "F32", "BF16"."""

    def float32(self) -> npt.NDArray[np.float32]:
        """The weight dequantized, C-contiguous."""

    def blocks(self) -> BlockQuantized | None:
        """The exact block form for Q4_0, Q4_1, Q8_0 and MXFP4; None for every other file type."""

    def rows(self, first: int, stop: int) -> SourceTensor:
        """Rows [first, stop) of a matrix as a tensor of their own; nothing is read for it."""
