"""What a majority of voters has in common: an index, a moment, a verdict on a vote.

Thesis 3.4, 3.6.2 and 6.2. Learners are never counted (4.2.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

Verdict = Literal["won", "lost", "open"]


def majority(voters: int) -> int:
    """Returns how many of so many voters are a majority."""
    return voters // 2 + 1


def reached(values: Sequence[int]) -> int:
    """Returns the greatest value that a majority of these voters has reached; 0 without voters."""
    if not values:
        return 0
    return sorted(values, reverse=True)[majority(len(values)) - 1]


def verdict(voters: Sequence[str], votes: Mapping[str, bool]) -> Verdict:
    """Returns how a vote among `voters` stands; votes of others do not count."""
    needed = majority(len(voters))
    granted = sum(1 for voter in voters if votes.get(voter) is True)
    refused = sum(1 for voter in voters if votes.get(voter) is False)
    if voters and granted >= needed:
        return "won"
    return "lost" if len(voters) - refused < needed else "open"
