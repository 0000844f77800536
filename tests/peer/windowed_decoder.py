"""A small random decoder of which two of three blocks look at a window of the last tokens."""

from __future__ import annotations

import numpy as np

from planner.importers.unit_graphs import INPUT, UnitGraph
from planner.model.blob_plan import BlobPlan
from planner.model.decoder_building import DecoderSource, UnitSource
from planner.model.graph_manifest import KvState
from planner.model.units import StoredParts
from tests.peer.made_up_models import MadeUpModel, MadeUpTensor, small_architecture

VOCAB, HIDDEN, HEADS = 60, 64, 2


class _Parts:
    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self._shapes = shapes

    def tensor(self, name: str) -> MadeUpTensor:
        rng = np.random.default_rng([11, *name.encode()])
        return MadeUpTensor(rng.standard_normal(self._shapes[name], np.float32))


def windowed_decoder(
    window: int, *, head_size: int = 64, softcap: float | None = None, context: int = 4096
) -> DecoderSource:
    """Blocks of attention alone: with a window, whole, with chunks of that size; rotary tables of their own."""
    width = HEADS * head_size
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (VOCAB, HIDDEN), "norm": (HIDDEN,)}
    for block in range(3):
        shapes |= {f"{block}.qkv": (2 * width, HIDDEN), f"{block}.o": (HIDDEN, width)}
    source = _Parts(shapes)

    def blob(*names: str) -> BlobPlan:
        made = StoredParts(source, "f32")
        for name in names:
            if name == "embed":
                made.table(name, VOCAB, HIDDEN)
            elif name == "norm":
                made.vector(name, [(name, HIDDEN)])
            else:
                made.linear(name.partition(".")[2], [(name, shapes[name][0])], shapes[name][1])
        return made.plan()

    def attn(table: int, **chunk: int) -> bytes:
        graph = UnitGraph()
        qkv = graph.linear(graph.norm(INPUT, "norm", 1e-6), "qkv", 2 * width, HIDDEN)
        attended = graph.attention(
            qkv, heads=HEADS, kv_heads=HEADS // 2, head_size=head_size, rotary=table, softcap=softcap, **chunk
        )
        return graph.finish(graph.one("Add", INPUT, graph.linear(attended, "o", HIDDEN, width)))

    embed, head = UnitGraph(), UnitGraph()
    embed_graph = embed.finish(embed.embedding("embed", VOCAB, HIDDEN))
    head_graph = head.finish(head.linear(head.norm(INPUT, "norm", 1e-6), "embed", VOCAB, HIDDEN))
    half = head_size // 2
    graphs = [attn(0), attn(1), attn(0, chunk=window)]
    states = [KvState(1, head_size, each) for each in (window, None, window)]
    return DecoderSource(
        name="windowed",
        weights="f32",
        vocab=VOCAB,
        hidden=HIDDEN,
        context=context,
        scratch=2 * width,
        rotary=tuple(tuple(base ** (-i / half) for i in range(half)) for base in (10_000.0, 1_000_000.0)),
        tokenizer=MadeUpModel(small_architecture(), {}).tokenizer,
        sampling=None,
        blobs={
            "embed": blob("embed"),
            "head": blob("norm", "embed"),
            **{f"attn.{block}": blob("norm", f"{block}.qkv", f"{block}.o") for block in range(3)},
        },
        units=(
            UnitSource("embed", embed_graph, "embed"),
            *(
                UnitSource(f"attn.{block}", graph, f"attn.{block}", (state,))
                for block, (state, graph) in enumerate(zip(states, graphs, strict=True))
            ),
            UnitSource("head", head_graph, "head"),
        ),
    )
