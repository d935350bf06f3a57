"""Tensor maps: what they take, and how a kernel gets one."""

import numpy as np
import pytest

from rpukit._kernels import Kernel
from rpukit._kernels.tensor_map import fits, tensor_map
from rpukit.errors import LaunchError
from rpukit.testing import on_cpu

SOURCE = """
typedef unsigned long long u64;
struct RkTensorMap { u64 v[16]; };
#ifdef RK_ON_CPU
#define __grid_constant__
#endif
extern "C" __global__ void read_map(int n, const __grid_constant__ RkTensorMap m, u64 *out) {
    if (threadIdx.x < n) out[threadIdx.x] = m.v[threadIdx.x];
}
"""


def matrix(rows, columns):
    """An array that begins at a multiple of 16 bytes."""
    room = np.zeros(rows * columns + 8, np.uint16)
    start = -room.ctypes.data % 16 // 2
    return room[start : start + rows * columns].reshape(rows, columns)


def test_a_kernel_takes_a_map_by_value(tmp_path):
    path = tmp_path / "read_map.cu"
    path.write_text(SOURCE)
    kernel, out, m = Kernel("read_map", path=path), np.zeros(6, np.uint64), matrix(20, 72)
    with on_cpu():
        kernel.launch((1,), (32,), (6, tensor_map(m[:, :70], 16), out))
        with pytest.raises(LaunchError, match="parameter m: got ndarray"):
            kernel.launch((1,), (32,), (6, out, out))
    assert out.tolist() == [m.ctypes.data, 70, 20, 144, 64, 16]


def test_what_fits():
    m = matrix(20, 72)
    assert fits(m)
    assert fits(m[::2, 8:60])
    assert not fits(m[:, 1:])  # begins at 2 bytes
    assert not fits(m[:, ::2])
    assert not fits(m[::-1])
    assert not fits(matrix(20, 71))  # rows of 142 bytes
    for bad in (m[:, 1:], matrix(20, 71), m[:0]):
        with pytest.raises(LaunchError, match="tensor map"):
            tensor_map(bad, 16)
    with pytest.raises(LaunchError, match="257 rows"):
        tensor_map(m, 257)
    for columns in (0, 24, 128):
        with pytest.raises(LaunchError, match=f"16 rows and {columns} columns"):
            tensor_map(m, 16, columns)
