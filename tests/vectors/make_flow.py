"""Writes flow.json, which the TypeScript suite replays: what stages and origins of runs decide, call by call.

Run it after a change of peer/dataflow. Graphs are made up, peers are lost, routes change, and calls come that nobody
should make.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from tracing import written

from peer.dataflow.flow_origin import FlowOrigin, ItemDone, ItemFailed, OriginFlowEffect, SendGo
from peer.dataflow.flow_route import FlowRoute, flow_route
from peer.dataflow.flow_stage import Compute, FlowEffect, FlowStages, Forgotten, SendValue, TellFailed
from peer.dataflow.value_codec import from_bytes, to_bytes
from peer.errors import BadCommand, WrongTensor
from planner.model.graph_manifest import GraphManifest, Value
from tests.peer.dataflow import test_flow_stage as made_up

PATH: Final = Path(__file__).with_name("flow.json")
MANIFESTS: Final = {"chain": made_up.CHAIN, "towers": made_up.TOWERS}
SEEDS: Final = 8  # of schedules for each
FEW_BYTES: Final = 120  # values that a peer keeps in half of the schedules
CODED: Final = 120


class Recorded(FlowStages):
    """Writes down every call and what comes of it."""

    rows: dict[str, list[dict[str, Any]]]
    most_bytes: int

    def __init__(self, me: str, _: int) -> None:
        super().__init__(me, self.most_bytes)
        while me in self.rows:
            me += "'"  # a peer that was lost came again
        self._calls = self.rows[me] = []

    def note(self, call: str, said: tuple[Any, ...], effects: list[FlowEffect] | str | bool) -> None:
        found = [_shown(effect) for effect in effects] if isinstance(effects, list) else effects
        self._calls.append({"call": call, "said": said, "effects": found, "kept": self.kept_bytes})

    def open(self, run: bytes, epoch: int, route: FlowRoute) -> None:
        said = (run.hex(), epoch, *_said(route))
        try:
            super().open(run, epoch, route)
        except BadCommand as error:
            self.note("open", said, str(error))
            return
        self.note("open", said, [])

    def go(self, sender: str, run: bytes, epoch: int, below: int) -> list[FlowEffect]:
        effects = super().go(sender, run, epoch, below)
        self.note("go", (sender, run.hex(), epoch, below), effects)
        return effects

    def value(
        self, sender: str, run: bytes, epoch: int, item: int, value: int, array: Any
    ) -> list[FlowEffect]:
        effects = super().value(sender, run, epoch, item, value, array)
        self.note("value", (sender, run.hex(), epoch, item, value, int(array)), effects)
        return effects

    def computed(self, run: bytes, item: int, outputs: dict[int, Any]) -> list[FlowEffect]:
        effects = super().computed(run, item, outputs)
        said = (run.hex(), item, _arrays(outputs))
        self.note("computed", said, effects)
        return effects

    def failed(self, run: bytes, item: int, span: tuple[int, int], text: str) -> list[FlowEffect]:
        effects = super().failed(run, item, span, text)
        self.note("failed", (run.hex(), item, *span, text), effects)
        return effects

    def close(self, sender: str, run: bytes) -> list[FlowEffect]:
        effects = super().close(sender, run)
        self.note("close", (sender, run.hex()), effects)
        return effects

    def gone(self, now: float, peer: str) -> None:
        super().gone(now, peer)
        self.note("gone", (now, peer), [])

    def back(self, peer: str) -> None:
        super().back(peer)
        self.note("back", (peer,), [])

    def tick(self, now: float) -> list[FlowEffect]:
        effects = super().tick(now)
        self.note("tick", (now,), effects)
        return effects


class RecordedOrigin(FlowOrigin):
    """The same of the origin."""

    calls: list[dict[str, Any]]

    def __init__(self, run: bytes, route: FlowRoute) -> None:
        super().__init__(run, route)
        RecordedOrigin.calls = []
        self._note("made", (run.hex(), *_said(route)), [])

    def _note(self, call: str, said: tuple[Any, ...], effects: list[OriginFlowEffect]) -> None:
        found = [_shown(effect) for effect in effects]
        row = {"call": call, "said": said, "effects": found, "under_way": self.under_way, "below": self.below}
        self.calls.append(row)

    def submit(self, inputs: dict[int, Any]) -> tuple[int, list[OriginFlowEffect]]:
        item, effects = super().submit(inputs)
        self._note("submit", (_arrays(inputs),), effects)
        return item, effects

    def reroute(self, route: FlowRoute) -> None:
        super().reroute(route)
        self._note("reroute", _said(route), [])

    def opened(self) -> list[OriginFlowEffect]:
        effects = super().opened()
        self._note("opened", (), effects)
        return effects

    def value(self, sender: str, epoch: int, item: int, value: int, array: Any) -> list[OriginFlowEffect]:
        effects = super().value(sender, epoch, item, value, array)
        self._note("value", (sender, epoch, item, value, int(array)), effects)
        return effects

    def failed(self, sender: str, epoch: int, item: int, text: str) -> list[OriginFlowEffect]:
        effects = super().failed(sender, epoch, item, text)
        self._note("failed", (sender, epoch, item, text), effects)
        return effects

    def drop(self, item: int) -> list[OriginFlowEffect]:
        effects = super().drop(item)
        self._note("drop", (item,), effects)
        return effects


def text() -> str:
    schedules = [_schedule(name, seed) for name in MANIFESTS for seed in range(SEEDS)]
    return written(
        "written by make_flow.py",
        {
            "manifests": [{"name": name, **_manifest(each)} for name, each in MANIFESTS.items()],
            "routes": [_route(name, seed) for name in MANIFESTS for seed in range(20)],
            "schedules": [row for rows, _ in schedules for row in rows],
            "origins": [row for _, row in schedules],
            "values": [_coded(seed) for seed in range(CODED)],
        },
    )


def _manifest(manifest: GraphManifest) -> dict[str, Any]:
    return {
        "values": [value.name for value in manifest.values],
        "inputs": list(manifest.inputs),
        "outputs": list(manifest.outputs),
        "units": [{"inputs": list(unit.inputs), "outputs": list(unit.outputs)} for unit in manifest.units],
    }


def _stages(chance: random.Random, count: int, newest: str) -> list[Any]:
    cuts = sorted({*chance.sample(range(1, count), chance.randrange(count)), count})
    return made_up.stages_of(cuts, [chance.choice(["p", "q", "r", newest]) for _ in cuts])


def _route(name: str, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    manifest = MANIFESTS[name]
    stages = _stages(chance, len(manifest.units), "s")
    if seed % 3 == 0:
        stages[-1] = made_up.FlowStage(stages[-1].first, stages[-1].stop + chance.randrange(-1, 2), "p")
    row: dict[str, Any] = {"name": name, "stages": [[each.first, each.stop, each.peer] for each in stages]}
    try:
        route = flow_route(manifest, stages, "origin")
    except BadCommand as error:
        return {**row, "says": str(error)}
    return {
        **row,
        "needs": route.needs,
        "gives": route.gives,
        "takers": [[value, list(peers)] for value, peers in sorted(route.takers.items())],
        "makers": [[value, peer] for value, peer in sorted(route.makers.items())],
    }


def _schedule(name: str, seed: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What each peer and the origin are told in a run whose peers are lost, with calls that nobody should make."""
    chance, mischief = random.Random(f"{name} {seed}"), random.Random(f"origin {name} {seed}")
    manifest = MANIFESTS[name]
    Recorded.rows = {}
    Recorded.most_bytes = FEW_BYTES if seed % 2 else made_up.MOST_BYTES
    plain, made_up.FlowStages = made_up.FlowStages, Recorded  # type: ignore[misc]
    plain_origin, made_up.FlowOrigin = made_up.FlowOrigin, RecordedOrigin  # type: ignore[misc]
    try:
        town = made_up.Town(manifest, _drawn(chance, manifest, 0), seed)
        town.open()
        for number in range(1, 4):
            for _ in range(chance.randrange(1, 6)):
                town.of_origin(town.origin.submit(made_up.inputs_of(manifest, number))[1])
            for _ in range(chance.randrange(30)):
                town.step()
                if chance.random() < 0.3:
                    _disturb(chance, town, manifest)
                    _disturb_origin(mischief, town, manifest)
            town.lose(chance.choice(town.origin.route.peers))
            town.origin.reroute(_drawn(chance, manifest, number))
            town.open()
        while town.step():
            pass
        for stages in town.stages.values():
            stages.gone(5.0, "origin")
            stages.tick(20.0)
            if chance.random() < 0.5:
                stages.back("origin")
            stages.tick(50.0)
            stages.close("origin", made_up.RUN)
    finally:
        made_up.FlowStages = plain  # type: ignore[misc]
        made_up.FlowOrigin = plain_origin  # type: ignore[misc]
    rows = Recorded.rows.items()
    return [
        {
            "name": name,
            "seed": seed,
            "me": me.rstrip("'"),
            "most_bytes": Recorded.most_bytes,
            "calls": calls,
        }
        for me, calls in rows
    ], {"name": name, "seed": seed, "calls": RecordedOrigin.calls}


def _drawn(chance: random.Random, manifest: GraphManifest, number: int) -> FlowRoute:
    return flow_route(manifest, _stages(chance, len(manifest.units), f"new{number}"), "origin")


def _disturb(chance: random.Random, town: Any, manifest: GraphManifest) -> None:
    stages = chance.choice(list(town.stages.values()))
    run = chance.choice([made_up.RUN, made_up.RUN, b"x" * 16])
    sender = chance.choice(["origin", "p", "q", "r", "stranger"])
    epoch, item = town.origin.epoch + chance.choice((-1, 0, 0, 1)), chance.randrange(6)
    match chance.randrange(5):
        case 0:
            stages.value(sender, run, epoch, item, chance.randrange(len(manifest.values)), np.array(7))
        case 1 if sender != "origin":
            stages.go(sender, run, epoch, item)
        case 2 if sender != "origin":
            stages.close(sender, run)
        case 3:
            stages.failed(b"x" * 16, item, (0, 1), "nobody's")
        case _ if sender != "origin":
            stages.open(run if run == made_up.RUN else made_up.RUN, epoch, _foreign(chance, manifest, sender))


def _disturb_origin(chance: random.Random, town: Any, manifest: GraphManifest) -> None:
    epoch, item = town.origin.epoch + chance.choice((-1, 0, 0, 1)), chance.randrange(6)
    match chance.randrange(4):
        case 0:
            sender = chance.choice(["p", "q", "stranger"])
            value = chance.randrange(len(manifest.values))
            town.of_origin(town.origin.value(sender, epoch, item, value, np.array(7)))
        case 1:
            town.of_origin(
                town.origin.failed(chance.choice(["p", "q", "r", "stranger"]), epoch, item, "cannot")
            )
        case 2:
            town.of_origin(town.origin.drop(item))
        case _:
            pass


def _foreign(chance: random.Random, manifest: GraphManifest, origin: str) -> FlowRoute:
    return flow_route(manifest, _stages(chance, len(manifest.units), "p"), origin)


def _said(route: FlowRoute) -> tuple[list[list[Any]], str]:
    return [[stage.first, stage.stop, stage.peer] for stage in route.stages], route.origin


def _arrays(arrays: Mapping[int, Any]) -> list[list[int]]:
    return [[value, int(array)] for value, array in arrays.items()]


def _shown(effect: FlowEffect | OriginFlowEffect) -> dict[str, Any]:
    match effect:
        case SendValue(peer, run, epoch, item, value, array):
            return {
                "kind": "sendValue", "peer": peer, "run": run.hex(), "epoch": epoch, "item": item, "value": value,
                "array": int(array),
            }  # fmt: skip
        case Compute(run, origin, item, first, stop, inputs):
            return {
                "kind": "compute", "run": run.hex(), "origin": origin, "item": item, "first": first, "stop": stop,
                "inputs": _arrays(inputs),
            }  # fmt: skip
        case TellFailed(peer, run, epoch, item, text):
            return {
                "kind": "tellFailed", "peer": peer, "run": run.hex(), "epoch": epoch, "item": item, "text": text,
            }  # fmt: skip
        case Forgotten(run):
            return {"kind": "forgotten", "run": run.hex()}
        case SendGo(peer, run, epoch, below):
            return {"kind": "sendGo", "peer": peer, "run": run.hex(), "epoch": epoch, "below": below}
        case ItemDone(item, outputs):
            return {"kind": "itemDone", "item": item, "outputs": _arrays(outputs)}
        case ItemFailed(item, text):
            return {"kind": "itemFailed", "item": item, "text": text}


def _coded(seed: int) -> dict[str, Any]:
    """Bytes that are, or are not, a value of some type and shape."""
    chance = random.Random(seed)
    dtype = chance.choice(
        ["float32", "int64", "bool", "float16", "complex128", "bfloat16", "string", "string"]
    )
    sizes: tuple[int | str, ...] = chance.choice([(), (2,), ("n",), (2, "n"), ("n", "n")])
    shape = tuple(chance.choice((0, 1, 2, 3)) if isinstance(size, str) else size for size in sizes)
    value = Value("v", dtype, sizes, ())  # type: ignore[arg-type]
    count = int(np.prod(shape, dtype=int))
    if dtype == "string":
        words = [chance.choice(["", "a", "\0", "日本", "\ufeffx"]).encode() for _ in range(count)]
        data = b"".join(len(word).to_bytes(4, "little") + word for word in words)
    else:
        width = {"float32": 4, "int64": 8, "bool": 1, "float16": 2, "complex128": 16, "bfloat16": 2}[dtype]
        data = chance.randbytes(count * width) if dtype != "bool" else bytes(count)
    match chance.randrange(6):
        case 0:
            data += b"\0"
        case 1:
            data = data[:-1]
        case 2 if data:
            at = chance.randrange(len(data))
            data = data[:at] + b"\xff" + data[at + 1 :]
        case 3 if shape:
            shape = (*shape[:-1], shape[-1] + 1)
        case _:
            pass
    row = {"dtype": dtype, "sizes": list(sizes), "shape": list(shape), "data": data.hex()}
    try:
        again = bytes(to_bytes(from_bytes(data, shape, value), value))
    except WrongTensor:
        return {**row, "taken": False}
    assert again == data
    return {**row, "taken": True}


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
