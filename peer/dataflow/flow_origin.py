"""What the origin of a run sends and waits for: inputs out, outputs in, another route when a peer is lost.

Pure. Items are numbered from 0; each ends once, with its outputs or with why not. Inputs are kept until then.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from peer.dataflow.flow_route import FlowRoute
from peer.dataflow.flow_stage import SendValue
from peer.dataflow.value_codec import Array


@dataclass(frozen=True, slots=True)
class SendGo:
    """Tells a peer that all stages have opened the epoch, and which items are done."""

    peer: str
    run: bytes
    epoch: int
    below: int


@dataclass(frozen=True, slots=True)
class ItemDone:
    """All outputs of an item are here, by value."""

    item: int
    outputs: dict[int, Array]


@dataclass(frozen=True, slots=True)
class ItemFailed:
    """An item that cannot be computed."""

    item: int
    text: str


OriginFlowEffect = SendValue | SendGo | ItemDone | ItemFailed


@dataclass(slots=True)
class _Item:
    inputs: dict[int, Array]
    outputs: dict[int, Array] = field(default_factory=dict)


class FlowOrigin:
    """One run. Nothing is sent before `opened`."""

    def __init__(self, run: bytes, route: FlowRoute) -> None:
        self.run = run
        self.route = route
        self.epoch = 1
        self.is_open = False  # every stage has opened this epoch
        self._items: dict[int, _Item] = {}  # those under way
        self._next = 0
        self._told = 0  # the items below it are done, as the stages know

    @property
    def under_way(self) -> int:
        """How many items have not ended."""
        return len(self._items)

    @property
    def below(self) -> int:
        """All items below it have ended."""
        return min(self._items, default=self._next)

    def submit(self, inputs: dict[int, Array]) -> tuple[int, list[OriginFlowEffect]]:
        """Begins an item; its number."""
        item = self._next
        self._next += 1
        self._items[item] = _Item(inputs)
        return item, self._inputs(item) if self.is_open else []

    def reroute(self, route: FlowRoute) -> None:
        """Leads the run over `route`. Once its stages have opened this epoch, `opened`."""
        self.route = route
        self.epoch += 1
        self.is_open = False

    def opened(self) -> list[OriginFlowEffect]:
        """Every stage has opened the epoch: what is under way goes on."""
        self.is_open = True
        return [*self._go(), *(effect for item in sorted(self._items) for effect in self._inputs(item))]

    def takes(self, sender: str, epoch: int, item: int, value: int) -> bool:
        """Whether a value that comes is wanted: an output, from who makes it, and not here yet."""
        known = self._items.get(item)
        return (
            epoch == self.epoch
            and known is not None
            and value in self.route.outputs
            and value not in known.outputs
            and self.route.makers.get(value) == sender
        )

    def value(self, sender: str, epoch: int, item: int, value: int, array: Array) -> list[OriginFlowEffect]:
        """Takes an output."""
        if not self.takes(sender, epoch, item, value):
            return []
        known = self._items[item]
        known.outputs[value] = array
        if not all(output in known.outputs for output in self.route.outputs):
            return []
        return [ItemDone(item, known.outputs), *self._ended(item)]

    def failed(self, sender: str, epoch: int, item: int, text: str) -> list[OriginFlowEffect]:
        """Takes that a stage cannot compute an item."""
        if epoch != self.epoch or item not in self._items or sender not in self.route.peers:
            return []
        return [ItemFailed(item, text), *self._ended(item)]

    def drop(self, item: int) -> list[OriginFlowEffect]:
        """Nobody waits for an item any more."""
        return self._ended(item) if item in self._items else []

    def _ended(self, item: int) -> list[OriginFlowEffect]:
        del self._items[item]
        return self._go() if self.is_open and self.below > self._told else []

    def _go(self) -> list[OriginFlowEffect]:
        self._told = self.below
        return [SendGo(peer, self.run, self.epoch, self._told) for peer in self.route.peers]

    def _inputs(self, item: int) -> list[OriginFlowEffect]:
        """To the stages that need them."""
        return [
            SendValue(peer, self.run, self.epoch, item, value, array)
            for value, array in self._items[item].inputs.items()
            for peer in self.route.takers.get(value, ())
        ]
