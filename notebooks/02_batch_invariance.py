# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The same bits in any batch
#
# A row of a matrix product does not depend on the other rows. Yet in most libraries its last bits
# depend on how many other rows there are. This notebook shows the effect, what it does to the
# probabilities of a language model between sampling and training, and what it costs to avoid it.

# %%
import time

import matplotlib.pyplot as plt
import numpy as np

import rpukit as rk

SEED = 7
rng = np.random.default_rng(SEED)

# %% [markdown]
# ## One row, many batches
#
# We compute the first row of `x @ w` in batches of different sizes. NumPy's BLAS has one kernel
# for a vector and others for few and for many rows, and each sums in its own order.

# %% tags=["varies"]
k, n = 2048, 512
x = rng.standard_normal((256, k)).astype(np.float32)
w = (rng.standard_normal((k, n)) / np.sqrt(k)).astype(np.float32)
sizes = [1, 2, 3, 4, 8, 16, 32, 64, 128, 256]


def changed(product):
    """Part of the first row's results that differ from those in the largest batch."""
    whole = product(x, w)[0]
    return [float((product(x[:m], w)[0] != whole).mean()) for m in sizes]


parts = {"NumPy": changed(np.matmul), "rpukit": changed(rk.det_gemm)}
for name, part in parts.items():
    print(f"{name:7s}", " ".join(f"{100 * p:5.1f}" for p in part), "% of the row's bits changed")

# %% [markdown]
# Both are correct to within the rounding of a sum of 2048 terms. Only one is reproducible.

# %% tags=["varies"]
exact = x.astype(np.float64) @ w
for name, product in (("NumPy", np.matmul), ("rpukit", rk.det_gemm)):
    print(f"{name:7s} largest error {abs(product(x, w) - exact).max():.1e}")

# %% [markdown]
# ## A token's probability, sampled and trained on
#
# A small recurrent model writes 32 sequences, one at a time, as a server with one user does.
# Training then computes the log-probabilities of the same tokens again, for all sequences
# together. States are kept in bfloat16, as on accelerators. A policy gradient needs the ratio of
# the two probabilities, which should be 1.

# %% tags=["varies"]
n_sequence, n_step, n_in, n_vocab = 32, 24, 256, 2000
weights = {
    "state": (rng.standard_normal((n_in, n_in)) * 1.5 / np.sqrt(n_in)).astype(np.float32),
    "token": rng.standard_normal((n_vocab, n_in)).astype(np.float32),
    "head": (rng.standard_normal((n_vocab, n_in)) * 2 / np.sqrt(n_in)).astype(np.float32),
}


def blas_logprob(hidden, head, targets):
    """Log-probabilities the usual way."""
    z = hidden @ head.T
    z -= z.max(axis=1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return log_p[np.arange(len(targets)), targets]


def read(tokens, product, logprob):
    """Log-probabilities (n_sequence, n_step) of tokens, step by step."""
    h = np.zeros((len(tokens), n_in), np.float32)
    found = []
    for step in range(n_step):
        found.append(logprob(h, weights["head"], tokens[:, step]))
        h = np.tanh(product(h, weights["state"]) + weights["token"][tokens[:, step]])
        h = rk.gemm.from_bfloat16(rk.gemm.to_bfloat16(h))
    return np.stack(found, axis=1)


tokens = rng.integers(0, n_vocab, (n_sequence, n_step))
drift = {}
for name, parts_of in (
    ("NumPy", (np.matmul, blas_logprob)),
    ("rpukit", (rk.det_gemm, rk.linear_logprob)),
):
    sampled = np.concatenate([read(tokens[i : i + 1], *parts_of) for i in range(n_sequence)])
    trained = read(tokens, *parts_of)
    drift[name] = abs(np.exp((trained - sampled).astype(np.float64)) - 1)
    print(f"{name:7s} largest |ratio - 1| {drift[name].max():.1e}")

fig, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
for name, off in drift.items():
    ax.semilogy(np.maximum(off.max(axis=0), 1e-9), "o-", label=name)
ax.set(xlabel="position in the sequence", ylabel="|ratio of probabilities - 1|, largest")
_ = ax.legend()

# %% [markdown]
# A difference in the last bit of a float32 sum sometimes changes the rounding to bfloat16, which
# is a step 65,536 times as large, and the state propagates it. The products of rpukit have no
# such difference.
#
# ## Gradients
#
# The gradient of a weight is a sum over the batch, so the order of rows is part of its result.
# The division into micro-batches should not be.

# %%
rows = 300
a, dc = (rk.gemm.to_bfloat16(rng.standard_normal((rows, m)).astype(np.float32)) for m in (96, 64))
whole = rk.det_gemm(a, dc, trans_a=True)
for cuts in ([], [1], [7, 130], [16, 32, 250, 299]):
    gradient = rk.gemm.WeightGradient((96, 64), np.uint16)
    for start, stop in zip([0, *cuts], [*cuts, rows], strict=True):
        gradient.add(a[start:stop], dc[start:stop])
    print(f"cut at {cuts!s:20s} equal bits: {bool((gradient.result() == whole).all())}")
    assert (gradient.result() == whole).all()

# %% [markdown]
# ## What it costs
#
# Both products are timed on a CPU with all its cores. On an H200 the bfloat16 products run at the
# speed of cuBLAS to within some per cent (`docs/performance.md`).

# %% tags=["varies"]
a, b = (rng.standard_normal((768, 768)).astype(np.float32) for _ in range(2))


def seconds(product):
    """Shortest of five calls."""
    spans = []
    for _ in range(5):
        start = time.perf_counter()
        product(a, b)
        spans.append(time.perf_counter() - start)
    return min(spans)


rk.det_gemm(a, b)  # compiled by the first call
cost = {"NumPy": seconds(np.matmul), "rpukit": seconds(rk.det_gemm)}
for name, spent in cost.items():
    print(f"{name:7s} {2 * 768**3 / spent / 1e9:6.0f} GFLOP/s")

# %% [markdown]
# No row depends on its batch, and no probability changes between sampling and training.

# %%
assert max(parts["rpukit"]) == 0
assert drift["rpukit"].max() == 0
assert max(parts["NumPy"]) > 0
assert drift["NumPy"].max() > 1e-6
