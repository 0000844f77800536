"""What a peer does for runs that others ask: which of its stages can compute now, and where values go then.

Pure: values come in with who sent them, effects come out. What was made is kept until the origin is done with the item,
so that whoever takes a lost peer's place gets it without anything being computed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from peer.dataflow.flow_route import FlowRoute
from peer.dataflow.value_codec import Array, held_bytes
from peer.errors import BadCommand

MAX_RUNS: Final = 64  # of one origin, open at a peer at the same time
MAX_ITEMS: Final = 4096  # of one run that a peer keeps something of
GRACE_S: Final = 30.0  # how long a run stays whose origin has no connection


@dataclass(frozen=True, slots=True)
class SendValue:
    """Sends a value of an item to a peer, which may be this one's own origin."""

    peer: str
    run: bytes
    epoch: int
    item: int
    value: int
    array: Array


@dataclass(frozen=True, slots=True)
class Compute:
    """Computes a stage of an item. `inputs` by value."""

    run: bytes
    origin: str
    item: int
    first: int
    stop: int
    inputs: dict[int, Array]


@dataclass(frozen=True, slots=True)
class TellFailed:
    """Tells the origin that an item cannot be computed."""

    peer: str
    run: bytes
    epoch: int
    item: int
    text: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Nothing is kept of the run any more."""

    run: bytes


FlowEffect = SendValue | Compute | TellFailed | Forgotten


@dataclass(slots=True)
class _Item:
    values: dict[int, Array] = field(default_factory=dict)
    begun: set[tuple[int, int]] = field(default_factory=set)  # stages that compute or have computed
    failed: str = ""


@dataclass(slots=True)
class _Run:
    route: FlowRoute
    epoch: int
    gone_epoch: int = 0  # the epoch that all stages have opened, as the origin said
    below: int = 0
    items: dict[int, _Item] = field(default_factory=dict)
    left_at: float | None = None  # since when its origin has no connection


class FlowStages:
    """All runs that `me` has stages of. It keeps values up to `most_bytes`."""

    def __init__(self, me: str, most_bytes: int) -> None:
        self._me = me
        self._most_bytes = most_bytes
        self._runs: dict[bytes, _Run] = {}
        self.kept_bytes = 0

    def route(self, run: bytes) -> FlowRoute | None:
        """The route of a run that is open here."""
        found = self._runs.get(run)
        return None if found is None else found.route

    def uses(self) -> frozenset[tuple[bytes, int, int]]:
        """(run, first, stop) of the stages here of all open runs."""
        return frozenset(
            (run, stage.first, stage.stop)
            for run, kept in self._runs.items()
            for stage in kept.route.stages
            if stage.peer == self._me
        )

    def takes(self, sender: str, run: bytes, epoch: int, item: int, value: int) -> bool:
        """Whether a value that comes is wanted: of an open run, from who makes it, and not here yet."""
        kept = self._runs.get(run)
        if kept is None or epoch != kept.epoch or item < kept.below:
            return False
        known = kept.items.get(item)
        if known is not None and value in known.values:
            return False
        route = kept.route
        return route.makers.get(value) == sender and self._me in route.takers.get(value, ())

    def open(self, run: bytes, epoch: int, route: FlowRoute) -> None:
        """Opens a run, or leads it over another route from `epoch` on. Raises BadCommand."""
        kept = self._runs.get(run)
        if kept is None:
            if sum(known.route.origin == route.origin for known in self._runs.values()) >= MAX_RUNS:
                raise BadCommand(f"expected at most {MAX_RUNS} open runs of one peer")
            self._runs[run] = _Run(route, epoch)
            return
        if kept.route.origin != route.origin:
            raise BadCommand("this run is another peer's")
        if epoch < kept.epoch:
            raise BadCommand(f"expected an epoch of {kept.epoch} or more, got {epoch}")
        kept.route, kept.epoch, kept.left_at = route, epoch, None
        for item in kept.items.values():
            item.failed = ""

    def go(self, sender: str, run: bytes, epoch: int, below: int) -> list[FlowEffect]:
        """All stages have opened `epoch`; items below `below` are done."""
        kept = self._runs.get(run)
        if kept is None or kept.route.origin != sender or epoch != kept.epoch:
            return []
        for item in [number for number in kept.items if number < below]:
            self.kept_bytes -= sum(held_bytes(array) for array in kept.items.pop(item).values.values())
        kept.below = max(kept.below, below)
        if kept.gone_epoch == epoch:
            return []
        kept.gone_epoch = epoch
        effects: list[FlowEffect] = []
        for number in sorted(kept.items):
            effects += self._sends(run, kept, number, kept.items[number].values)
            effects += self._ready(run, kept, number)
        return effects

    def value(
        self, sender: str, run: bytes, epoch: int, item: int, value: int, array: Array
    ) -> list[FlowEffect]:
        """Takes a value that another peer made, or the origin gave."""
        if not self.takes(sender, run, epoch, item, value):
            return []
        kept = self._runs[run]
        if item not in kept.items and len(kept.items) >= MAX_ITEMS:
            return self._fail(run, kept, item, f"more than {MAX_ITEMS} items of a run at once")
        if self.kept_bytes + held_bytes(array) > self._most_bytes:
            text = f"this peer keeps at most {self._most_bytes} bytes of values: fewer items at once, or smaller ones"
            return self._fail(run, kept, item, text)
        self._keep(kept, item, value, array)
        return self._ready(run, kept, item)

    def computed(self, run: bytes, item: int, outputs: dict[int, Array]) -> list[FlowEffect]:
        """Takes what a stage here made of an item."""
        kept = self._runs.get(run)
        if kept is None or item < kept.below or item not in kept.items:
            return []
        for value, array in outputs.items():
            self._keep(kept, item, value, array)
        return [*self._sends(run, kept, item, outputs), *self._ready(run, kept, item)]

    def failed(self, run: bytes, item: int, span: tuple[int, int], text: str) -> list[FlowEffect]:
        """The stage of units `span` cannot compute an item."""
        kept = self._runs.get(run)
        if kept is None or item not in kept.items:
            return []
        kept.items[item].begun.discard(span)
        return self._fail(run, kept, item, text)

    def unable(self, run: bytes, epoch: int, item: int, text: str) -> list[FlowEffect]:
        """There is no room for a value of an item while it comes."""
        kept = self._runs.get(run)
        if kept is None or kept.epoch != epoch or item < kept.below:
            return []
        return self._fail(run, kept, item, text)

    def close(self, sender: str, run: bytes) -> list[FlowEffect]:
        """The origin is done with the run."""
        kept = self._runs.get(run)
        return [] if kept is None or kept.route.origin != sender else self._forget(run)

    def gone(self, now: float, peer: str) -> None:
        """The connection to a peer ended. The runs that it asks stay for a while: it may come back."""
        for kept in self._runs.values():
            if kept.route.origin == peer and kept.left_at is None:
                kept.left_at = now

    def back(self, peer: str) -> None:
        """There is a connection to a peer again."""
        for kept in self._runs.values():
            if kept.route.origin == peer:
                kept.left_at = None

    def tick(self, now: float) -> list[FlowEffect]:
        """Ends the runs of origins that stayed away."""
        over = [
            r for r, kept in self._runs.items() if kept.left_at is not None and now - kept.left_at > GRACE_S
        ]
        return [effect for run in over for effect in self._forget(run)]

    def _forget(self, run: bytes) -> list[FlowEffect]:
        kept = self._runs.pop(run)
        self.kept_bytes -= sum(
            held_bytes(array) for item in kept.items.values() for array in item.values.values()
        )
        return [Forgotten(run)]

    def _keep(self, kept: _Run, item: int, value: int, array: Array) -> None:
        values = kept.items.setdefault(item, _Item()).values
        if value not in values:
            values[value] = array
            self.kept_bytes += held_bytes(array)

    def _fail(self, run: bytes, kept: _Run, item: int, text: str) -> list[FlowEffect]:
        known = kept.items.get(item)
        if known is not None and known.failed:
            return []
        if known is not None:
            known.failed = text
        return [TellFailed(kept.route.origin, run, kept.epoch, item, text)]

    def _sends(self, run: bytes, kept: _Run, item: int, values: Iterable[int]) -> list[FlowEffect]:
        """To all that need them, of what is made here."""
        arrays = kept.items[item].values
        return [
            SendValue(peer, run, kept.epoch, item, value, arrays[value])
            for value in values
            if value not in kept.route.inputs and kept.route.makers.get(value) == self._me
            for peer in kept.route.takers.get(value, ())
            if peer != self._me or (peer == kept.route.origin and value in kept.route.outputs)
        ]

    def _ready(self, run: bytes, kept: _Run, item: int) -> list[FlowEffect]:
        """The stages here that have all they need of an item, and did not begin yet."""
        known = kept.items.get(item)
        if known is None or known.failed:
            return []
        effects: list[FlowEffect] = []
        for stage, needs, gives in zip(kept.route.stages, kept.route.needs, kept.route.gives, strict=True):
            span = (stage.first, stage.stop)
            if stage.peer != self._me or span in known.begun or not all(v in known.values for v in needs):
                continue
            known.begun.add(span)
            if all(value in known.values for value in gives):
                continue  # computed before the route changed
            inputs = {value: known.values[value] for value in needs}
            effects.append(Compute(run, kept.route.origin, item, stage.first, stage.stop, inputs))
        return effects
