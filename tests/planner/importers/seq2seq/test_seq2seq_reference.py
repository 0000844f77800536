"""Every family of encoder-decoder models computes what transformers computes: logits of 64 positions and 48 greedy
tokens, alone and together, whole and cut at every border.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from peer.model.tokenizer import text_of as words_of_model
from peer.runtime.arithmetic import proven
from peer.runtime.execution import Execution, Row
from peer.runtime.kv_slots import KvSlots
from planner.importers.onnx import proof
from planner.importers.seq2seq.folder import open_seq2seq
from planner.importers.seq2seq.table import SEQ2SEQ
from planner.model.graph_manifest import GraphManifest, decode_graph_manifest
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest, decode_manifest, encode_manifest
from planner.model.source_text import ENCODED
from planner.model.store import Store
from tests.planner.importers.seq2seq.checkpoints import (
    CASES,
    GREEDY,
    POSITIONS,
    REFERENCE,
    SOURCES,
    Floats,
    load,
    start_of,
    text_of,
)
from tests.planner.importers.seq2seq.stored import put_seq2seq

TOLERANCE = 2e-4  # of the largest logit
CUT_TOKENS = 12  # of a target, where borders are tried
CUT_STEPS = 3  # of them one at a time


class Imported:
    """A checkpoint in a store of its own."""

    def __init__(self, name: str, root: Path) -> None:
        self.checkpoint = load(name)
        self.store = Store(root / "store")
        source = open_seq2seq(self.checkpoint.write(root / "folder"), "model")
        model_id = put_seq2seq(source, self.store)
        self.manifest: Manifest = decode_manifest(self.store.manifest_bytes(model_id))
        assert self.manifest.source is not None
        encoder = self.store.manifest_bytes(self.manifest.source.encoder)
        self.encoder: GraphManifest = decode_graph_manifest(encoder)
        self.form = proven(self.store, self.manifest, "cpu", 1).form

    def feed(self, *sources: Sequence[int]) -> dict[str, np.ndarray]:
        """Sources as one batch, shorter ones filled up."""
        longest = max(map(len, sources))
        tokens = np.zeros((len(sources), longest), np.int64)
        mask = np.zeros((len(sources), longest), np.float32)
        for place, source in enumerate(sources):
            tokens[place, : len(source)], mask[place, : len(source)] = source, 1
        return {"tokens": tokens, "mask": mask}

    def encoded(self, source: Sequence[int]) -> Floats:
        """Rows of one source: (tokens, hidden + 1)."""
        made = proof.part(self.encoder, self.store, 0, len(self.encoder.units), self.feed(source))
        found: Floats = made[ENCODED][0]
        return found


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Imported]:
    """imported(case), each once."""
    return cache(lambda name: Imported(name, tmp_path_factory.mktemp(name)))


class Run:
    """Units [first, stop) with `rows` conversations."""

    def __init__(self, model: Imported, first: int, stop: int, rows: int = 1) -> None:
        shard = make_shard(model.manifest, model.store, first, stop, exact=model.form.plain)
        context = model.manifest.context
        self.execution = Execution(shard, threads=1, context=context, form=model.form, brief=True)
        self.rows = rows
        slots = KvSlots(rows, context, model.form)
        for row in range(rows):
            slots.admit(bytes([row]))
        self.execution.ensure(slots, slots.rows, max(SOURCES) + POSITIONS + model.form.spare_tokens)

    def prompt(self, hidden: Floats, row: int = 0, at: int = 0) -> Floats:
        return self.execution.prompt(hidden, Row(row, at)).copy()

    def together(self, hidden: Floats, lengths: list[int]) -> Floats:
        """A step of every conversation, in the calls that the form allows."""
        found = []
        body, spans = self.execution.form.body, self.execution.shape.rows
        for wanted, whole in body.spans(range(self.rows), spans):
            rows = [min(row, self.rows - 1) for row in whole]
            made = self.execution.decode(hidden[rows], whole, [lengths[row] for row in rows]).copy()
            found.append(made[wanted.start - whole.start :][: len(wanted)])
        return np.concatenate(found)


def answers(model: Imported, sources: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Greedy tokens of sources that are answered side by side."""
    run = Run(model, 0, len(model.manifest.units), len(sources))
    begun = start_of(model.checkpoint.name)
    last = []
    for row, source in enumerate(sources):
        start = run.execution.embed(np.array(begun))
        last.append(run.prompt(np.concatenate([model.encoded(source), start]), row)[-1:])
    tokens: list[list[int]] = [[] for _ in sources]
    hidden = np.concatenate(last)
    for step in range(GREEDY):
        for answer, logits in zip(tokens, run.execution.head(hidden), strict=True):
            answer.append(int(logits.argmax()))
        embedded = run.execution.embed(np.array([answer[-1] for answer in tokens]))
        hidden = run.together(embedded, [len(source) + len(begun) + step for source in sources])
    run.execution.close()
    return [tuple(each) for each in tokens]


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_transformers(imported: Callable[[str], Imported], name: str) -> None:
    model = imported(name)
    checkpoint, source, half = model.checkpoint, model.checkpoint.sources[0], POSITIONS // 2
    run = Run(model, 0, len(model.manifest.units))
    targets = run.execution.embed(np.array(checkpoint.targets))
    hidden = np.concatenate([model.encoded(source), targets])
    whole = len(source) + half
    rows = [run.prompt(hidden[:whole])]
    rows += [run.prompt(hidden[at : at + 1], at=at) for at in range(whole, len(hidden))]
    logits = run.execution.head(np.concatenate(rows)[len(source) :])
    run.execution.close()
    seen = checkpoint.logits > -1e8
    never = [each for (each,) in CASES[name][2].get("bad_words_ids", [])]
    seen[:, never] = False
    error = np.abs(np.where(seen, logits - checkpoint.logits, 0)).max() / np.abs(checkpoint.logits).max()
    assert error < TOLERANCE
    assert (logits[:, never] < -1e8).all()


@pytest.mark.parametrize("name", CASES)
def test_greedy_tokens_are_those_of_transformers(imported: Callable[[str], Imported], name: str) -> None:
    model = imported(name)
    sources = model.checkpoint.sources
    assert answers(model, sources) == list(model.checkpoint.greedy)  # of different lengths, in one batch
    assert [answers(model, [source])[0] for source in sources] == list(model.checkpoint.greedy)


@pytest.mark.parametrize("name", CASES)
def test_cut_at_every_border_its_decoder_gives_the_same_bits(
    imported: Callable[[str], Imported], name: str
) -> None:
    model = imported(name)
    units, source = len(model.manifest.units), model.encoded(model.checkpoint.sources[1])
    tokens = np.array(model.checkpoint.targets[: CUT_TOKENS + CUT_STEPS])
    first_step = len(source) + CUT_TOKENS

    def computed(*borders: int) -> bytes:
        hidden: Floats | None = None
        for first, stop in zip((0, *borders), (*borders, units), strict=True):
            run = Run(model, first, stop)
            rows = np.concatenate([source, run.execution.embed(tokens)]) if hidden is None else hidden
            made = [run.prompt(rows[:first_step])]
            made += [run.prompt(rows[at : at + 1], at=at) for at in range(first_step, len(rows))]
            hidden = np.concatenate(made)
            if stop == units:
                hidden = run.execution.head(hidden[len(source) :])
            run.execution.close()
        assert hidden is not None
        return hidden.tobytes()

    whole = computed()
    assert all(computed(border) == whole for border in range(1, units))
    assert computed(*range(1, units)) == whole


@pytest.mark.parametrize("name", CASES)
def test_cut_at_every_border_its_encoder_gives_the_same_bits(
    imported: Callable[[str], Imported], name: str
) -> None:
    model = imported(name)
    feed, count = model.feed(*model.checkpoint.sources), len(model.encoder.units)
    assert count > 2 * 2
    whole = proof.part(model.encoder, model.store, 0, count, feed)
    for cuts in (*([border] for border in range(1, count)), list(range(1, count))):
        found, _ = proof.in_parts(model.encoder, model.store, cuts, feed)
        assert proof.difference(whole, found) is None, cuts
    alone = model.encoded(model.checkpoint.sources[1])
    np.testing.assert_allclose(whole[ENCODED][1, : SOURCES[1]], alone, atol=2e-5 * np.abs(alone).max())
    np.testing.assert_array_equal(whole[ENCODED][..., -1], feed["mask"])


@pytest.mark.parametrize("name", CASES)
def test_its_tokenizer_reads_texts_as_its_manifest_says(
    imported: Callable[[str], Imported], name: str
) -> None:
    model = imported(name)
    assert decode_manifest(encode_manifest(model.manifest)) == model.manifest
    text, said = words_of_model(model.store, model.manifest), model.manifest.source
    assert said is not None
    assert list(said.start) == start_of(name)
    for source in model.checkpoint.sources:
        turns = [{"role": "user", "content": "w9 w9"}, {"role": "user", "content": text_of(source)}]
        assert [*said.before, *text.encode_turns(turns), *said.behind] == source


def test_every_family_is_compared() -> None:
    kinds = {kind for kind, *_ in CASES.values()}
    assert kinds == {called for family in SEQ2SEQ for called in family.models}
    assert {path.stem for path in REFERENCE.iterdir()} == {*CASES}
