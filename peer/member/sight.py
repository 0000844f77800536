"""Pictures of a question as rows of a decoder's prompt, computed by the peers that hold the towers. Edge."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from peer.errors import CannotServe, NoPlan, RunFailed
from peer.member.mesh_member import MeshMember
from peer.model.picture_parts import check_count
from peer.origin.answering_model import AnsweringModel
from peer.session.evidence import Floats
from peer.session.given_rows import GivenRows
from peer.wire.tensors import tensor_of
from planner.model.graph_manifest import GraphManifest, PictureInputs
from planner.model.manifest import Sight


def offer_of_sight(mesh: MeshMember, sight: Sight) -> str:
    """The name under which the mesh offers the towers of a decoder. Raises NoPlan where it does not."""
    found = sorted(name for name, offer in mesh.view.state.offers.items() if offer.model == sight.model)
    if not found:
        raise NoPlan(
            f"this mesh does not offer the model that sees for this one: shoal offer has it run {sight.model[:12]}"
        )
    return found[0]


async def given_rows(
    mesh: MeshMember, asked: AnsweringModel, pictures: Sequence[bytes], firsts: Sequence[int]
) -> tuple[GivenRows, ...]:
    """The rows of picture files, which stand in the prompt from the positions `firsts` on.

    Raises BadPicture; NoPlan, RunFailed or CannotServe where the mesh cannot look at them.
    """
    if not pictures:
        return ()
    check_count(pictures)
    manifest = asked.model.manifest
    sight = manifest.sight if manifest is not None else None
    if manifest is None or sight is None:
        raise CannotServe(f"{asked.chosen.name} sees no pictures: ask it in words alone")
    name = offer_of_sight(mesh, sight)
    graph = await mesh.graph_manifest(sight.model)
    picture = graph.picture
    shape = () if picture is None or picture.rows is None else graph.value(picture.rows).shape[1:]
    if picture is None or picture.rows is None or shape != (sight.positions, manifest.hidden):
        raise CannotServe(f"{name} makes no {sight.positions} rows of {manifest.hidden} numbers of a picture")
    found = await _looked_at(mesh, name, graph, picture, picture.rows, pictures)
    return tuple(GivenRows(first, tensor_of(rows)) for first, rows in zip(firsts, found, strict=True))


async def prepared_pixels(
    mesh: MeshMember, graph: GraphManifest, picture: PictureInputs, pictures: Sequence[bytes]
) -> list[Floats]:
    """The input of each picture, float32 (1, 3, side, side). Raises BadPicture, NoPlan, CannotServe."""
    await mesh.fetch([picture.graph])
    steps = await asyncio.to_thread(mesh.model.store.blob_path(picture.graph.sha256).read_bytes)
    found = [await mesh.pictures.pixels(each, steps) for each in pictures]
    wanted = (1, *graph.value(picture.input).shape[1:])
    if any(each.shape != wanted for each in found):
        raise CannotServe(f"{graph.name}: its own steps make no picture of {wanted}")
    return found


async def _looked_at(
    mesh: MeshMember,
    name: str,
    graph: GraphManifest,
    picture: PictureInputs,
    output: str,
    pictures: Sequence[bytes],
) -> list[Floats]:
    """The rows of each picture, float32 (positions, hidden); several are under way at once."""
    pixels = await prepared_pixels(mesh, graph, picture, pictures)
    run = await mesh.open_run(name)
    try:
        found: list[Floats] = []
        async for made in run.map({picture.input: each} for each in pixels):
            rows = made[output]
            if rows.shape[:1] != (1,) or not np.isfinite(rows).all():
                raise RunFailed(f"{name} made no finite rows of a picture")
            found.append(np.ascontiguousarray(rows[0], np.float32))
        return found
    finally:
        await run.close()
