"""Decides which answers occupy the seats of a stage, and which OPENs must wait since others were called before.

Pure: between the seats of `peer.session.stage` and the line of `peer.session.admission_queue`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from peer.session.admission_queue import Busy, Line, Room
from peer.session.effects import Ran
from peer.session.seat import LEFT_S, Run_, Seat, pauses
from peer.wire.generated.frames import Cancel, Open, Role

MILLI = 1000
MICRO = 1_000_000
MOST = 1 << 20  # positions: no context is longer


class Admitting:
    """`seats` and `slots()` are those of the stage core; `owed_milli(asker)` is what it spent beyond what it earned."""

    def __init__(
        self,
        seats: Mapping[tuple[bytes, int], Seat],
        slots: Callable[[], Mapping[Run_, int]],
        owed_milli: Callable[[str], int] = lambda _: 0,
    ) -> None:
        self.line = Line()
        self._owed_milli = owed_milli
        self._seats = seats
        self._slots = slots

    def look(self, now: float) -> None:
        """Calls whoever is next, where there is a seat."""
        if not len(self.line):
            return
        slots = self._slots()
        rooms = {
            run: Room(slots[run], [(seat.opening.origin, _busy(seat)) for seat in self._busy(now, run)])
            for run in self.line.runs
            if run in slots
        }
        self.line.look(int(now * MILLI), rooms, self._owed_milli)

    def must_wait(self, now: float, frame: Open, run: Run_) -> bool:
        """Whether `frame` begins an answer, and every seat of `run` is taken, or kept for somebody who came before."""
        if not len(self.line) or frame.role != Role.SERVE or frame.turn != frame.answer:
            return False
        self.look(now)
        used = sum(seat.opening.session != frame.session for seat in self._busy(now, run))
        return self._slots()[run] - used - self.line.kept(run, (frame.origin, frame.session.hex())) < 1

    def called_in_vain(self, frame: Open) -> None:
        """There is no seat for `frame`: who was called stands in line again. A shadow's OPEN says nothing of that."""
        if frame.role == Role.SERVE:
            self.line.put_back(frame.origin, frame.session.hex())

    def taken(self, now: float, seat: Seat) -> None:
        """A turn begins on `seat`."""
        seat.ran_at = now
        if len(self.line) and seat.serves:
            self.line.leave(seat.opening.origin, seat.opening.session.hex())

    def ran(self, now: float, seat: Seat, result: Ran) -> None:
        """A step of `seat` was computed."""
        if seat.serves and not seat.warms and seat.active:
            given = result.count > 1 or seat.is_given(result.position)
            self.line.pace.ran(int((now - seat.ran_at) * MICRO), result.count, given=given)
        seat.ran_at = now

    def cancelled(self, sender: str, frame: Cancel, seats: Sequence[Seat]) -> None:
        """The asker ends turns of a session with `seats` here: it waits no more, and an answer had so many tokens."""
        if len(self.line):
            self.line.leave(sender, frame.session.hex())
        for seat in seats[:1]:  # the others are of the same answer
            opening = seat.opening
            counts = frame.keep and seat.serves and not (seat.warms or seat.steering.allowed)
            if counts and opening.origin == sender and opening.turn == frame.turn:
                made = frame.keep - opening.prompt_tokens + opening.generated
                self.line.pace.ended(min(made, opening.max_tokens + opening.generated))

    def _busy(self, now: float, run: Run_) -> list[Seat]:
        return [seat for seat in self._seats.values() if seat.run == run and _in_use(seat, now)]


def _in_use(seat: Seat, now: float) -> bool:
    """Whether an answer is under way on this seat that does not make room for another."""
    if seat.warms or not seat.serves:
        return False
    if not seat.active:
        return pauses(seat, now)
    return now - seat.touched <= LEFT_S or seat.in_flight > 0


def _busy(seat: Seat) -> Busy:
    """What its answer has still to do."""
    opening = seat.opening
    to_come = max(opening.prompt_tokens - seat.computed, 0)
    made = opening.generated + max(seat.computed - opening.prompt_tokens, 0)
    most = opening.generated + opening.max_tokens
    return Busy(min(to_come, MOST), min(made, MOST), min(most, MOST))
