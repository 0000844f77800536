"""Pictures of a question as rows of a decoder's prompt, computed by the peers that hold the towers. Edge."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from peer.errors import CannotServe, NoPlan, RunFailed
from peer.member.mesh_member import MeshMember
from peer.model.picture_parts import check_count
from peer.model.prompts import Prompt, widened
from peer.origin.answering_model import AnsweringModel
from peer.session.evidence import Floats
from peer.session.given_rows import GivenRows, shift_at
from peer.wire.tensors import tensor_of
from planner.model.graph_manifest import GraphManifest, PictureInputs
from planner.model.manifest import SHIFT_COLUMNS, SHIFT_STEP, Sight


def offer_of_sight(mesh: MeshMember, sight: Sight) -> str:
    """The name under which the mesh offers the towers of a decoder. Raises NoPlan where it does not."""
    found = sorted(name for name, offer in mesh.view.state.offers.items() if offer.model == sight.model)
    if not found:
        raise NoPlan(
            f"this mesh does not offer the model that sees for this one: shoal offer has it run {sight.model[:12]}"
        )
    return found[0]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prompt with the pictures of its question as the model takes them: `pixels`, each float32 (1, 3, height, width).
    `name`: of what looks at them, None where there are none.
    """

    prompt: Prompt
    sight: Sight | None = None
    name: str = ""
    graph: GraphManifest | None = None
    pixels: tuple[Floats, ...] = ()

    @property
    def grids(self) -> list[tuple[int, int]]:
        """Of each picture how many positions stand below and beside one another; (0, 0) where none keeps its form."""
        square = self.sight.square if self.sight is not None else 0
        if not square:
            return [(0, 0)] * len(self.pixels)
        return [(each.shape[2] // square, each.shape[3] // square) for each in self.pixels]


async def prepared(
    mesh: MeshMember, asked: AnsweringModel, prompt: Prompt, pictures: Sequence[bytes]
) -> Prepared:
    """Picture files as numbers, and the prompt with as many positions for each as it becomes.

    Raises BadPicture, ContextOverflow; NoPlan or CannotServe where the mesh cannot look at them.
    """
    if not pictures:
        return Prepared(prompt)
    check_count(pictures)
    manifest = asked.model.manifest
    sight = manifest.sight if manifest is not None else None
    if manifest is None or sight is None:
        raise CannotServe(f"{asked.chosen.name} sees no pictures: ask it in words alone")
    name = offer_of_sight(mesh, sight)
    graph = await mesh.graph_manifest(sight.model)
    picture = graph.picture
    shape = () if picture is None or picture.rows is None else graph.value(picture.rows).shape[1:]
    width = manifest.hidden - (SHIFT_COLUMNS if sight.axes > 1 else 0)
    fits = shape[1:] == (width,) and (
        isinstance(shape[0], str) if sight.square else shape[0] == sight.positions
    )
    if picture is None or not fits:
        raise CannotServe(f"{name} makes no {sight.positions} rows of {width} numbers of a picture")
    pixels = tuple(await prepared_pixels(mesh, graph, picture, pictures))
    found = Prepared(prompt, sight, name, graph, pixels)
    if not sight.square:
        return found
    for each, (high, wide) in zip(pixels, found.grids, strict=True):
        if each.shape[2:] != (high * sight.square, wide * sight.square) or high * wide > sight.positions:
            raise CannotServe(
                f"{name}: its own steps make a picture of {each.shape[2]} x {each.shape[3]} pixels"
            )
    counts = [high * wide for high, wide in found.grids]
    return replace(found, prompt=widened(prompt, counts, asked.chosen.context))


async def counted(mesh: MeshMember, asked: AnsweringModel, prompt: Prompt, pictures: Sequence[bytes]) -> int:
    """Tokens of a prompt with its pictures. Raises as `prepared`, where these are needed for that."""
    manifest = asked.model.manifest
    if manifest is None or manifest.sight is None or not manifest.sight.square:
        return len(prompt.tokens)
    return len((await prepared(mesh, asked, prompt, pictures)).prompt.tokens)


async def given_rows(mesh: MeshMember, seen: Prepared) -> tuple[GivenRows, ...]:
    """The rows of prepared pictures, in their places. Raises NoPlan, RunFailed or CannotServe."""
    graph, sight = seen.graph, seen.sight
    if graph is None or sight is None or graph.picture is None or graph.picture.rows is None:
        return ()
    made = await _looked_at(mesh, seen.name, graph.picture.input, graph.picture.rows, seen.pixels)
    found: list[GivenRows] = []
    for first, rows, grid in zip(seen.prompt.pictures, made, seen.grids, strict=True):
        if sight.square and len(rows) != grid[0] * grid[1]:
            raise RunFailed(
                f"{seen.name} made {len(rows)} rows of a picture of {grid[0]} x {grid[1]} positions"
            )
        is_placed = sight.axes > 1 and sight.square
        found.append(placed(first, rows, grid, found) if is_placed else GivenRows(first, tensor_of(rows)))
    return tuple(found)


def placed(first: int, seen: Floats, grid: tuple[int, int], before: Sequence[GivenRows]) -> GivenRows:
    """Rows that a tower made of a picture, (high · wide, width), where places have axes: the picture, the row and the
    column in it, counted from the place behind all `before`. Returns rows of width + SHIFT_COLUMNS.
    """
    high, wide = grid
    here = first + shift_at(before, first)
    down, across = (each.reshape(-1) for each in np.indices(grid))
    at = first + np.arange(high * wide)
    axes = np.stack([here - at, here + down - at, here + across - at], axis=1) * SHIFT_STEP
    columns = np.pad(axes, ((0, 0), (0, SHIFT_COLUMNS - axes.shape[1])))
    made = np.concatenate([seen, columns.astype(np.float32)], axis=1)
    return GivenRows(first, tensor_of(made), high * wide - max(grid))


async def prepared_pixels(
    mesh: MeshMember, graph: GraphManifest, picture: PictureInputs, pictures: Sequence[bytes]
) -> list[Floats]:
    """The input of each picture, float32 (1, 3, height, width). Raises BadPicture, NoPlan, CannotServe."""
    await mesh.fetch([picture.graph])
    steps = await asyncio.to_thread(mesh.model.store.blob_path(picture.graph.sha256).read_bytes)
    found = [await mesh.pictures.pixels(each, steps) for each in pictures]
    wanted = graph.value(picture.input).shape[1:]
    if any(not _fits(each, wanted) for each in found):
        raise CannotServe(f"{graph.name}: its own steps make no picture of {wanted}")
    return found


def _fits(pixels: Floats, wanted: Sequence[int | str]) -> bool:
    """Whether they are one picture of these sizes; a name stands for any."""
    return len(pixels.shape) == 1 + len(wanted) and all(
        isinstance(size, str) or found == size for found, size in zip(pixels.shape, (1, *wanted), strict=True)
    )


async def _looked_at(
    mesh: MeshMember, name: str, given: str, output: str, pixels: Sequence[Floats]
) -> list[Floats]:
    """The rows of each picture, float32 (positions, hidden); several are under way at once."""
    run = await mesh.open_run(name)
    try:
        found: list[Floats] = []
        async for made in run.map({given: each} for each in pixels):
            rows = made[output]
            if rows.shape[:1] != (1,) or not np.isfinite(rows).all():
                raise RunFailed(f"{name} made no finite rows of a picture")
            found.append(np.ascontiguousarray(rows[0], np.float32))
        return found
    finally:
        await run.close()
