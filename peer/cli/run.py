"""`shoal run`: files through a model that a mesh offers beside its own."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from pathlib import Path
from typing import Final, Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from peer.cli.chat import asker
from peer.dataflow.value_codec import Array
from peer.errors import BadCommand, FrameError, MeshError
from peer.launch import json_lines
from peer.launch.item_files import ItemFiles, Shown, has_texts, is_written, items_of, read_item, write_outputs
from peer.launch.progress_lines import LINE_EVERY_S
from peer.launch.terminal import err, interrupts, reporting, say, write
from peer.member.mesh_member import MeshMember
from peer.model.text_inputs import TextReader
from peer.origin.run_client import RunClient
from planner.model.store import Store

SHOWN_VALUES: Final = 10_000  # of an item without --out; more are for a file


async def run_items(args: argparse.Namespace) -> int:
    """Runs every item; 1 where one could not be computed. Ctrl-C leaves whole files only."""
    if args.resume and args.out is None:
        raise BadCommand("--resume goes on with what is missing in a folder: give --out DIR, too")
    shown = Shown(args.mean, args.std, args.round, args.rate)
    with interrupts() as ctrl:
        async with AsyncExitStack() as stack:
            with reporting() as report:
                mesh = await stack.enter_async_context(asker(args, ctrl, report=report))
            with ctrl.cancelling():
                run = await mesh.open_run(args.model)
                try:
                    return await _all(mesh, run, args, shown)
                finally:
                    await run.close()


async def _all(mesh: MeshMember, run: RunClient, args: argparse.Namespace, shown: Shown) -> int:
    items = items_of(args.input, run.manifest)
    if args.out is None and len(items) > 1:
        raise BadCommand(f"{len(items)} items: give --out DIR for what comes of them")
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
    left = [item for item in items if not (args.resume and is_written(args.out, item.name))]
    if len(left) < len(items):
        say(f"{len(items) - len(left)} of {len(items)} items are there already")
    reader = None
    if run.manifest.text is not None and has_texts(left):
        tokenizer = run.manifest.text.tokenizer
        await mesh.fetch([tokenizer])
        path = Store(args.store).blob_path(tokenizer.sha256)
        reader = await asyncio.to_thread(lambda: TextReader(run.manifest, path.read_bytes()))
    failed = 0
    with _counting(args.model, len(items), len(items) - len(left)) as advance:
        outcomes = run.outcomes(left, lambda item: read_item(item, run.manifest, shown, reader))
        async with aclosing(outcomes):
            async for item, outcome in outcomes:
                if isinstance(outcome, MeshError | FrameError):
                    failed += 1
                    say(f"{item.name}: {outcome}")
                else:
                    _keep(args.out, item, outcome)
                advance()
    if args.out is not None:
        say(f"{len(left) - failed} items in {args.out}")
    return 1 if failed else 0


def _keep(folder: Path | None, item: ItemFiles, outputs: dict[str, Array]) -> None:
    if folder is not None:
        write_outputs(folder, item.name, outputs)
        return
    large = [name for name, array in outputs.items() if array.size > SHOWN_VALUES]
    if large:
        raise BadCommand(f"{large[0]} has {outputs[large[0]].size} values: give --out DIR for them")
    write(json.dumps({name: array.tolist() for name, array in outputs.items()}) + "\n")


class _Advance(Protocol):
    def __call__(self) -> None: ...


@contextmanager
def _counting(what: str, total: int, done: int) -> Iterator[_Advance]:
    """A bar, or a line every few seconds where there is no terminal."""
    if total == 1:
        yield lambda: None
        return
    if err.is_terminal and not json_lines.chosen:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=err, transient=True) as progress:
            task = progress.add_task(what, total=total, completed=done)
            yield lambda: progress.advance(task)
        return
    begun, said, here = time.monotonic(), 0.0, done

    def advance() -> None:
        nonlocal said, here
        here += 1
        now = time.monotonic()
        if now - said >= LINE_EVERY_S:
            said = now
            say(f"{what}: {here} of {total} items, {(here - done) / max(now - begun, 1e-3):.1f}/s")

    yield advance
