"""A random model of Whisper's kind computes what transformers computes: spectrogram, encoder, decoder; and cut at every
border of its decoder it gives the same bits.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from peer.dataflow.value_codec import Array
from peer.model.sound import Samples, Spectrogram, window_of
from peer.runtime.arithmetic import proven
from peer.runtime.execution import Execution, Row
from peer.runtime.kv_slots import KvSlots
from planner.importers.decoder_units import build_model
from planner.importers.speech.storing import put_encoded
from planner.importers.speech.whisper import open_whisper
from planner.model.compose import compose
from planner.model.graph_manifest import decode_graph_manifest
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest, decode_manifest, encode_manifest
from planner.model.onnxruntime_import import ort
from planner.model.store import Store
from tests.planner.importers.speech.sounds import spoken
from tests.planner.importers.speech.whisper_folders import REFERENCE, ROWS, write

TOLERANCE = 2e-4  # of the largest
PIECE = 32
PROMPT = (50258, 50259, 50359, 50363, *range(100, 160))


class Model:
    """The small model in a store of its own, and what transformers made."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root / "store")
        source = open_whisper(write(root / "folder", "small"), "small")
        speech = put_encoded(source, self.store)
        model_id = build_model(source, "f32", self.store, speech=speech)
        self.manifest: Manifest = decode_manifest(self.store.manifest_bytes(model_id))
        self.reference: dict[str, Any] = json.loads((REFERENCE / "small.json").read_text())
        self.form = proven(self.store, self.manifest, "cpu", 1).form
        assert self.manifest.speech is not None
        file = self.store.blob_path(self.manifest.speech.spectrogram.sha256)
        self.frames = Spectrogram(file, self.manifest.speech, 1).frames(_samples())

    def encoded(self) -> Array:
        """What the encoder makes of the sound, all units in one."""
        assert self.manifest.speech is not None
        manifest = decode_graph_manifest(self.store.manifest_bytes(self.manifest.speech.encoder))
        graph = compose(manifest, self.store, 0, len(manifest.units)).model
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        folder = self.store.blob_path(manifest.units[0].weights[0].sha256).parent
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        session = ort.InferenceSession(graph, options, ["CPUExecutionProvider"])
        made: Array = session.run(["encoded"], {"mel": window_of(self.frames, 0, 2 * ROWS)})[0][0]
        return made

    def computed(self, hidden: Array, count: int, *borders: int) -> Array:
        """The last `count` rows of `hidden` behind units of the decoder, run between these borders one after the
        other.
        """
        units = len(self.manifest.units)
        for first, stop in zip((1, *borders), (*borders, units - 1), strict=True):
            shard = make_shard(self.manifest, self.store, first, stop, exact=self.form.plain)
            context = self.manifest.context
            run = Execution(shard, threads=1, context=context, form=self.form, brief=True)
            slots = KvSlots(1, context, self.form)
            slots.admit(b"one")
            run.ensure(slots, slots.rows, len(hidden) + self.form.spare_tokens)
            prompt = len(hidden) - 3
            made = [
                run.prompt(hidden[at : min(at + PIECE, prompt)], Row(0, at)).copy()
                for at in range(0, prompt, PIECE)
            ]
            made += [run.alone(hidden[at : at + 1], Row(0, at)).copy() for at in range(prompt, len(hidden))]
            run.close()
            hidden = np.concatenate(made)
        return hidden[-count:]

    def end(self, first: int) -> Execution:
        shard = make_shard(self.manifest, self.store, first, first + 1, exact=self.form.plain)
        return Execution(shard, threads=1, context=1, form=self.form, brief=True)


def _samples() -> Samples:
    return np.rint(spoken() * 32768).astype(np.int16)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(tmp_path_factory.mktemp("speech"))


def test_its_spectrogram_is_that_of_transformers(model: Model) -> None:
    assert model.frames.shape == (80, 3000)
    got = model.frames[::16, :600:50].ravel()
    np.testing.assert_allclose(got, model.reference["mel"], atol=2e-5)


def test_its_encoder_is_that_of_transformers(model: Model) -> None:
    got = model.encoded()[::150, ::8].ravel()
    error = np.abs(got - np.array(model.reference["rows"])).max()
    assert error < TOLERANCE * model.reference["largest"]["rows"]


def test_its_decoder_is_that_of_transformers_and_cut_at_every_border_the_same_to_the_bit(
    model: Model,
) -> None:
    embedding, head = model.end(0), model.end(len(model.manifest.units) - 1)
    hidden = np.concatenate([model.encoded(), embedding.embed(np.array(PROMPT))])
    whole = model.computed(hidden, len(PROMPT))
    logits = head.head(whole)[:, ::2000]
    error = np.abs(logits.ravel() - np.array(model.reference["logits"])).max()
    assert error < TOLERANCE * model.reference["largest"]["logits"]
    for border in range(2, len(model.manifest.units) - 1):
        assert model.computed(hidden, len(PROMPT), border).tobytes() == whole.tobytes(), border
    embedding.close()
    head.close()


def test_what_its_manifest_says_of_speech_is_read_again(model: Model) -> None:
    encoded = encode_manifest(model.manifest)
    assert decode_manifest(encoded) == model.manifest
    assert SimpleNamespace(**json.loads(encoded)["decoder"]["speech"]).no_timestamps == 50363
