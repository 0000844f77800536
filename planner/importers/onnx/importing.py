"""An ONNX file as a model of the store.

Edge. All that reads the file runs in a process of its own, within bounds on time and memory that follow from the size
of the file; here are its progress, its end by Ctrl-C, and the copy of what is proven into the store.
"""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from planner.errors import CorruptModel, CorruptStore, JobError, JobTooLarge, JobTooLong
from planner.importers.onnx import entry
from planner.importers.onnx.asked import SourceGraph
from planner.importers.onnx.text_inputs import text_inputs
from planner.jobs.jobs import Budget, Jobs
from planner.model.graph_manifest import PictureInputs, decode_graph_manifest, encode_graph_manifest
from planner.model.scratch_folders import scratch_folder
from planner.model.store import BlobRef, Store

STEP_CPU_S: Final = 120.0  # of one step of the import: of a gigabyte of weights, twice that
STEP_CPU_S_PER_BYTE: Final = 120.0 / (1 << 30)
MEMORY_BYTES: Final = 704 << 20  # of address space, beside six times what the files have
MEMORY_TIMES: Final = 6
GIVEN_BYTES: Final = 3 << 30  # more where a person gave sizes or a sample: whoever does knows what they take
SCRATCH: Final = "import"
EXTERNAL: Final = b"location"  # the key under which a tensor names its file
COPY_BYTES: Final = 4 << 20

Say = Callable[[str], None]
Progress = Callable[[int, int], None]


def files_of(source: Path, name: str, budget: Budget | None = None) -> Mapping[str, Path]:
    """The file, and those of its external data, by their names in its folder. Raises a ModelError."""
    found: tuple[str, ...] = ()
    if _has_external(source):
        with _one_line(name):
            found = asyncio.run(_external_files(source, name, budget or _budget(source)))
    return {source.name: source, **{file: source.parent / file for file in found}}


def import_graph(
    source: SourceGraph,
    store: Store,
    progress: Progress | None = None,
    say: Say | None = None,
    budget: Budget | None = None,
) -> str:
    """Puts blobs and manifest of the model into the store; returns its id. Raises a ModelError or StoreError.

    `progress(done, total)` counts borders that are proven; `say` is told what the proof found.
    """
    with scratch_folder(store.root / "tmp", SCRATCH) as scratch, _one_line(source.name):
        encoded = asyncio.run(_imported(source, scratch, progress, say, budget))
        try:
            manifest = decode_graph_manifest(encoded)
        except CorruptStore as error:
            raise CorruptModel(f"{source.name} cannot be stored: {error}") from None
        if (seen := source.picture) is not None:
            graph = store.put_blob([seen.graph])
            picture = PictureInputs(graph, seen.input, seen.rows, seen.vectors, seen.scores)
            manifest = replace(manifest, picture=picture)
        text = None
        if source.tokenizer is not None:
            text = text_inputs(manifest, source.tokenizer, source.longest, source.pad, source.labels)
        if text is not None:
            content, wanted = text
            store.put_blob([content])
            manifest = replace(manifest, text=wanted)
        manifest = replace(manifest, ctc=source.ctc)
        if manifest.picture is not None or manifest.text is not None or manifest.ctc is not None:
            encoded = encode_graph_manifest(manifest)
        made = Store(scratch / "store")
        for blob in manifest.blobs(0, len(manifest.units)):
            _copy(blob, made, store)
        return store.put_manifest(encoded)


async def _external_files(source: Path, name: str, budget: Budget) -> tuple[str, ...]:
    jobs = Jobs(entry.load, budget=budget, quick_cpu_s=budget.cpu_s)
    try:
        return await jobs.run(entry.external_files, source, name)
    finally:
        await jobs.close()


async def _imported(
    asked: SourceGraph, scratch: Path, progress: Progress | None, say: Say | None, budget: Budget | None
) -> bytes:
    """The manifest, its blobs below the folder `scratch`."""
    asked = replace(asked, source=asked.source.absolute(), sample=asked.sample and asked.sample.absolute())
    files: tuple[str, ...] = ()
    if budget is None and _has_external(asked.source):
        files = await _external_files(asked.source, asked.name, _budget(asked.source))
    given = bool(asked.sizes) or asked.sample is not None
    bound = budget or _budget(asked.source, files, given=given)
    jobs = Jobs(entry.load, budget=bound, quick_cpu_s=bound.cpu_s)
    held = None
    try:
        held = await jobs.hold(entry.begun, asked, scratch)
        await held.call("read")
        total = await held.call("cut")
        done = 0
        while done < total:
            if progress is not None:
                progress(done, total)
            done, total, said = await held.call("prove")
            if said and say is not None:
                say(said)
        if progress is not None:
            progress(total, total)
        encoded: bytes = await held.call("finish")
        return encoded
    finally:
        if held is not None:
            held.close()
        await jobs.close()


def _has_external(source: Path) -> bool:
    """Whether the file may name others: the word that says so is in it. Nothing is parsed."""
    try:
        with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(EXTERNAL) >= 0
    except (OSError, ValueError):  # the step that reads it says so
        return False


def _budget(source: Path, external: Sequence[str] = (), *, given: bool = False) -> Budget:
    size = sum(_size(path) for path in (source, *(source.parent / name for name in external)))
    memory = MEMORY_BYTES + MEMORY_TIMES * size + (GIVEN_BYTES if given else 0)
    return Budget(STEP_CPU_S + STEP_CPU_S_PER_BYTE * size, memory)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # the step that reads it says so
        return 0


@contextmanager
def _one_line(name: str) -> Iterator[None]:
    """What a process for this was refused, as an error of the file."""
    try:
        yield
    except (JobTooLong, JobTooLarge) as error:
        raise CorruptModel(
            f"{name} cannot be imported: {error}; smaller sizes (--size NAME=N) take less"
        ) from None
    except JobError as error:
        raise CorruptModel(f"{name} cannot be imported: {error}") from None


def _copy(blob: BlobRef, source: Store, target: Store) -> None:
    def chunks() -> Iterator[bytes]:
        with source.blob_path(blob.sha256).open("rb") as file:
            while chunk := file.read(COPY_BYTES):
                yield chunk

    if not target.has_blob(blob) and target.put_blob(chunks()) != blob:
        raise CorruptModel(f"blob {blob.sha256[:12]} changed while it was stored: import the model again")
