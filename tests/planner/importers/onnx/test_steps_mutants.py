"""Files and manifests that were changed at random: named errors of one line, within bounds, and no crash."""

from __future__ import annotations

import json
import random
import resource
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from onnx import ModelProto

from planner.errors import CorruptStore, JobTooLong, ModelError, NotInStore
from planner.importers.onnx import entry
from planner.importers.onnx.asked import SourceGraph
from planner.importers.onnx.importing import MEMORY_BYTES
from planner.jobs.jobs import Budget, Jobs
from planner.model.compose import compose
from planner.model.graph_manifest import decode_graph_manifest, encode_graph_manifest
from planner.model.store import Store
from tests.planner.importers.onnx.cut_models import imported
from tests.planner.importers.onnx.made_up import MADE
from tests.seeds import seeds

MUTANTS = 500
BOUND = Budget(cpu_s=10.0, memory_bytes=MEMORY_BYTES)
MOST_BYTES = 10**9  # that any of them may occupy, what is loaded included
MANIFESTS = Budget(cpu_s=120.0, memory_bytes=MEMORY_BYTES)
NUMBERS = (0, -1, 1, 2, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1)


def bytes_changed(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 3, 20])):
        place = rng.randrange(len(changed))
        match rng.randrange(4):
            case 0:
                changed[place] ^= 1 << rng.randrange(8)
            case 1:
                changed[place] = rng.randrange(256)
            case 2:
                del changed[place : place + rng.randint(1, 9)]
            case _:
                changed[place:place] = rng.randbytes(rng.randint(1, 9))
        if not changed:
            break
    return bytes(changed[: rng.randrange(len(changed))] if rng.random() < 0.1 and changed else changed)


def meaning_changed(rng: random.Random, content: bytes) -> bytes:
    """A model that parses, and says something else at one to three places."""
    model = ModelProto()
    model.ParseFromString(content)
    for _ in range(rng.randint(1, 3)):
        graph = model.graph
        nodes = list(graph.node) or [graph.node.add()]
        for each in list(nodes):
            nodes += [inner for attribute in each.attribute for inner in attribute.g.node]
        one, other = rng.choice(nodes), rng.choice(nodes)
        names = [name for each in nodes for name in (*each.input, *each.output)] or [""]
        match rng.randrange(10):
            case 0:
                one.op_type = other.op_type
            case 1 if one.input:
                one.input[rng.randrange(len(one.input))] = rng.choice(names)
            case 2 if one.output:
                one.output[rng.randrange(len(one.output))] = rng.choice(names)
            case 3:
                one.CopyFrom(other)
            case 4 if graph.initializer:
                tensor = rng.choice(list(graph.initializer))
                tensor.dims[:] = [rng.choice((*NUMBERS, *tensor.dims)) for _ in range(rng.randint(0, 5))]
            case 5 if graph.initializer:
                rng.choice(list(graph.initializer)).data_type = rng.randrange(24)
            case 6:
                for attribute in one.attribute:
                    attribute.i = rng.choice(NUMBERS)
                    attribute.ints[:] = [rng.choice(NUMBERS) for _ in attribute.ints]
            case 7 if graph.input:
                dims = rng.choice(list(graph.input)).type.tensor_type.shape.dim
                dims.add(dim_value=rng.choice(NUMBERS[:5]))
            case 8:
                model.opset_import[0].version = rng.randint(5, 30)
            case _ if graph.output:
                rng.choice(list(graph.output)).name = rng.choice(names)
    return model.SerializeToString()


def tried(_: None, source: Path, folder: Path) -> int:
    """All steps of an import, in the process of a job. The file `peak` says what that occupied at most."""
    try:
        steps = entry.begun(None, SourceGraph(source, "theirs"), folder)
        steps.read()
        done, total = 0, steps.cut()
        while done < total:
            done, total, _said = steps.prove()
        decode_graph_manifest(steps.finish())
        return total
    finally:
        (folder / "peak").write_text(str(occupied_bytes()))


def occupied_bytes() -> int:
    """The most that this process has occupied so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.series
async def test_changed_files_are_refused_by_name_or_proven(tmp_path: Path) -> None:
    contents = [make().model.SerializeToString() for make in MADE.values()]
    jobs = Jobs(entry.load, budget=BOUND, quick_cpu_s=BOUND.cpu_s)
    found: Counter[str] = Counter()
    told: dict[int, str] = {}
    peaks: list[int] = []
    try:
        for seed in range(seeds(MUTANTS)):
            rng = random.Random(seed)
            change = rng.choice([bytes_changed, meaning_changed])
            folder = tmp_path / str(seed)
            folder.mkdir()
            path = folder / "model.onnx"
            path.write_bytes(change(rng, rng.choice(contents)))
            try:
                await jobs.run(tried, path, folder)
                found["imported"] += 1
            except (ModelError, JobTooLong) as error:
                told[seed] = str(error)
                found[type(error).__name__] += 1
            except Exception as error:  # a process that ended by itself is told as one of too much memory
                pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
            if (folder / "peak").exists():  # else its processor time was spent, and the kernel ended it
                peaks.append(int((folder / "peak").read_text()))
    finally:
        await jobs.close()
    assert not {seed: line for seed, line in told.items() if "\n" in line or len(line) > 900}
    print(found, f"at most {max(peaks) / 1e6:.0f} MB")
    assert len(peaks) >= seeds(MUTANTS) - found["JobTooLong"]
    assert max(peaks) < MOST_BYTES
    assert found["imported"] > 0
    assert found["CorruptModel"] > 0
    assert found["UnknownArchitecture"] > 0


def manifest_changed(rng: random.Random, content: bytes) -> bytes:
    document = json.loads(content)
    places: list[tuple[Any, Any]] = []

    def collect(value: Any) -> None:
        items = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, inner in items:
            places.append((value, key))
            collect(inner)

    collect(document)
    values = [holder[key] for holder, key in places if not isinstance(holder[key], dict | list)]
    for _ in range(rng.randint(1, 3)):
        holder, key = rng.choice(places)
        holder[key] = rng.choice(
            [rng.choice(values), rng.choice(NUMBERS), "", "x" * 600, None, [], {}, True, 1.5]
        )
    return json.dumps(document).encode()


def tried_manifests(_: None, folder: Path, name: str) -> tuple[Counter[str], list[str], int]:
    """Outcomes, what was told, and bytes occupied at most: 150 manifests of a model, and 150 graphs of a unit."""
    found = imported(folder / "import", MADE[name]())
    content = encode_graph_manifest(found.manifest)
    outcomes: Counter[str] = Counter()
    told: list[str] = []
    for seed in range(150):
        rng = random.Random(seed)
        try:
            manifest = decode_graph_manifest(manifest_changed(rng, content))
            compose(manifest, found.store, 0, len(manifest.units))
            outcomes["composed"] += 1
        except (CorruptStore, NotInStore) as error:
            told.append(str(error))
            outcomes[type(error).__name__] += 1
    graphs = Store(folder / "graphs")
    for seed in range(150):
        rng = random.Random(seed)
        (unit,) = found.manifest.units[-1:]
        encoded = bytes_changed(rng, found.store.blob_path(unit.graph.sha256).read_bytes())
        blob = graphs.put_blob([encoded])
        changed = replace(found.manifest, units=(*found.manifest.units[:-1], replace(unit, graph=blob)))
        try:
            compose(changed, graphs, len(changed.units) - 1, len(changed.units))
            outcomes["composed"] += 1
        except CorruptStore as error:
            told.append(str(error))
            outcomes["graph refused"] += 1
    return outcomes, told, occupied_bytes()


@pytest.mark.parametrize("name", ["shared", "choice", "recurrent"])
async def test_changed_manifests_and_graphs_are_refused_by_name(tmp_path: Path, name: str) -> None:
    jobs = Jobs(entry.load, budget=MANIFESTS, quick_cpu_s=MANIFESTS.cpu_s)
    try:
        outcomes, told, peak = await jobs.run(tried_manifests, tmp_path, name)
    finally:
        await jobs.close()
    print(outcomes, f"at most {peak / 1e6:.0f} MB")
    assert peak < MOST_BYTES
    assert not [line for line in told if "\n" in line]
    assert min(outcomes[each] for each in ("composed", "CorruptStore", "graph refused")) >= 5, outcomes
