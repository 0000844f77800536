"""`shoal bench run`: what runs over two peers gain and cost beside one, in one run.

Peers have one thread each, on this machine; this process asks, and is the first peer, as where a peer's owner asks.
Three meshes stand at once, of one peer, of two that are planned for latency, and of two that are planned for
throughput; rounds alternate between them, and figures are medians of the rounds. A mesh places models by itself, as
everywhere, but for one picture in two stages, which are cut in the middle of the work where the fewest bytes cross.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from peer.coordination.offer_promotion import next_version
from peer.dataflow.value_codec import Array
from peer.errors import CannotServe
from peer.launch.local_mesh import joined
from peer.launch.model_import import find_or_import, find_or_import_graph
from peer.launch.terminal import say
from peer.member.joining import Founding, found
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import Lent, MeshOptions, PeerOptions
from peer.member.text_models import embeddings
from peer.origin.run_client import RunClient
from peer.state.generated.commands import ModelOffered, ModelPlaced, Objective, RunStage
from peer.state.mesh_state import MeshState
from peer.transport.engines.choose import choose_engine
from planner.model.graph_manifest import GraphManifest, amount, decode_graph_manifest
from planner.model.onnxruntime_import import ort
from planner.model.store import Store
from signaling.keys import SEED_BYTES, identity_from_seed
from signaling.server import ServerOptions

DETECTOR: Final = "ppocr-v4-det"
TOWERS: Final = "towers"
WIDTH: Final = 512  # of the towers' matrices, 1 MiB each: larger ones would compete for the machine's memory
MATRICES: Final = 4  # of each tower
DEPTH: Final = 192  # products of each tower, each matrix again and again: much work on little that travels
ROWS: Final = 64
PICTURE: Final = (1, 3, 640, 640)
STREAM: Final = 64  # pictures
TILED: Final = "tiled"  # the detector once more, in two bands of rows
LARGE: Final = (1, 3, 960, 960)
ENCODER: Final = "all-minilm-l6-v2"
TEXTS: Final = 1000
MOST_WORDS: Final = 60  # of a text
PLEDGE_BYTES: Final = 3 << 30
CONTEXT: Final = 256
PLACED_WITHIN_S: Final = 180.0
SPLIT_TRIES: Final = 5  # the leader may place a model anew meanwhile, as when it learns of another link


@dataclass(frozen=True, slots=True)
class _Mesh:
    """`peers` beside the founder, which lends this process and asks."""

    name: str
    peers: int
    goal: Objective


MESHES: Final = (
    _Mesh("one", 0, "latency"),
    _Mesh("2_latency", 1, "latency"),
    _Mesh("2_throughput", 1, "throughput"),
)
SPLIT: Final = "split"  # the detector once more, in two stages whatever that costs


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
            TILED: find_or_import_graph(store, DETECTOR, bands=2),
            ENCODER: find_or_import_graph(store, ENCODER),
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


def sentences() -> list[str]:
    """TEXTS texts of 4 to MOST_WORDS short words."""
    random = np.random.default_rng(17)
    words = (
        "why",
        "is",
        "the",
        "sky",
        "so",
        "blue",
        "over",
        "our",
        "sea",
        "and",
        "does",
        "it",
        "turn",
        "red",
        "at",
    )
    return [
        " ".join(words[place] for place in random.integers(0, len(words), random.integers(4, MOST_WORDS + 1)))
        for _ in range(TEXTS)
    ]


async def _bench(
    args: argparse.Namespace, store: Store, decoder: str, models: dict[str, str]
) -> dict[str, Any]:
    args.threads, args.transport = 1, "auto"
    random = np.random.default_rng(5)
    seen: dict[str, list[float]] = {}
    equal = True
    async with AsyncExitStack() as stack:
        runs: dict[tuple[str, str], RunClient] = {}
        members: dict[str, MeshMember] = {}
        stages: dict[str, int] = {}
        for mesh in MESHES:
            member = await stack.enter_async_context(_founded(args, store, decoder, models, mesh))
            members[mesh.name] = member
            for name in member.view.state.offers:
                run = runs[mesh.name, name] = await member.open_run(name)
                stack.push_async_callback(run.close)
                stages[f"{mesh.name}_{name}_stages"] = len(member.view.state.offers[name].stages)
        pair = {side: random.standard_normal((ROWS, WIDTH)).astype(np.float32) for side in ("left", "right")}
        (image,) = runs["one", DETECTOR].manifest.inputs
        pictures = [{image: random.random(PICTURE, np.float32)} for _ in range(8)]
        large = {image: random.random(LARGE, np.float32)}

        texts = sentences()

        def note(name: str, seconds: float) -> None:
            seen.setdefault(name, []).append(seconds)

        for number in range(args.rounds + 1):
            say(f"round {number} of {args.rounds}" if number else "warming up, not counted")
            tell: Callable[[str, float], None] = note if number else (lambda *_: None)
            answers: dict[str, list[Array]] = {}

            async def timed(kind: str, mesh: str, name: str, given: dict[str, Array], times: int) -> None:
                for _ in range(times):
                    begun = time.perf_counter()
                    outputs = await runs[mesh, name].run(given)
                    tell(f"{mesh}_{kind}_s", time.perf_counter() - begun)  # noqa: B023 - called in this round
                    answers.setdefault(kind, []).append(next(iter(outputs.values())))  # noqa: B023

            for _ in range(4):
                await timed("towers", "one", TOWERS, pair, 2)
                await timed("towers", "2_latency", TOWERS, pair, 2)
                await timed("picture", "one", DETECTOR, pictures[0], 2)
                await timed("picture", "2_throughput", SPLIT, pictures[0], 2)
                await timed("large", "one", DETECTOR, large, 2)
                await timed("tiles", "2_latency", TILED, large, 2)
            for mesh_name in ("one", "2_throughput"):
                begun = time.perf_counter()
                items = (pictures[place % len(pictures)] for place in range(STREAM))
                async for outputs in runs[mesh_name, DETECTOR].map(items):
                    last = outputs
                tell(f"{mesh_name}_stream_s", time.perf_counter() - begun)
                answers.setdefault("stream", []).append(next(iter(last.values())))
            for mesh_name in ("one", "2_throughput"):
                begun = time.perf_counter()
                vectors = await embeddings(members[mesh_name], texts, ENCODER)
                tell(f"{mesh_name}_texts_s", time.perf_counter() - begun)
                answers.setdefault("texts", []).append(vectors)
            equal = equal and all(
                np.array_equal(array, arrays[0]) for arrays in answers.values() for array in arrays
            )
        offer = members["2_latency"].view.state.offers[TILED]
        stages["2_latency_tiled_peers"] = len({stage.primary for stage in offer.stages})
        stages["2_throughput_stream_lanes"] = len(runs["2_throughput", DETECTOR].lanes)
    medians = {name: statistics.median(values) for name, values in seen.items()}
    return {
        "towers_vs_one": round(medians["2_latency_towers_s"] / medians["one_towers_s"], 3),
        "stream_2_vs_one": round(medians["one_stream_s"] / medians["2_throughput_stream_s"], 3),
        "texts_2_vs_one": round(medians["one_texts_s"] / medians["2_throughput_texts_s"], 3),
        "split_vs_one": round(medians["2_throughput_picture_s"] / medians["one_picture_s"], 3),
        "tiles_2": round(medians["2_latency_tiles_s"] / medians["one_large_s"], 3),
        "equal": equal,
        "rounds": args.rounds,
        **stages,
        "medians": {name: round(value, 4) for name, value in medians.items()},
        "versions": {"python": platform.python_version(), "onnxruntime": ort.__version__},
        "transport": choose_engine("auto", False).__name__,
    }


@asynccontextmanager
async def _founded(
    args: argparse.Namespace, store: Store, decoder: str, models: dict[str, str], mesh: _Mesh
) -> AsyncIterator[MeshMember]:
    """A mesh with both models placed, and where there are two peers the detector in two stages."""
    say(f"starting {mesh.name}")
    promise = Founding(decoder, MeshOptions(CONTEXT, 1, mesh.goal, None), ServerOptions())
    key = identity_from_seed(os.urandom(SEED_BYTES))
    options = PeerOptions("bench", PLEDGE_BYTES, 1, "cpu", args.transport, ("127.0.0.1",))
    async with AsyncExitStack() as stack:
        member = await stack.enter_async_context(found(promise, options, store, key))
        assert member.link is not None
        for number in range(mesh.peers):
            peer = joined(args, member.link.url(), f"{mesh.name}-{number}", Lent(PLEDGE_BYTES))
            await stack.enter_async_context(peer)
        await member.view.until(
            lambda state: sum(each.profile is not None for each in state.members.values()) > mesh.peers,
            PLACED_WITHIN_S,
        )
        await member.until_serving(PLACED_WITHIN_S)
        wanted = {**models, **({SPLIT: models[DETECTOR]} if mesh.peers else {})}
        for name, model in wanted.items():
            await member.propose(ModelOffered(model, name))
        placed = await member.view.until(
            lambda state: all(name in state.offers and state.offers[name].stages for name in wanted),
            PLACED_WITHIN_S,
        )
        if not placed:
            whys = {name: offer.why for name, offer in member.view.state.offers.items()}
            raise CannotServe(f"the mesh {mesh.name} did not place the models: {whys}")
        if mesh.peers:
            await _split(member, store, models[DETECTOR])
        yield member


async def _split(member: MeshMember, store: Store, model: str) -> None:
    """Has the log say that this process has the first half of the detector and the other peer the second; again where
    the leader places it anew meanwhile. Raises CannotServe.
    """
    manifest = decode_graph_manifest(store.manifest_bytes(model))
    leading = member.leadership.current
    assert leading is not None
    other = next(
        peer
        for peer, each in member.view.state.members.items()
        if peer != member.me and each.profile is not None
    )
    border = middle_border(manifest)
    stages = (RunStage(0, border, member.me), RunStage(border, len(manifest.units), other))
    for _ in range(SPLIT_TRIES):
        state = leading.state
        version = next_version(state, state.offers[SPLIT])
        leading.submit(ModelPlaced(SPLIT, version, stages, 0, 0, ("as the benchmark says",)))

        def is_told(now: MeshState, version: int = version) -> bool:
            return now.offers[SPLIT].version >= version

        await member.view.until(is_told, PLACED_WITHIN_S)
        if member.view.state.offers[SPLIT].stages == stages:
            return
    raise CannotServe(f"the mesh placed {SPLIT} elsewhere {SPLIT_TRIES} times: try again on a calmer machine")


def middle_border(manifest: GraphManifest) -> int:
    """The border that the fewest bytes cross, of those with a third of the work or more on either side."""
    sizes = {**manifest.sizes, **{name: PICTURE[-1] for name in manifest.sizes if manifest.sizes[name] > 1}}
    flops = [amount(unit.flops, sizes) for unit in manifest.units]
    values = {value.name: value for value in manifest.values}

    def crossing(border: int) -> float:
        return sum(amount(values[name].bytes, sizes) for name in manifest.given(0, border))

    able = [
        border
        for border in range(1, len(flops))
        if sum(flops) / 3 <= sum(flops[:border]) <= 2 * sum(flops) / 3
    ]
    return min(able or range(1, len(flops)), key=crossing)
