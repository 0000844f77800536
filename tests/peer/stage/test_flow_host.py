"""A peer's stages of runs: what it refuses, and what it does not pass on."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from peer.dataflow.flow_stage import SendValue
from peer.dataflow.value_codec import Array
from peer.errors import BadCommand, CannotServe
from peer.stage.flow_host import FlowHost
from peer.state.generated.commands import ModelOffer, RunStage
from peer.wire.generated.frames import RunItemFailed, RunValue
from peer.wire.generated.requests import RUN_OPEN, RunOpenRequest
from planner.model.graph_manifest import GraphManifest
from tests.peer.dataflow.made_up_graphs import CHAIN, RUN

PEERS = ("before", "me", "after")
SPANS = ((0, 1), (1, 2), (2, 3))


class Links:
    """Of "me": handlers are called by hand, and what is told is kept."""

    me = "me"

    def __init__(self) -> None:
        self.handlers: dict[Any, Any] = {}
        self.told: list[Any] = []

    def on(self, kind: Any, handler: Any) -> None:
        self.handlers[kind] = handler

    def on_connected(self, _: Any) -> None:
        pass

    def send_or_lose(self, peer: str, frame: Any) -> None:
        self.told.append(frame)


class Fetcher:
    async def graph_manifest(self, model: str) -> GraphManifest:
        return CHAIN


def hosted(made: dict[str, Array]) -> tuple[FlowHost, Links]:
    """Lends, and has the middle of two models, whose runs give `made`."""
    stages = tuple(
        RunStage(first, stop, peer, (), 0) for (first, stop), peer in zip(SPANS, PEERS, strict=True)
    )
    offers = {model: SimpleNamespace(model=model, stages=stages) for model in ("a" * 64, "b" * 64)}
    view = SimpleNamespace(state=SimpleNamespace(offers=offers), subscribe=lambda _: None)
    links = Links()
    host = FlowHost(links, view, SimpleNamespace())  # type: ignore[arg-type]
    for model in offers:
        runtime: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        runtime.set_result(SimpleNamespace(run=lambda _: made, weight_bytes=0))
        host._loaded[model, 1, 2] = runtime
    host.lend(Fetcher(), 1)  # type: ignore[arg-type]
    return host, links


def said(model: str, epoch: int = 1) -> RunOpenRequest:
    return RunOpenRequest(RUN.hex(), epoch, model, SPANS, PEERS)


async def test_a_run_stays_of_one_model() -> None:
    host, links = hosted({})
    await links.handlers[RUN_OPEN]("asker", said("a" * 64))
    await links.handlers[RUN_OPEN]("asker", said("a" * 64, 2))
    with pytest.raises(BadCommand, match="of another model"):
        await links.handlers[RUN_OPEN]("asker", said("b" * 64, 3))
    await host.close()


@pytest.mark.parametrize(("made", "fails"), [(np.array(7), False), (np.array([7, 7]), True)])
async def test_what_the_manifest_does_not_say_is_not_passed_on(made: Array, fails: bool) -> None:
    """Others would take it for an attack."""
    host, links = hosted({"c": made})
    sent: list[SendValue] = []
    host.exchange.send = lambda effect, _: sent.append(effect)  # type: ignore[method-assign]
    await links.handlers[RUN_OPEN]("asker", said("a" * 64))
    place = next(place for place, value in enumerate(CHAIN.values) if value.name == "b")
    host.value("before", RunValue(RUN, 1, 0, place, (), 0, 8, bytes(8)))
    assert host._computing is not None
    await host._computing
    assert [type(frame) for frame in links.told] == [RunItemFailed] * fails
    assert [effect.peer for effect in sent] == ["after"] * (not fails)
    await host.close()


async def test_items_of_several_origins_are_computed_in_turn() -> None:
    host, links = hosted({})
    order: list[int] = []

    def run(inputs: dict[str, Array]) -> dict[str, Array]:
        order.append(int(inputs["b"]))
        return {"c": np.array(7)}

    host._loaded["a" * 64, 1, 2].result().run = run  # type: ignore[method-assign]
    host.exchange.send = lambda effect, _: None  # type: ignore[method-assign]
    runs = {"asker": RUN, "other": b"o" * 16}
    for origin, each in runs.items():
        await links.handlers[RUN_OPEN](origin, RunOpenRequest(each.hex(), 1, "a" * 64, SPANS, PEERS))
    place = next(place for place, value in enumerate(CHAIN.values) if value.name == "b")
    for number, each in enumerate(runs.values()):
        for item in range(3):
            data = (10 * number + item).to_bytes(8, "little")
            host.value("before", RunValue(each, 1, item, place, (), 0, 8, data))
    assert host._computing is not None
    await host._computing
    assert order == [0, 10, 1, 11, 2, 12]
    await host.close()


async def test_units_that_are_taken_away_while_they_load_are_refused_to_who_waits_for_them() -> None:
    """It would else wait for an answer until its time is over."""
    host, links = hosted({})
    loading: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    host._loaded["a" * 64, 1, 2] = loading
    opening = asyncio.ensure_future(links.handlers[RUN_OPEN]("asker", said("a" * 64)))
    await asyncio.sleep(0)
    cast(dict[str, ModelOffer], host._view.state.offers).clear()
    host._changed.set()
    with pytest.raises(CannotServe, match="any more"):
        await opening
    assert loading.cancelled()
    await host.close()


async def test_a_defect_fails_its_item_and_those_after_it_go_on() -> None:
    host, links = hosted({})

    def run(inputs: dict[str, Array]) -> dict[str, Array]:
        if int(inputs["b"]) == 0:
            raise ZeroDivisionError
        return {"c": np.array(7)}

    host._loaded["a" * 64, 1, 2].result().run = run  # type: ignore[method-assign]
    sent: list[int] = []
    host.exchange.send = lambda effect, _: sent.append(effect.item)  # type: ignore[method-assign]
    await links.handlers[RUN_OPEN]("asker", said("a" * 64))
    place = next(place for place, value in enumerate(CHAIN.values) if value.name == "b")
    for item in range(2):
        host.value("before", RunValue(RUN, 1, item, place, (), 0, 8, item.to_bytes(8, "little")))
    assert host._computing is not None
    await host._computing
    assert [(frame.item, frame.message) for frame in links.told] == [
        (0, "the peer that computes it failed: ZeroDivisionError")
    ]
    assert sent == [1]
    await host.close()


async def test_an_item_of_a_peer_that_leaves_fails_for_nobody() -> None:
    """Its origin has it computed by others; an item that fails is over."""
    host, links = hosted({"c": np.array(7)})
    await links.handlers[RUN_OPEN]("asker", said("a" * 64))
    place = next(place for place, value in enumerate(CHAIN.values) if value.name == "b")
    close = host.exchange.close

    async def while_a_value_comes() -> None:
        host.value("before", RunValue(RUN, 1, 0, place, (), 0, 8, bytes(8)))
        await close()

    host.exchange.close = while_a_value_comes  # type: ignore[method-assign]
    await host.close()
    if host._computing is not None:
        await host._computing
    assert links.told == []
