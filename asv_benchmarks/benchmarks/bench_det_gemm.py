"""Batch-invariant products; each is run and checked once before it is timed."""

import numpy as np

import rpukit as rk

from .common import DEVICES, put, require, synchronise

DTYPES = ["float32", "float64", "float16", "bfloat16"]


def matrix(shape, dtype, seed):
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return rk.gemm.to_bfloat16(x) if dtype == "bfloat16" else x.astype(dtype)


class Product:
    params = (DEVICES, DTYPES, [1, 64, 512])
    param_names = ["device", "dtype", "m"]

    def setup(self, device, dtype, m):
        require(device)
        n = 1024 if device == "cpu" else 4096
        self.a = put(matrix((m, n), dtype, 0), device)
        self.b = put(matrix((n, n), dtype, 1), device)
        whole, row = rk.det_gemm(self.a, self.b), rk.det_gemm(self.a[:1], self.b)
        if not bool((whole[:1] == row).all()):
            raise AssertionError("a row depends on its batch")

    def time_product(self, device, dtype, m):
        rk.det_gemm(self.a, self.b)
        synchronise(device)


class OddRows:
    """Results whose rows begin at odd elements, of short sums."""

    params = (DEVICES, [(4425, 65, 561, "float64"), (7792, 104, 419, "bfloat16")])
    param_names = ["device", "product"]

    def setup(self, device, product):
        require(device)
        m, k, n, dtype = product
        m = m if device == "gpu" else 64
        self.a = put(matrix((m, k), dtype, 0), device)
        self.b = put(matrix((n, k), dtype, 1), device)
        row = rk.det_gemm(self.a[:1], self.b, trans_b=True)
        if not bool((rk.det_gemm(self.a, self.b, trans_b=True)[:1] == row).all()):
            raise AssertionError("a row depends on its batch")

    def time_product(self, device, product):
        rk.det_gemm(self.a, self.b, trans_b=True)
        synchronise(device)


class OddWidths(OddRows):
    """Results of float32 by whole rows; 16-bit rows at odd elements: shifted, or copied first."""

    params = (
        DEVICES,
        [
            (867, 299, 4270, "float32"),
            (1, 4097, 4097, "float16"),
            (527, 4999, 93, "bfloat16"),
        ],
    )


class EqualShares(OddRows):
    """Tiles, or segments of them, that are hardly more than a round of blocks."""

    params = (
        DEVICES,
        [
            (88, 2088, 2928, "float32"),
            (1366, 10880, 256, "float32"),
            (372, 2310, 2873, "float64"),
        ],
    )


class SmallResults(OddRows):
    """Some 100,000 results of one to eight segments, for which few tiles have the right size."""

    params = (
        DEVICES,
        [
            (552, 1384, 248, "float32"),
            (154, 592, 1880, "float32"),
            (66, 6248, 552, "float32"),
            (302, 2068, 1156, "float32"),
        ],
    )


class SharedSegments(OddRows):
    """A long 16-bit sum, whose segments blocks make and add together, and a short one."""

    params = (DEVICES, [(1300, 16384, 128, "float16"), (656, 128, 3968, "float16")])


class LongSum:
    """Few results, whose sums have several segments."""

    params = (
        DEVICES,
        DTYPES,
        [(8, 16384, 256), (100, 10000, 333), (150, 10112, 1920), (111, 29696, 1024)],
    )
    param_names = ["device", "dtype", "sizes"]

    def setup(self, device, dtype, sizes):
        require(device)
        m, k, n = sizes if device == "gpu" else (sizes[0], sizes[1], 32)
        self.a = put(matrix((m, k), dtype, 0), device)
        self.b = put(matrix((k, n), dtype, 1), device)
        row = rk.det_gemm(self.a[:1], self.b)
        if not bool((rk.det_gemm(self.a, self.b)[:1] == row).all()):
            raise AssertionError("a row depends on its batch")

    def time_product(self, device, dtype, sizes):
        rk.det_gemm(self.a, self.b)
        synchronise(device)


class OneRow:
    """One row times a transposed matrix; its rows begin at multiples of 16 bytes, or anywhere."""

    params = (DEVICES, ["float32", "float64"], [(13824, 1792), (8153, 1460), (6000, 500)])
    param_names = ["device", "dtype", "sizes"]

    def setup(self, device, dtype, sizes):
        require(device)
        k, n = sizes if device == "gpu" else (sizes[0], 32)
        self.a = put(matrix((1, k), dtype, 0), device)
        self.b = put(matrix((n, k), dtype, 1), device)
        last = rk.det_gemm(self.a, self.b[-1:], trans_b=True)
        if not bool((rk.det_gemm(self.a, self.b, trans_b=True)[:, -1:] == last).all()):
            raise AssertionError("a result depends on its neighbours")

    def time_product(self, device, dtype, sizes):
        rk.det_gemm(self.a, self.b, trans_b=True)
        synchronise(device)


class LastRound:
    """16-bit products whose tiles fill hardly more than a round, or have a width of their own."""

    params = (DEVICES, [(754, 4224, 17536), (6668, 3688, 272)])
    param_names = ["device", "sizes"]

    def setup(self, device, sizes):
        require(device)
        m, k, n = sizes if device == "gpu" else (64, sizes[1], 272)
        self.a = put(matrix((m, k), "bfloat16", 0), device)
        self.b = put(matrix((n, k), "bfloat16", 1), device)
        row = rk.det_gemm(self.a[:1], self.b, trans_b=True)
        if not bool((rk.det_gemm(self.a, self.b, trans_b=True)[:1] == row).all()):
            raise AssertionError("a row depends on its batch")

    def time_product(self, device, sizes):
        rk.det_gemm(self.a, self.b, trans_b=True)
        synchronise(device)


class FewResults:
    """Products of few rows, whose time is that of a chain or of weights (k, n)."""

    params = (
        DEVICES,
        [
            (1, 9632, 112, "bfloat16"),
            (18, 28808, 72, "float16"),
            (43, 7648, 136, "bfloat16"),
            (43, 5273, 369, "bfloat16"),
            (1, 1024, 128, "float32"),
            (7, 1003, 511, "float32"),
            (16, 1024, 256, "float64"),
            (1, 864, 28792, "float32"),
            (1, 864, 28792, "float64"),
        ],
    )
    param_names = ["device", "product"]

    def setup(self, device, product):
        require(device)
        m, k, n, dtype = product
        if device == "cpu":
            k, n = k // 8, 64
        self.a = put(matrix((m, k), dtype, 0), device)
        self.b = put(matrix((k, n), dtype, 1), device)
        row = rk.det_gemm(self.a[:1], self.b)
        if not bool((rk.det_gemm(self.a, self.b)[:1] == row).all()):
            raise AssertionError("a row depends on its batch")

    def time_product(self, device, product):
        rk.det_gemm(self.a, self.b)
        synchronise(device)


class Gradient:
    params = (DEVICES, [64, 512])
    param_names = ["device", "rows"]

    def setup(self, device, rows):
        require(device)
        n = 256 if device == "cpu" else 4096
        self.a, self.dc = (put(matrix((rows, n), "bfloat16", s), device) for s in (0, 1))
        self.gradient = rk.gemm.WeightGradient((n, n), np.uint16, device=device)
        self.gradient.add(self.a, self.dc)

    def time_add(self, device, rows):
        self.gradient.add(self.a, self.dc)
        synchronise(device)


class LogProbability:
    params = (DEVICES, [1, 64])
    param_names = ["device", "rows"]

    def setup(self, device, rows):
        require(device)
        n_vocab, n_in = (2000, 256) if device == "cpu" else (32000, 4096)
        self.hidden = put(matrix((rows, n_in), "bfloat16", 0), device)
        self.weight = put(matrix((n_vocab, n_in), "bfloat16", 1), device)
        self.targets = put(np.arange(rows), device)
        row = rk.linear_logprob(self.hidden[:1], self.weight, self.targets[:1])
        if not bool((rk.linear_logprob(self.hidden, self.weight, self.targets)[:1] == row).all()):
            raise AssertionError("a log-probability depends on its batch")

    def time_linear_logprob(self, device, rows):
        rk.linear_logprob(self.hidden, self.weight, self.targets)
        synchronise(device)
