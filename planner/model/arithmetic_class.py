"""The class of a peer's arithmetic: whose results are equal to the bit, and how a class is shown to people. Pure.

The same in web_peer/src/planner/arithmetic_class.ts. A class is a text `provider/instruction set/form/digest`, such as
`cpu/avx512_vnni/rows-1/9f3ac1d2e4b07755`. Its digest is taken of results that the peer computed when it measured
itself, so the class follows from bits; what stands before it is for people. "" is unknown.
"""

from __future__ import annotations

from typing import Final

MAX_CLASS: Final = 96  # characters
PATTERN: Final = "[a-z0-9_.+/-]{0,96}"  # means the same in Python and JavaScript
EXPECTED: Final = f"nothing or at most {MAX_CLASS} characters of a to z, 0 to 9 and _.+/-"
SHOWN_DIGEST: Final = (
    4  # hex digits of the digest that people see: two machines of a mesh hardly share them by chance
)


def same_bits(one: str, other: str) -> bool:
    """Whether peers of these classes compute equal bits from equal inputs, in the same order of additions."""
    return one != "" and one == other


def other_bits(one: str, other: str) -> bool:
    """Whether they are known to be of different classes: their results differ in the last digits."""
    return "" not in (one, other) and one != other


def unlike(one: str, other: str) -> int:
    """How little a peer of the one class is wanted in the place of one of the other: 0 for equal bits, 1 where nobody
    knows, 2 for other ones.
    """
    return 0 if same_bits(one, other) else 2 if other_bits(one, other) else 1


def crossed(before: str, after: str) -> bool:
    """Whether an answer that goes from a peer of the one class to one of the other may go on with other words than
    without that. Not between two unknown classes: then nothing is known to have changed.
    """
    return before != after


def shown(arithmetic: str) -> str:
    """For people: `cpu avx512_vnni rows-1 9f3a`; "" for an unknown one."""
    *parts, digest = arithmetic.split("/")
    return " ".join([*(part for part in parts if part), digest[:SHOWN_DIGEST]]) if parts else arithmetic
