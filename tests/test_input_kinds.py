"""Every kind of array in every call that takes arrays, beside tiles: the bits of NumPy arrays.

Tiles have a table of their own, `tests/analog/test_inputs.py`.
"""

import warnings

import numpy as np
import pandas as pd
import pytest

import rpukit as rk
from rpukit.testing import assert_same_bits
from tests.foreign import Labelled, OnlyArray, OnlyDLPack

RNG = np.random.default_rng(4)


def whole(low, high, shape, dtype="f4"):
    return RNG.integers(low, high, shape).astype(dtype)


A, B, DC, V = (
    whole(-3, 4, (6, 5)),
    whole(-3, 4, (5, 3)),
    whole(-2, 3, (6, 3)),
    whole(-2, 3, (7, 5)),
)
TOKENS, SLOPES = whole(0, 5, 6, int), whole(-2, 3, 6)
X, KNOWN, TIMES = whole(0, 3, (6, 4), int), RNG.random((6, 4)) < 0.4, whole(1, 4, 6)

KINDS = {
    "other byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "columns first": np.asfortranarray,
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "DLPack": OnlyDLPack,
    "__array__": OnlyArray,
    "memoryview": memoryview,
    "matrix": lambda a: np.matrix(a) if a.ndim == 2 else a,
    "data frame": lambda a: pd.DataFrame(a) if a.ndim == 2 else pd.Series(a),
    "masked, none of them": np.ma.array,
}
# Lists and other types: only where the call has a type of its own.
OTHER_TYPES = {
    "list": lambda a: a.tolist(),
    "rows": tuple,
    "float64": lambda a: a.astype("f8"),
    "float16": lambda a: a.astype("f2"),
    "long double": lambda a: a.astype(np.longdouble),
    "int64": lambda a: a.astype("i8"),
    "int8": lambda a: a.astype("i1"),
}


def circuit():
    return rk.Circuit(rk.circuits.hmm(4, 2, 3), seed=1)


def learned(step):
    pc = circuit()
    step(pc)
    return pc.log_likelihood(X)


def tile(**options):
    return rk.InferenceTile(A.shape, **options).set_weights(A)


RANGE = rk.inference.InputRange(learned=True)
CALLS = {  # (array, call, whether the type of the result follows that of the array)
    "det_gemm, a": (A, lambda t: rk.det_gemm(t, B), True),
    "det_gemm, b": (B, lambda t: rk.det_gemm(A, t), True),
    "det_gemm_backward, a": (A, lambda t: rk.det_gemm_backward(t, B, DC)[1], True),
    "det_gemm_backward, dc": (DC, lambda t: rk.det_gemm_backward(A, B, t)[0], True),
    "linear_logprob, hidden": (A, lambda t: rk.linear_logprob(t, V, TOKENS), True),
    "linear_logprob, weight": (V, lambda t: rk.linear_logprob(A, t, TOKENS), True),
    "linear_logprob, targets": (TOKENS, lambda t: rk.linear_logprob(A, V, t), True),
    "linear_logprob_backward, dlogprob": (
        SLOPES,
        lambda t: rk.linear_logprob_backward(A, V, TOKENS, t)[0],
        False,
    ),
    "tanh": (A, rk.elementwise.tanh, True),
    "power": (A, lambda t: rk.elementwise.power(abs(A) + 1, t), True),
    "softmax": (A, lambda t: rk.elementwise.softmax_cross_entropy(t, TOKENS)[1], False),
    "softmax, labels": (TOKENS, lambda t: rk.elementwise.softmax_cross_entropy(A, t)[0], True),
    "log_likelihood": (X, lambda t: circuit().log_likelihood(t), False),
    "log_likelihood, missing": (KNOWN, lambda t: circuit().log_likelihood(X, missing=t), True),
    "conditional": (X, lambda t: circuit().conditional(t, missing=KNOWN), False),
    "sample": (X, lambda t: circuit().sample(x=t, missing=KNOWN), False),
    "most_probable": (X, lambda t: circuit().most_probable(t, missing=KNOWN)[0], False),
    "em_step": (X, lambda t: learned(lambda pc: pc.em_step(t)), False),
    "em_step, weights": (TIMES, lambda t: learned(lambda pc: pc.em_step(X, weights=t)), False),
    "fit": (X, lambda t: learned(lambda pc: pc.fit(t, n_epochs=1)), False),
    "mutual_information": (X, rk.circuits.mutual_information, True),
    "set_scales": (TIMES, lambda t: np.asarray(tile().set_scales(t)), False),
    "learn_range": (A, lambda t: tile(input_range=RANGE).learn_range(t, A, 0.1), False),
    "mapped forward": (
        A,
        lambda t: rk.inference.map_matrix((6, 5), max_tile=(3, 5)).set_weights(A).forward(t),
        False,
    ),
    "noise model": (abs(A), lambda t: rk.inference.PCMLike().program(t).conductance, False),
    "converter": (A, lambda t: rk.inference.SinglePair().to_conductance(t)[0], False),
    "pulses": (
        TOKENS % 2,
        lambda t: rk.studies.pulse_response(rk.SoftBounds(), t).weight,
        False,
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_kind_gives_the_same_bits(name):
    array, call, typed = CALLS[name]
    want = call(array)
    for kind, to in {**KINDS, **({} if typed else OTHER_TYPES)}.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PendingDeprecationWarning)  # of numpy.matrix
            got = call(to(array))
        assert type(got) is np.ndarray, kind
        assert_same_bits(got, want)


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_number_is_refused(name):
    array, call, _ = CALLS[name]
    masked = np.ma.array(array, mask=True)
    for bad in (array + 1j, array.astype("M8[s]"), array.astype(object), masked, "x", {1, 2}):
        with pytest.raises(rk.errors.RpukitError):
            call(bad)


def test_labels_are_kept_where_shape_and_axes_are_the_same():
    values, known = A[:2], np.array([[0.0, np.nan, 2, 1], [1, 1, np.nan, 0]])
    found = rk.elementwise.math_map("exp", Labelled(values))
    assert isinstance(found, Labelled)
    assert_same_bits(np.asarray(found), rk.elementwise.math_map("exp", values))
    one, other = (rk.Circuit(rk.circuits.hmm(4, 2, 3), seed=1) for _ in range(2))
    for labelled, plain in (
        (one.sample(x=Labelled(known)), other.sample(x=known)),
        (one.most_probable(Labelled(known))[0], other.most_probable(known)[0]),
    ):
        assert isinstance(labelled, Labelled)
        assert_same_bits(np.asarray(labelled), plain)
    assert type(one.log_likelihood(Labelled(known))) is np.ndarray  # another shape
