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
# # Ten minutes
#
# A first look at the four parts of rpukit: a tile that learns by pulses, a network of tiles, a
# circuit that answers questions, and a product whose bits do not depend on the batch. Each part
# has a tutorial of its own.

# %%
import matplotlib.pyplot as plt
import numpy as np

import rpukit as rk
from rpukit import demo

# %% [markdown]
# ## A tile
#
# A tile is a crossbar array: a matrix whose weights are conductances of devices. `forward` drives
# the columns with voltages and reads the currents of the rows; `update` changes the weights by
# voltage pulses. Here a tile of 4 x 8 cells learns a linear map from examples of it.

# %%
rng = np.random.default_rng(0)
target = rng.uniform(-0.4, 0.4, (4, 8)).astype(np.float32)
device = rk.SoftBounds(dw_min=0.005, dw_min_std=0.3)  # about 240 states, noisy steps
tile = rk.AnalogTile((4, 8), device, seed=7)

errors = []
for _ in range(300):
    x = rng.uniform(-1, 1, (10, 8)).astype(np.float32)
    y = tile.forward(x)  # (10, 8) -> (10, 4): through converters, with noise
    tile.update(x, y - x @ target.T, lr=0.02)  # pulses: -lr d x^T on average
    errors.append(np.sqrt(np.mean((np.asarray(tile) - target) ** 2)))

fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
ax.semilogy(errors)
ax.axhline(device.granularity, color="0.6", lw=0.8)
ax.text(150, 1.15 * device.granularity, "one pulse", color="0.4")
_ = ax.set(xlabel="update", ylabel="error of the weights, r.m.s.")

# %% [markdown]
# The error falls until the noise of the products makes as many pulses as what is left of the
# gradient. `rk.summary` says what the tile is and what happened to it.

# %%
print(rk.summary(tile))

# %% [markdown]
# ## A network
#
# `rk.demo` has a small network of two tiles and scikit-learn's handwritten digits. We train it
# three times: with exact numbers, with devices of 1,200 even steps, and with devices of a hundred
# steps that shrink towards the bounds.

# %%
digits = demo.load_digits()
common = {
    "epochs": 6,
    "lr": 0.01,
    "n_hidden": 64,
    "batch": 16,
    "seed": 7,
    "device": "cpu",
    "progress": False,
}
devices = {
    "exact": rk.Ideal(),
    "1,200 even steps": rk.ConstantStep(dw_min=0.001),
    "100 shrinking steps": rk.SoftBounds(dw_min=0.012),
}
fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
for name, cell in devices.items():
    run = demo.train(name, cell, rk.IOParameters(), digits, **common)
    ax.plot(range(1, 7), 100 * np.array(run.accuracy), "o-", label=name)
    print(f"{name:20s} {100 * run.accuracy[-1]:.1f} % of the test digits are right")
ax.set(xlabel="epoch", ylabel="accuracy, %", ylim=(0, 100))
_ = ax.legend(title="device")

# %% [markdown]
# ## A circuit
#
# A probabilistic circuit is a distribution whose every marginal and conditional is exact. A hidden
# Markov model is one; others are trees and grids. Here it learns sequences that repeat themselves
# with errors, and then says what a gap of three hides.

# %%
pattern = np.tile([0, 1, 2, 3], 4)
sequences = np.where(rng.random((500, 16)) < 0.1, rng.integers(0, 4, (500, 16)), pattern)
pc = rk.Circuit(rk.circuits.hmm(seq_len=16, n_states=6, n_symbols=4), seed=1)
history = pc.fit(sequences, n_epochs=30)

gap = np.zeros(16, bool)
gap[6:9] = True
probable, _ = pc.most_probable(sequences[:1], missing=gap[None])
print("sequence  ", sequences[0])
print("completed ", probable[0])
print(f"log-likelihood {pc.log_likelihood(sequences).mean():.2f} nats a sequence")

# %% [markdown]
# ## A product with the same bits in any batch
#
# A row of `rk.det_gemm` is the same, to the last bit, alone and in any batch, on a CPU and on a
# GPU. NumPy promises only to be near.

# %%
a = rng.standard_normal((64, 1024)).astype(np.float32)
b = rng.standard_normal((1024, 16)).astype(np.float32)
alone, together = rk.det_gemm(a[:1], b)[0], rk.det_gemm(a, b)[0]
assert (alone == together).all()

# %% [markdown]
# ## Where to go on
#
# - [Your first tile](02_first_tile.ipynb): what goes in and out, what is inside, how it is saved.
# - [What pulses do](03_pulses.ipynb): devices, steps, noise and states.
# - [How do I ...](../how_to/index.md) has short answers, the [glossary](../concepts/index.md) the
#   words with their formulas.
