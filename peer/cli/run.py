"""`shoal run`: files through a model that a mesh offers beside its own."""

from __future__ import annotations

import argparse
import json
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Final

from peer.cli.chat import asker
from peer.dataflow.value_codec import Array
from peer.errors import BadCommand, FrameError, MeshError
from peer.launch.counting import counting
from peer.launch.item_files import ItemFiles, Shown, has_texts, is_written, items_of, read_item, write_outputs
from peer.launch.terminal import interrupts, reporting, say, write
from peer.member.mesh_member import MeshMember
from peer.origin.run_client import RunClient

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
        reader = await mesh.text_reader(run.manifest)
    failed = 0
    with counting(args.model, len(items), len(items) - len(left)) as advance:
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
