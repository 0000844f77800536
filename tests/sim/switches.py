"""Decides which defects can be put into the cores for a while, to prove that the simulated runs find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest.mock import patch


@dataclass(frozen=True, slots=True)
class Switch:
    """One defect: `what` it does, and (owner, name, value) of what it replaces."""

    what: str
    replacements: Callable[[], list[tuple[object, str, object]]]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The cores have the defect inside."""
        with ExitStack() as stack:
            for owner, name, value in self.replacements():
                stack.enter_context(patch.object(owner, name, value))
            yield


SWITCHES: dict[str, Switch] = {}
