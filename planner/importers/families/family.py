"""What a family of decoders is to an importer: its names, which numbers it has, and where its tensors lie in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import numpy as np

from planner.importers.architecture import Activation, Architecture, BlockKind
from planner.importers.rotary import Order


class Said(Protocol):
    """The numbers of one file: the entries of config.json, or the metadata of a GGUF file without the family's prefix.

    Each raises CorruptModel for a value of another type, and for one that is missing where `otherwise` is None.
    """

    @property
    def where(self) -> str:
        """The file or folder, for messages."""

    def whole(self, key: str, otherwise: int | None = None) -> int:
        """A whole number of at least 0."""

    def real(self, key: str, otherwise: float | None = None) -> float:
        """A finite number."""

    def flag(self, key: str, otherwise: bool) -> bool:
        """A truth value."""

    def word(self, key: str, otherwise: str) -> str:
        """A text."""

    def reals(self, key: str) -> tuple[float, ...] | None:
        """A list of finite numbers; of a GGUF file: a tensor of that name. None where there is none."""

    def words(self, key: str) -> tuple[str, ...] | None:
        """A list of texts; None where there is none."""

    def rope(self) -> Said | None:
        """What config.json says of rotary embedding by itself; None where it does not, or in a GGUF file."""

    def within(self, key: str) -> Said | None:
        """The object that lies there; None where there is none, or in a GGUF file."""

    def has_tensor(self, name: str) -> bool:
        """Whether the weights have a tensor of that name, as the file calls it."""


@dataclass(frozen=True, slots=True)
class Part:
    """Which rows of a larger tensor of a file are one tensor of ours. `height`: how many rows the larger one has."""

    height: Callable[[Architecture], int]
    order: Callable[[Architecture], Order]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor of ours lies. `name`: as the file calls it, {block} being the block's number, {expert} that of an
    expert. `stacked`: the file has all experts in one tensor, the first axis. `by_head`: its first axis are the heads,
    whose rows are below one another in ours. `transposed`: rows and columns, those of each head then, are the other way
    around. `shift`: what is added to each number.
    """

    name: str
    part: Part | None = None
    transposed: bool = False
    shift: float = 0.0
    stacked: bool = False
    by_head: bool = False

    def file_name(self, block: str, expert: str = "") -> str:
        """The name in the file."""
        return self.name.replace("{block}", block).replace("{expert}", expert)


Names = Mapping[str, Place | str]  # by our name without the block's number ("attn.q"); a text: just the name


def _no_names(a: Architecture) -> Names:
    return {}


@dataclass(frozen=True, slots=True)
class Source:
    """A family in one kind of file. `families`: as the file calls it, by which its relatives go, too. `names`: of
    tensors. `interleaved`: pairs that rotate are neighbours. `ignored`: patterns of tensors that say nothing.
    `variant`: names that numbers change. `prefix`: how names of all tensors begin where an export did not cut it.
    `renamed`: names of other exports, and what they are here.
    """

    families: tuple[str, ...]
    names: Names
    features: Callable[[Architecture, Said], Architecture]
    interleaved: bool = False
    ignored: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)  # by the usual key, how this family calls it
    variant: Callable[[Architecture], Names] = _no_names
    prefix: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)

    def place(self, ours: str, a: Architecture | None = None) -> tuple[Place, str]:
        """Where a tensor of ours lies, and its name in the file. `a`: where names depend on numbers."""
        unit, _, rest = ours.partition(".")
        block, dot, part = rest.partition(".")
        part, _, expert = part.partition("_e")
        if not expert.isdigit():
            part, expert = rest.partition(".")[2], ""
        key = f"{unit}.{part}{'_e' if expert else ''}" if dot else ours
        other = None if a is None else self.variant(a).get(key)
        found = self.names[key] if other is None else other
        place = Place(found) if isinstance(found, str) else found
        return place, place.file_name(block if dot else "", expert)


@dataclass(frozen=True, slots=True)
class Family:
    """One family. `title`: which models, for people. `apart`: what sets it apart from Llama. `activations`: those that
    its models may have, the usual one first. `partial`: heads may rotate in part; `part`: which, where config.json does
    not say it. `own_heads`: its features say how large heads are, what they cache and what turns of it.
    `scalings`: names of rope scalings that its features read themselves. `head_size`, `ffn` (in hidden
    sizes), `context`: where config.json does not say it.
    """

    title: str
    apart: str
    gguf: Source
    folder: Source
    activations: tuple[Activation, ...] = ("silu",)
    partial: bool = False
    part: float = 1.0
    own_heads: bool = False
    scalings: tuple[str, ...] = ()
    head_size: int | None = None
    ffn: int | None = None
    context: int | None = None


def within(a: Architecture, window: int) -> Architecture:
    """No more context than a window that every block has: inside, sliding equals full attention. 0: there is none."""
    return replace(a, context=min(a.context, window)) if window else a


def every_block(a: Architecture, window: int) -> Architecture:
    """A window that every block has, and that ends before the context does. 0: there is none."""
    return replace(a, pattern=(BlockKind(window),)) if 0 < window < a.context else a


# --- tensors that hold several of ours ---------------------------------------------------------------------


def _queries(a: Architecture) -> int:
    return a.heads * a.head_size


def _keys(a: Architecture) -> int:
    return a.kv_heads * a.head_size


def _qkv_height(a: Architecture) -> int:
    return _queries(a) + 2 * _keys(a)


def _run(first: Callable[[Architecture], int], count: Callable[[Architecture], int]) -> Callable[..., Order]:
    return lambda a: np.arange(first(a), first(a) + count(a), dtype=np.intp)


def _group(which: str) -> Callable[[Architecture], Order]:
    """Rows of one of q, k and v where each key/value head stands behind its query heads."""

    def order(a: Architecture) -> Order:
        each = a.heads // a.kv_heads
        rows = np.arange(_qkv_height(a), dtype=np.intp).reshape(a.kv_heads, each + 2, a.head_size)
        chosen = {"q": rows[:, :each], "k": rows[:, each : each + 1], "v": rows[:, each + 1 :]}[which]
        return chosen.reshape(-1)

    return order


STACKED: Final[Mapping[str, Part]] = {  # all queries, then all keys, then all values
    "q": Part(_qkv_height, _run(lambda a: 0, _queries)),
    "k": Part(_qkv_height, _run(_queries, _keys)),
    "v": Part(_qkv_height, _run(lambda a: _queries(a) + _keys(a), _keys)),
}
GROUPED: Final[Mapping[str, Part]] = {part: Part(_qkv_height, _group(part)) for part in "qkv"}
GATE_UP: Final[Mapping[str, Part]] = {  # the gate first
    "gate": Part(lambda a: 2 * a.ffn, _run(lambda a: 0, lambda a: a.ffn)),
    "up": Part(lambda a: 2 * a.ffn, _run(lambda a: a.ffn, lambda a: a.ffn)),
}


def fused(parts: Mapping[str, Part], unit: str, name: str, transposed: bool = False) -> dict[str, Place]:
    """Places of tensors that lie in one: weights and biases, `name` without ".weight" and ".bias"."""
    weights = {
        f"{unit}.{ours}": Place(f"{name}.weight", part, transposed=transposed) for ours, part in parts.items()
    }
    biases = {f"{unit}.{ours}_bias": Place(f"{name}.bias", part) for ours, part in parts.items()}
    return {**weights, **biases}
