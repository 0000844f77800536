"""`shoal bench run`: what runs over two peers gain and cost beside one, in one run.

Peers are processes of one thread each, on this machine; this process asks, and computes nothing. Three meshes stand at
once, of one peer, of two that are planned for latency, and of two that are planned for throughput; rounds alternate
between them, and figures are medians of the rounds. A mesh places models by itself, as everywhere.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from peer.dataflow.value_codec import Array
from peer.errors import CannotServe
from peer.launch.local_mesh import joined
from peer.launch.model_import import find_or_import, find_or_import_graph
from peer.launch.terminal import say
from peer.member.joining import Founding, found
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import MeshOptions, PeerOptions
from peer.origin.run_client import RunClient
from peer.state.generated.commands import ModelOffered, Objective
from planner.model.store import Store
from signaling.keys import SEED_BYTES, identity_from_seed
from signaling.server import ServerOptions

DETECTOR: Final = "ppocr-v4-det"
TOWERS: Final = "towers"
WIDTH: Final = 1024  # of the towers' matrices
MATRICES: Final = 4  # of each tower
DEPTH: Final = 96  # products of each tower, each matrix again and again: much work on little that travels
ROWS: Final = 32
PICTURE: Final = (1, 3, 640, 640)
STREAM: Final = 64  # pictures
PLEDGE_BYTES: Final = 3 << 30
CONTEXT: Final = 256
PLACED_WITHIN_S: Final = 180.0


@dataclass(frozen=True, slots=True)
class _Mesh:
    name: str
    peers: int
    goal: Objective


MESHES: Final = (
    _Mesh("one", 1, "latency"),
    _Mesh("2_latency", 2, "latency"),
    _Mesh("2_throughput", 2, "throughput"),
)


def bench_runs(args: argparse.Namespace) -> dict[str, Any]:
    """The figures by name."""
    store = Store(args.store)
    decoder = find_or_import(store, args.model, "8bit")
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        file = Path(folder) / f"{TOWERS}.onnx"
        file.write_bytes(towers())
        models = {
            TOWERS: find_or_import_graph(store, str(file)),
            DETECTOR: find_or_import_graph(store, DETECTOR),
        }
    return asyncio.run(_bench(args, store, decoder, models))


def towers() -> bytes:
    """An ONNX file: two towers of equal work over one input each, joined at the end; random weights."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(11)
    nodes, weights = [], []
    for side in ("left", "right"):
        at = side
        for place in range(MATRICES):
            matrix = random.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)
            weights.append(numpy_helper.from_array(matrix.astype(np.float32), f"{side}.w{place}"))
        for place in range(DEPTH):
            nodes += [
                helper.make_node("MatMul", [at, f"{side}.w{place % MATRICES}"], [f"{side}.{place}"]),
                helper.make_node("Tanh", [f"{side}.{place}"], [f"{side}.{place}.out"]),
            ]
            at = f"{side}.{place}.out"
    last = f"{DEPTH - 1}.out"
    nodes.append(helper.make_node("Add", [f"left.{last}", f"right.{last}"], ["sum"]))
    rows = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", WIDTH]) for n in ("left", "right", "sum")
    ]
    graph = helper.make_graph(nodes, TOWERS, rows[:2], rows[2:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.checker.check_model(model)
    encoded: bytes = model.SerializeToString()
    return encoded


async def _bench(
    args: argparse.Namespace, store: Store, decoder: str, models: dict[str, str]
) -> dict[str, Any]:
    args.threads, args.transport = 1, "auto"
    random = np.random.default_rng(5)
    seen: dict[str, list[float]] = {}
    equal = True
    async with AsyncExitStack() as stack:
        runs: dict[str, dict[str, RunClient]] = {}
        stages: dict[str, int] = {}
        for mesh in MESHES:
            member = await stack.enter_async_context(_founded(args, store, decoder, models, mesh))
            runs[mesh.name] = {}
            for name in models:
                run = runs[mesh.name][name] = await member.open_run(name)
                stack.push_async_callback(run.close)
                stages[f"{mesh.name}_{name}_stages"] = len(member.view.state.offers[name].stages)
                stages[f"{mesh.name}_{name}_peers"] = len(
                    {stage.primary for stage in member.view.state.offers[name].stages}
                )
        pair = {side: random.standard_normal((ROWS, WIDTH)).astype(np.float32) for side in ("left", "right")}
        (image,) = runs["one"][DETECTOR].manifest.inputs
        pictures = [{image: random.random(PICTURE, np.float32)} for _ in range(8)]

        def note(name: str, seconds: float) -> None:
            seen.setdefault(name, []).append(seconds)

        for number in range(args.rounds + 1):
            say(f"round {number} of {args.rounds}" if number else "warming up, not counted")
            tell: Callable[[str, float], None] = note if number else (lambda *_: None)
            answers: dict[str, list[Array]] = {}
            for name in ("one", "2_latency"):
                for _ in range(8):
                    begun = time.perf_counter()
                    outputs = await runs[name][TOWERS].run(pair)
                    tell(f"{name}_towers_s", time.perf_counter() - begun)
                    answers.setdefault("towers", []).append(outputs["sum"])
            for name in ("one", "2_throughput"):
                for picture in pictures[:4]:
                    begun = time.perf_counter()
                    outputs = await runs[name][DETECTOR].run(picture)
                    tell(f"{name}_picture_s", time.perf_counter() - begun)
                begun = time.perf_counter()
                items = (pictures[place % len(pictures)] for place in range(STREAM))
                async for outputs in runs[name][DETECTOR].map(items):
                    last = outputs
                tell(f"{name}_stream_s", time.perf_counter() - begun)
                answers.setdefault("detector", []).append(next(iter(last.values())))
            equal = equal and all(
                np.array_equal(array, arrays[0]) for arrays in answers.values() for array in arrays
            )
    medians = {name: statistics.median(values) for name, values in seen.items()}
    return {
        "towers_vs_one": round(medians["2_latency_towers_s"] / medians["one_towers_s"], 3),
        "stream_2_vs_one": round(medians["one_stream_s"] / medians["2_throughput_stream_s"], 3),
        "split_vs_one": round(medians["2_throughput_picture_s"] / medians["one_picture_s"], 3),
        "equal": equal,
        "rounds": args.rounds,
        **stages,
        "medians": {name: round(value, 4) for name, value in medians.items()},
        "pictures_per_s": {
            name: round(STREAM / medians[f"{name}_stream_s"], 2) for name in ("one", "2_throughput")
        },
    }


@asynccontextmanager
async def _founded(
    args: argparse.Namespace, store: Store, decoder: str, models: dict[str, str], mesh: _Mesh
) -> AsyncIterator[MeshMember]:
    """A mesh whose founder lends nothing, with both models placed."""
    say(f"starting {mesh.name}")
    promise = Founding(decoder, MeshOptions(CONTEXT, 1, mesh.goal, None), ServerOptions())
    key = identity_from_seed(os.urandom(SEED_BYTES))
    options = PeerOptions("bench", 0, 1, "cpu", args.transport, ("127.0.0.1",))
    async with AsyncExitStack() as stack:
        member = await stack.enter_async_context(found(promise, options, store, key))
        assert member.link is not None
        for number in range(mesh.peers):
            peer = joined(args, member.link.url(), f"{mesh.name}-{number}", PLEDGE_BYTES)
            await stack.enter_async_context(peer)
        await member.view.until(
            lambda state: sum(each.profile is not None for each in state.members.values()) >= mesh.peers,
            PLACED_WITHIN_S,
        )
        for name, model in models.items():
            await member.propose(ModelOffered(model, name))
        placed = await member.view.until(
            lambda state: all(name in state.offers and state.offers[name].stages for name in models),
            PLACED_WITHIN_S,
        )
        if not placed:
            whys = {name: offer.why for name, offer in member.view.state.offers.items()}
            raise CannotServe(f"the mesh {mesh.name} did not place the models: {whys}")
        await member.until_serving(PLACED_WITHIN_S)
        yield member
