"""Chains of fused multiply-adds for the mirrors of sums of products, on vectors of outputs.

``y[s, i] = sum_j W_ij v[s, j]``: one accumulator, j ascending, restarted at every SEGMENT (see
``kernels_cu/include/rk_chain.cuh``). Outputs lie side by side in the lanes of vectors; where rows
of the weights run along j, blocks of them are transposed first. Blocks only save loads and stores.
"""

# mypy: ignore-errors

from __future__ import annotations

import llvmlite.binding as llvm
import llvmlite.ir as ir
import numba as nb
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

from rpukit._exact.jit import jit
from rpukit._exact.math import fma32

f4 = np.float32

SEGMENT = 16384
_WIDE = llvm.get_host_cpu_features().get("avx512f", False)
LANES = 16 if _WIDE else 8  # rows and columns of a block that is transposed
WIDTH = 64 if _WIDE else 16  # outputs at a time: the registers hold four samples' chains
DEPTH = 128  # steps of a transposed block
FEW = 16  # steps at a time where weights are read in place


if nb.config.DISABLE_JIT:

    def _step_by_step(w, w_at, w_step, v, v_at, v_step, n, y, y_at, y_step, samples):
        for s in range(samples):
            for k in range(n):
                for i in range(WIDTH):
                    at = y_at + s * y_step + i
                    y[at] = fma32(w[w_at + k * w_step + i], v[v_at + s * v_step + k], y[at])

    def add_one(*args):
        """Continue WIDTH chains of one sample by n steps; all arrays are flat."""
        _step_by_step(*args, 1)

    def add_four(*args):
        """Continue the chains of four samples, which are `v_step` and `y_step` elements apart."""
        _step_by_step(*args, 4)

    def turn(w, w_at, w_step, out, out_at, out_step):
        """Transpose a block of LANES x LANES."""
        for r in range(LANES):
            for k in range(LANES):
                out[out_at + k * out_step + r] = w[w_at + r * w_step + k]

    def add_turned(w, w_at, w_step, v, v_at, y, y_at):
        """Continue LANES chains of one sample by LANES steps, along the rows of the weights."""
        for r in range(LANES):
            for k in range(LANES):
                at = w_at + r * w_step + k
                y[y_at + r] = fma32(w[at], v[v_at + k], y[y_at + r])

else:
    _ARRAY, _INDEX = types.Array(types.float32, 1, "C"), types.intp

    def _start(context, builder, array, at):
        data = context.make_array(_ARRAY)(context, builder, array).data
        return builder.gep(data, [at])

    def _vector(builder, pointer, lanes):
        return builder.bitcast(pointer, ir.VectorType(ir.FloatType(), lanes).as_pointer())

    def _splat(builder, x, lanes):
        empty = ir.Constant(ir.VectorType(ir.FloatType(), lanes), ir.Undefined)
        first = builder.insert_element(empty, x, ir.Constant(ir.IntType(32), 0))
        index = ir.VectorType(ir.IntType(32), lanes)
        return builder.shuffle_vector(first, empty, ir.Constant(index, [0] * lanes))

    def _fma(builder, lanes):
        kind = ir.VectorType(ir.FloatType(), lanes)
        signature = ir.FunctionType(kind, [kind] * 3)
        return cgutils.get_or_insert_function(builder.module, signature, f"llvm.fma.v{lanes}f32")

    def _add_code(samples):
        signature = types.void(*(_ARRAY, _INDEX, _INDEX) * 2, _INDEX, _ARRAY, _INDEX, _INDEX)

        def code(context, builder, sig, args):
            w, w_at, w_step, v, v_at, v_step, n, y, y_at, y_step = args
            w, v = _start(context, builder, w, w_at), _start(context, builder, v, v_at)
            y = _start(context, builder, y, y_at)
            kind = ir.VectorType(ir.FloatType(), WIDTH)
            fma = _fma(builder, WIDTH)
            steps = [ir.Constant(y_step.type, s) for s in range(samples)]
            rows = [
                _vector(builder, builder.gep(y, [builder.mul(s, y_step)]), WIDTH) for s in steps
            ]
            inputs = [builder.gep(v, [builder.mul(s, v_step)]) for s in steps]
            sums = [cgutils.alloca_once(builder, kind) for _ in steps]
            for row, total in zip(rows, sums, strict=True):
                builder.store(builder.load(row, align=4), total)
            with cgutils.for_range(builder, n) as loop:
                line = builder.gep(w, [builder.mul(loop.index, w_step)])
                several = builder.load(_vector(builder, line, WIDTH), align=4)
                for x, total in zip(inputs, sums, strict=True):
                    one = builder.load(builder.gep(x, [loop.index]))
                    same = _splat(builder, one, WIDTH)
                    builder.store(builder.call(fma, [several, same, builder.load(total)]), total)
            for row, total in zip(rows, sums, strict=True):
                builder.store(builder.load(total), row, align=4)
            return context.get_dummy_value()

        return signature, code

    @intrinsic
    def add_one(typing, w, w_at, w_step, v, v_at, v_step, n, y, y_at, y_step):
        """Continue WIDTH chains of one sample by n steps; all arrays are flat."""
        return _add_code(1)

    @intrinsic
    def add_four(typing, w, w_at, w_step, v, v_at, v_step, n, y, y_at, y_step):
        """Continue the chains of four samples, which are `v_step` and `y_step` elements apart."""
        return _add_code(4)

    def _pieces_turned(builder, parts):
        """Transpose a square of pieces of four: part q of the result has piece q of each part."""
        if len(parts) == 1:
            return parts
        index = ir.VectorType(ir.IntType(32), LANES)
        found = []
        for odd in (0, 4):
            at = [piece + j for piece in range(odd, 2 * LANES, 8) for j in range(4)]
            mask = ir.Constant(index, at)
            pairs = zip(parts[::2], parts[1::2], strict=True)
            found.append(
                _pieces_turned(builder, [builder.shuffle_vector(*p, mask) for p in pairs])
            )
        return [part for both in zip(*found, strict=True) for part in both]

    def _turned(builder, w, step):
        """Load a block of LANES x LANES at w, transposed.

        Each row is read once, since rows that are pages apart share a set of the cache. Squares of
        4 x 4 are transposed within the lanes of vectors, then the squares among themselves.
        """
        numbers = [ir.Constant(step.type, r) for r in range(LANES)]
        starts = [builder.gep(w, [builder.mul(r, step)]) for r in numbers]
        rows = [builder.load(_vector(builder, start, LANES), align=4) for start in starts]
        index, fours = ir.VectorType(ir.IntType(32), LANES), range(0, LANES, 4)
        pairs, quads = (0, LANES, 1, LANES + 1), (0, 1, LANES, LANES + 1)
        masks = [
            [ir.Constant(index, [q + j + high for q in fours for j in four]) for high in (0, 2)]
            for four in (pairs, quads)
        ]
        squares = []
        for at in fours:
            a, b, c, d = rows[at : at + 4]
            ab, cd = (
                [builder.shuffle_vector(*two, m) for m in masks[0]] for two in ((a, b), (c, d))
            )
            low_high = zip(ab, cd, strict=True)
            squares.append([builder.shuffle_vector(*two, m) for two in low_high for m in masks[1]])
        columns = [_pieces_turned(builder, list(c)) for c in zip(*squares, strict=True)]
        return [column[q] for q in range(len(fours)) for column in columns]

    @intrinsic
    def add_turned(typing, w, w_at, w_step, v, v_at, y, y_at):
        """Continue LANES chains of one sample by LANES steps, along the rows of the weights."""

        def code(context, builder, sig, args):
            w, w_at, w_step, v, v_at, y, y_at = args
            v, y = _start(context, builder, v, v_at), _start(context, builder, y, y_at)
            fma, result = _fma(builder, LANES), _vector(builder, y, LANES)
            total = builder.load(result, align=4)
            for k, row in enumerate(_turned(builder, _start(context, builder, w, w_at), w_step)):
                one = builder.load(builder.gep(v, [ir.Constant(v_at.type, k)]))
                total = builder.call(fma, [row, _splat(builder, one, LANES), total])
            builder.store(total, result, align=4)
            return context.get_dummy_value()

        return types.void(_ARRAY, _INDEX, _INDEX, *(_ARRAY, _INDEX) * 2), code

    @intrinsic
    def turn(typing, w, w_at, w_step, out, out_at, out_step):
        """Transpose a block of LANES x LANES."""

        def code(context, builder, sig, args):
            w, w_at, w_step, out, out_at, out_step = args
            out = _start(context, builder, out, out_at)
            for r, row in enumerate(_turned(builder, _start(context, builder, w, w_at), w_step)):
                at = builder.gep(out, [builder.mul(ir.Constant(out_step.type, r), out_step)])
                builder.store(row, _vector(builder, at, LANES), align=4)
            return context.get_dummy_value()

        return types.void(*(_ARRAY, _INDEX, _INDEX) * 2), code


@jit
def _add(w, w_at, w_step, v, v_at, v_step, n, y, y_at, y_step, samples):
    """Continue the chains of some samples."""
    fours = samples // 4 * 4
    for s in range(0, fours, 4):
        add_four(w, w_at, w_step, v, v_at + s * v_step, v_step, n, y, y_at + s * y_step, y_step)
    for s in range(fours, samples):
        add_one(w, w_at, w_step, v, v_at + s * v_step, v_step, n, y, y_at + s * y_step, y_step)


@jit
def _block(weight, along, absolute, i0, i1, k0, k1, block):
    """Copy outputs i0 to i1 of steps k0 to k1 into a block, one row of outputs per step."""
    flat = weight.reshape(-1)
    if along:
        for k in range(k0, k1):
            line, out = weight[k, i0:i1], block[(k - k0) * WIDTH :]
            for i in range(line.size):
                out[i] = line[i]
    else:
        whole_i = i0 + (i1 - i0) // LANES * LANES
        whole_k = k0 + (k1 - k0) // LANES * LANES
        step = weight.shape[1]
        for i in range(i0, whole_i, LANES):
            for k in range(k0, whole_k, LANES):
                turn(flat, i * step + k, step, block, (k - k0) * WIDTH + i - i0, WIDTH)
        for i in range(i0, i1):
            for k in range(whole_k if i < whole_i else k0, k1):
                block[(k - k0) * WIDTH + i - i0] = weight[i, k]
    if absolute:
        for e in range((k1 - k0) * WIDTH):
            block[e] = abs(block[e])


@jit
def _on_lines(weight):
    """Whether rows of a multiple of LANES elements begin at cache-line boundaries."""
    return weight.ctypes.data % (4 * LANES) == 0


@jit
def _turn_and_add(w, n_in, v, first, last, y, whole):
    """Continue `whole` chains of one sample, in transposed blocks that stay in registers.

    Two blocks of chains alternate, since each step of a chain waits for the one before.
    """
    last_turned = last - (last - first) % LANES
    for i0 in range(0, whole, 2 * LANES):
        for k in range(first, last_turned, LANES):
            for i in range(i0, i0 + 2 * LANES, LANES):
                add_turned(w, i * n_in + k, n_in, v, k, y, i)
        for i in range(i0, i0 + 2 * LANES):
            for k in range(last_turned, last):
                y[i] = fma32(w[i * n_in + k], v[k], y[i])


@jit
def chain(weight, along, absolute, v, first, last, y):
    """Compute the chains y[s, i] of steps first to last - 1."""
    y[:] = f4(0.0)
    go_on(weight, along, absolute, v, first, last, y)


@jit
def go_on(weight, along, absolute, v, first, last, y):
    """Continue the chains y[s, i] by steps first to last - 1."""
    n_out = y.shape[1]
    samples, n_in = v.shape
    flat, inputs, results = weight.reshape(-1), v.reshape(-1), y.reshape(-1)
    whole = n_out // WIDTH * WIDTH
    done = 0
    if not along and not absolute and samples == 1 and n_in % LANES == 0 and _on_lines(weight):
        done = whole
        _turn_and_add(flat, n_in, inputs, first, last, results, whole)
    if along and not absolute and samples < 8:
        done = whole
        for k0 in range(first, last, FEW):
            n = min(FEW, last - k0)
            for i0 in range(0, whole, WIDTH):
                _add(
                    flat, k0 * n_out + i0, n_out, inputs, k0, n_in, n, results, i0, n_out, samples
                )
    block = np.empty(DEPTH * WIDTH, f4)
    for i0 in range(done, whole, WIDTH):
        for k0 in range(first, last, DEPTH):
            k1 = min(k0 + DEPTH, last)
            _block(weight, along, absolute, i0, i0 + WIDTH, k0, k1, block)
            _add(block, 0, WIDTH, inputs, k0, n_in, k1 - k0, results, i0, n_out, samples)
    if whole < n_out:
        sums = np.zeros((samples, WIDTH), f4)
        for s in range(samples):  # loops: for a slice Numba also compiles error texts
            for i in range(n_out - whole):
                sums[s, i] = y[s, whole + i]
        for k0 in range(first, last, DEPTH):
            k1 = min(k0 + DEPTH, last)
            _block(weight, along, absolute, whole, n_out, k0, k1, block)
            _add(block, 0, WIDTH, inputs, k0, n_in, k1 - k0, sums.reshape(-1), 0, WIDTH, samples)
        for s in range(samples):
            for i in range(n_out - whole):
                y[s, whole + i] = sums[s, i]


@jit
def product(weight, along, absolute, v, y):
    """Compute y = v W^T, or y = v W with `along`; with `absolute`, |W| takes the place of W."""
    n_in = v.shape[1]
    part = np.empty((y.shape[0] if n_in > SEGMENT else 0, y.shape[1]), f4)
    for first in range(0, max(n_in, 1), SEGMENT):
        sums = part if first else y
        sums[:] = f4(0.0)
        go_on(weight, along, absolute, v, first, min(first + SEGMENT, n_in), sums)
        for s in range(part.shape[0] if first else 0):
            for i in range(y.shape[1]):
                y[s, i] = f4(y[s, i] + part[s, i])
