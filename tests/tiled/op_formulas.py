"""Ops in float64 NumPy, by their definitions, and shapes to try them with."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erf, log_softmax, softmax


def windows(x, kernel, strides=(1, 1), pads=(0, 0, 0, 0), fill=0.0, dilations=(1, 1)):
    """All windows of an image: shape (n, c, oh, ow, p, q)."""
    x = np.pad(x, ((0, 0), (0, 0), pads[::2], pads[1::2]), constant_values=fill)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    all_of_them = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(2, 3))
    return all_of_them[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]


def conv(x, w, b=0.0, group=1, **more):
    more.pop("kernel_shape", None)
    seen = windows(x, w.shape[2:], **more)
    n, c, oh, ow, p, q = seen.shape
    seen = seen.reshape(n, group, c // group, oh, ow, p, q)
    weights = w.reshape(group, -1, *w.shape[1:])
    y = np.einsum("ngchwpq,gocpq->ngohw", seen, weights).reshape(n, -1, oh, ow)
    return y + np.reshape(b, (-1, 1, 1))


def by_differences(function, dy, x):
    """Gradient of sum(dy f(x)) for a linear f: exact from unit vectors."""
    gradient = np.zeros(x.size)
    for i in range(x.size):
        unit = np.zeros(x.size)
        unit[i] = 1
        gradient[i] = np.vdot(dy, function(unit.reshape(x.shape)))
    return gradient.reshape(x.shape)


def max_pool_grad(dy, x, kernel_shape, strides, pads=(0, 0, 0, 0)):
    dx = np.zeros(np.pad(x, ((0, 0), (0, 0), pads[::2], pads[1::2])).shape)
    seen = windows(x, kernel_shape, strides, pads, -np.inf)
    for at in np.ndindex(seen.shape[:4]):
        p, q = np.unravel_index(np.argmax(seen[at]), kernel_shape)
        dx[at[0], at[1], at[2] * strides[0] + p, at[3] * strides[1] + q] += dy[at]
    return dx[:, :, pads[0] : pads[0] + x.shape[2], pads[1] : pads[1] + x.shape[3]]


def average_pool(x, kernel_shape, strides, pads=(0, 0, 0, 0)):
    count = windows(np.ones_like(x), kernel_shape, strides, pads).sum((-1, -2))
    return windows(x, kernel_shape, strides, pads).sum((-1, -2)) / count


def normalised(x, mean, inv):
    return (x - mean[:, None, None]) * inv[:, None, None]


def batch_norm_grad(dy, x, g, mean, inv, dg, db):
    n, h = x.size // x.shape[1], normalised(x, mean, inv)
    g, inv, dg, db = (v[:, None, None] for v in (g, inv, dg, db))
    return g * inv / n * (n * dy - db - h * dg)


def layer_norm(x, g, b):
    mean, std = x.mean(-1, keepdims=True), np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return (x - mean) / std * g + b, mean, 1 / std


def layer_norm_grad(dy, x, g, mean, inv):
    d, h = dy * g, (x - mean) * inv
    return inv * (d - d.mean(-1, keepdims=True) - h * (d * h).mean(-1, keepdims=True))


def phi(x):
    return 0.5 * (1 + erf(x / math.sqrt(2)))


def gelu_slope(x):
    return phi(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def hard_swish_grad(dy, x):
    return dy * np.where(np.abs(x) < 3, x / 3 + 0.5, x >= 3)


def integers(x, s):
    return np.clip(np.rint(x / s), -127, 127)


def onehot(labels, n):
    return np.eye(n)[labels]


def adam(w, g, m, v, p):
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return w - 0.01 * (m / (1 - p[0])) / (np.sqrt(v / (1 - p[1])) + 1e-8), m, v


def fused(shape, axes, constants, results, *steps):
    """Attributes of a fused chain; a step: function, value that it makes, operands."""
    flat = tuple(n for kind, made, *given in steps for n in (kind, len(given), made, *given))
    return {
        "shape": shape,
        "axes": tuple(n for one in axes for n in (-1,) * (4 - len(one)) + one),
        "constants": constants,
        "results": results,
        "steps": flat,
    }


def many_functions(x):
    s = 1 / (1 + np.exp(-np.where(x < 0, 0.2, 1.0) * x * phi(x)))
    s = np.clip(0.2 * erf(np.sqrt(s) ** 3) + 0.5, 0, 1)
    s = np.clip(np.tanh(s * np.clip(s / 6 + 0.5, 0, 1)), -0.5, 0.25)
    return (s - x) / 3


def many_slopes(dy, x):
    d = np.where(x > 0, 1.0, 0.5) * dy * gelu_slope(x) * (1 - x * x) * (x * (1 - x))
    d = 2 * (d - x) / 4 * (np.abs(x) < 1) * np.where(x > 0, 1, 0.2)
    d = hard_swish_grad(d + d * 0.2 * ((x > 0) & (x < 1)), x)
    return d * 2 / math.sqrt(math.pi) * np.exp(-x * x) / np.exp(x)


IMAGE = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 0, 1, 1)}
DEEP = {"kernel_shape": (3, 2), "strides": (1, 2), "pads": (1, 1, 1, 0)}
WIDE = {"kernel_shape": (3, 2), "strides": (1, 1), "dilations": (2, 1), "pads": (2, 0, 1, 1)}
SPARSE = {"kernel_shape": (1, 1), "strides": (2, 2), "pads": (0, 0, 0, 0)}
C4, ALL = (4,), (0, 1, 2, 3)

# name -> op, shapes of the inputs ("labels" and "reset" are made by name), attributes, formula
CASES = {
    "gemm": ("Gemm", [(7, 9), (9, 33), (33,)], {}, lambda a, b, c: a @ b + c),
    "gemm_turned": (
        *(
            "Gemm",
            [(9, 7), (33, 9), (7, 1)],
            {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0},
        ),
        lambda a, b, c: 0.5 * a.T @ b.T + 2 * c,
    ),
    "gemm_long": ("Gemm", [(2, 40000), (3, 40000)], {"transB": 1}, lambda a, b: a @ b.T),
    "gemm_relu": (
        *("Gemm", [(5, 9), (9, 132), (132,)], {"alpha": -0.5, "activation": "Relu"}),
        lambda a, b, c: np.maximum(c - 0.5 * (a @ b), 0),
    ),
    "gemm_rank_3": ("Gemm", [(2, 5, 6), (6, 4), (4,)], {}, lambda a, b, c: a @ b + c),
    "matmul": ("MatMul", [(2, 3, 5, 6), (3, 6, 4)], {}, lambda a, b: a @ b),
    "add": ("Add", [(2, 3, 5), (3, 1)], {}, np.add),
    "mul": ("Mul", [(2, 3, 5), ()], {}, np.multiply),
    "relu": ("Relu", [(128, 5)], {}, lambda x: np.maximum(x, 0)),
    "relu_grad": ("ReluGrad", [(3, 5), (3, 5)], {}, lambda d, y: d * (y > 0)),
    "gelu": ("Gelu", [(3, 50)], {}, lambda x: x * phi(x)),
    "gelu_grad": ("GeluGrad", [(3, 50), (3, 50)], {}, lambda d, x: d * gelu_slope(x)),
    "tanh_grad": ("TanhGrad", [(3, 5), (3, 5)], {}, lambda d, y: d * (1 - y * y)),
    "sigmoid": ("Sigmoid", [(3, 5)], {}, lambda x: 1 / (1 + np.exp(-x))),
    "clip": ("Clip", [(3, 50)], {"min": -0.5}, lambda x: np.maximum(x, -0.5)),
    "clip_grad": (
        *("ClipGrad", [(3, 50), (3, 50)], {"min": 0.0, "max": 1.0}),
        lambda d, x: d * ((x > 0) & (x < 1)),
    ),
    "leaky_relu": ("LeakyRelu", [(3, 50)], {"alpha": 0.2}, lambda x: np.where(x < 0, 0.2 * x, x)),
    "leaky_relu_grad": (
        *("LeakyReluGrad", [(3, 50), (3, 50)], {"alpha": 0.2}),
        lambda d, x: np.where(x > 0, d, 0.2 * d),
    ),
    "hard_sigmoid": (
        *("HardSigmoid", [(3, 50)], {"alpha": 0.5}),
        lambda x: np.clip(x / 2 + 0.5, 0, 1),
    ),
    "hard_sigmoid_grad": (
        *("HardSigmoidGrad", [(3, 50), (3, 50)], {"alpha": 0.5}),
        lambda d, y: d / 2 * ((y > 0) & (y < 1)),
    ),
    "hard_swish": ("HardSwish", [(3, 50)], {}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "hard_swish_grad": ("HardSwishGrad", [(3, 50), (3, 50)], {}, hard_swish_grad),
    "fused": (
        *("FusedPointwise", [(3, 150)]),
        fused((3, 150), ((0, 1),), (), (17, 16), (12, 16, 0), (3, 17, 0, 16)),
        lambda x: (x / (1 + np.exp(-x)), 1 / (1 + np.exp(-x))),
    ),
    "fused_part": (
        *("FusedPointwise", [(3, 12), (5, 9)]),
        fused((3, 4), ((0, 1), (0, 1)), (), (16,), (3, 16, 0, 1))
        | {"starts": (0, 0, 0, 8, 0, 0, 2, 0)},
        lambda x, y: x[:, 8:] * y[2:, :4],
    ),
    "fused_functions": (
        *("FusedPointwise", [(5, 31)]),
        fused(
            *((5, 31), ((0, 1),), (0.2, 3.0, 0.0, 0.5, -0.5, 0.25), (19,)),
            *((8, 16, 0), (18, 17, 16, 8), (12, 16, 17), (21, 18, 16), (25, 16, 18, 9, 10)),
            *((22, 31, 16), (23, 17, 31), (24, 17, 17), (19, 16, 17, 8, 11), (20, 17, 16)),
            *((10, 16, 17), (17, 20, 16, 12, 13), (6, 16, 20), (2, 17, 20, 0), (5, 19, 17, 9)),
        ),
        many_functions,
    ),
    "fused_slopes": (
        *("FusedPointwise", [(5, 31), (5, 31)]),
        fused(
            *((5, 31), ((0, 1), (0, 1)), (0.5, 4.0, -1.0, 1.0, 0.2), (16,)),
            *((7, 16, 0, 1), (27, 16, 0, 1, 8), (9, 16, 16, 1), (11, 16, 16, 1)),
            *((13, 16, 16, 1), (14, 16, 16, 1, 9), (26, 17, 16, 1, 10, 11)),
            *((27, 16, 17, 1, 12), (28, 17, 16, 1, 12, 8), (1, 18, 16, 17), (29, 16, 18, 1)),
            *((30, 17, 16, 1), (22, 18, 1), (4, 16, 17, 18)),
        ),
        many_slopes,
    ),
    "fused_batch_norm": (
        *("FusedPointwise", [(3, 4, 5, 6), C4, C4, C4, C4, (5, 1)]),
        fused(
            *((3, 4, 5, 6), (ALL, *((1,),) * 4, (2, -1)), (-0.5, 1.0), (18,)),
            *((15, 16, 0, 1, 2, 3, 4), (17, 17, 16, 8, 9), (1, 18, 17, 5)),
        ),
        lambda x, m, s, g, b, k: (
            np.clip(normalised(x, m, s) * g[:, None, None] + b[:, None, None], -0.5, 1) + k
        ),
    ),
    "fused_batch_norm_grad": (
        *("FusedPointwise", [(3, 4, 5, 6), (3, 4, 5, 6), C4, C4, C4, C4, C4, (4, 3, 5, 6)]),
        fused(
            *((3, 4, 5, 6), (ALL, ALL, *((1,),) * 5, (1, 0, 2, 3)), (90.0,)),
            *((17, 16), (16, 16, 0, 1, 2, 3, 4, 5, 6, 8), (1, 17, 16, 7)),
        ),
        lambda d, x, g, m, s, dg, db, k: (
            batch_norm_grad(d, x, g, m, s, dg, db) + k.transpose(1, 0, 2, 3),
            batch_norm_grad(d, x, g, m, s, dg, db),
        ),
    ),
    "sqrt": ("Sqrt", [(3, 50)], {}, np.sqrt),
    "exp": ("Exp", [(3, 50)], {}, np.exp),
    "log": ("Log", [(3, 50)], {}, np.log),
    "erf": ("Erf", [(3, 50)], {}, erf),
    "erf_grad": (
        *("ErfGrad", [(3, 50), (3, 50)], {}),
        lambda d, x: d * 2 / math.sqrt(math.pi) * np.exp(-x * x),
    ),
    "pow": ("Pow", [(3, 50)], {"exponent": 3.0}, lambda x: x**3),
    "pow_root": ("Pow", [(3, 50)], {"exponent": -1.5}, lambda x: x**-1.5),
    "slice": (
        *(
            "Slice",
            [(5, 7, 6)],
            {"starts": (1, 0), "ends": (9, 6), "axes": (0, -1), "steps": (1, 2)},
        ),
        lambda x: x[1:, :, ::2],
    ),
    "concat": (
        *("Concat", [(2, 3, 4), (2, 1, 4), (2, 5, 4)], {"axis": -2}),
        lambda a, b, c: np.concatenate((a, b, c), 1),
    ),
    "place": (
        *("Place", [(3, 4, 2)], {"axis": 1, "before": 2, "size": 9}),
        lambda x: np.pad(x, ((0, 0), (2, 3), (0, 0))),
    ),
    "gather_rows": ("GatherRows", [(5, 7), "rows"], {}, lambda w, k: w[k]),
    "scatter_rows": (
        *("ScatterRows", [(12, 7), "rows"], {"size": 5}),
        lambda d, k: onehot(k, 5).T @ d,
    ),
    "transpose": (
        *("Transpose", [(2, 3, 4, 5)], {"perm": (0, 2, 3, 1)}),
        lambda x: x.transpose(0, 2, 3, 1),
    ),
    "arg_max": ("ArgMax", [(3, 7, 5)], {"axis": 1}, lambda x: x.argmax(1)[:, None]),
    "arg_max_last": (
        *("ArgMax", [(40, 9)], {"axis": -1, "keepdims": 0, "select_last_index": 1}),
        lambda x: 8 - x[:, ::-1].argmax(1),
    ),
    "quantise": ("Quantize", [(3, 5, 7), (1, 5, 1)], {}, integers),
    "quantise_all": ("Quantize", [(40, 9), (1, 1)], {}, integers),
    "quantise_half": ("Quantize", [(3, 50)], {"to": "float16"}, lambda x: x.astype("f2") * 1.0),
    "positive": ("Positive", [(3, 50)], {}, lambda x: x > 0),
    "dequantise": ("Dequantize", [("int8", (40, 9)), (1, 9)], {}, lambda q, s: q * s),
    "dequantise_half": ("Dequantize", [("float16", (3, 50))], {"of": "float16"}, lambda q: q),
    "quantise_grad": (
        *("QuantizeGrad", [(3, 50), ("int8", (3, 50))], {"low": 0}),
        lambda d, q: d * ((q > 0) & (q < 127)),
    ),
    "softmax": ("Softmax", [(2, 3, 7)], {"axis": 1}, lambda x: softmax(x, 1)),
    "log_softmax": ("LogSoftmax", [(4, 7)], {}, lambda x: log_softmax(x, -1)),
    "softmax_grad": (
        *("SoftmaxGrad", [(4, 7), (4, 7)], {}),
        lambda d, y: y * (d - (d * y).sum(-1, keepdims=True)),
    ),
    "log_softmax_grad": (
        *("LogSoftmaxGrad", [(4, 7), (4, 7)], {}),
        lambda d, y: d - np.exp(y) * d.sum(-1, keepdims=True),
    ),
    "layer_norm": ("LayerNormalization", [(2, 3, 20), (20,), (20,)], {}, layer_norm),
    "layer_norm_grad": (
        *("LayerNormGradX", [(2, 3, 20), (2, 3, 20), (20,), (2, 3, 1), (2, 3, 1)], {}),
        layer_norm_grad,
    ),
    "sum": ("ReduceSum", [(3, 4, 5, 6)], {"axes": (0, 2), "keepdims": 0}, lambda x: x.sum((0, 2))),
    "sum_all": ("ReduceSum", [(3, 7)], {}, lambda x: x.sum(keepdims=True)),
    "mean": ("ReduceMean", [(9, 4)], {"axes": (0,)}, lambda x: x.mean(0, keepdims=True)),
    "global_pool": (
        "GlobalAveragePool",
        [(2, 3, 4, 5)],
        {},
        lambda x: x.mean((2, 3), keepdims=True),
    ),
    "global_pool_grad": (
        *("GlobalAveragePoolGrad", [(2, 3, 1, 1)], {"kernel_shape": (4, 5)}),
        lambda d: np.broadcast_to(d / 20, (2, 3, 4, 5)),
    ),
    "channel_inv_std": (
        *("ChannelInvStd", [(3, 4, 5, 6), C4], {}),
        lambda x, m: 1 / np.sqrt(((x - m[:, None, None]) ** 2).mean((0, 2, 3)) + 1e-5),
    ),
    "channel_product": (
        *("ChannelProduct", [(3, 4, 5, 6), (3, 4, 5, 6), C4, C4], {}),
        lambda d, x, m, s: (d * normalised(x, m, s)).sum((0, 2, 3)),
    ),
    "rows_product": (
        *("RowsProduct", [(3, 4, 6), (3, 4, 6), (3, 4, 1), (3, 4, 1)], {}),
        lambda d, x, m, s: (d * (x - m) * s).sum((0, 1)),
    ),
    "batch_norm": (
        *("BatchNormApply", [(3, 4, 5, 6), C4, C4, C4, C4], {}),
        lambda x, m, s, g, b: normalised(x, m, s) * g[:, None, None] + b[:, None, None],
    ),
    "batch_norm_grad": (
        *("BatchNormGradX", [(3, 4, 5, 6), (3, 4, 5, 6), C4, C4, C4, C4, C4], {}),
        batch_norm_grad,
    ),
    "mse": ("MSELoss", [(4, 9), (4, 9)], {}, lambda p, t: ((p - t) ** 2).mean()),
    "gemm_update": (
        *("GemmUpdate", [(7, 24), (7, 36), (24, 36)], {"alpha": -0.1, "transA": 1}),
        lambda a, b, w: w - 0.1 * a.T @ b,
    ),
    "mse_rows": ("MSELoss", [(300, 132), (300, 132)], {}, lambda p, t: ((p - t) ** 2).mean()),
    "mse_wide": ("MSELoss", [(33, 700), (33, 700)], {}, lambda p, t: ((p - t) ** 2).mean()),
    "rows_product_many": (
        *("RowsProduct", [(40, 70, 6), (40, 70, 6), (40, 70, 1), (40, 70, 1)], {}),
        lambda d, x, m, s: (d * (x - m) * s).sum((0, 1)),
    ),
    "mse_grad": ("MSELossGrad", [(4, 9), (4, 9)], {}, lambda p, t: 2 * (p - t) / 36),
    "nll": (
        *("NLLLoss", [(6, 5), "labels"], {}),
        lambda p, k: -p[np.arange(6), k].mean(),
    ),
    "cross_entropy_grad": (
        *("CrossEntropyGrad", [(6, 5), "labels"], {}),
        lambda p, k: (np.exp(p) - onehot(k, 5)) / 6,
    ),
    "label_weights": (
        *("LabelWeights", ["classes", (5,)], {"n_class": 5, "ignore_index": 3}),
        lambda k, w: np.where(k == 3, 0, w[k]),
    ),
    "nll_weighted": (
        *("NLLLoss", [(6, 5), "labels", (6,), ()], {}),
        lambda p, k, w, n: -(w * p[np.arange(6), k]).sum() / n,
    ),
    "cross_entropy_grad_weighted": (
        *("CrossEntropyGrad", [(6, 5), "labels", (6,), ()], {}),
        lambda p, k, w, n: w[:, None] * (np.exp(p) - onehot(k, 5)) / n,
    ),
    "nll_grad": (
        *("NLLLossGrad", [(6, 5), "labels", (6,)], {"reduction": "sum"}),
        lambda p, k, w: -w[:, None] * onehot(k, 5),
    ),
    "conv": (
        "Conv",
        [(2, 3, 9, 8), (4, 3, 3, 3), C4],
        IMAGE,
        lambda x, w, b: conv(x, w, b, **IMAGE),
    ),
    "conv_dilated": ("Conv", [(1, 2, 9, 8), (4, 2, 3, 2)], WIDE, lambda x, w: conv(x, w, **WIDE)),
    "conv_groups": (
        *("Conv", [(2, 4, 7, 8), (6, 2, 3, 2)], dict(DEEP, group=2)),
        lambda x, w: conv(x, w, **DEEP, group=2),
    ),
    "conv_sparse": (
        "Conv",
        [(1, 3, 8, 8), (4, 3, 1, 1)],
        SPARSE,
        lambda x, w: conv(x, w, **SPARSE),
    ),
    "conv_grad_x": (
        *("ConvGradX", [(2, 4, 5, 4), (4, 3, 3, 3)], dict(IMAGE, input_shape=(2, 3, 9, 8))),
        lambda d, w: by_differences(lambda x: conv(x, w, **IMAGE), d, np.zeros((2, 3, 9, 8))),
    ),
    "conv_grad_x_dilated": (
        *("ConvGradX", [(1, 4, 8, 8), (4, 2, 3, 2)], dict(WIDE, input_shape=(1, 2, 9, 8))),
        lambda d, w: by_differences(lambda x: conv(x, w, **WIDE), d, np.zeros((1, 2, 9, 8))),
    ),
    "conv_grad_x_groups": (
        *(
            "ConvGradX",
            [(2, 6, 7, 4), (6, 2, 3, 2)],
            dict(DEEP, group=2, input_shape=(2, 4, 7, 8)),
        ),
        lambda d, w: by_differences(
            lambda x: conv(x, w, **DEEP, group=2), d, np.zeros((2, 4, 7, 8))
        ),
    ),
    "conv_grad_x_sparse": (
        *("ConvGradX", [(1, 4, 4, 4), (4, 3, 1, 1)], dict(SPARSE, input_shape=(1, 3, 8, 8))),
        lambda d, w: by_differences(lambda x: conv(x, w, **SPARSE), d, np.zeros((1, 3, 8, 8))),
    ),
    "conv_grad_w": (
        *("ConvGradW", [(2, 4, 5, 4), (2, 3, 9, 8)], IMAGE),
        lambda d, x: by_differences(lambda w: conv(x, w, **IMAGE), d, np.zeros((4, 3, 3, 3))),
    ),
    "conv_grad_w_dilated": (
        *("ConvGradW", [(1, 4, 8, 8), (1, 2, 9, 8)], WIDE),
        lambda d, x: by_differences(lambda w: conv(x, w, **WIDE), d, np.zeros((4, 2, 3, 2))),
    ),
    "conv_grad_w_groups": (
        *("ConvGradW", [(2, 6, 7, 4), (2, 4, 7, 8)], dict(DEEP, group=2)),
        lambda d, x: by_differences(
            lambda w: conv(x, w, **DEEP, group=2), d, np.zeros((6, 2, 3, 2))
        ),
    ),
    "conv_grad_b": ("ConvGradB", [(2, 4, 5, 4)], {}, lambda d: d.sum((0, 2, 3))),
    "max_pool": (
        *("MaxPool", [(2, 3, 9, 8)], IMAGE),
        lambda x: windows(x, (3, 3), (2, 2), IMAGE["pads"], -np.inf).max((-1, -2)),
    ),
    "max_pool_grad": (
        *("MaxPoolGrad", [(2, 3, 5, 4), (2, 3, 9, 8)], IMAGE),
        lambda d, x: max_pool_grad(d, x, **IMAGE),
    ),
    "average_pool": ("AveragePool", [(2, 3, 9, 8)], IMAGE, lambda x: average_pool(x, **IMAGE)),
    "average_pool_grad": (
        *("AveragePoolGrad", [(2, 3, 5, 4)], dict(IMAGE, input_shape=(2, 3, 9, 8))),
        lambda d: by_differences(lambda x: average_pool(x, **IMAGE), d, np.zeros((2, 3, 9, 8))),
    ),
    "accumulate": (
        "InPlaceAccumulatorV2",
        [(5, 6), (5, 6), "reset"],
        {},
        lambda a, g, r: g if r else a + g,
    ),
    "sgd": ("SGD", [(5, 6), (5, 6)], {"lr": 0.1}, lambda w, g: w - 0.1 * g),
    "momentum": (
        *("MomentumSGD", [(5, 6)] * 3, {"lr": 0.1, "momentum": 0.9}),
        lambda w, g, m: (w - 0.1 * (0.9 * m + g), 0.9 * m + g),
    ),
    "adam": ("Adam", [(5, 6)] * 4 + [(2,)], {"lr": 0.01}, adam),
    "adam_powers": ("AdamPowers", [(2,)], {}, lambda p: p * [0.9, 0.999]),
}
