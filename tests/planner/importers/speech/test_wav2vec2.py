"""What a folder of Wav2Vec2's kind says is checked before anything is stored, and its manifest before it is used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.errors import CorruptModel, CorruptStore, MissingTensor, ModelError, UnknownArchitecture
from planner.errors import UnknownTokenizer as NoTokenizer
from planner.importers.onnx.importing import import_graph
from planner.importers.registry import answering, locate
from planner.importers.speech.wav2vec2 import is_wav2vec2, open_wav2vec2
from planner.model.graph_manifest import decode_graph_manifest
from planner.model.store import Store
from tests.planner.importers.speech.wav2vec2_folders import CASES, LETTERS, weights_of, write
from tests.planner.tiny_models import safetensors_bytes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "hears", "base")


def changed(folder: Path, file: str, **values: Any) -> None:
    said = json.loads((folder / file).read_text())
    said.update(values)
    (folder / file).write_text(json.dumps(said))


def test_tokens_have_texts_but_marks_blanks_and_spaces(folder: Path) -> None:
    assert is_wav2vec2(folder)
    found = open_wav2vec2(folder).text
    assert found.tokens == ("", "", "", "", "", *LETTERS[5:])
    assert (found.blank, found.space, found.hop, found.seen) == (0, 4, 320, 400)
    assert [found.frames(samples) for samples in (399, 400, 719, 720, 16000)] == [0, 1, 1, 2, 49]
    lower = open_wav2vec2(write(folder, "large")).text
    assert lower.tokens[5:] == tuple(letter.lower() for letter in LETTERS[5:])


def test_a_folder_is_found_by_its_name_and_answers_no_questions(folder: Path, tmp_path: Path) -> None:
    located = locate(str(folder), tmp_path)
    assert "vocab.json" in located.files
    with pytest.raises(UnknownArchitecture, match="writes what is said and answers no questions"):
        answering(located.open())


def test_special_tokens_are_read_from_whichever_file_says_them(folder: Path) -> None:
    changed(folder, "tokenizer_config.json", pad_token={"content": "E"}, word_delimiter_token="T")
    found = open_wav2vec2(folder).text
    assert (found.blank, found.space) == (LETTERS.index("E"), LETTERS.index("T"))
    assert found.tokens[0] == "<pad>"
    changed(folder, "tokenizer_config.json", pad_token="[PAD]")
    (folder / "added_tokens.json").write_text(json.dumps({"[PAD]": 1}))
    assert open_wav2vec2(folder).text.blank == 1


BAD: list[tuple[str, dict[str, Any], type[ModelError], str]] = [
    ("config.json", {"architectures": ["Wav2Vec2Model"]}, UnknownArchitecture, "for CTC expected"),
    ("config.json", {"add_adapter": True}, UnknownArchitecture, "adapters, as models of MMS"),
    ("config.json", {"adapter_attn_dim": 16}, UnknownArchitecture, "adapters, as models of MMS"),
    ("config.json", {"quantization_config": {"bits": 4}}, UnknownArchitecture, "quantized exports"),
    ("config.json", {"hidden_act": "mish"}, UnknownArchitecture, "hidden_act 'mish' is not supported"),
    ("config.json", {"feat_extract_norm": "batch"}, UnknownArchitecture, "group or layer expected"),
    ("config.json", {"num_attention_heads": 5}, CorruptModel, "cannot be shared evenly by 5 heads"),
    ("config.json", {"num_hidden_layers": 0}, CorruptModel, "num_hidden_layers between 1 and 128"),
    ("config.json", {"num_hidden_layers": 4}, MissingTensor, r"encoder\.layers\.3"),
    ("config.json", {"num_hidden_layers": 2}, UnknownArchitecture, r"encoder\.layers\.2.*has no place"),
    ("config.json", {"conv_stride": [5, 2]}, CorruptModel, "conv_dim, conv_kernel and conv_stride"),
    ("config.json", {"conv_stride": [1 << 14] * 7}, CorruptModel, "convolutions of frames of up to 16000"),
    ("config.json", {"layer_norm_eps": 2}, CorruptModel, "epsilon between 0 and 1"),
    ("preprocessor_config.json", {"sampling_rate": 8000}, UnknownArchitecture, "16000 samples a second"),
    ("preprocessor_config.json", {"do_normalize": "yes"}, CorruptModel, "do_normalize.*true or false"),
    ("vocab.json", {"Ä": 99}, NoTokenizer, "numbers under 32 by text, has 99"),
    ("vocab.json", {"eng": {"a": 1}}, NoTokenizer, "numbers under 32 by text"),
    ("vocab.json", {"x" * 65: 7}, NoTokenizer, "tokens of up to 64 characters"),
    ("tokenizer_config.json", {"replace_word_delimiter_char": "_"}, NoTokenizer, "spaces between them"),
]


@pytest.mark.parametrize(("file", "values", "error", "says"), BAD)
def test_what_cannot_run_is_refused(
    folder: Path, file: str, values: dict[str, Any], error: type[ModelError], says: str
) -> None:
    changed(folder, file, **values)
    with pytest.raises(error, match=says):
        open_wav2vec2(folder)


def test_a_folder_without_texts_of_its_tokens_is_refused(folder: Path) -> None:
    (folder / "vocab.json").unlink()
    with pytest.raises(NoTokenizer, match=r"no vocab\.json"):
        open_wav2vec2(folder)


def test_weights_that_are_no_numbers_are_refused(folder: Path, tmp_path: Path) -> None:
    weights = weights_of(CASES["base"])
    weights["lm_head.weight"][0, 0] = float("nan")
    (folder / "model.safetensors").write_bytes(safetensors_bytes(weights, "F32"))
    with (
        pytest.raises(CorruptModel, match="finite numbers expected"),
        open_wav2vec2(folder).graph(tmp_path) as source,
    ):
        assert source.ctc is None


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    root = tmp_path_factory.mktemp("store")
    store = Store(root / "store")
    with open_wav2vec2(write(root / "hears", "base")).graph(store.root / "tmp") as source:
        return store.manifest_bytes(import_graph(source, store))


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "another input": (lambda said: said["ctc"].update(input="logits"), "its input as the only one"),
    "no output": (lambda said: said["ctc"].update(logits="sound"), "its logits among the outputs"),
    "a token less": (lambda said: said["ctc"]["tokens"].pop(), "axes .1, frames, tokens."),
    "no token": (lambda said: said["ctc"]["tokens"].clear(), "at least one text"),
    "a blank outside": (lambda said: said["ctc"].update(blank=32), "blank"),
    "a space outside": (lambda said: said["ctc"].update(space=32), "space"),
    "a step of nothing": (lambda said: said["ctc"].update(hop=0), "hop"),
    "steps wider than frames": (lambda said: said["ctc"].update(hop=401), "hop"),
    "frames of a minute": (lambda said: said["ctc"].update(seen=960_000), "seen"),
    "no text": (lambda said: said["ctc"]["tokens"].append(7), "tokens"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_manifest_that_contradicts_itself_is_refused(manifest: bytes, change: str) -> None:
    said = json.loads(manifest)
    apply, says = CHANGES[change]
    apply(said)
    with pytest.raises(CorruptStore, match=says):
        decode_graph_manifest(json.dumps(said).encode())
