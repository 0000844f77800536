"""A conversation and an embedding model answer in one mesh at once, and neither notices a third one come and go."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np

from peer.api import Mesh
from peer.dataflow.value_codec import Array
from peer.member.mesh_member import MeshMember
from peer.model.chat_template import Message
from peer.origin.answer_stream import Delta, Settings
from peer.origin.run_client import RunClient
from peer.runtime.graph_runtime import GraphRuntime
from peer.session.sampling import GREEDY
from peer.state.generated.commands import ModelOffered, ModelWithdrawn
from planner.importers.encoders.file import encoder_file
from planner.importers.encoders.folder import open_encoder
from planner.importers.onnx.importing import import_graph
from planner.model.compose import compose
from planner.model.graph_manifest import GraphManifest, decode_graph_manifest
from tests.e2e.graph_model import inputs, put_towers
from tests.e2e.real_mesh import Models, Start
from tests.e2e.unsplit import QUESTION, Unsplit
from tests.patience import WITHIN_S

EMBEDS = "minilm"
THIRD = "towers"
CUT = 30
TOKENS = 160
COMES_AND_GOES = 3  # times


def _encoder(models: Models, folder: Path) -> tuple[str, GraphManifest]:
    with encoder_file(open_encoder(folder, EMBEDS), models.store) as file:
        model = import_graph(file, models.store)
    return model, decode_graph_manifest(models.store.manifest_bytes(model))


def _words(item: int) -> dict[str, Array]:
    random = np.random.default_rng(item)
    return {"tokens": random.integers(0, 30_000, (2, 12)), "mask": np.ones((2, 12), np.float32)}


def _whole(models: Models, manifest: GraphManifest) -> GraphRuntime:
    blobs = models.store.blob_path(manifest.units[0].graph.sha256).parent
    composed = compose(manifest, models.store, 0, len(manifest.units))
    return GraphRuntime(composed, blobs, 1, fused=manifest.fused)


async def _offered(mesh: MeshMember, model: str, name: str) -> None:
    await mesh.propose(ModelOffered(model, name))
    assert await mesh.view.until(
        lambda state: name in state.offers and bool(state.offers[name].stages), WITHIN_S
    )


class _Both:
    """A conversation and a stream of items, asked at once until the conversation has ended `TOKENS` tokens."""

    def __init__(self, mesh: MeshMember, run: RunClient, prompt: list[int]) -> None:
        self.mesh = mesh
        self.run = run
        self.prompt = prompt
        self.tokens: list[int] = []
        self.found: list[dict[str, Array]] = []
        self.token_at: list[float] = []
        self.item_at: list[float] = []
        self.over = False

    async def answered(self) -> None:
        await asyncio.gather(self._answer(), self._items())

    async def _answer(self) -> None:
        conversation = self.mesh.conversation()
        try:
            settings = Settings(GREEDY, TOKENS, ignore_end=True)
            async for piece in conversation.tokens(self.prompt, settings):
                if isinstance(piece, Delta) and piece.token >= 0:
                    self.tokens.append(piece.token)
                    self.token_at.append(asyncio.get_running_loop().time())
        finally:
            self.over = True
            conversation.close()

    async def _items(self) -> None:
        item = 0
        while not self.over:
            self.found.append(await self.run.run(_words(item)))
            self.item_at.append(asyncio.get_running_loop().time())
            item += 1

    def assert_each_answered_while_the_other_did(self) -> None:
        for one, other in ((self.token_at, self.item_at), (self.item_at, self.token_at)):
            between = [at for at in one if other[0] < at < other[-1]]
            assert len(between) >= min(len(one), 5)


async def test_two_models_answer_at_once_and_do_not_notice_a_third(
    start: Start, models: Models, minilm_folder: Path
) -> None:
    encoder_id, encoder = await asyncio.to_thread(_encoder, models, minilm_folder)
    towers_id, towers = put_towers(models.store)
    runtimes = {EMBEDS: _whole(models, encoder), THIRD: _whole(models, towers)}
    unsplit = Unsplit(models)
    async with start((CUT,), 2) as (founder, second):
        await founder.until_serving(WITHIN_S)
        prompt = founder.text.encode_chat([Message("user", QUESTION)])
        expected = unsplit.answer(prompt, TOKENS, GREEDY)
        await _offered(founder, encoder_id, EMBEDS)
        run = await founder.open_run(EMBEDS)

        def assert_equal(both: _Both) -> None:
            assert both.tokens == expected
            for item, outputs in enumerate(both.found):
                for name, wanted in runtimes[EMBEDS].run(_words(item)).items():
                    np.testing.assert_array_equal(outputs[name], wanted)

        calm = _Both(founder, run, prompt)
        await calm.answered()
        calm.assert_each_answered_while_the_other_did()
        assert_equal(calm)

        before = founder.view.state
        busy = _Both(founder, run, prompt)
        answering = asyncio.ensure_future(busy.answered())
        came = 0
        while not (answering.done() or came == COMES_AND_GOES):
            await _offered(founder, towers_id, THIRD)
            found = await Mesh(second).run(THIRD, inputs(came))
            np.testing.assert_array_equal(found["sum"], runtimes[THIRD].run(inputs(came))["sum"])
            await founder.propose(ModelWithdrawn(THIRD))
            assert await founder.view.until(lambda state: THIRD not in state.offers, WITHIN_S)
            assert not answering.done()  # it came and went while both answered
            came += 1
        assert came == COMES_AND_GOES
        await answering
        busy.assert_each_answered_while_the_other_did()
        assert_equal(busy)
        after = founder.view.state
        assert after.plan == before.plan
        assert after.offers[EMBEDS].model == before.offers[EMBEDS].model
        assert run.reroutes == 0  # though it may be placed anew by what was measured meanwhile
        await run.close()
