"""What is proven of this machine's kernels: kernels that add up in another order are noticed, whatever they do, and the
form that is chosen keeps the promise in spite of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import peer.runtime.arithmetic
from peer.runtime.arithmetic import FOLDER, prove, proven
from peer.runtime.execution import Execution, Row
from peer.runtime.forms import ALONE, FASTEST, RowShape
from peer.runtime.kv_slots import KvSlots
from peer.runtime.processor import instruction_set
from planner.model.lowering import rotary_tables
from planner.model.manifest import Manifest
from planner.model.store import Store

Rows = npt.NDArray[np.float32]
CLASS = re.compile(r"cpu/[a-z0-9_]+/rows-[a-z0-9-]+/[0-9a-f]{16}")


def off_by_a_bit(rows: Rows) -> Rows:
    return np.nextafter(rows, np.float32(np.inf))


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[..., bool]], None]:
    """broken(method, wrong): calls of that method for which `wrong(...)` holds are off by the last bit."""

    def breaks(method: str, wrong: Callable[..., bool]) -> None:
        whole = getattr(Execution, method)

        def call(self: Execution, hidden: Rows, *more: Any) -> Rows:
            found: Rows = whole(self, hidden, *more)
            return off_by_a_bit(found) if wrong(self, hidden, *more) else found

        monkeypatch.setattr(Execution, method, call)

    return breaks


def run_odd(wrong: Callable[[int, int], bool]) -> Callable[..., bool]:
    """Of `_run`: by the rows and tokens of a call."""
    return lambda _, hidden, *more: wrong(hidden.shape[0], hidden.shape[1])


@pytest.mark.any_processor
@pytest.mark.parametrize("weights", ["f32", "f16", "8bit", "4bit"])
def test_this_machine_keeps_the_promise_in_some_form(made_up: Callable[..., Any], weights: str) -> None:
    _, manifest, store = made_up(weights)
    proof = prove(store, manifest, "cpu", 1)
    assert CLASS.fullmatch(proof.class_of("cpu"))
    assert instruction_set() in proof.class_of("cpu")
    assert proof == prove(store, manifest, "cpu", 1)


@pytest.mark.parametrize(
    ("wrong", "body"),
    [
        (lambda rows, tokens: tokens == 1 and rows == 1, RowShape(least=2)),
        (lambda rows, tokens: tokens == 1 and rows % 2 == 1, RowShape(least=2, multiple=2)),
        (lambda rows, tokens: tokens == 1 and rows < 4, RowShape(least=4)),
        (lambda rows, tokens: tokens == 1 and rows % 4 != 0, RowShape(least=4, multiple=4)),
    ],
    ids=["a row alone", "an odd row left over", "less than a tile", "a tile that is not full"],
)
def test_rows_that_are_computed_otherwise_get_company(
    made_up: Callable[..., Any],
    broken: Callable[..., None],
    wrong: Callable[[int, int], bool],
    body: RowShape,
) -> None:
    _, manifest, store = made_up("f32")
    broken("_run", run_odd(wrong))
    assert prove(store, manifest, "cpu", 1).form.body == body


def test_where_no_number_of_rows_agrees_each_goes_alone(
    made_up: Callable[..., Any], broken: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, manifest, store = made_up("f32")
    whole = Execution._run
    calls = 0

    def call(self: Execution, hidden: Rows, span: range, lengths: list[int]) -> Rows:
        nonlocal calls
        found = whole(self, hidden, span, lengths)
        calls += 1
        return found * np.float32(1 + calls / 1e6) if len(span) > 1 else found

    monkeypatch.setattr(Execution, "_run", call)
    assert prove(store, manifest, "cpu", 1).form.body == ALONE


def test_packed_weights_are_multiplied_plainly_where_that_alone_takes_batches(
    made_up: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless row after row is faster."""
    _, manifest, store = made_up("4bit")
    whole, calls, slow = Execution._run, 0, {"plain": 0, "rounding": 0}

    def call(self: Execution, hidden: Rows, span: range, lengths: list[int]) -> Rows:
        nonlocal calls
        found = whole(self, hidden, span, lengths)
        for _ in range(slow["plain" if self.form.plain else "rounding"]):
            whole(self, hidden, span, lengths)
        calls += 1
        return found if self.form.plain or len(span) == 1 else found * np.float32(1 + calls / 1e6)

    monkeypatch.setattr(Execution, "_run", call)
    slow["rounding"] = 400
    plain = prove(store, manifest, "cpu", 1).form
    assert plain.plain
    assert plain.body.most > 1
    slow.update(plain=400, rounding=0)
    rounding = prove(store, manifest, "cpu", 1).form
    assert not rounding.plain
    assert rounding.body == ALONE


@pytest.mark.parametrize("ends", [4, 16])
def test_prompts_that_are_computed_otherwise_in_chunks_end_at_multiples(
    made_up: Callable[..., Any], broken: Callable[..., None], ends: int
) -> None:
    _, manifest, store = made_up("f32")

    def wrong(_: Execution, hidden: Rows, span: range, lengths: list[int]) -> bool:
        return hidden.shape[1] > 1 and (lengths[0] + hidden.shape[1]) % ends != 0

    broken("_run", wrong)
    assert prove(store, manifest, "cpu", 1).form.ends == ends


def test_prompts_that_depend_on_their_chunks_in_any_case_go_one_by_one(
    made_up: Callable[..., Any], broken: Callable[..., None]
) -> None:
    _, manifest, store = made_up("f32")
    broken("_run", lambda _, hidden, span, lengths: hidden.shape[1] > 1 and lengths[0] > 0)
    assert prove(store, manifest, "cpu", 1).form.ends == 0


def test_operators_are_not_joined_where_a_cut_shows(
    made_up: Callable[..., Any], broken: Callable[..., None]
) -> None:
    _, manifest, store = made_up("f32")
    broken(
        "_run", lambda execution, *_: execution.form.fused and len(execution.state_shapes(1)) == 0
    )  # ffn alone
    assert not prove(store, manifest, "cpu", 1).form.fused


def test_rows_of_a_head_that_are_computed_otherwise_get_company(
    made_up: Callable[..., Any], broken: Callable[..., None]
) -> None:
    _, manifest, store = made_up("f32")
    broken("head_call", lambda _, hidden: len(hidden) == 1)
    form = prove(store, manifest, "cpu", 1).form
    assert (form.body, form.head) == (prove(store, manifest, "cpu", 1).form.body, RowShape(least=2))


def test_equal_classes_follow_from_equal_bits(
    made_up: Callable[..., Any], broken: Callable[..., None]
) -> None:
    _, manifest, store = made_up("f32")
    before = prove(store, manifest, "cpu", 1)
    broken("head_call", lambda *_: True)
    after = prove(store, manifest, "cpu", 1)
    assert after.form == before.form
    assert after.digest != before.digest


@pytest.mark.parametrize("weights", ["f32", "f16", "8bit", "4bit"])
def test_attention_of_made_up_weights_adds_up_all_positions(
    made_up: Callable[..., Any], weights: str, tmp_path: Path
) -> None:
    """One that took a single position would add up nothing, and no other order of additions would show."""
    _, manifest, store = made_up(weights)
    blobs = peer.runtime.arithmetic._MadeUpBlobs(tmp_path, store, manifest)
    trial = peer.runtime.arithmetic._Trial(manifest, blobs, "cpu", 1)
    execution = trial.execution([unit for unit in trial.bodies if unit.kind == "attn"], FASTEST)
    slots = KvSlots(1, 32)
    execution.ensure(slots, 1, 32)
    hidden = peer.runtime.arithmetic._rows(b"prompt", 16, manifest.hidden)
    last = execution.prompt(hidden, Row(0, 0))[-1].copy()
    for position in range(15):
        other = hidden.copy()
        other[position] = -other[position]
        moved = execution.prompt(other, Row(0, 0))[-1]
        assert np.abs(moved - last).max() > 1e-3
    execution.close()


def test_the_digest_holds_the_rotary_tables(
    made_up: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are numpy's, whose cosines of far positions differ by a last bit between builds and processors."""
    _, manifest, store = made_up("f32")
    before = prove(store, manifest, "cpu", 1)

    def odd(*shape: Any) -> tuple[Rows, Rows]:
        cos, sin = rotary_tables(*shape)
        cos[-1, 0] = np.nextafter(cos[-1, 0], np.float32(2))
        return cos, sin

    monkeypatch.setattr(peer.runtime.arithmetic, "rotary_tables", odd)
    assert prove(store, manifest, "cpu", 1).digest != before.digest


# --- kept proofs -------------------------------------------------------------------------------------------


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each proof that is made; none is known before."""
    restarted()
    made: list[int] = []

    def counted(store: Store, manifest: Manifest, provider: str, threads: int, **more: Any) -> Any:
        made.append(threads)
        return prove(store, manifest, provider, threads, **more)

    monkeypatch.setattr(peer.runtime.arithmetic, "prove", counted)
    return made


def restarted() -> None:
    """As in a new process."""
    peer.runtime.arithmetic._known.clear()


def kept_files(store: Store) -> list[Path]:
    return sorted((store.root / FOLDER).iterdir())


def test_a_proof_is_made_once_for_a_machine_and_its_settings(
    made_up: Callable[..., Any], proofs: list[int]
) -> None:
    _, manifest, store = made_up("8bit")
    first = proven(store, manifest, "cpu", 1)
    assert proven(store, manifest, "cpu", 1) == first
    restarted()
    assert proven(store, manifest, "cpu", 1) == first
    assert proofs == [1]
    proven(store, manifest, "cpu", 2)
    proven(store, manifest, "cpu", 1, plain=True)
    assert proofs == [1, 2, 1]
    assert len(kept_files(store)) == 3


def test_a_kept_proof_of_other_versions_or_a_broken_one_is_made_anew(
    made_up: Callable[..., Any], proofs: list[int]
) -> None:
    _, manifest, store = made_up("8bit")
    expected = proven(store, manifest, "cpu", 1)
    (path,) = kept_files(store)
    whole = path.read_bytes()
    other = json.loads(whole)
    other["key"]["onnxruntime"] = "0.0.1"
    large = json.loads(whole)
    large["form"]["body"]["most"] = 1 << 20
    for broken_bytes in (
        b"",
        whole[:-9],
        b"[]",
        b"{}",
        json.dumps(other).encode(),
        json.dumps(large).encode(),
        whole.replace(expected.digest.encode(), b"0123456789abcdef"),  # of another machine of this name
    ):
        proofs.clear()
        restarted()
        path.write_bytes(broken_bytes)
        assert proven(store, manifest, "cpu", 1) == expected
        assert proofs == [1]
        assert path.read_bytes() == whole


def test_a_store_that_cannot_be_written_to_is_no_hindrance(
    made_up: Callable[..., Any], proofs: list[int]
) -> None:
    _, manifest, store = made_up("8bit")
    (store.root / FOLDER).write_bytes(b"no folder")
    found = proven(store, manifest, "cpu", 1)
    assert found.form == prove(store, manifest, "cpu", 1).form
    assert proven(store, manifest, "cpu", 1) == found
    assert proofs == [1]
