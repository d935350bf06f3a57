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
# # A year in the life of programmed weights
#
# Digitally trained weights are programmed once into phase-change memory and read for months.
# Programming is inexact, conductances drift, and every read has noise. This notebook looks at
# each of the three, compensates drift at the outputs, trains a network that is more robust, and
# fits a noise model to measurements.

# %%
import matplotlib.pyplot as plt
import numpy as np

import rpukit as rk
from rpukit import demo, elementwise, inference

SEED = 7
TIMES = np.geomspace(1, 3.15e7, 16)

# %% [markdown]
# ## Devices
#
# For each of six target conductances we program 2,000 devices. The figures show the programming
# error and the conductance over time. Times may be asked for in any order; each starts from the
# programmed state.

# %%
device = inference.PCMLike()
targets = np.array([0, 1.25, 6.25, 12.5, 18.75, 25], np.float32)
written = device.program(np.repeat(targets[:, None], 2000, axis=1), seed=SEED)
traces = np.stack([device.read(written, t, seed=SEED) for t in TIMES])

fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
g = np.linspace(0, 25, 100)
axes[0].plot(g, device.programming(g / 25), label="model, before the clip at 0")
axes[0].plot(targets, written.conductance.std(axis=1), "o", label="2,000 devices")
axes[0].set(xlabel="target, µS", ylabel="spread of programming, µS")
_ = axes[0].legend(fontsize=8)
for k in range(1, 6):
    mean, std = traces[:, k].mean(axis=1), traces[:, k].std(axis=1)
    axes[1].fill_between(TIMES, mean - std, mean + std, alpha=0.3)
    axes[1].plot(TIMES, mean, label=f"target {targets[k]:g} µS")
axes[1].set(xscale="log", xlabel="seconds after programming", ylabel="conductance, µS")
_ = axes[1].legend(fontsize=7, ncols=2)

# %% [markdown]
# ## A tile, and drift compensation
#
# Each weight becomes a pair of devices. One factor for the whole tile, measured with unit inputs,
# restores the mean size of the outputs after programming. The spread between devices remains.

# %%
rng = np.random.default_rng(SEED)
w = rng.uniform(-1, 1, (64, 128)).astype(np.float32)
x = rng.uniform(-1, 1, (200, 128)).astype(np.float32)
exact = x @ w.T
errors = {}
for kind in ("none", "global", "per_column"):
    tile = rk.InferenceTile(w.shape, compensation=kind, seed=SEED).set_weights(w).program()
    off = [tile.drift_to(t).forward(x) - exact for t in TIMES]
    errors[kind] = np.array([np.sqrt((e**2).mean()) for e in off]) / exact.std()
fig, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
for (kind, error), style in zip(errors.items(), ("-", "-", "--"), strict=True):
    ax.plot(TIMES, error, style, label=f"compensation {kind}")
ax.set(xscale="log", xlabel="seconds after programming", ylabel="error of the outputs, relative")
_ = ax.legend()

# %% [markdown]
# ## Hardware-aware training
#
# The same small network is trained twice: with exact weights, and with noise of a tenth of the
# largest weight added to the weights of every pass. Both are programmed ten times and tested for
# a year.

# %%
data = demo.load_digits()
PERFECT = rk.IOParameters(is_perfect=True)
READ = rk.IOParameters(inp_res=1 / 254, out_res=1 / 254, out_bound=10.0, out_noise=0.04)
AWARE = {
    "modifier": inference.WeightModifier(type="add_normal", std_dev=0.1),
    "weight_clip": inference.WeightClip(type="layer_gaussian", sigma=2.5),
}
SHAPES = ((32, 65), (10, 33))


def network(**options):
    return [
        rk.InferenceTile(shape, seed=rk.Stream.from_seed(SEED).child(k), **options)
        for k, shape in enumerate(SHAPES)
    ]


def hidden(tiles, x):
    h = elementwise.tanh(tiles[0].forward(x))
    return np.concatenate([h, np.ones((len(h), 1), np.float32)], axis=1)


def train(**options):
    tiles = network(forward=PERFECT, backward=PERFECT, **options)
    rng = np.random.default_rng(SEED)
    for tile in tiles:
        reach = np.sqrt(6 / sum(tile.shape))
        tile.set_weights(rng.uniform(-reach, reach, tile.shape).astype(np.float32)).post_step()
    for epoch in range(15):
        order = rng.permutation(len(data.y_train))
        for k in range(0, len(order), 10):
            xs, ys = data.x_train[order[k : k + 10]], data.y_train[order[k : k + 10]]
            h = hidden(tiles, xs)
            _, error = elementwise.softmax_cross_entropy(tiles[1].forward(h), ys)
            slope = tiles[1].backward(error)[:, :-1] * (1 - h[:, :-1] ** 2)
            lr = 0.03 if epoch < 10 else 0.006
            tiles[1].update(h, error, lr).post_step()
            tiles[0].update(xs, slope, lr).post_step()
    return [tile.unprogram().get_weights() for tile in tiles]


def accuracy(tiles):
    logits = tiles[1].forward(hidden(tiles, data.x_test))
    return (logits.argmax(axis=1) == data.y_test).mean()


def year(weights, compensation, runs=10):
    remap = inference.WeightRemap(type="layerwise_symmetric")
    tiles = network(forward=READ, weight_remap=remap, compensation=compensation)
    for tile, w in zip(tiles, weights, strict=True):
        tile.set_weights(w).post_step()
    found = np.zeros((runs, len(TIMES[::3])))
    for run in range(runs):
        for tile in tiles:
            tile.program(event=run)
        for k, t in enumerate(TIMES[::3]):
            for tile in tiles:
                tile.drift_to(t)
            found[run, k] = accuracy(tiles)
    return found


trained = {"exact": train(), "with noise": train(**AWARE)}
results = {
    (name, kind): year(weights, kind)
    for name, weights in trained.items()
    for kind in ("none", "global")
}

# %%
fig, ax = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
for k, ((name, kind), found) in enumerate(results.items()):
    colour = "C1" if name == "with noise" else "C0"
    style = "-" if kind == "global" else ":"
    label = f"trained {name}, compensation {kind}"
    beside = TIMES[::3] * 1.25**k  # so that the bars do not lie upon one another
    ax.errorbar(
        beside, 100 * found.mean(0), 100 * found.std(0), color=colour, ls=style, capsize=2,
        label=label,
    )  # fmt: skip
ax.set(xscale="log", xlabel="seconds after programming")
ax.set_ylabel(f"test accuracy (%), axis from {ax.get_ylim()[0]:.1f}")
_ = ax.legend(fontsize=7)

# %% [markdown]
# ## A model from measurements
#
# `fit_model` takes the target conductances, the conductances read after programming, and reads
# over time. Here the measurements come from the model itself, so the answer is known.

# %%
asked = np.linspace(0, 25, 4000, dtype=np.float32)
done = device.program(asked, seed=SEED)
fitted = inference.fit_model(
    asked, done.conductance, TIMES, [device.read(done, t, seed=SEED) for t in TIMES], g_max=25.0
)
fig, axes = plt.subplots(1, 3, figsize=(10, 2.8), layout="constrained")
x = np.linspace(0.05, 1, 100)
for ax, name in zip(axes, ("programming", "drift_mean", "drift_std"), strict=True):
    ax.plot(25 * x, getattr(device, name)(x), label="device")
    ax.plot(25 * x, getattr(fitted, name)(x), "--", label="fitted")
    ax.set(xlabel="conductance, µS", title=name)
axes[0].set_ylabel("spread, µS")
axes[1].set_ylabel("drift coefficient, no unit")
_ = axes[0].legend()

# %% [markdown]
# At the end of the year, drift without compensation costs the most. Training with noise recovers
# some of it.

# %%
last = {key: found[:, -1].mean() for key, found in results.items()}
for (name, kind), value in last.items():
    print(f"trained {name:10s} compensation {kind:6s}: {100 * value:.1f} %")
assert last["with noise", "global"] > last["exact", "none"]
assert errors["global"][-1] < 0.6 * errors["none"][-1]
assert abs(fitted.drift_mean(0.8) - device.drift_mean(0.8)) < 0.003
