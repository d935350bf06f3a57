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
# # Programming and drift
#
# The other use of an array: weights that were trained elsewhere are programmed into it once, and
# read for months. Programming is inexact, conductances drift, and every read has noise.
# `rk.InferenceTile` models all three, by models that were measured on real devices.

# %%
import matplotlib.pyplot as plt
import numpy as np

import rpukit as rk
from rpukit import inference

# %% [markdown]
# ## One device
#
# A noise model works on conductances in microsiemens. `PCMLike` is a phase-change memory of up to
# 25 µS. We program 500 devices to each of four targets and read them at times up to a year.

# %%
model = inference.PCMLike()
targets = np.array([2, 8, 15, 22], np.float32)
times = np.geomspace(1, 3.15e7, 20)  # seconds
written = model.program(np.repeat(targets[:, None], 500, axis=1), seed=1)
reads = np.stack([model.read(written, t, seed=1) for t in times])

fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
for k, target in enumerate(targets):
    axes[0].hist(written.conductance[k], 40, orientation="horizontal", alpha=0.7)
    mean, std = reads[:, k].mean(axis=1), reads[:, k].std(axis=1)
    axes[1].plot(times, mean, label=f"{target:g} µS")
    axes[1].fill_between(times, mean - std, mean + std, alpha=0.25)
axes[0].set(xlabel="devices", ylabel="conductance, µS", title="just programmed")
axes[1].set(xscale="log", xlabel="seconds since programming", title="mean and spread of reads")
_ = axes[1].legend(title="target", fontsize="small")

# %% [markdown]
# Conductances fall as a power of time, `g(t) = g(t_0) (t / t_0)^-nu`, small ones faster than large
# ones, and each device with an exponent of its own.
#
# ## A weight is a pair
#
# Conductances are positive, so a weight is the difference of two devices. The tile does the
# conversion; `conductances` shows both devices of each weight.

# %%
rng = np.random.default_rng(0)
w = rng.normal(0, 0.3, (32, 64)).clip(-1, 1).astype(np.float32)
tile = rk.InferenceTile(w.shape, seed=7).set_weights(w)
tile.program()

ages = {"a second": 1, "a day": 86400, "a year": 3.15e7}
fig, axes = plt.subplots(1, 3, figsize=(10, 3), sharex=True, sharey=True, layout="constrained")
for ax, (name, t) in zip(axes, ages.items(), strict=True):
    tile.drift_to(t)
    ax.plot(w.ravel(), tile.get_weights().ravel(), ".", ms=2)
    ax.axline((0, 0), slope=1, color="0.6", lw=0.8)
    ax.set(title=f"after {name}", xlabel="weight as trained")
_ = axes[0].set_ylabel("weight as programmed")

# %% [markdown]
# ## Drift compensation
#
# Most of the loss is common to all devices: one factor on the outputs brings it back. The tile
# measures it by reading with unit inputs now and just after programming (`compensation`).

# %%
x = rng.uniform(-1, 1, (200, 64)).astype(np.float32)
exact = x @ w.T
fig, ax = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
for kind in ("none", "global", "per_column"):
    tile = rk.InferenceTile(w.shape, compensation=kind, seed=7).set_weights(w).program()
    error = [np.std(tile.drift_to(t).forward(x) - exact) / np.std(exact) for t in times]
    ax.semilogx(times, error, label=kind)
    print(f"compensation {kind:11s} error after a year {error[-1]:.3f}")
ax.set(xlabel="seconds since programming", ylabel="relative error of the outputs", ylim=(0, None))
_ = ax.legend(title="compensation")

# %% [markdown]
# `drift_to` begins at the programmed state each time, so that times may be asked for in any order.
# `program()` programs anew, with other noise. The spread over programmings says how much of an
# error is luck.

# %%
tile = rk.InferenceTile(w.shape, compensation="global", seed=7).set_weights(w)
month = []
for event in range(20):
    tile.program(event=event).drift_to(30 * 86400)
    month.append(np.std(tile.forward(x) - exact) / np.std(exact))
print(f"error after a month: {np.mean(month):.3f} ± {np.std(month):.3f} over 20 programmings")

# %% [markdown]
# ## Drift while learning
#
# Tiles that learn by pulses can drift, too: `rk.DriftParameters` of the cell and `tile.drift(dt)`,
# decay towards a resting point (`lifetime`, `tile.decay()`), and a random walk (`diffusion`,
# `tile.diffuse()`). A weight that gets a pulse counts as newly written.

# %%
drifting = rk.SoftBounds(dw_min=0.01, drift=rk.DriftParameters(nu=0.1, nu_dtod=0.3))
tile = rk.AnalogTile((1, 20), drifting, seed=1).set_weights(np.full((1, 20), 0.3, np.float32))
trace = [np.asarray(tile)[0]]
for _ in range(60):
    tile.drift(10.0)
    trace.append(np.asarray(tile)[0])
fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
ax.plot(10 * np.arange(61), np.array(trace), lw=0.8, color="C0", alpha=0.6)
_ = ax.set(xlabel="seconds", ylabel="weights of 20 cells", ylim=(0, None))

# %% [markdown]
# Training that makes networks robust against all of this, and fits of your own measurements:
# [inference](../inference.md) and the notebook
# [06_inference](../../notebooks/06_inference.ipynb). Next: [a circuit](07_circuit.ipynb).
