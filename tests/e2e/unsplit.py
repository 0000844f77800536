"""The answer of one peer with the whole model, which a split model has to give as well."""

from __future__ import annotations

import numpy as np

from peer.member.mesh_member import MeshMember
from peer.origin.answer_stream import Delta, Settings
from peer.runtime.arithmetic import proven
from peer.runtime.execution import Execution, Row
from peer.runtime.kv_slots import KvSlots
from peer.session.position_spans import CHUNK_TOKENS
from peer.session.sampling import Sampling, needs_history, sample
from planner.model.lowering import make_shard
from planner.model.manifest import decode_manifest
from planner.types import WeightFormat
from tests.e2e.real_mesh import CONTEXT, Models

QUESTION = "What is the capital of France? Tell me about it in a paragraph."


class Unsplit:
    """The whole model in one onnxruntime loop, nothing of the mesh around it."""

    def __init__(self, models: Models, weights: WeightFormat = "8bit") -> None:
        manifest = decode_manifest(models.store.manifest_bytes(models.ids[weights]))
        form = proven(models.store, manifest, "cpu", 1).form
        shard = make_shard(manifest, models.store, 0, len(manifest.units), "cpu", exact=form.plain)
        self.execution = Execution(shard, threads=1, context=CONTEXT, form=form)

    def answer(self, prompt: list[int], count: int, sampling: Sampling) -> list[int]:
        slots = KvSlots(1, CONTEXT, self.execution.form)
        slots.admit(b"one")
        hidden = np.zeros((0, 0), dtype=np.float32)
        for start in range(0, len(prompt), CHUNK_TOKENS):
            tokens = np.asarray(prompt[start : start + CHUNK_TOKENS], dtype=np.int64)
            self.execution.ensure(
                slots, slots.rows, start + self.execution.form.filled_tokens(start, len(tokens))
            )
            hidden = self.execution.prompt(self.execution.embed(tokens), Row(0, start))[-1:].copy()
            slots.set_length(b"one", start + len(tokens))
        answer: list[int] = []
        while True:
            position = len(prompt) + len(answer)
            history = [*prompt, *answer] if needs_history(sampling) else ()
            answer.append(sample(self.execution.head(hidden)[0], sampling, position, history, answer))
            if len(answer) == count:
                return answer
            self.execution.ensure(slots, slots.rows, position + 1)
            token = self.execution.embed(np.asarray(answer[-1:], dtype=np.int64))
            hidden = self.execution.alone(token, Row(0, position)).copy()
            slots.set_length(b"one", position + 1)


async def ask(mesh: MeshMember, prompt: list[int], count: int, sampling: Sampling) -> list[int]:
    conversation = mesh.conversation()
    got = []
    async for piece in conversation.tokens(prompt, Settings(sampling, count, ignore_end=True)):
        if isinstance(piece, Delta) and piece.token >= 0:
            got.append(piece.token)
    conversation.close()
    return got
