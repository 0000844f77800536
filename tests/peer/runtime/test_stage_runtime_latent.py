"""Latent attention of the size that published models have: one array of what is cached, the same bits on every way."""

from __future__ import annotations

import numpy as np
import pytest

from peer.session.kv_transfer_rules import copy_shapes
from planner.importers.architecture import Latent
from planner.importers.decoder_units import build_model
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import Store
from tests.peer.made_up_models import MadeUpModel, small_architecture
from tests.peer.one_stage import CONTEXT, Floats, stage

RANK, TURNING = 512, 64
PROMPT = 300
LENGTH = 12  # tokens after it


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Manifest, Store]:
    latent = Latent(rank=RANK, plain=128, value=128, query_rank=0, epsilon=1e-6)
    sizes = {"kv_heads": 1, "head_size": RANK + TURNING, "rope_dims": TURNING, "context": CONTEXT}
    store = Store(tmp_path_factory.mktemp("latent"))
    made = build_model(MadeUpModel(small_architecture(latent=latent, **sizes), {}), "8bit", store)
    return decode_manifest(store.manifest_bytes(made)), store


@pytest.fixture(scope="module")
def tokens(model: tuple[Manifest, Store]) -> list[int]:
    vocab = model[0].vocab
    return [int(token) for token in np.random.default_rng(3).integers(0, vocab, PROMPT + LENGTH)]


@pytest.fixture(scope="module")
def expected(model: tuple[Manifest, Store], tokens: list[int]) -> dict[int, Floats]:
    """By how many tokens there were: the logits of a session alone."""
    with stage(*model) as one:
        found = {PROMPT: one.logits(b"s", 0, tokens[:PROMPT])}
        for position in range(PROMPT, len(tokens)):
            found[position + 1] = one.logits(b"s", position, [tokens[position]])
    return found


def test_chunks_and_sessions_beside_it_change_no_bit(
    model: tuple[Manifest, Store], tokens: list[int], expected: dict[int, Floats]
) -> None:
    manifest, store = model
    with stage(manifest, store) as one:
        start = 0
        for size in (1, 63, 130, 33, 2, PROMPT):
            stop = min(start + size, PROMPT)
            logits = one.logits(b"chunks", start, tokens[start:stop], prompt=True)
            start = stop
        assert np.array_equal(logits, expected[PROMPT])
        assert np.array_equal(one.logits(b"whole", 0, tokens[:PROMPT]), expected[PROMPT])
        for position in range(PROMPT, len(tokens)):
            for session in (b"chunks", b"whole"):
                logits = one.logits(session, position, [tokens[position]])
                assert np.array_equal(logits, expected[position + 1]), position


def test_a_copy_has_one_array_and_goes_on_as_the_session(
    model: tuple[Manifest, Store], tokens: list[int], expected: dict[int, Floats]
) -> None:
    manifest, store = model
    names = [name for unit in manifest.units for name in unit.state]
    assert names == ["key.0", "key.1"]
    with stage(manifest, store) as one, stage(manifest, store) as other:
        one.logits(b"s", 0, tokens[:PROMPT])
        arrays = one.copied(b"s", PROMPT, names)
        assert arrays is not None
        given = copy_shapes(manifest, (0, len(manifest.units)), PROMPT)
        assert given == dict.fromkeys(names, (1, PROMPT, RANK + TURNING))
        assert {name: array.shape for name, array in arrays.items()} == given
        assert other.put(b"t", PROMPT, arrays)
        for position in range(PROMPT, len(tokens)):
            logits = other.logits(b"t", position, [tokens[position]])
            assert np.array_equal(logits, expected[position + 1]), position
