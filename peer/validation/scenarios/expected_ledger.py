"""Decides whether a ledger says what was computed, by books of its own: of what an asker saw, and of the log.

Pure. Books are grids of units and positions for each session of the ledger, each cell with who computed it; a cell that
is written twice shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from peer.audit.receipts import CREDIT_MILLI, ledger_session
from peer.session.seat import Run_
from peer.state.generated.commands import Work
from peer.state.work_ledger import Ledger
from peer.wire.generated.frames import Open

NOBODY: Final = 0
Grid = npt.NDArray[np.int32]  # (units, positions): the number of who computed a cell


class Book:
    """Cells by session of the ledger; peers by number."""

    def __init__(self, units: int) -> None:
        self._units = units
        self._grids: dict[str, Grid] = {}
        self._numbers: dict[str, int] = {}
        self.twice = 0  # cells that were written again

    def write(self, session: str, units: Run_, positions: Run_, peer: str) -> bool:
        """`peer` computed this; False where some of it was written before, and nothing is written then."""
        number = self._numbers.setdefault(peer, len(self._numbers) + 1)
        grid = self._grids.get(session)
        if grid is None or grid.shape[1] < positions[1]:
            wider = np.zeros((self._units, 2 * positions[1]), dtype=np.int32)
            if grid is not None:
                wider[:, : grid.shape[1]] = grid
            grid = self._grids[session] = wider
        cells = grid[units[0] : units[1], positions[0] : positions[1]]
        again = int(np.count_nonzero(cells))
        self.twice += again
        if again:
            return False
        cells[:] = number
        return True

    def cells(self) -> Counter[str]:
        """How much each peer computed, in units times positions."""
        names = {number: peer for peer, number in self._numbers.items()}
        found: Counter[str] = Counter()
        for grid in self._grids.values():
            for number, count in enumerate(np.bincount(grid.ravel(), minlength=len(names) + 1)):
                if number != NOBODY and count:
                    found[names[number]] += int(count)
        return found

    def marks(self) -> dict[str, bytes]:
        """Which cells of each session are written."""
        found = {}
        for session, grid in self._grids.items():
            columns = np.flatnonzero(grid.any(axis=0))
            width = int(columns[-1]) + 1 if len(columns) else 0
            found[session] = np.packbits(grid[:, :width] != NOBODY).tobytes()
        return found


class Seen:
    """What the asker saw: a token says that the positions before it were computed, all along the route of its turn."""

    def __init__(self, me: str, units: int) -> None:
        self.book = Book(units)
        self._me = me
        self._turns: dict[bytes, tuple[str, tuple[str, ...], tuple[Run_, ...]]] = {}
        self._upto: dict[str, int] = {}

    def opened(self, turn: Open, runs: Sequence[Run_]) -> None:
        """An answer goes over the route of `turn`, whose stages have `runs`."""
        key = ledger_session(turn.session, self._me, turn.answer)
        self._turns[turn.session] = (key, turn.route, tuple(runs))
        self._upto.setdefault(key, turn.prompt_tokens if turn.max_tokens == 0 else turn.start)

    def token(self, session: bytes, position: int) -> None:
        """The token for `position` came."""
        if session not in self._turns:
            return
        key, route, runs = self._turns[session]
        first = self._upto[key]
        if position <= first:
            return
        for peer, run in zip(route, runs, strict=True):
            self.book.write(key, run, (first, position), peer)
        self._upto[key] = position


@dataclass(slots=True)
class Logged:
    """What the log says: who earned and spent how much by the entries that count."""

    book: Book
    earned: Counter[str] = field(default_factory=Counter)
    spent: Counter[str] = field(default_factory=Counter)
    entries: int = 0
    refused: int = 0  # said again, so that it does not count

    def entry(self, work: Work) -> None:
        """Writes work of the log into the books, or counts it as refused."""
        self.entries += 1
        if not self.book.write(work.session, work.units, work.positions, work.peer):
            self.refused += 1
            return
        self.earned[work.peer] += work.milli
        self.spent[work.asker] += work.milli


def compared(seen: Book, logged: Logged, ledger: Ledger, units: int) -> dict[str, Any]:
    """Held: what the log counted is what the asker saw, cell by cell and peer by peer, no cell twice, and the balances
    of the mesh are the sums of it.
    """
    earned = {peer: balance.earned for peer, balance in ledger.balances.items() if balance.earned}
    spent = {peer: balance.spent for peer, balance in ledger.balances.items() if balance.spent}
    areas = Book(units)
    for session, counted in ledger.sessions.items():
        for area in counted.areas:
            areas.write(session, area.units, area.positions, "anybody")
    computed = seen.cells()
    verified_milli = sum(computed.values()) * CREDIT_MILLI // units
    total = sum(earned.values())
    checks: Mapping[str, bool] = {
        "same_cells": seen.marks() == logged.book.marks() == areas.marks(),
        "same_peers": computed == logged.book.cells(),
        "same_balances": earned == dict(logged.earned) and spent == dict(logged.spent),
        "earned_is_spent": total == sum(spent.values()),
        "no_cell_twice": seen.twice == areas.twice == 0,
    }
    return {
        "held": all(checks.values()),
        **checks,
        "answers": len(seen.marks()),
        "positions": sum(computed.values()) // units,
        "cells": sum(computed.values()),
        "cells_logged": sum(logged.book.cells().values()),
        "entries": logged.entries,
        "entries_refused": logged.refused,
        "peers_paid": len(earned),
        "earned_milli": total,
        "positions_milli": verified_milli,
    }
