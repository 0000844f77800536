"""Which form of calls keeps the promise of equal bits on this machine, and the class of its arithmetic.

Edge over onnxruntime and a temporary folder. onnxruntime picks its kernels by the processor, and some add up in another
order for another number of rows. So each kind of unit is loaded once with made-up weights of the model's own shapes and
called in different ways: a row in batches of every size and alone, a prompt in chunks and whole, units joined and cut.
The fastest form in which all of these agree to the bit is used. Two peers compute alike when their classes are equal:
the class ends with a hash of results of that form, so it follows from bits and not from names of processors.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from peer.runtime.execution import Execution, Row
from peer.runtime.forms import ALONE, ENDS, FASTEST, MOST_ROWS, Form, RowShape, row_shape
from peer.runtime.kv_slots import KvSlots
from peer.runtime.piece_sizes import PIECE_TOKENS, WIDE_HEAD, piece_stop
from peer.runtime.processor import instruction_set, processor_name
from peer.session.evidence import Floats
from planner.model.checked_fields import StoredTensor
from planner.model.compose import Blobs
from planner.model.lowering import make_shard, rotary_tables
from planner.model.manifest import Manifest, ManifestUnit
from planner.model.onnxruntime_import import ort
from planner.model.store import Store
from planner.model.units import BLOCK

PROOF_VERSION: Final = (
    4  # of what is proven and how results are hashed: kept proofs of another one are made anew
)
CONTEXT: Final = 4 * PIECE_TOKENS
CHUNKS: Final = (  # ways to cut a prompt of PIECE_TOKENS: around the tiles of kernels, and single tokens
    (1, 2, 3, 5, 7, 8, 16, 22),
    (33, 31),
    (63, 1),
    (2, 45, 17),
    (3, 61),
    (17, 1, 29, 17),
)
LARGE_BYTES: Final = 8 << 20  # of a unit from which on fewer ways are tried, for each takes a while
LARGE_ROWS: Final = 8
TRIED_ROWS: Final = {
    MOST_ROWS: 23,
    LARGE_ROWS: 11,
}  # primes: no size of calls divides them, so the last call overlaps
HEAD_ROWS: Final = 2048  # of the vocabulary: each row of a head is computed like every other
ROTARY_POSITIONS: Final = 8192  # whose cosines the digest holds: numpy's last bits differ between builds, too
DIGEST_HEX: Final = 16
FOLDER: Final = "arithmetic"  # of a store

log = logging.getLogger(__name__)
_known: Final[dict[str, Proof]] = {}  # by key: what holds in this process, whatever lies in stores


@dataclass(frozen=True, slots=True)
class Proof:
    """`form`: the fastest that holds. `digest`: the hash of what it computes from fixed weights and inputs."""

    form: Form
    digest: str

    def class_of(self, provider: str) -> str:
        """The class of a peer's arithmetic, `provider/instruction set/form/digest`, in [a-z0-9_.+-/]."""
        return f"{provider}/{instruction_set()}/{self.form.text}/{self.digest}"


def proven(store: Store, manifest: Manifest, provider: str, threads: int, *, plain: bool = False) -> Proof:
    """The proof for units of `manifest` on this machine: kept in the store's folder, or made and kept there.

    `plain`: for shards whose activations are not rounded (`make_shard(exact=True)`). Takes some tenths of a second the
    first time. Each process computes the digest of a kept proof once, since a store may be copied to another machine
    of the same name, or be shared with it. Raises CannotServe when the provider is missing or refuses the graphs.
    """
    key = _key(manifest, provider, threads, plain=plain)
    name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
    path = store.root / FOLDER / f"{name}.json"
    if (known := _known.get(name)) is not None:
        return known
    begun = time.perf_counter()
    found = _read(path, key)
    if found is None or digest_of(store, manifest, found.form, provider, threads) != found.digest:
        found = prove(store, manifest, provider, threads, plain=plain)
        _write(path, key, found)
    log.info("arithmetic proven in %.2f s: %s", time.perf_counter() - begun, found.class_of(provider))
    return _known.setdefault(name, found)


def prove(store: Blobs, manifest: Manifest, provider: str, threads: int, *, plain: bool = False) -> Proof:
    """As `proven`, without anything kept; `store` has the graphs."""
    with tempfile.TemporaryDirectory(prefix="shoal-prove-") as folder:
        trial = _Trial(manifest, _MadeUpBlobs(Path(folder), store, manifest), provider, threads)
        form = _body_form(trial, replace(FASTEST, plain=plain))
        form = _head_form(trial, form)
        return Proof(form, _digest(trial, form))


def digest_of(store: Store, manifest: Manifest, form: Form, provider: str, threads: int) -> str:
    """The hash of what this process computes in `form` from fixed weights and inputs. Raises CannotServe."""
    with tempfile.TemporaryDirectory(prefix="shoal-prove-") as folder:
        blobs = _MadeUpBlobs(Path(folder), store, manifest)
        return _digest(_Trial(manifest, blobs, provider, threads), form)


# --- what is tried -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Trial:
    manifest: Manifest
    blobs: _MadeUpBlobs
    provider: str
    threads: int

    @property
    def bodies(self) -> tuple[ManifestUnit, ...]:
        """One attn and one ffn unit of each graph and layout that the model has: attention first, as in a block."""
        first: dict[object, ManifestUnit] = {}
        for unit in self.manifest.units:
            if unit.kind in ("attn", "ffn"):
                layout = tuple((t.name, t.dtype, t.shape) for t in unit.tensors)
                windows = tuple(pair.window for pair in unit.kv)
                first.setdefault((unit.kind, unit.graph.sha256, layout, windows), unit)
        return tuple(sorted(first.values(), key=lambda unit: unit.kind))

    @property
    def large(self) -> bool:
        return max((unit.resident_bytes for unit in self.bodies), default=0) > LARGE_BYTES

    @property
    def most(self) -> int:
        """Rows of a call; the larger ones of large units are slow to prove and gain little."""
        return LARGE_ROWS if self.large else MOST_ROWS

    def execution(
        self, units: Sequence[ManifestUnit], form: Form, vocabulary: int | None = None
    ) -> Execution:
        """These units loaded, a head for so many tokens. Raises CannotServe."""
        part = replace(self.manifest, units=tuple(units))
        for unit in units:
            self.blobs.make(unit)
        shard = make_shard(
            part, self.blobs, 0, len(units), self.provider, exact=form.plain, vocabulary=vocabulary
        )
        return Execution(shard, threads=self.threads, context=CONTEXT, form=form, brief=True)


def _body_form(trial: _Trial, form: Form) -> Form:
    units = trial.bodies
    if not units:
        return form
    whole = trial.execution(units, form)
    try:
        if form.fused and len(units) > 1 and not _cuts_hold(trial, whole, form):
            whole.close()
            return _body_form(trial, replace(form, fused=False))
        slots = _filled(whole, TRIED_ROWS[trial.most])
        hidden = _rows(b"decode", TRIED_ROWS[trial.most], trial.manifest.hidden)
        shape = _row_shape(trial.most, lambda size: _decoded(whole, slots, hidden, size))
        if shape is None and not form.plain and trial.provider == "cpu":
            plain = _plain_form(trial, whole, slots, hidden, form)
            if plain is not None:
                return plain
        form = replace(form, body=shape or ALONE)
        return replace(form, ends=_ends(trial, whole))
    finally:
        whole.close()


def _plain_form(
    trial: _Trial, rounding: Execution, slots: KvSlots, hidden: Floats, form: Form
) -> Form | None:
    """The form without rounded activations, where it holds and serves batches faster than row after row would."""
    plain = _body_form(trial, replace(form, plain=True))
    if plain.body.most == 1:
        return None
    execution = trial.execution(trial.bodies, plain)
    try:
        count = plain.body.filled(LARGE_ROWS)
        other_slots = _filled(execution, TRIED_ROWS[trial.most])
        together = min(_timed(lambda: _decoded(execution, other_slots, hidden, count)) for _ in range(3))
        alone = min(_timed(lambda: _decoded(rounding, slots, hidden, 1)) for _ in range(3))
    finally:
        execution.close()
    return plain if together < alone else None


def _head_form(trial: _Trial, form: Form) -> Form:
    heads = [unit for unit in trial.manifest.units if unit.kind == "head"]
    if not heads:
        return form
    execution = _head(trial, heads[0], replace(form, head=RowShape(most=MOST_ROWS)))
    try:
        hidden = _rows(b"head", TRIED_ROWS[trial.most], trial.manifest.hidden)
        shape = _row_shape(
            trial.most,
            lambda size: _windows(
                len(hidden), size, lambda span: execution.head_call(hidden[span.start : span.stop])
            ),
        )
    finally:
        execution.close()
    return replace(form, head=shape or ALONE)


def _head(trial: _Trial, head: ManifestUnit, form: Form) -> Execution:
    """The head for the first rows of the vocabulary, where its graph allows that."""
    return trial.execution([head], form, vocabulary=HEAD_ROWS)


def _row_shape(most: int, results: Callable[[int], bytes | None]) -> RowShape | None:
    """The cheapest shape in which `results(size)`, the same rows computed `size` at a time, are the same bits."""
    marks: dict[int, bytes | None] = {}

    def mark(size: int) -> bytes | None:
        if size not in marks:
            found = results(size)
            marks[size] = None if found is None else hashlib.sha256(found).digest()
        return marks[size]

    return row_shape(mark, most)


def _decoded(execution: Execution, slots: KvSlots, hidden: Floats, size: int) -> bytes | None:
    """The bits of one token for each row of `hidden`, computed `size` rows at a time."""
    lengths = [slots.length_of_row(row) for row in range(len(hidden))]
    return _windows(
        len(hidden),
        size,
        lambda span: execution.decode(hidden[span.start : span.stop], span, lengths[span.start : span.stop]),
    )


def _windows(count: int, size: int, call: Callable[[range], Floats]) -> bytes | None:
    """The bits of `count` rows in calls of `size`. The last call begins earlier, so that some rows are computed twice,
    at other places of a call: None where those differ.
    """
    found: list[Floats | None] = [None] * count
    for start in range(0, count, size):
        span = range(min(start, count - size), min(start, count - size) + size)
        result = call(span)
        for place, row in enumerate(span):
            known = found[row]
            if known is None:
                found[row] = result[place].copy()
            elif not np.array_equal(known, result[place]):
                return None
    return b"".join(row.tobytes() for row in found if row is not None)


def _ends(trial: _Trial, execution: Execution) -> int:
    """The least multiple to end calls at that makes a prompt in any chunks the same bits; 0 where none does."""
    pieces = 2 if execution.widest_head > WIDE_HEAD else 1
    hidden = _rows(b"prompt", pieces * PIECE_TOKENS, trial.manifest.hidden)
    slots = _filled(execution, 1)
    whole = _prompted(execution, slots, hidden, pieces * (PIECE_TOKENS,), PIECE_TOKENS if pieces == 1 else 1)
    for ends in ENDS:
        if all(_prompted(execution, slots, hidden, pieces * sizes, ends) == whole for sizes in CHUNKS):
            return ends
    return 0


def _prompted(
    execution: Execution, slots: KvSlots, hidden: Floats, sizes: tuple[int, ...], ends: int
) -> bytes:
    """The bits of a prompt that is given in chunks of these sizes."""
    execution.ensure(slots, 1, len(hidden) + 2 * ends)
    found, start = [], 0
    for size in sizes:
        end = start + size
        while start < end:
            stop = piece_stop(start, end, execution.widest_head)
            found.append(execution.prompt(hidden[start:stop], Row(0, start), ends).tobytes())
            start = stop
    return b"".join(found)


def _cuts_hold(trial: _Trial, whole: Execution, form: Form) -> bool:
    """Whether units in one graph give what they give one by one: a prompt, then a token."""
    hidden = _rows(b"cut", PIECE_TOKENS + 1, trial.manifest.hidden)
    expected = _through(whole, hidden)
    rows = hidden
    for unit in trial.bodies:
        part = trial.execution([unit], form)
        try:
            rows = _through(part, rows)
        finally:
            part.close()
    return bool(np.array_equal(rows, expected))


def _through(execution: Execution, hidden: Floats) -> Floats:
    """A prompt of all rows but the last, which is a sampled token."""
    slots = KvSlots(1, CONTEXT, execution.form)
    slots.admit(b"")
    execution.ensure(slots, 1, len(hidden) + 1)
    prompt = execution.prompt(hidden[:-1], Row(0, 0), 1).copy()
    return np.concatenate([prompt, execution.decode(hidden[-1:], range(1), [len(hidden) - 1])])


def _digest(trial: _Trial, form: Form) -> str:
    """The hash of the rotary tables, and of a prompt, some tokens after it and their logits, in this form."""
    taken = hashlib.sha256()
    width = trial.manifest.hidden
    for frequencies in trial.manifest.rotary:
        for table in rotary_tables(frequencies, min(trial.manifest.context, ROTARY_POSITIONS)):
            taken.update(table.tobytes())
    if trial.bodies:
        execution = trial.execution(trial.bodies, form)
        try:
            slots = _filled(execution, trial.most)
            hidden = _rows(b"digest", PIECE_TOKENS, width)
            rows = hidden[: trial.most]
            taken.update(_decoded(execution, slots, rows, form.body.filled(1)) or b"")
            if form.ends:
                taken.update(_prompted(execution, slots, hidden, (PIECE_TOKENS,), form.ends))
        finally:
            execution.close()
    heads = [unit for unit in trial.manifest.units if unit.kind == "head"]
    if heads:
        execution = _head(trial, heads[0], form)
        try:
            taken.update(execution.head(_rows(b"logits", 4, width)).tobytes())
        finally:
            execution.close()
    return taken.hexdigest()[:DIGEST_HEX]


def _filled(execution: Execution, rows: int) -> KvSlots:
    """Slots of which each has another number of cached positions; what is cached is made up."""
    slots = KvSlots(rows, CONTEXT, execution.form)
    for row in range(rows):
        slots.admit(bytes([row]))
    execution.ensure(slots, rows, CONTEXT)
    for row in range(rows):
        length = 1 + (37 * row + 11) % (PIECE_TOKENS - 1)
        shapes = execution.state_shapes(length)
        made = {name: _rows(f"{name}{row}".encode(), *shape) for name, shape in shapes.items()}
        execution.put(row, length, made)
        slots.set_length(bytes([row]), length)
    return slots


def _timed(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


# --- made-up weights ---------------------------------------------------------------------------------------


def _bytes(seed: bytes, count: int) -> npt.NDArray[np.uint8]:
    """The same bytes on every machine and with every version of numpy; a block of them is repeated."""
    block = hashlib.shake_128(seed).digest(min(count, 1 << 18))
    return np.resize(np.frombuffer(block, np.uint8), count)


def _rows(seed: bytes, *shape: int) -> Floats:
    """Activations from -2 to 2, exact in float32."""
    return (_bytes(seed, int(np.prod(shape))).astype(np.float32) - 128).reshape(shape) / np.float32(64)


class _MadeUpBlobs:
    """Stands in for the store: blobs of weights that keep activations small, with holes for what is not used.

    All values are small integers times powers of two, so that they are the same bits everywhere.
    """

    def __init__(self, folder: Path, store: Blobs, manifest: Manifest) -> None:
        self._folder = folder
        self._store = store
        self._graphs = {blob.sha256 for blob in manifest.graphs()}
        self._made: set[tuple[str, str]] = set()

    def make(self, unit: ManifestUnit) -> None:
        """The unit's tensors, where they are not there yet; of a head, the first rows."""
        if (unit.blob.sha256, unit.kind) in self._made:
            return
        self._made.add((unit.blob.sha256, unit.kind))
        path = self.blob_path(unit.blob.sha256)
        path.touch()
        with path.open("r+b") as file:
            file.truncate(unit.blob.bytes)
            for tensor in unit.tensors:
                file.seek(tensor.offset)
                if unit.kind == "head" and len(tensor.shape) > 1:
                    rows = min(tensor.shape[0], HEAD_ROWS)
                    tensor = replace(tensor, shape=(rows, *tensor.shape[1:]))
                file.write(_weights(unit, tensor))

    def blob_path(self, sha256: str) -> Path:
        return self._store.blob_path(sha256) if sha256 in self._graphs else self._folder / sha256


def _weights(unit: ManifestUnit, tensor: StoredTensor) -> bytes:
    made = _bytes(f"{unit.kind}.{tensor.name}".encode(), int(np.prod(tensor.shape)))
    if tensor.dtype == "u8":
        return made.tobytes()
    values = made.astype(np.float32) - np.float32(128)
    linear, _, last = tensor.name.rpartition(".")
    if "norm" in tensor.name:
        values = np.float32(1) + values / np.float32(256)
    elif last == "scale":
        steps = 1 << 14 if unit.tensor(f"{linear}.q8") is None else 1 << 18  # 15 levels, or 255
        columns = tensor.shape[-1] * BLOCK
        values = (made.astype(np.float32) + np.float32(1)) / np.float32(steps * _gain(columns))
    else:
        values = values / np.float32((1 << 11) * _gain(tensor.shape[-1]))
    return values.astype("<f2" if tensor.dtype == "f16" else "<f4").tobytes()


def _gain(columns: int) -> int:
    """What sums of so many products are divided by, about: they are to stay around 1, since attention that gives all
    its weight to one position adds up nothing, in whatever order.
    """
    return 1 << (columns // 512).bit_length() // 2


# --- kept proofs -------------------------------------------------------------------------------------------


def _key(manifest: Manifest, provider: str, threads: int, *, plain: bool) -> dict[str, object]:
    """What a proof holds for: this machine, these versions, the shapes of these units."""
    layouts = sorted(
        {
            json.dumps(
                [
                    unit.kind,
                    unit.graph.sha256,
                    [(t.name, t.dtype, t.shape) for t in unit.tensors],
                    [(pair.heads, pair.head_size, pair.window) for pair in unit.kv],
                ]
            )
            for unit in manifest.units
            if unit.kind != "embed"
        }
    )
    numbers = [manifest.vocab, manifest.hidden, manifest.context, manifest.rotary]
    shapes = json.dumps([numbers, layouts])
    return {
        "proof": PROOF_VERSION,
        "onnxruntime": ort.__version__,
        "machine": processor_name(),
        "instructions": instruction_set(),
        "provider": provider,
        "threads": threads,
        "plain": plain,
        "shapes": hashlib.sha256(shapes.encode()).hexdigest(),
    }


def _read(path: Path, key: dict[str, object]) -> Proof | None:
    """None where none is kept, or not a whole one for this key."""
    try:
        kept = json.loads(path.read_bytes())
        if kept["key"] != key:
            return None
        form = kept["form"]
        return Proof(
            Form(
                _row_shape_of(form["body"]),
                _row_shape_of(form["head"]),
                int(form["ends"]),
                form["plain"] is True,
                form["fused"] is True,
            ),
            str(kept["digest"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _row_shape_of(kept: dict[str, int]) -> RowShape:
    shape = RowShape(int(kept["least"]), int(kept["multiple"]), int(kept["most"]))
    if not 1 <= shape.least <= shape.most <= MOST_ROWS or shape.multiple < 1:
        raise ValueError("no shape that was proven")
    return shape


def _write(path: Path, key: dict[str, object], proof: Proof) -> None:
    kept = {"key": key, "form": asdict(proof.form), "digest": proof.digest}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            json.dump(kept, file)
        Path(file.name).replace(path)
    except OSError as error:
        log.warning("what was proven of this machine's arithmetic was not kept: %s", error)
