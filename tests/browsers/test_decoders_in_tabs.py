"""Two models that answer in words in one mesh of processes and tabs: each answers with its own tokens, at once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Final

import pytest

from peer.member.mesh_member import MeshMember
from peer.origin.answer_stream import Delta, Settings
from peer.state.generated.commands import DecoderOffered, ModelWithdrawn
from planner.importers.decoder_units import build_model
from planner.importers.gguf import open_gguf
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from tests.browsers.harness import Driver, Models, TabInBrowser, founded, visit
from tests.patience import WITHIN_S
from tests.planner.tiny_models import TinyModel

OTHER: Final = "other"
PROMPT: Final = "hello, two models of the world"
TOKENS: Final = 40
CONTEXT: Final = 256


def put_other(home: Path, store: Store) -> DecoderOffered:
    """Another model of random weights in the store, of four blocks, as an owner offers it."""
    gguf = TinyModel(seed=5, blocks=4).write_gguf(home / "other.gguf")
    model = build_model(open_gguf(gguf, OTHER), "f32", store)
    units = len(decode_manifest(store.manifest_bytes(model)).units)
    return DecoderOffered(OTHER, model, units, CONTEXT, 2, "latency")


async def asked(mesh: MeshMember, name: str | None, count: int = TOKENS) -> list[int]:
    """The tokens that a process gets of that model."""
    conversation = (await mesh.answering(name)).conversation()
    try:
        pieces = conversation.complete(PROMPT, Settings(max_tokens=count, ignore_end=True))
        return [piece.token async for piece in pieces if isinstance(piece, Delta) and piece.token >= 0]
    finally:
        conversation.close()


async def asked_by(tab: TabInBrowser, name: str, count: int = TOKENS) -> list[int]:
    """The tokens that a tab gets of that model; "": the mesh's own."""
    answer = await tab.run(f"shoal.complete({PROMPT!r}, {count}, {json.dumps(name)})")
    tokens: list[int] = answer["tokens"]
    return tokens


async def until_refused(tab: TabInBrowser) -> None:
    """Asks the further model until the tab has heard that there is none any more. Raises RuntimeError then."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            await asked_by(tab, OTHER, 1)


async def offered(mesh: MeshMember, offer: DecoderOffered) -> None:
    """Has the mesh answer with it, too."""
    await mesh.propose(offer)
    assert await mesh.view.until(
        lambda state: OTHER in state.decoders and state.decoders[OTHER].plan is not None, WITHIN_S
    )


@pytest.mark.parametrize("browser", ["firefox"])
async def test_a_tab_asks_a_further_model_beside_the_meshs_own(
    driver: Driver, harness: Path, tiny: tuple[Store, str], tmp_path: Path, browser: str
) -> None:
    store, own = tiny
    async with founded(Models(store, {"f32": own}), harness, weights="f32") as mesh:
        assert mesh.link is not None
        await mesh.until_serving(WITHIN_S)
        await offered(mesh, put_other(tmp_path, store))
        expected = {name: await asked(mesh, name or None) for name in ("", OTHER)}
        assert expected[""] != expected[OTHER]
        made = await visit(driver, browser)
        tab = await made.tab(mesh.link.server)
        status = await tab.join(mesh.link.url(), lends=False)
        assert status["state"] == "in", status
        both = await asyncio.gather(*(asked_by(tab, name) for name in expected))
        assert dict(zip(expected, both, strict=True)) == expected
        await mesh.propose(ModelWithdrawn(OTHER))
        with pytest.raises(RuntimeError, match=f"is offered under the name {OTHER}"):
            await until_refused(tab)
        assert await asked_by(tab, "") == expected[""]
        await made.close()
