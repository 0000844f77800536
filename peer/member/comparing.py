"""How well texts fit a picture, by a model of the mesh that compares them (CLIP, SigLIP). Edge."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from peer.errors import BadCommand, CannotServe, NoPlan, RunFailed
from peer.member.mesh_member import MeshMember
from peer.member.sight import prepared_pixels
from planner.model.graph_manifest import GraphManifest


async def classified(
    mesh: MeshMember, file: bytes, labels: Sequence[str], model: str | None = None
) -> dict[str, float]:
    """How well each label fits the picture, the best first: shares of 1 by CLIP, by SigLIP a probability of each.

    `model`: by its name in the mesh; None: the only one that compares. Raises NoPlan, CannotServe, RunFailed,
    BadPicture; BadCommand for labels that it cannot read.
    """
    if not labels or len(set(labels)) != len(labels):
        raise BadCommand("one label or more expected, no two of them alike")
    name, graph = await _comparing(mesh, model)
    picture = graph.picture
    assert picture is not None
    assert picture.scores is not None
    reader = await mesh.text_reader(graph)
    texts = await asyncio.to_thread(reader.arrays, labels)
    (pixels,) = await prepared_pixels(mesh, graph, picture, [file])
    run = await mesh.open_run(name)
    try:
        scores = (await run.run({picture.input: pixels, **texts}))[picture.scores]
    finally:
        await run.close()
    if scores.shape != (1, len(labels)) or not np.isfinite(scores).all():
        raise RunFailed(f"{name} made no score of each label")
    pairs = zip(labels, map(float, scores[0]), strict=True)
    return dict(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))


async def _comparing(mesh: MeshMember, called: str | None) -> tuple[str, GraphManifest]:
    """The name and manifest of a model that compares pictures and texts."""
    offers = mesh.view.state.offers
    if called is not None and called not in offers:
        have = ", ".join(offers) or "none"
        raise NoPlan(f"this mesh offers no model {called[:100]}; it offers {have}")
    wanted = offers if called is None else {called: offers[called]}
    manifests = {name: await mesh.graph_manifest(offer.model) for name, offer in sorted(wanted.items())}
    found = {
        name: graph
        for name, graph in manifests.items()
        if graph.picture is not None and graph.picture.scores is not None and graph.text is not None
    }
    if called is not None and not found:
        raise CannotServe(f"{called} compares no pictures with texts")
    if len(found) != 1:
        raise NoPlan(
            f"say which model is to compare: {', '.join(found)}"
            if found
            else "this mesh has no model that compares pictures with texts: shoal offer has it run one (CLIP, SigLIP)"
        )
    return next(iter(found.items()))
