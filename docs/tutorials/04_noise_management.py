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
# # Why noise management
#
# An array multiplies voltages. Its input converter has a range of [-1, 1] and some hundred steps,
# its output converter a range of [-12, 12], and its amplifiers add noise that does not depend on
# the signal. Vectors of a network do not care: errors at the end of a training are a thousand
# times smaller than at its start. This tutorial shows what that does, and two remedies.

# %%
import matplotlib.pyplot as plt
import numpy as np

import rpukit as rk

rng = np.random.default_rng(0)
w = rng.uniform(-0.3, 0.3, (20, 100)).astype(np.float32)
x = rng.uniform(-1, 1, (200, 100)).astype(np.float32)


def relative_error(io, scale):
    """Error of the outputs for inputs of a scale, relative to the exact outputs."""
    tile = rk.AnalogTile(w.shape, rk.Ideal(), seed=7, forward=io)
    tile.set_weights(w)
    exact = (scale * x) @ w.T
    return float(np.sqrt(np.mean((tile.forward(scale * x) - exact) ** 2) / np.mean(exact**2)))


# %% [markdown]
# ## Without management
#
# Small inputs use few steps of the converter and vanish in the noise of the output. Large ones
# are cut off at the range of the input.

# %%
scales = np.geomspace(1e-3, 1e3, 25)
off = {"noise_management": "none", "bound_management": "none"}
curves = {"none": rk.IOParameters(**off)}
fig, ax = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
ax.loglog(scales, [relative_error(curves["none"], s) for s in scales], "o-", ms=3)
ax.axvline(1, color="0.6", lw=0.8)
ax.text(1.1, 30, "range of the input", color="0.4")
_ = ax.set(xlabel="largest input", ylabel="relative error of the outputs")

# %% [markdown]
# ## Scaling each vector
#
# *Noise management* divides each input vector by a scale alpha before the converter and multiplies
# the outputs by it afterwards, both in digital. With `ABS_MAX`, the default, alpha is the largest
# absolute input, so that the converter is always used in full. The error no longer depends on the
# size of the inputs.

# %%
kinds = {
    "none": {},
    "constant, 0.1": {"noise_management": "constant", "nm_thres": 0.1},
    "largest input": {"noise_management": "abs_max"},
}
fig, ax = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
for name, kind in kinds.items():
    io = rk.IOParameters(**(off | kind))
    ax.loglog(scales, [relative_error(io, s) for s in scales], "o-", ms=3, label=name)
ax.set(xlabel="largest input", ylabel="relative error of the outputs")
_ = ax.legend(title="noise management")

# %% [markdown]
# ## One large input
#
# Scaling by the largest input has a price: one outlier pushes all others into the few lowest
# steps of the converter, and their contribution into the noise. `nm_thres` limits the scale: the
# others keep their resolution, and the outlier is cut off. Which is better depends on what the
# outlier means. Its weights are like those of all others on the left; on the right they are a
# hundredth of that, as of an input that is not used.

# %%
outliers = np.geomspace(1, 300, 12)
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
for ax, factor, title in zip(axes, (1, 0.01), ("like the others", "hardly used"), strict=True):
    weights = w.copy()
    weights[:, 0] *= factor
    for name, thres in (("largest input", 0), ("largest input, at most 2", 2)):
        io = rk.IOParameters(nm_thres=thres, bound_management="none")
        tile = rk.AnalogTile(w.shape, rk.Ideal(), seed=7, forward=io)
        tile.set_weights(weights)
        error = []
        for size in outliers:
            spiked = x.copy()
            spiked[:, 0] = size
            error.append(np.std(tile.forward(spiked) - spiked @ weights.T))
        ax.loglog(outliers, error, "o-", ms=3, label=name)
    ax.set(xlabel="the one large input", title=title)
axes[0].set_ylabel("error of the outputs, r.m.s.")
_ = axes[1].legend(fontsize="small")

# %% [markdown]
# ## Outputs that leave their range
#
# The sum over many inputs may be larger than the output converter takes. *Bound management*
# notices an output at its bound and repeats the product with inputs of half the size, until
# nothing is cut off. Each repetition costs a read, and the coarser inputs make more noise.

# %%
wide = np.full((1, 400), 0.1, np.float32)
sums = np.linspace(-40, 40, 81)
fig, ax = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
for kind in ("none", "iterative"):
    tile = rk.AnalogTile(
        wide.shape, rk.Ideal(), seed=7, forward=rk.IOParameters(bound_management=kind)
    )
    tile.set_weights(wide)
    inputs = np.ones((81, 400), np.float32) * np.sign(sums)[:, None]
    inputs *= np.arange(400) < np.abs(sums)[:, None] * 10
    ax.plot(sums, tile.forward(inputs.astype(np.float32))[:, 0], ".", ms=3, label=kind)
ax.axhline(12, color="0.6", lw=0.8, ls=":")
ax.axhline(-12, color="0.6", lw=0.8, ls=":")
ax.set(xlabel="exact output", ylabel="output of the tile")
_ = ax.legend(title="bound management")

# %% [markdown]
# ## Errors of a trained network
#
# Why it matters most for the backward product: we train the network of
# [ten minutes](01_ten_minutes.ipynb), and look at the errors `d` that go back through its second
# tile in the end. Most digits are learned, and their errors are far below the noise of the output
# converter (0.06). Without management nothing of them would be left.

# %%
from rpukit import demo, elementwise

digits = demo.load_digits()
settings = {"epochs": 8, "lr": 0.01, "n_hidden": 64, "batch": 16, "seed": 7, "device": "cpu"}
run = demo.train(
    "constant steps", rk.ConstantStep(), rk.IOParameters(), digits, progress=False, **settings
)
first, second = (np.asarray(tile) for tile in run.tiles)
h = np.tanh(digits.x_train @ first.T)
h = np.concatenate([h, np.ones((len(h), 1), np.float32)], axis=1)
_, d = elementwise.softmax_cross_entropy(h @ second.T, digits.y_train)
largest = np.abs(d).max(axis=1)

fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
axes[0].hist(largest, np.geomspace(1e-4, 1, 40))
axes[0].axvline(0.06, color="black", ls=":", label="noise of an output")
axes[0].legend(fontsize="small")
axes[0].set(xscale="log", xlabel="largest error of a sample", ylabel="samples")
exact = d @ second
for name, io in (("none", rk.IOParameters(**off)), ("default", rk.IOParameters())):
    tile = rk.AnalogTile(second.shape, rk.Ideal(), seed=7, backward=io)
    tile.set_weights(second)
    error = np.linalg.norm(tile.backward(d) - exact, axis=1) / np.linalg.norm(exact, axis=1)
    axes[1].loglog(largest, error, ".", ms=2, label=name)
axes[1].set(xlabel="largest error of a sample", ylabel="relative error of the gradient")
_ = axes[1].legend(title="noise management", markerscale=4)

# %% [markdown]
# `help(rk.NoiseManagement)` and `help(rk.BoundManagement)` explain all kinds of management. Next:
# [asymmetry](05_asymmetry.ipynb).
