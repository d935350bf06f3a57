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
# # Your first tile
#
# A crossbar array has a device at each crossing of n_in columns and n_out rows. Ohm's law
# multiplies each voltage with a conductance, Kirchhoff's law adds the currents of a row: the array
# computes a matrix product in one step. `rk.AnalogTile` is such an array with its converters.

# %%
import matplotlib.pyplot as plt
import numpy as np

import rpukit as rk

tile = rk.AnalogTile((3, 5), rk.SoftBounds(dw_min=0.01), seed=7)
print(repr(tile))

# %% [markdown]
# ## Weights
#
# A tile begins with all weights at 0. `set_weights` writes them as they are, within the bounds of
# each cell, without pulses. `np.asarray(tile)` and `tile.get_weights()` read the exact weights; no
# noise is involved.

# %%
rng = np.random.default_rng(1)
w = rng.uniform(-0.8, 0.8, (3, 5)).astype(np.float32)
tile.set_weights(w)
print(np.asarray(tile).round(3))
print("changed by bounds:", int((np.asarray(tile) != w).sum()), "of", w.size)

# %% [markdown]
# Some weights were clipped: every cell has bounds of its own. What was drawn for the cells is in
# `tile.cells`, plain arrays by name.

# %%
print(list(tile.cells))
fig, axes = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained", sharey=True)
panels = {
    "lower bound": tile.cells["w_min"],
    "weight": np.asarray(tile),
    "upper bound": tile.cells["w_max"],
}
for ax, (name, values) in zip(axes, panels.items(), strict=True):
    image = ax.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1)
    ax.set(title=name, xlabel="input", xticks=range(5), yticks=range(3))
axes[0].set_ylabel("output")
_ = fig.colorbar(image, ax=axes, label="weight units", shrink=0.8)

# %% [markdown]
# ## Products
#
# `forward(x)` is `x @ W.T` through a digital-to-analog converter, the array, and an
# analog-to-digital converter with noise. The last axis of `x` has the inputs, all others count
# samples. `backward(d)` drives the rows and reads the columns: `d @ W`.

# %%
x = rng.uniform(-1, 1, (1000, 5)).astype(np.float32)
y, exact = tile.forward(x), x @ np.asarray(tile).T
print("forward ", x.shape, "->", y.shape)
print("backward", y.shape, "->", tile.backward(y).shape)
print(f"error of the outputs: {np.std(y - exact):.3f}, r.m.s. of the outputs {np.std(exact):.3f}")

# %% [markdown]
# The periphery is described by `rk.IOParameters`. The default has 7-bit inputs (`inp_res`), 9-bit
# outputs (`out_res`) and noise on the outputs (`out_noise`), in units of the converters. A perfect
# one shows which part of an error comes from the periphery. Each input vector is scaled to the
# range of its converter, and its output back: so the coarse levels on the third panel are not
# straight lines. [Noise management](04_noise_management.ipynb) is the name of that.

# %%
variants = {
    "default": rk.IOParameters(),
    "no noise": rk.IOParameters(out_noise=0),
    "3-bit outputs": rk.IOParameters(out_noise=0, out_res=1 / 6, out_bound=2),
    "perfect": rk.IOParameters(is_perfect=True),
}
fig, axes = plt.subplots(1, 4, figsize=(11, 2.8), sharey=True, layout="constrained")
for ax, (name, io) in zip(axes, variants.items(), strict=True):
    other = rk.AnalogTile((3, 5), rk.SoftBounds(dw_min=0.01), seed=7, forward=io)
    other.set_weights(w)
    ax.plot(exact[:, 0], other.forward(x)[:, 0], ".", ms=2)
    ax.axline((0, 0), slope=1, color="0.6", lw=0.8)
    ax.set(title=name, xlabel="exact output")
_ = axes[0].set_ylabel("output of the tile")

# %% [markdown]
# ## An update
#
# `update(x, d, lr)` changes the weights by `-lr d x^T` on average, by pulses. With `d` the error
# of the outputs that is a step of gradient descent. The pulses of one sample are few and random,
# so a single update is coarse; many of them follow the gradient.

# %%
one, d = np.ones((1, 5), np.float32), np.array([[0.5, 0.0, -0.5]], np.float32)
tile.set_weights(np.zeros((3, 5)))
tile.update(one, d, lr=0.1)
print("after one update (ideal: rows of -0.05, 0, 0.05)")
print(np.asarray(tile).round(3))
print("pulses:", tile.n_pulses)

# %% [markdown]
# ## The same twice
#
# The seed names every draw: cells, noise and pulses. A copy continues with the same bits, and so
# does a tile that was saved and loaded, on a CPU or on a GPU.

# %%
import tempfile
from pathlib import Path

with tempfile.TemporaryDirectory() as folder:
    rk.save(Path(folder) / "tile.npz", tile)
    loaded = rk.load(Path(folder) / "tile.npz")
twin = tile.copy()
outputs = [t.update(one, d, lr=0.1).forward(x) for t in (tile, twin, loaded)]
assert (outputs[0] == outputs[1]).all()
assert (outputs[0] == outputs[2]).all()

# %% [markdown]
# Next: [what pulses do](03_pulses.ipynb) to a device.
