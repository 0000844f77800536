"""Tensors: bytes for arrays and back, and what is refused."""

import numpy as np
import pytest
from numpy.typing import NDArray

from peer.errors import WrongTensor
from peer.limits import MAX_TENSOR_BYTES
from peer.wire.tensors import Dtype, tensor_from_wire, tensor_of


@pytest.mark.parametrize(
    ("array", "dtype", "hex_bytes"),
    [
        (np.array([[1.0, -2.0]], np.float32), Dtype.FLOAT32, "0000803f000000c0"),
        (np.array([[1.0, -2.0]], ">f4"), Dtype.FLOAT32, "0000803f000000c0"),
        (np.array([1, 258], np.int64), Dtype.INT32, "0100000002010000"),
        (np.array([1, 2], np.uint8), Dtype.INT32, "0100000002000000"),
        (np.zeros((0, 4), np.float32), Dtype.FLOAT32, ""),
        (np.array(7, np.int32), Dtype.INT32, "07000000"),
    ],
)
def test_round_trip(array: NDArray[np.generic], dtype: Dtype, hex_bytes: str) -> None:
    tensor = tensor_of(array)
    assert (tensor.dtype, tensor.data.hex(), tensor.shape) == (dtype, hex_bytes, array.shape)
    back = tensor_from_wire(int(dtype), tensor.shape, tensor.data).array()
    assert back.shape == array.shape
    assert not back.flags.writeable
    np.testing.assert_array_equal(back, array)


def test_not_a_number_travels_bit_for_bit() -> None:
    data = np.array([np.nan, np.inf, -0.0], np.float32)
    assert tensor_of(data).array().tobytes() == data.tobytes()


def test_a_view_with_strides_is_laid_out_by_rows() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4).T
    np.testing.assert_array_equal(tensor_of(array).array(), array)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(2, np.float64),
        np.zeros(2, np.bool_),
        np.array(["a"]),
        np.array([2**31], np.int64),
        np.zeros((1,) * 5, np.float32),
        np.zeros(MAX_TENSOR_BYTES // 4 + 1, np.float32),
    ],
    ids=["float64", "bool", "text", "beyond 32 bits", "5 dimensions", "too many bytes"],
)
def test_arrays_that_do_not_travel(array: NDArray[np.generic]) -> None:
    with pytest.raises(WrongTensor, match="expected"):
        tensor_of(array)


@pytest.mark.parametrize(
    ("dtype", "shape", "data_bytes"),
    [
        (0, (1,), 4),
        (3, (1,), 4),
        (1, (1,), 3),
        (1, (1,), 8),
        (1, (2, 2), 12),
        (1, (1,) * 5, 4),
        (1, (2**40, 2**40), 0),
    ],
)
def test_wire_that_does_not_agree(dtype: int, shape: tuple[int, ...], data_bytes: int) -> None:
    with pytest.raises(WrongTensor, match="expected"):
        tensor_from_wire(dtype, shape, bytes(data_bytes))
