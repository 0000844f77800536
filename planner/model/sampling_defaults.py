"""How answers of a model are drawn where a caller leaves that out: its own generation settings, else one choice for
all models. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MILLION: Final = 1_000_000  # numbers are kept to a millionth, as sampling settings travel
BOUNDS: Final[dict[str, tuple[float, float]]] = {  # those of sampling settings, both ends included
    "temperature": (0.0, 100.0),
    "top_k": (0, 2**31 - 1),
    "top_p": (1 / MILLION, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
}
WHOLE: Final = ("top_k",)  # a count; all others stand in the manifest in millionths


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """Settings within BOUNDS, kept to a millionth. `temperature` 0: the likeliest token always."""

    temperature: float
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        for name in BOUNDS:
            if name not in WHOLE:
                object.__setattr__(self, name, round(getattr(self, name) * MILLION) / MILLION)


LIKELIEST: Final = SamplingDefaults(0.0)
USUAL: Final = SamplingDefaults(0.7, top_p=0.95)  # of models that say nothing: small ones stay readable
OPENAI: Final = SamplingDefaults(1.0)  # of OpenAI's API
