"""How a shard runs on onnxruntime: its sessions, its KV arrays, and the bindings that tie both together.

Not thread-safe: one thread owns an `Execution`. Only the CPU provider is tested here; the others keep the KV
arrays in memory of their device and copy through the host when rows move or the arrays grow.

Memory: weights are mapped from their blobs while a session loads, repacked by the kernels tensor by tensor
and let go, so there is never a second copy of more than one tensor; what stays mapped but is not read again (scales
that were repacked, too) leaves the process. The head is loaded first because its
matrix is the largest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from peer.errors import CannotServe
from peer.runtime.forms import Form, filled_tokens
from peer.runtime.huge_pages import (
    LARGE_BYTES,
    give_back_memory,
    giving_back,
    keep_no_large_holes,
    let_go_of_files,
    let_go_of_memory,
    use_huge_pages,
)
from peer.runtime.kv_slots import KvSlots, Move, Shape
from peer.runtime.shared_sessions import SharedSessions
from peer.session.evidence import Floats
from planner.model.kv_window import KvWindow
from planner.model.lowering import (
    POSITION_IDS,
    WINDOW_SEQLENS,
    WINDOW_TOTAL,
    EmbedTable,
    Shard,
    rotary_inputs,
    rotary_tables,
)
from planner.model.onnxruntime_import import OrtDevice, ort

PROVIDERS: Final = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "dml": "DmlExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
}
DIGEST_BYTES: Final = 8  # of cached keys and values, compared with those of an honest peer
KEPT_BINDINGS: Final = 64  # a binding is a few kilobytes of names; ranges of rows repeat
KEPT_BYTES: Final = 4 << 20  # of their buffers: that of a piece of a prompt has 2 MB in an 8B shape


@dataclass(frozen=True, slots=True)
class Row:
    """Where one session's tokens go: its row of the KV arrays and the cached positions before them."""

    row: int
    length: int


class Execution:
    """One loaded shard, called in `form`. Raises CannotServe when the provider is missing or refuses the graph."""

    def __init__(
        self,
        shard: Shard,
        *,
        threads: int,
        context: int,
        form: Form,
        mapped: bool = False,
        brief: bool = False,
        shared: SharedSessions | None = None,
        tables: Mapping[str, Floats] | None = None,
    ) -> None:
        """`mapped`: plain weights are computed with from their files, slower, instead of being repacked in memory.

        `brief`: it is closed soon, so that the process's memory is not put in order after loading.

        `shared`: those of other stages, of which equal ones are used instead of loading them again.

        `tables`: cosines and sines by the names of the body's inputs, for `context` positions and those that a call may
        write behind them; None: they are computed.
        """
        keep_no_large_holes()
        options = session_options(shard.blobs, threads, fused=form.fused)
        if mapped:
            options.add_session_config_entry("session.disable_prepacking", "1")
            options.graph_optimization_level = (
                ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            )  # else float16 is widened
        providers = _providers(shard.provider)
        loaded = shared if shared is not None else SharedSessions()
        settings = (shard.blobs, providers, threads, form.fused, mapped)

        def session(graph: bytes) -> Any:
            return loaded.session(graph, settings, lambda: ort.InferenceSession(graph, options, providers))

        self.form = form
        self._shard = shard
        self._embed = None if shard.embed is None else _Embedding(shard.embed)
        try:
            with giving_back():
                self._heads = [session(part) for part in shard.heads]
                self._after_embed, self._body = (
                    None if graph is None else session(graph) for graph in (shard.after_embed, shard.body)
                )
        except Exception as error:
            raise CannotServe(f"onnxruntime refused units {shard.first} to {shard.stop}: {error}") from error
        self._kv = _KvArrays(shard)
        self._rotary: dict[str, Floats] = dict(tables or {})
        for table, frequencies in enumerate(shard.rotary if tables is None else ()):
            made = rotary_tables(frequencies, context + form.spare_tokens)
            self._rotary.update(zip(rotary_inputs(table), made, strict=True))
        self._bindings: dict[tuple[int, int, int], _Binding] = {}
        if not brief:
            let_go_of_files(shard.blobs)
            give_back_memory()
            use_huge_pages()

    @property
    def has_embed(self) -> bool:
        """Whether the shard begins with the embedding."""
        return self._embed is not None

    @property
    def has_head(self) -> bool:
        """Whether the shard ends with the head."""
        return bool(self._heads)

    @property
    def shape(self) -> Shape:
        """The size of the KV arrays: rows and positions."""
        return self._kv.shape

    @property
    def widest_head(self) -> int:
        """Values of the widest head that is cached; 0 where none is."""
        return self._shard.widest_head

    @property
    def kv_bytes(self) -> int:
        """How many bytes the KV arrays take."""
        return self._kv.bytes

    def ensure(self, slots: KvSlots, rows: int, positions: int) -> None:
        """Grow the KV arrays so that `rows` rows of `positions` fit; what is cached is kept."""
        wanted = slots.grown(self._kv.shape, rows, positions)
        if wanted != self._kv.shape:
            self.grow(wanted, [slots.length_of_row(row) for row in range(len(slots))])
            give_back_memory()  # the smaller arrays left holes
        self.use(rows)

    def grow(self, shape: Shape, lengths: Sequence[int]) -> None:
        """Makes the KV arrays have that shape; rows keep `lengths` positions."""
        self._bindings.clear()
        self._kv.grow(shape, list(lengths))

    def use(self, rows: int) -> None:
        """The first `rows` rows are written to."""
        self._kv.used_rows = max(self._kv.used_rows, rows)

    def move(self, move: Move) -> None:
        """Copies rows of the KV arrays as `move` says."""
        self._kv.move(move)

    def let_go(self, rows: int) -> None:
        """Rows from `rows` on have no session; what they occupy goes back to the system, and what calls left."""
        self._kv.let_go(rows)
        give_back_memory()

    def holds(self, row: int, length: int) -> bool:
        """Whether `row` has what comes after its first `length` positions looks at: arrays with a window drop old ones,
        so that a session can take back only a few.
        """
        return self._kv.holds(row, length)

    def digest(self, row: int, first: int, stop: int) -> dict[str, str]:
        """By key and value array, the hash of what `row` caches at positions [first, stop); arrays that dropped some of
        these are left out.
        """
        return self._kv.digest(row, first, stop)

    def copied(self, row: int, stop: int, names: Collection[str] | None) -> dict[str, Floats] | None:
        """What `row` caches at positions [0, stop) in these key and value arrays (None: in all), each (heads, stop,
        head_size); of arrays with a window from position KvWindow.first_kept(stop) on. None where that was dropped.
        """
        return self._kv.copied(row, stop, names)

    def state_shapes(self, positions: int) -> dict[str, tuple[int, int, int]]:
        """By key and value array, the shape of what `copied` gives for `positions`."""
        return self._kv.shapes(positions)

    def put(self, row: int, count: int, arrays: Mapping[str, Floats]) -> None:
        """Makes `arrays`, which end at position `count` and of which those with a window begin at one place, what `row`
        caches. Raises ValueError unless it is all of them, and enough to go on.
        """
        self._kv.put(row, count, arrays)

    def embed(self, tokens: npt.NDArray[np.int64]) -> Floats:
        """tokens (T,) -> (T, hidden)."""
        if self._embed is None:
            raise ValueError("this shard has no embedding")
        rows = self._embed.rows(tokens)
        if self._after_embed is not None:
            rows = self._after_embed.run(["hidden.out"], {"hidden": rows})[0]
        return rows

    def decode(self, hidden: Floats, span: range, lengths: list[int]) -> Floats:
        """One token for each row of `span`, in one call: hidden (rows, hidden) -> (rows, hidden). Whoever calls fills
        `span` up as the form wants it (RowShape.spans). The result is valid until the next call.
        """
        if self._body is None:
            return hidden
        found: Floats = self._run(hidden[:, None, :], span, lengths)[:, 0]
        return found

    def alone(self, hidden: Floats, row: Row) -> Floats:
        """One token where one session uses all arrays: (1, hidden) -> (1, hidden), rows beside it being company."""
        ((_, span),) = self.form.body.spans(range(row.row, row.row + 1), self.shape.rows)
        rows = np.repeat(hidden, len(span), axis=0)
        place = row.row - span.start
        return self.decode(rows, span, [row.length] * len(span))[place : place + 1]

    def prompt(self, hidden: Floats, row: Row, ends: int = 0) -> Floats:
        """Tokens of one row: (T, hidden) -> (T, hidden). The result is valid until the next call.

        The call is filled up with the last token again, as the form wants it (or `ends`), and needs room for as many
        positions. Thus no result depends on how a prompt is cut.
        """
        if self._body is None:
            return hidden
        count = len(hidden)
        lacking = filled_tokens(row.length, count, ends or self.form.ends or 1) - count
        if lacking:
            hidden = np.concatenate([hidden, np.repeat(hidden[-1:], lacking, axis=0)])
        found: Floats = self._run(hidden[None], range(row.row, row.row + 1), [row.length])[0, :count]
        return found

    def head(self, hidden: Floats) -> Floats:
        """(rows, hidden) -> logits (rows, vocab), in calls as the form wants them."""
        shape, found, start = self.form.head, list[Floats](), 0
        for count in shape.parts(len(hidden)):
            rows = hidden[start : start + count]
            lacking = shape.filled(count) - count
            if lacking:
                rows = np.concatenate([rows, np.repeat(rows[-1:], lacking, axis=0)])
            found.append(self.head_call(rows)[:count])
            start += count
        return found[0] if len(found) == 1 else np.concatenate(found)

    def head_call(self, hidden: Floats) -> Floats:
        """(rows, hidden) -> logits (rows, vocab), these rows and no others in one call."""
        if not self._heads:
            raise ValueError("this shard has no head")
        parts: list[Floats] = [head.run(["logits"], {"hidden": hidden})[0] for head in self._heads]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def close(self) -> None:
        """Lets go of sessions, arrays and weights. Nothing may be called afterwards."""
        self._bindings.clear()
        self._kv.close()
        self._body = None
        self._after_embed = None
        self._heads.clear()
        if self._embed is not None:
            self._embed.close()

    def _run(self, hidden: Floats, span: range, lengths: list[int]) -> Floats:
        tokens = hidden.shape[1]
        if max(lengths) + tokens > self.shape.capacity or span.stop > self.shape.rows:
            raise ValueError(f"{max(lengths) + tokens} positions in rows {span} do not fit {self.shape}")
        firsts = [self._kv.make_room(row, length, tokens) for row, length in zip(span, lengths, strict=True)]
        key = (span.start, len(span), tokens)
        binding = self._bindings.get(key)
        if binding is None:
            kept = sum(2 * one.hidden.nbytes for one in self._bindings.values())
            if len(self._bindings) >= KEPT_BINDINGS or kept + 2 * hidden.nbytes > KEPT_BYTES:
                self._bindings.clear()
            binding = self._bindings[key] = self._bind(span, tokens)
        np.copyto(binding.hidden, hidden)
        binding.seqlens[:] = lengths
        binding.seqlens += tokens - 1
        binding.total[0] = max(lengths) + tokens
        if binding.window is not None:
            binding.window.set(lengths, firsts)
        binding.run()
        return binding.result

    def _bind(self, span: range, tokens: int) -> _Binding:
        assert self._body is not None
        windowed = any(pair.window is not None for pair in self._shard.kv)
        made = _Binding(self._body, len(span), tokens, self._shard.hidden, windowed=windowed)
        for name, table in self._rotary.items():
            made.input(name, table)
        self._kv.bind(made, span)
        return made


class _Binding:
    """Buffers of one call shape (rows, tokens), bound once and used again."""

    def __init__(
        self, session: ort.InferenceSession, rows: int, tokens: int, width: int, *, windowed: bool
    ) -> None:
        self._session = session._sess
        self._io = session.io_binding()._iobinding
        self._kept: list[npt.NDArray[Any]] = []
        self.hidden = np.empty((rows, tokens, width), np.float32)
        self.result = np.empty_like(self.hidden)
        self.seqlens = np.zeros(rows, np.int32)
        self.total = np.zeros(1, np.int32)
        self.input("hidden", self.hidden)
        self.input("seqlens", self.seqlens)
        self.input("total", self.total)
        self.output("hidden.out", self.result)
        self.window = _WindowInputs(self, rows, tokens) if windowed else None

    def input(self, name: str, array: npt.NDArray[Any]) -> None:
        self._kept.append(array)
        self._io.bind_input(name, _CPU, array.dtype.type, list(array.shape), array.ctypes.data)

    def output(self, name: str, array: npt.NDArray[Any]) -> None:
        self._kept.append(array)
        self._io.bind_output(name, _CPU, array.dtype.type, list(array.shape), array.ctypes.data)

    def updated_in_place(
        self, name: str, outputs: Collection[str], device: OrtDevice, shape: list[int], address: int
    ) -> None:
        self._io.bind_input(name, device, np.float32, shape, address)
        for output in outputs:
            self._io.bind_output(output, device, np.float32, shape, address)

    def run(self) -> None:
        self._session.run_with_iobinding(self._io, None)


class _WindowInputs:
    """What a call says of arrays with a window: where its tokens stand, and how many positions there are."""

    def __init__(self, binding: _Binding, rows: int, tokens: int) -> None:
        self._positions = np.zeros((rows, tokens), np.int64)
        self._seqlens = np.zeros(rows, np.int32)
        self._total = np.zeros(1, np.int32)
        binding.input(POSITION_IDS, self._positions)
        binding.input(WINDOW_SEQLENS, self._seqlens)
        binding.input(WINDOW_TOTAL, self._total)

    def set(self, lengths: list[int], firsts: list[int]) -> None:
        """For rows of `lengths` positions, of which those before `firsts` were dropped."""
        tokens = self._positions.shape[1]
        self._positions[:] = np.asarray(lengths)[:, None] + np.arange(tokens)
        self._seqlens[:] = np.subtract(lengths, firsts) + tokens - 1
        self._total[0] = self._seqlens.max() + 1


_CPU: Final = OrtDevice(OrtDevice.cpu(), OrtDevice.default_memory(), 0)


class _KvArrays:
    """For each state of the units a key and a value array, float32 (rows, heads, capacity, head_size), on the device of
    the provider.

    Arrays of states with a window have room for less: a row begins at position `first`, those before were dropped.
    """

    def __init__(self, shard: Shard) -> None:
        self._sizes = {name: (pair.heads, pair.head_size) for pair in shard.kv for name in pair.names}
        self._outputs = {  # of shared keys and values both lie in one array
            name: pair.outputs if pair.shared else (output,)
            for pair in shard.kv
            for name, output in zip(pair.names, pair.outputs, strict=False)
        }
        self._windowed = frozenset(
            name for pair in shard.kv for name in pair.names if pair.window is not None
        )
        self._window = shard.window if self._windowed else None
        self._firsts: list[int] = []  # by row
        self._cuda = shard.provider == "cuda"
        self._host: dict[str, Floats] = {}
        self._device: dict[str, ort.OrtValue] = {}
        self.shape = Shape(0, 0)
        self.used_rows = 0  # the others are allocated, but nothing was written there

    @property
    def bytes(self) -> int:
        rows = self.shape.rows if self._cuda else self.used_rows
        return rows * sum(self._row_bytes(name) for name in self._sizes)

    def let_go(self, rows: int) -> None:
        if not self._cuda:
            unused = self.used_rows - rows
            for name, array in self._host.items() if unused > 0 else ():
                row_bytes = self._row_bytes(name)
                let_go_of_memory(array.ctypes.data + rows * row_bytes, unused * row_bytes)
        self.used_rows = min(self.used_rows, rows)

    def _capacity(self, name: str, shape: Shape) -> int:
        if self._window is None or name not in self._windowed:
            return shape.capacity
        return min(shape.capacity, self._window.capacity)

    def _row_bytes(self, name: str) -> int:
        heads, size = self._sizes[name]
        return heads * self._capacity(name, self.shape) * size * 4

    def _first(self, name: str, row: int) -> int:
        return self._firsts[row] if name in self._windowed else 0

    def grow(self, shape: Shape, lengths: list[int]) -> None:
        """One array at a time; only filled positions are touched."""
        self._firsts += [0] * (shape.rows - len(self._firsts))
        for name, (heads, size) in self._sizes.items():
            fresh = np.zeros((shape.rows, heads, self._capacity(name, shape), size), np.float32)
            if self.shape.rows:
                kept = [
                    max(length - self._first(name, row), 0)
                    for row, length in enumerate(lengths[: self.shape.rows])
                ]
                self._fill(fresh, self._read(name), kept)
            self._write(name, fresh)
        self.shape = shape

    def _fill(self, fresh: Floats, old: Floats, lengths: list[int]) -> None:
        """Copies, and lets go of what was copied of a large array at once: where pages are huge, the new one occupies
        all that it ever will as soon as it is half filled.
        """
        large = not self._cuda and old.nbytes >= LARGE_BYTES
        for row, length in enumerate(lengths):
            for head in range(old.shape[1]):
                copied = old[row, head]
                fresh[row, head, :length] = copied[:length]
                if large:
                    let_go_of_memory(copied.ctypes.data, copied.nbytes)

    def make_room(self, row: int, length: int, tokens: int) -> int:
        """Drops what no window of the next `tokens` tokens needs, where they do not fit otherwise. The first position
        that the row has in arrays with a window. Raises ValueError for more tokens than a call may have.
        """
        window = self._window
        if window is None:
            return 0
        if not length:
            self._firsts[row] = 0
        first = self._firsts[row]
        room = min(self.shape.capacity, window.capacity)
        if length - first + tokens <= room:
            return first
        fresh = window.first_kept(length)
        if length - fresh + tokens > room:
            raise ValueError(f"{tokens} tokens in one call do not fit {room} positions")
        for name in self._windowed:
            array = self._read(name)
            kept = array[row, :, fresh - first : length - first]
            array[row, :, : kept.shape[1]] = kept  # fewer where memory is measured with positions made up
            if self._cuda:
                self._write(name, array)
        self._firsts[row] = fresh
        return fresh

    def holds(self, row: int, length: int) -> bool:
        window = self._window
        return window is None or row >= len(self._firsts) or window.holds(self._firsts[row], length)

    def move(self, move: Move) -> None:
        for name in self._sizes:
            array, length = self._read(name), move.length - self._first(name, move.source)
            array[move.target, :, :length] = array[move.source, :, :length]
            if self._cuda:
                self._write(name, array)
        if self._firsts:
            self._firsts[move.target] = self._firsts[move.source]

    def digest(self, row: int, first: int, stop: int) -> dict[str, str]:
        return {
            name: blake2b(
                self._read(name)[row, :, first - dropped : stop - dropped].tobytes(), digest_size=DIGEST_BYTES
            ).hexdigest()
            for name in self._sizes
            if (dropped := self._first(name, row)) <= first
        }

    def copied(self, row: int, stop: int, names: Collection[str] | None) -> dict[str, Floats] | None:
        found: dict[str, Floats] = {}
        for name in self._sizes:
            if names is not None and name not in names:
                continue
            begin, dropped = self._begin(name, stop), self._first(name, row)
            if begin < dropped:
                return None
            found[name] = self._read(name)[row, :, begin - dropped : stop - dropped].copy()
        return found

    def _begin(self, name: str, stop: int) -> int:
        """The first position of a copy of [0, stop)."""
        return self._window.first_kept(stop) if self._window is not None and name in self._windowed else 0

    def shapes(self, positions: int) -> dict[str, tuple[int, int, int]]:
        return {
            name: (heads, positions - self._begin(name, positions), size)
            for name, (heads, size) in self._sizes.items()
        }

    def put(self, row: int, count: int, arrays: Mapping[str, Floats]) -> None:
        if arrays.keys() != self._sizes.keys():
            raise ValueError(f"expected {', '.join(self._sizes)}")
        firsts = {count - arrays[name].shape[1] for name in self._windowed}
        first = firsts.pop() if firsts else 0
        if firsts or not _goes_on(self._window, first, count):
            raise ValueError(f"what is copied does not suffice for position {count}")
        for name, value in arrays.items():
            array = self._read(name)
            array[row, :, : value.shape[1]] = value
            if self._cuda:
                self._write(name, array)
        self._firsts[row] = first

    def bind(self, binding: _Binding, span: range) -> None:
        for name, (heads, size) in self._sizes.items():
            shape = [len(span), heads, self._capacity(name, self.shape), size]
            if self._cuda:
                device = OrtDevice(OrtDevice.cuda(), OrtDevice.default_memory(), 0)
                start = self._device[name].data_ptr()
            else:
                device, start = _CPU, self._host[name].ctypes.data
            address = start + span.start * self._row_bytes(name)
            binding.updated_in_place(name, self._outputs[name], device, shape, address)

    def close(self) -> None:
        self._host.clear()
        self._device.clear()
        self._firsts.clear()
        self.shape = Shape(0, 0)

    def _read(self, name: str) -> Floats:
        if not self._cuda:
            return self._host[name]
        array: Floats = self._device[name].numpy()
        return array

    def _write(self, name: str, array: Floats) -> None:
        if self._cuda:
            self._device.pop(name, None)
            self._device[name] = ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0)
        else:
            self._host[name] = array


def _goes_on(window: KvWindow | None, first: int, count: int) -> bool:
    """Whether arrays that begin at `first` are a cache of `count` positions."""
    if window is None or not first:
        return first == 0
    return first > 0 and first % window.block == 0 and window.holds(first, count)


class _Embedding:
    """Rows read from the blob when they are needed: a table of any size costs no memory."""

    def __init__(self, table: EmbedTable) -> None:
        self._table = table
        self._file = os.open(table.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))

    def rows(self, tokens: npt.NDArray[np.int64]) -> Floats:
        table = self._table
        if table.w is not None:
            dtype = np.dtype("<f2" if table.w.dtype == "f16" else "<f4")
            return self._read(tokens, table.w.offset, dtype, table.columns).astype(np.float32)
        assert table.q8 is not None
        assert table.scale is not None
        blocks, block = table.q8.shape[1:]
        q = self._read(tokens, table.q8.offset, np.dtype(np.uint8), blocks * block)
        scale = self._read(tokens, table.scale.offset, np.dtype("<f4"), blocks)
        centred = q.reshape(-1, blocks, block).astype(np.float32) - np.float32(128)
        wide = (centred * scale[:, :, None]).reshape(len(tokens), -1)
        return np.ascontiguousarray(wide[:, : table.columns], dtype=np.float32)

    def close(self) -> None:
        os.close(self._file)

    def _read(
        self, tokens: npt.NDArray[np.int64], offset: int, dtype: np.dtype[Any], columns: int
    ) -> npt.NDArray[Any]:
        found = np.empty((len(tokens), columns), dtype)
        size = columns * dtype.itemsize
        for place, token in enumerate(tokens.tolist()):
            found[place] = np.frombuffer(_pread(self._file, size, offset + token * size), dtype)
        return found


def _pread(file: int, size: int, offset: int) -> bytes:
    if sys.platform == "win32":
        os.lseek(file, offset, os.SEEK_SET)
        return os.read(file, size)
    return os.pread(file, size, offset)


def session_options(blobs: Path | None, threads: int, *, fused: bool = True) -> ort.SessionOptions:
    """Of a graph whose external data lies in the folder `blobs` (None: it has none); `fused`: operators may be
    joined.
    """
    options = ort.SessionOptions()
    if not fused:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # an arena keeps the largest prompt's scratch for ever
    options.enable_mem_pattern = (
        False  # the first call of each shape leaves its buffers beside the pattern's: 13 MiB of 4B
    )
    options.log_severity_level = 3
    for key, value in (
        ("session.model_external_initializers_file_folder_path", str(blobs or "")),
        ("session.intra_op.allow_spinning", "0"),  # other peers and the event loop share these cores
    ):
        options.add_session_config_entry(key, value)
    return options


def _providers(name: str) -> list[str]:
    wanted = PROVIDERS.get(name)
    if wanted is None:
        raise CannotServe(f"provider {name!r} is not known; one of {', '.join(PROVIDERS)} expected")
    available = ort.get_available_providers()
    if wanted not in available:
        raise CannotServe(
            f"provider {name} needs {wanted}, but this onnxruntime has {', '.join(available)}; "
            "install the onnxruntime package made for it, or use --provider cpu"
        )
    return [wanted] if name == "cpu" else [wanted, PROVIDERS["cpu"]]
