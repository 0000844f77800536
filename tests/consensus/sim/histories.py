"""What clients of a simulated group saw, for the search that says whether one state explains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from peer.consensus.events import Apply, Boot, Effect, Event, Propose, Proposed, Read, ReadReady, Reject
from tests.consensus import linearizable
from tests.consensus.linearizable import Operation, Write
from tests.consensus.sim.member import Member

KEYS = 2  # a command writes its own number to the key of that number modulo KEYS; a read reads all keys


@dataclass(slots=True)
class History:
    """Give it to a run as `record`. A client hears of its command when the server that took it applies it."""

    operations: list[Operation] = field(default_factory=list)
    _step: int = 0
    _called: dict[int, int] = field(default_factory=dict)  # by number: when it was asked
    _commands: dict[int, int] = field(default_factory=dict)  # by index: its number, as it was applied
    _taken: dict[tuple[str, int, int], int] = field(default_factory=dict)  # server, index, term: the number

    def __call__(self, member: Member, now: int, event: Event, effects: Sequence[Effect]) -> None:
        self._step += 1
        if isinstance(event, Propose | Read):
            self._called[event.ctx] = 2 * self._step
        elif isinstance(event, Boot):
            self._lose(member.id)
        applied = member.machine.index
        for effect in effects:
            match effect:
                case Proposed():
                    self._taken[member.id, effect.index, effect.term] = effect.ctx
                case Reject():
                    self._called.pop(effect.ctx, None)
                case Apply():
                    applied = effect.entries[-1].index
                    for entry in effect.entries:
                        if entry.kind == "command":
                            self._commands[entry.index] = int(entry.data)
                        number = self._taken.pop((member.id, entry.index, entry.term), None)
                        if number in self._called:
                            self._wrote(number, 2 * self._step + 1)
                case ReadReady():
                    self._read(effect.ctx, applied)
                case _:
                    pass

    def whole(self) -> list[Operation]:
        """With those that nobody heard the end of."""
        rest = [self._write(number, None) for number in self._taken.values() if number in self._called]
        return [*self.operations, *rest]

    def _lose(self, name: str) -> None:
        """A server that restarts answers nobody any more; what it took may happen still."""
        for key, number in list(self._taken.items()):
            if key[0] == name:
                del self._taken[key]
                if number in self._called:
                    self._wrote(number, None)

    def _wrote(self, number: int, ended: int | None) -> None:
        self.operations.append(self._write(number, ended))
        del self._called[number]

    def _write(self, number: int, ended: int | None) -> Operation:
        return Operation(f"k{number % KEYS}", Write(number), self._called[number], ended)

    def _read(self, ctx: int, applied: int) -> None:
        called = self._called.pop(ctx)
        for key in range(KEYS):
            seen = [
                index for index, number in self._commands.items() if index <= applied and number % KEYS == key
            ]
            value = self._commands[max(seen)] if seen else None
            action = linearizable.Read(value)
            self.operations.append(Operation(f"k{key}", action, called, 2 * self._step + 1))
