"""Arrays of every data type survive the wire; what does not fit the manifest is refused."""

from typing import Any, get_args

import numpy as np
import pytest

from peer.dataflow.value_codec import NUMPY, arrays_of, check_total, checked, from_bytes, to_bytes
from peer.errors import WrongTensor
from planner.model.graph_manifest import GraphManifest, Value, ValueType


def value(dtype: ValueType, *shape: int | str) -> Value:
    return Value("v", dtype, shape, ())


@pytest.mark.parametrize("dtype", sorted(set(NUMPY) - {"string"}))
@pytest.mark.parametrize("shape", [(), (3,), (0, 4), (2, 3, 5)])
def test_numbers_come_back(dtype: ValueType, shape: tuple[int, ...]) -> None:
    array = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 7).astype(NUMPY[dtype])
    wanted = value(dtype, *("any" for _ in shape))
    data = bytes(to_bytes(checked(array, wanted), wanted))
    found = from_bytes(data, shape, wanted)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)
    with pytest.raises(WrongTensor):
        from_bytes(data + b"\0", shape, wanted)


def test_arrays_that_do_not_lie_in_order_come_back() -> None:
    array = np.arange(24, dtype="f4").reshape(4, 6).T[::2]
    wanted = value("float32", 3, "n")
    np.testing.assert_array_equal(from_bytes(bytes(to_bytes(array, wanted)), (3, 4), wanted), array)


def test_strings_come_back() -> None:
    array = np.array([["", "é"], ["\0 zero", "日本語" * 100]])
    wanted = value("string", 2, "n")
    data = bytes(to_bytes(checked(array, wanted), wanted))
    np.testing.assert_array_equal(from_bytes(data, (2, 2), wanted), array.astype(object))


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        (b"", (1,)),
        (b"\5\0\0\0abcd", (1,)),
        (b"\1\0\0\0\xff", (1,)),
        (b"\0\0\0\0a", (1,)),
        (b"\xff\xff\xff\xff", (1,)),
        (b"\0\0\0\0", (2,)),
    ],
)
def test_strings_that_no_peer_writes_are_refused(data: bytes, shape: tuple[int, ...]) -> None:
    with pytest.raises(WrongTensor):
        from_bytes(data, shape, value("string", "n"))


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (np.zeros(3, "f8"), value("float32", 3)),
        (np.zeros(3, "f4"), value("float32", 4)),
        (np.zeros(3, "f4"), value("float32", 3, 1)),
        (np.zeros(3, "f4"), value("string", 3)),
        (np.zeros(3, "f4"), value("bfloat16", 3)),
    ],
    ids=["type", "size", "rank", "words", "no such numbers"],
)
def test_what_the_manifest_does_not_want_is_refused(array: np.ndarray[Any, Any], wanted: Value) -> None:
    with pytest.raises(WrongTensor, match=r"expected|cannot leave"):
        checked(array, wanted)


def test_sizes_that_no_machine_has_are_refused_before_anything_is_kept() -> None:
    with pytest.raises(WrongTensor):
        check_total(2**62, (2**31, 2**29), value("float32", "a", "b"))


def test_lists_become_what_the_model_takes_and_arrays_stay() -> None:
    manifest = GraphManifest("m", ("v",), ("v",), {}, (value("float16", "n"),), ())
    assert arrays_of(manifest, {"v": [1, 2]})["v"].dtype == np.float16
    assert arrays_of(manifest, {"v": np.zeros(2)})["v"].dtype == np.float64
    with pytest.raises(WrongTensor, match="expected"):
        arrays_of(manifest, {"v": [[1], [2, 3]]})


def test_every_type_of_a_manifest_is_known_or_refused() -> None:
    assert set(NUMPY) == set(get_args(ValueType)) - {"bfloat16", "int4", "uint4"}
