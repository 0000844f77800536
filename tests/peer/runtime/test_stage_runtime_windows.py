"""Where attention looks at a window, sessions keep little more than that, and compute the bits of the whole cache."""

from __future__ import annotations

import numpy as np
import pytest

from peer.runtime.self_benchmark import measure_here
from peer.runtime.stage_runtime import RefusalReason, Refused
from peer.session.effects import PrefixWork
from planner.model.decoder_building import build_decoder
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import Store
from tests.peer.one_stage import CONTEXT, Floats, stage
from tests.peer.windowed_decoder import VOCAB, windowed_decoder

WINDOW = 100
PROMPT = 930  # more than a session keeps at any time


@pytest.fixture(scope="module", params=[(64, None), (64, 30.0), (256, None)], ids=str)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Manifest, Store]:
    size, softcap = request.param
    store = Store(tmp_path_factory.mktemp("windowed"))
    source = windowed_decoder(WINDOW, head_size=size, softcap=softcap)
    return decode_manifest(store.manifest_bytes(build_decoder(source, store))), store


@pytest.fixture(scope="module")
def tokens() -> list[int]:
    return [int(token) for token in np.random.default_rng(3).integers(0, VOCAB, PROMPT + 300)]


@pytest.fixture(scope="module")
def expected(model: tuple[Manifest, Store], tokens: list[int]) -> dict[int, Floats]:
    """By how many tokens there were: the logits where everything is kept."""
    with stage(*model, whole=True) as one:
        found = {PROMPT: one.logits(b"s", 0, tokens[:PROMPT])}
        for position in range(PROMPT, len(tokens)):
            found[position + 1] = one.logits(b"s", position, [tokens[position]])
    return found


def test_logits_are_those_of_the_whole_cache(
    model: tuple[Manifest, Store], tokens: list[int], expected: dict[int, Floats]
) -> None:
    """In one prompt and in chunks of it, beside other sessions."""
    manifest, store = model
    with stage(manifest, store) as one:
        start = 0
        for size in (1, 63, 200, 33, 2, 600, PROMPT):
            stop = min(start + size, PROMPT)
            logits = one.logits(b"chunks", start, tokens[start:stop], prompt=True)
            start = stop
        assert np.array_equal(logits, expected[PROMPT])
        assert np.array_equal(one.logits(b"whole", 0, tokens[:PROMPT]), expected[PROMPT])
        for position in range(PROMPT, len(tokens)):
            for session in (b"chunks", b"whole"):
                logits = one.logits(session, position, [tokens[position]])
                assert np.array_equal(logits, expected[position + 1]), position
        kv = one.runtime.memory_bytes().kv
    units = manifest.planner_units()
    assert kv == 2 * sum(unit.kv_bytes(CONTEXT) for unit in units)
    assert manifest.window is not None
    assert [unit.kv_positions for unit in units] == [
        0,
        manifest.window.capacity,
        0,
        manifest.window.capacity,
        0,
    ]


def test_a_session_takes_back_a_few_tokens_and_no_more(
    model: tuple[Manifest, Store], tokens: list[int], expected: dict[int, Floats]
) -> None:
    with stage(*model) as one:
        one.logits(b"s", 0, tokens[:PROMPT])
        for position in range(PROMPT, PROMPT + 64):
            one.logits(b"s", position, [1])
        one.runtime.truncate(b"s", PROMPT + 1)
        assert np.array_equal(one.logits(b"s", PROMPT, [tokens[PROMPT]]), expected[PROMPT + 1])
        answer = one.run(b"s", 300, [1])
        assert isinstance(answer, Refused)
        assert (answer.reason, answer.have) == (RefusalReason.MISSING_POSITION, 0)
        assert np.array_equal(one.logits(b"s", 0, tokens[:PROMPT]), expected[PROMPT])


def test_a_copy_goes_on_as_the_session_that_it_was_made_of(
    model: tuple[Manifest, Store], tokens: list[int], expected: dict[int, Floats]
) -> None:
    manifest, store = model
    names = [name for unit in manifest.units for name in unit.state]
    window = manifest.window
    assert window is not None
    with stage(manifest, store) as one, stage(manifest, store) as other:
        one.logits(b"s", 0, tokens[:PROMPT])
        arrays = one.copied(b"s", PROMPT, names)
        assert arrays is not None
        lengths = {array.shape[1] for array in arrays.values()}
        assert lengths == {PROMPT, PROMPT - window.first_kept(PROMPT)}
        assert one.copied(b"s", 300, names) is None
        assert not other.put(b"t", PROMPT, {name: array[:, -60:] for name, array in arrays.items()})
        assert other.put(b"t", PROMPT, arrays)
        for position in range(PROMPT, len(tokens)):
            logits = other.logits(b"t", position, [tokens[position]])
            assert np.array_equal(logits, expected[position + 1]), position


def test_a_prompt_begins_with_a_front_that_was_kept(
    model: tuple[Manifest, Store], tokens: list[int], expected: dict[int, Floats]
) -> None:
    front = 640
    with stage(*model) as one:
        one.logits(b"a", 0, tokens[:front])
        one.runtime.front(PrefixWork("keep", (0, 5), b"a", b"digest", front))
        one.runtime.release(b"a")
        one.runtime.front(PrefixWork("share", (0, 5), b"b", b"digest", front))
        rest = one.logits(b"b", front, tokens[front:PROMPT])
        assert np.array_equal(rest, expected[PROMPT])
        assert one.runtime.memory_bytes().fronts > 0


def test_a_peer_measures_itself_for_a_context_beyond_the_window(model: tuple[Manifest, Store]) -> None:
    manifest, store = model
    times = measure_here(store, manifest, "cpu", 1, context=CONTEXT)
    assert times.overhead_bytes > 0
