"""Decides what an asker acknowledges: which peer computed which positions through which units of its answers.

Pure; the same in web_peer/src/audit/receipts.ts. Only an asker says what was computed for it, and it pays for what it
says: a stage that claims work for itself earns nothing, an asker that claims too much pays too much. What was said is
repeated until the ledger has it, so a leader that is lost loses nothing, and ranges make counting twice impossible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from peer.errors import BadCommand
from peer.session.pinned_ends import is_pinned
from peer.session.seat import Run_
from peer.state.fairness import Fairness
from peer.state.generated.commands import MAX_ENTRIES, Work
from peer.state.work_ledger import Ledger
from peer.wire.generated.frames import Open
from peer.wire.generated.requests import Claim

MAX_PENDING: Final = 2048  # claims that wait for a ledger; the oldest make room
MAX_TRIES: Final = 40  # a claim that never counts, as of a session with too many areas, is given up
MAX_SESSIONS: Final = 1024  # answers under way
CREDIT_MILLI: Final = 1000  # for one position through the whole model
PIECE_MILLI: Final = 50  # for a piece of weights, 4 MiB, that was given to another peer


@dataclass(slots=True)
class _Answer:
    started_ms: int
    session: bytes = b""  # in which its tokens come; it moves to another one with the first token there
    peers: tuple[str, ...] = ()
    runs: tuple[Run_, ...] = ()
    beside: dict[bytes, tuple[tuple[str, ...], tuple[Run_, ...]]] = field(
        default_factory=dict
    )  # routes it may move to
    said: int = 0  # positions before are acknowledged, or were cached
    upto: int = 0  # positions before have been computed


@dataclass(slots=True)
class Receipts:
    """What this peer has to acknowledge. Answers by the id under which the ledger has them."""

    _answers: dict[str, _Answer] = field(default_factory=dict)
    _pending: dict[Claim, int] = field(default_factory=dict)  # how often each was said
    _of_session: dict[bytes, str] = field(default_factory=dict)
    _began: dict[str, int] = field(default_factory=dict)  # when the first piece of a file of weights came

    def opened(self, now_ms: int, turn: Open, runs: Sequence[Run_]) -> None:
        """An answer goes over the route of `turn` from now on, whose stages have `runs` of units; positions below the
        `start` of its first turn were there before. A second session, to which the answer may move, counts from its
        first token on: until then the first one computes.
        """
        session, start = turn.session, turn.start
        runs = computed_runs(turn, runs)
        key = ledger_session(session, turn.origin, turn.answer)
        self._of_session[session] = key
        found = self._answers.get(key)
        if found is None:
            found = self._answers[key] = _Answer(now_ms, session, said=start, upto=start)
        if session != found.session:
            found.beside[session] = turn.route, runs
        else:
            self._take(key, found)
            found.peers, found.runs = turn.route, runs
        while len(self._answers) > MAX_SESSIONS:
            oldest = next(iter(self._answers))
            self._take(oldest, self._answers.pop(oldest))

    def token(self, session: bytes, position: int) -> None:
        """The token for `position` came: every stage has computed the positions before it."""
        key = self._of_session.get(session, "")
        found = self._answers.get(key)
        if found is None:
            return
        if session in found.beside:
            self._take(key, found)
            found.session = session
            found.peers, found.runs = found.beside[session]
            found.beside.clear()
        found.upto = max(found.upto, position)

    def ended(self, session: bytes) -> None:
        """Nothing more comes of the answer under way."""
        key = self._of_session.get(session, "")
        for each in [each for each, of in self._of_session.items() if of == key]:
            del self._of_session[each]
        found = self._answers.pop(key, None)
        if found is not None:
            self._take(key, found)

    def given(self, now_ms: int, peer: str, session: str, piece: int) -> None:
        """`peer` gave a piece of weights, of which all of one file have the id `session`."""
        began_ms = self._began.setdefault(session, now_ms)
        self._keep(Claim(session, began_ms, peer, (piece, piece + 1), (0, 1), "weights"))

    def due(self, ledger: Ledger, fairness: Fairness) -> tuple[Claim, ...]:
        """What is to be said now, at most a batch; what the ledger has, or will never have, is forgotten."""
        for key, found in self._answers.items():
            self._take(key, found)
        self._pending = {
            claim: tries
            for claim, tries in self._pending.items()
            if tries < MAX_TRIES and awaited(ledger, fairness, claim)
        }
        batch = tuple(self._pending)[:MAX_ENTRIES]
        for claim in batch:
            self._pending[claim] += 1
        return batch

    def __len__(self) -> int:
        return len(self._pending)

    def _take(self, key: str, found: _Answer) -> None:
        if found.upto > found.said:
            for peer, run in zip(found.peers, found.runs, strict=True):
                if run[0] == run[1]:
                    continue
                self._keep(Claim(key, found.started_ms, peer, (found.said, found.upto), run, "tokens"))
            found.said = found.upto

    def _keep(self, claim: Claim) -> None:
        self._pending.setdefault(claim, 0)
        while len(self._pending) > MAX_PENDING:
            del self._pending[next(iter(self._pending))]


def computed_runs(turn: Open, runs: Sequence[Run_]) -> tuple[Run_, ...]:
    """The units that each stage of `turn` computes, of those in its plan: where the asker keeps its ends it computes
    the first and the last one of the model itself, and owes nobody for them. Empty runs for a stage without others.
    """
    if not is_pinned(turn):
        return tuple(runs)
    last = len(runs) - 1
    begun = [(first + (not at), stop) for at, (first, stop) in enumerate(runs)]
    return tuple((first, max(first, stop - (at == last))) for at, (first, stop) in enumerate(begun))


def ledger_session(session: bytes, asker: str, answer: int) -> str:
    """The id under which the ledger has what `asker` asked for from the turn `answer` on: 12 bytes of the session, and
    the CRC-32 of the rest. So an answer that somebody else goes on with has an id of its own.
    """
    return session[:12].hex() + f"{crc32(f'{asker} {answer}'.encode()):08x}"


def awaited(ledger: Ledger, fairness: Fairness, claim: Claim) -> bool:
    """Whether the ledger may still take `claim`."""
    if fairness.policy == "off" or claim.peer in fairness.quarantined:
        return False
    counted = ledger.sessions.get(claim.session)
    if counted is None:
        return claim.started_ms > ledger.horizon_ms
    if counted.started_ms != claim.started_ms:
        return False
    first, stop = claim.positions
    return not any(
        area.units == claim.units and area.positions[0] <= first and stop <= area.positions[1]
        for area in counted.areas
    )


# --- the leader's side ------------------------------------------------------------------------------------


def unit_costs(kinds: Sequence[str], tables: Sequence[Mapping[str, int]]) -> tuple[int, ...]:
    """What each unit costs beside the others: the median of what peers measured for its kind, in nanoseconds.

    `tables`: by peer, what one decode token takes through one unit of a kind. The lower of two middle ones.
    """
    median: dict[str, int] = {}
    for kind in set(kinds):
        found = sorted(table[kind] for table in tables if kind in table)
        median[kind] = max(1, found[(len(found) - 1) // 2]) if found else 1
    return tuple(median[kind] for kind in kinds)


def priced(claim: Claim, asker: str, costs: Sequence[int]) -> Work:
    """`claim` with its price: a position through the whole model is a credit. Raises BadCommand for no such units."""
    count = claim.positions[1] - claim.positions[0]
    if claim.of == "weights":
        milli = count * PIECE_MILLI
    else:
        if claim.units[1] > len(costs):
            raise BadCommand(f"work: expected units of the model's {len(costs)}")
        milli = count * CREDIT_MILLI * sum(costs[claim.units[0] : claim.units[1]]) // sum(costs)
    return Work(claim.session, claim.started_ms, claim.peer, asker, claim.positions, claim.units, milli)


@dataclass(slots=True)
class Till:
    """What askers said and the log does not have yet, in the order it came; each once."""

    _waiting: dict[Work, None] = field(default_factory=dict)

    def put(self, works: Sequence[Work]) -> None:
        """Adds works that are to be acknowledged, as far as MAX_PENDING has room."""
        for work in works[: max(0, MAX_PENDING - len(self._waiting))]:
            self._waiting.setdefault(work)

    def __len__(self) -> int:
        return len(self._waiting)

    def batch(self) -> tuple[Work, ...]:
        """The next entries for the log."""
        found = tuple(self._waiting)[:MAX_ENTRIES]
        for work in found:
            del self._waiting[work]
        return found
