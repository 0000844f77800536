"""Models of texts that a mesh offers: one whose manifest cannot be had delays the first look alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from peer.errors import CannotServe, NoPlan
from peer.member import text_models
from peer.member.mesh_member import MeshMember
from peer.member.text_models import TextModels, Use
from planner.model.graph_manifest import GraphManifest, decode_graph_manifest
from tests.peer.loopback_members import until

VECTORS: Any = json.loads((Path(__file__).parents[2] / "vectors" / "text_inputs.json").read_text("utf-8"))


def manifest(use: Use) -> GraphManifest:
    document = json.loads(VECTORS["manifests"][0]["manifest"])
    document["text"][{Use.EMBED: "vectors", Use.RANK: "scores"}[use]] = {Use.EMBED: "z", Use.RANK: "s"}[use]
    return decode_graph_manifest(json.dumps(document).encode())


class Mesh:
    """In place of a member: `there` are the manifests that can be had; asking for another one takes for ever, or is
    refused.
    """

    def __init__(self, **there: GraphManifest) -> None:
        self.there = there
        self.asked: list[str] = []
        self.refuses = False
        self.came = asyncio.Event()
        offers = {name: SimpleNamespace(model=f"id of {name}") for name in ("embeds", "ranks", "gone")}
        self.view = SimpleNamespace(state=SimpleNamespace(offers=offers))

    async def graph_manifest(self, model: str) -> GraphManifest:
        self.asked.append(model)
        name = model.removeprefix("id of ")
        if name not in self.there and self.refuses:
            raise NoPlan("nobody has it")
        while name not in self.there:
            await self.came.wait()
        return self.there[name]

    def models(self) -> TextModels:
        return TextModels(cast(MeshMember, self))


async def test_a_manifest_that_does_not_come_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []
    timeout = asyncio.timeout

    def counted(delay: float | None) -> asyncio.Timeout:
        waits.append(delay)
        return timeout(0.05)  # a look that nobody has to sit through

    monkeypatch.setattr("asyncio.timeout", counted)
    mesh = Mesh(embeds=manifest(Use.EMBED), ranks=manifest(Use.RANK))
    models = mesh.models()
    for _ in range(3):
        await models.look()
        assert (list(models.found(Use.EMBED)), list(models.found(Use.RANK))) == (["embeds"], ["ranks"])
    assert waits == [text_models.MANIFESTS_WITHIN_S]  # the other looks waited for nothing
    assert sorted(mesh.asked) == ["id of embeds", "id of gone", "id of ranks"]
    mesh.there["gone"] = manifest(Use.EMBED)
    mesh.came.set()
    await until(lambda: "gone" in models.found(Use.EMBED))  # it comes behind the scenes
    models.close()


async def test_one_that_is_refused_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_models, "RETRY_S", 0.0)
    mesh = Mesh(embeds=manifest(Use.EMBED), ranks=manifest(Use.RANK))
    mesh.refuses = True
    models = mesh.models()
    await models.look()  # which ends once it is refused
    assert list(models.found(Use.RANK)) == ["ranks"]
    await until(lambda: mesh.asked.count("id of gone") > 2)
    mesh.there["gone"] = manifest(Use.RANK)
    await until(lambda: "gone" in models.found(Use.RANK))
    models.close()


async def test_which_model_is_asked() -> None:
    mesh = Mesh(embeds=manifest(Use.EMBED), ranks=manifest(Use.RANK), gone=manifest(Use.RANK))
    models = mesh.models()
    await models.look()
    assert models.pick(Use.EMBED, None) == models.pick(Use.EMBED, "id of embeds") == "embeds"
    assert models.pick(Use.RANK, "gone") == "gone"
    for use, called, error, says in (
        (Use.RANK, None, NoPlan, "say which of 2 models is asked: gone, ranks"),
        (Use.RANK, "embeds", CannotServe, "embeds ranks no texts: it has gone, ranks"),
        (Use.EMBED, "ranks", CannotServe, "ranks makes no embeddings of texts: it has embeds"),
        (Use.RANK, "other", NoPlan, "this mesh has no model for ranking other: it has gone, ranks"),
    ):
        with pytest.raises(error, match=says):
            models.pick(use, called)
    models.close()
