"""Every family computes what transformers computes: logits and greedy tokens, alone and together, from a folder and
from a GGUF file, whole and cut at every border.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import copy
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from peer.runtime.arithmetic import proven
from peer.runtime.execution import Execution, Row
from peer.runtime.forms import Form
from peer.runtime.kv_slots import KvSlots
from planner.errors import UnknownArchitecture
from planner.importers.decoder_units import build_model
from planner.importers.families.table import FAMILIES
from planner.importers.gguf import open_gguf
from planner.importers.safetensors import open_safetensors
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest, ManifestUnit, decode_manifest
from planner.model.store import Store
from planner.types import WeightFormat
from tests.planner.importers.families import gguf_files
from tests.planner.importers.families.checkpoints import (
    CASES,
    GREEDY,
    POSITIONS,
    PROMPT,
    Floats,
    load,
    write_folder,
)
from tests.planner.tiny_models import safetensors_bytes

TOLERANCE = 2e-4  # of the largest logit
CUT_TOKENS = 12  # of a prompt, where borders are tried
CUT_STEPS = 3  # tokens after it
OTHER_NAMES: Final[Mapping[str, Callable[[str], str]]] = {  # that some checkpoints have
    "neox-in-turn": lambda name: name.replace("embed_out", "lm_head"),
    "gpt2": lambda name: name.removeprefix("transformer."),
}


class Imported:
    """A checkpoint in a store of its own."""

    def __init__(self, case: str, root: Path) -> None:
        self.checkpoint = load(case)
        self.root = root
        self.store = Store(self.root / "store")
        source = open_safetensors(self.written(), "model")
        self.manifest = self.read(build_model(source, "f32", self.store))
        self.form = proven(self.store, self.manifest, "cpu", 1).form

    def read(self, model_id: str) -> Manifest:
        return decode_manifest(self.store.manifest_bytes(model_id))

    def written(self) -> Path:
        """The checkpoint as a folder, as transformers saves it."""
        return self.written_to(self.root / "folder")

    def written_to(self, folder: Path) -> Path:
        """The same in a folder of one's own."""
        return write_folder(self.checkpoint, folder, OTHER_NAMES.get(self.checkpoint.name, str))


def replace_manifest(model: Imported, manifest: Manifest) -> Imported:
    """The same checkpoint and store with another manifest of it."""
    made = copy(model)
    made.manifest = manifest
    made.form = proven(model.store, manifest, "cpu", 1).form
    return made


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Imported]:
    """imported(case), each once."""
    return cache(lambda case: Imported(case, tmp_path_factory.mktemp(case)))


class Run:
    """Units [first, stop) with `rows` conversations."""

    def __init__(self, model: Imported, first: int, stop: int, rows: int = 1) -> None:
        form: Form = model.form
        shard = make_shard(model.manifest, model.store, first, stop, exact=form.plain)
        self.execution = Execution(shard, threads=1, context=model.manifest.context, form=form, brief=True)
        self.rows = rows
        slots = KvSlots(rows, model.manifest.context, form)
        for row in range(rows):
            slots.admit(bytes([row]))
        self.execution.ensure(slots, slots.rows, POSITIONS + GREEDY + form.spare_tokens)

    def prompt(self, hidden: Floats, row: int = 0) -> Floats:
        return self.execution.prompt(hidden, Row(row, 0)).copy()

    def alone(self, hidden: Floats, length: int) -> Floats:
        return self.execution.alone(hidden, Row(0, length)).copy()

    def together(self, hidden: Floats, lengths: list[int]) -> Floats:
        """A step of every conversation, in the calls that the form allows."""
        found = []
        body, spans = self.execution.form.body, self.execution.shape.rows
        for wanted, whole in body.spans(range(self.rows), spans):
            rows = [min(row, self.rows - 1) for row in whole]
            made = self.execution.decode(hidden[rows], whole, [lengths[row] for row in rows]).copy()
            found.append(made[wanted.start - whole.start :][: len(wanted)])
        return np.concatenate(found)


def answers(model: Imported) -> list[list[int]]:
    """Greedy tokens after both prompts, computed as one batch."""
    prompts = model.checkpoint.prompts
    run = Run(model, 0, len(model.manifest.units), len(prompts))
    last = []
    for row, prompt in enumerate(prompts):
        last.append(run.prompt(run.execution.embed(np.array(prompt)), row)[-1:])
    tokens: list[list[int]] = [[] for _ in prompts]
    hidden = np.concatenate(last)
    for step in range(GREEDY):
        for answer, logits in zip(tokens, run.execution.head(hidden), strict=True):
            answer.append(int(logits.argmax()))
        embedded = run.execution.embed(np.array([answer[-1] for answer in tokens]))
        hidden = run.together(embedded, [PROMPT + step] * len(prompts))
    run.execution.close()
    return tokens


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_transformers(imported: Callable[[str], Imported], case: str) -> None:
    model = imported(case)
    checkpoint, half = model.checkpoint, POSITIONS // 2
    run = Run(model, 0, len(model.manifest.units))
    hidden = run.execution.embed(np.array(checkpoint.tokens))
    rows = [run.prompt(hidden[:half])]
    rows += [run.alone(hidden[at : at + 1], at) for at in range(half, POSITIONS)]
    logits = run.execution.head(np.concatenate(rows))
    run.execution.close()
    error = np.abs(logits - checkpoint.logits).max() / np.abs(checkpoint.logits).max()
    assert error < TOLERANCE


@pytest.mark.parametrize("case", CASES)
def test_greedy_tokens_are_those_of_transformers(imported: Callable[[str], Imported], case: str) -> None:
    model = imported(case)
    expected = model.checkpoint.greedy
    assert [tuple(answer) for answer in answers(model)] == list(expected)
    run = Run(model, 0, len(model.manifest.units))
    hidden = run.prompt(run.execution.embed(np.array(model.checkpoint.prompts[0])))[-1:]
    alone: list[int] = []
    for step in range(GREEDY):
        alone.append(int(run.execution.head(hidden)[0].argmax()))
        hidden = run.alone(run.execution.embed(np.array(alone[-1:])), PROMPT + step)
    run.execution.close()
    assert tuple(alone) == expected[0]


@pytest.mark.parametrize("case", CASES)
def test_a_gguf_file_of_it_is_the_same_model(imported: Callable[[str], Imported], case: str) -> None:
    model = imported(case)
    path = gguf_files.write(model.checkpoint, model.root / "model.gguf")
    manifest = model.read(build_model(open_gguf(path), "f32", model.store))
    assert manifest.units == model.manifest.units  # graphs, weights and what is kept, by their hashes
    ours, theirs = model.manifest, manifest
    for name in ("vocab", "hidden", "context", "scratch"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert len(ours.rotary) == len(theirs.rotary)
    for one, other in zip(ours.rotary, theirs.rotary, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_cut_at_every_border_it_gives_the_same_bits(imported: Callable[[str], Imported], case: str) -> None:
    model = imported(case)
    units = len(model.manifest.units)
    tokens = np.array(model.checkpoint.tokens[: CUT_TOKENS + CUT_STEPS])

    def computed(*borders: int) -> bytes:
        hidden: Floats | None = None
        for first, stop in zip((0, *borders), (*borders, units), strict=True):
            run = Run(model, first, stop)
            rows = run.execution.embed(tokens) if hidden is None else hidden
            made = [run.prompt(rows[:CUT_TOKENS])]
            for at in range(CUT_TOKENS, len(tokens)):
                made.append(run.alone(rows[at : at + 1], at))
            hidden = np.concatenate(made)
            if stop == units:
                hidden = run.execution.head(hidden)
            run.execution.close()
        assert hidden is not None
        return hidden.tobytes()

    whole = computed()
    assert all(computed(border) == whole for border in range(1, units))
    assert computed(*range(1, units)) == whole


@pytest.mark.parametrize(
    ("case", "units"),
    [("mixtral", 8), ("mixtral", 3), ("qwen2-moe", 4), ("deepseek-v3", 4), ("llama4", 2)],
    ids=["each alone", "uneven", "shared", "behind a dense block", "of scaled rows"],
)
def test_experts_in_several_units_give_the_same_bits(
    imported: Callable[[str], Imported], case: str, units: int
) -> None:
    model = imported(case)
    source = open_safetensors(model.root / "folder", "model")
    apart = replace_manifest(model, model.read(build_model(source, "f32", model.store, expert_units=units)))
    tokens = np.array(model.checkpoint.tokens)

    def computed(of: Imported, *borders: int) -> Floats:
        hidden: Floats | None = None
        last = len(of.manifest.units)
        for first, stop in zip((0, *borders), (*borders, last), strict=True):
            run = Run(of, first, stop)
            hidden = run.prompt(run.execution.embed(tokens) if hidden is None else hidden)
            hidden = run.execution.head(hidden) if stop == last else hidden
            run.execution.close()
        assert hidden is not None
        return hidden

    names = [unit.name for unit in apart.manifest.units]
    block = model.checkpoint.config["num_hidden_layers"] - 1
    assert names[-units - 2 :] == [f"attn.{block}", *(f"ffn.{block}.{part}" for part in range(units)), "head"]
    own = {unit.name: own_experts(unit) for unit in apart.manifest.units if unit.kind == "ffn"}
    most = max(len(own_experts(unit)) for unit in model.manifest.units)
    assert max(len(own[f"ffn.{block}.{part}"]) for part in range(units)) == -(-most // units)
    assert len({unit.blob.sha256 for unit in apart.manifest.units}) == len(names)
    whole = computed(apart)
    assert computed(model).tobytes() == whole.tobytes()
    assert computed(apart, *range(1, len(names))).tobytes() == whole.tobytes()


def own_experts(unit: ManifestUnit) -> set[str]:
    """The experts whose matrices a unit has."""
    return {one.name.split(".")[1] for one in unit.tensors if one.name.startswith("experts.")}


@pytest.mark.parametrize("case", ["deepseek-v2-lite", "deepseek-v3"])
def test_an_older_gguf_file_has_keys_and_values_in_one_tensor(
    imported: Callable[[str], Imported], case: str
) -> None:
    model = imported(case)
    path = gguf_files.write(model.checkpoint, model.root / "older.gguf", joint=True)
    manifest = model.read(build_model(open_gguf(path), "f32", model.store))
    assert manifest.units == model.manifest.units


def with_pictures(model: Imported, folder: Path, stranger: str) -> Path:
    """The checkpoint as the text part of a folder with a tower; `stranger`: a tensor beside both."""
    model.written_to(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": "llama4", "text_config": config}))
    tensors = {f"language_model.{name}": each for name, each in model.checkpoint.weights().items()}
    tensors |= {name: np.ones((2, 2), np.float32) for name in ("vision_model.a.weight", stranger)}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors, "F32"))
    return folder


def test_the_text_part_of_a_folder_with_pictures_is_the_same_model(
    imported: Callable[[str], Imported], tmp_path: Path
) -> None:
    model = imported("llama4")
    folder = with_pictures(model, tmp_path / "model", "multi_modal_projector.linear_1.weight")
    manifest = model.read(build_model(open_safetensors(folder), "f32", model.store))
    assert manifest == model.manifest
    with pytest.raises(UnknownArchitecture, match=r"bad: tensor adapter\.weight has no place in llama4"):
        open_safetensors(with_pictures(model, tmp_path / "bad", "adapter.weight"))


def test_chunks_are_kept_as_windows_are(imported: Callable[[str], Imported]) -> None:
    model = imported("llama4-chunks")
    chunk = model.checkpoint.config["attention_chunk_size"]
    kept = [pair.window for unit in model.manifest.units for pair in unit.kv]
    assert kept == [chunk, chunk, chunk, None]
    assert {pair.window for unit in imported("llama4").manifest.units for pair in unit.kv} == {None}


@pytest.mark.parametrize("case", ["deepseek-v2-lite", "deepseek-v2", "deepseek-v3"])
def test_latent_attention_caches_latents_once(imported: Callable[[str], Imported], case: str) -> None:
    model = imported(case)
    numbers = model.checkpoint.config
    cached = numbers["kv_lora_rank"] + numbers["qk_rope_head_dim"]
    units = [unit for unit in model.manifest.units if unit.kind == "attn"]
    assert [unit.state for unit in units] == [(f"key.{block}",) for block in range(len(units))]
    assert {unit.kv_bytes_per_token for unit in units} == {4 * cached}
    planned = {each.name: each.kv_bytes(1) for each in model.manifest.planner_units()}
    assert [planned[unit.name] for unit in units] == [4 * cached] * len(units)
    run = Run(model, 0, len(model.manifest.units), 2)
    shape = run.execution.shape
    run.prompt(run.execution.embed(np.array(model.checkpoint.tokens)), 1)
    assert run.execution.kv_bytes == 2 * shape.capacity * 4 * cached * len(units)
    run.execution.close()


@pytest.mark.parametrize("units", [0, 9, 1 << 40])
def test_experts_lie_in_as_many_units_as_there_are_at_most(
    imported: Callable[[str], Imported], units: int
) -> None:
    model = imported("mixtral")
    with pytest.raises(UnknownArchitecture, match="in 1 to 8 units expected, since it has 8 experts"):
        build_model(open_safetensors(model.root / "folder", "m"), "f32", model.store, expert_units=units)
    dense = imported("llama")
    with pytest.raises(UnknownArchitecture, match="in 1 to 1 units expected, since it has no experts"):
        build_model(open_safetensors(dense.root / "folder", "m"), "f32", dense.store, expert_units=2)


@pytest.mark.parametrize(
    ("case", "weights", "least"),
    [
        ("mixtral", "8bit", 0.99),
        ("mixtral", "4bit", 0.9),
        ("gpt2", "8bit", 0.99),
        ("falcon-40b", "4bit", 0.9),
        ("deepseek-v2-lite", "8bit", 0.99),
    ],
)
def test_packed_weights_come_close(
    imported: Callable[[str], Imported], case: str, weights: WeightFormat, least: float
) -> None:
    model = imported(case)
    source = open_safetensors(model.root / "folder", "model")
    packed = replace_manifest(model, model.read(build_model(source, weights, model.store)))
    run = Run(packed, 0, len(packed.manifest.units))
    hidden = run.execution.embed(np.array(model.checkpoint.tokens))
    logits = run.execution.head(run.prompt(hidden))
    run.execution.close()
    assert np.corrcoef(logits.ravel(), model.checkpoint.logits.ravel())[0, 1] > least


def test_every_family_has_a_case() -> None:
    kinds = {load(case).config["model_type"] for case in CASES}
    assert kinds == {name for family in FAMILIES for name in family.folder.families}
