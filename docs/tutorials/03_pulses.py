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
# # What pulses do
#
# A tile learns by short voltage pulses on its rows and columns. Where two pulses meet, the device
# at the crossing changes by a small step. This tutorial follows one pulse, then trains of pulses,
# then the numbers that describe a device: step size, noise, spread, bounds, states.

# %%
import matplotlib.pyplot as plt
import numpy as np

import rpukit as rk

# %% [markdown]
# ## One device, many pulses
#
# `rk.studies.pulse_response` sends single pulses to cells and records the weight after each.
# `True` is a pulse up. Two models without any noise: with *constant steps* the weight moves evenly
# until it meets a bound; with *soft bounds* the step shrinks towards the bound,
#
# $$ \Delta w_\mathrm{up} = u\,(1 - w / w_\mathrm{max}), \qquad
#    \Delta w_\mathrm{down} = -q\,(1 - w / w_\mathrm{min}) . $$

# %%
EXACT = {"dw_min_std": 0, "dw_min_dtod": 0, "up_down_dtod": 0, "w_max_dtod": 0, "w_min_dtod": 0}
up_then_down = np.repeat([True, False], 300)
models = {
    "ConstantStep": rk.ConstantStep(dw_min=0.01, **EXACT),
    "SoftBounds": rk.SoftBounds(dw_min=0.01, **EXACT),
}
fig, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True, layout="constrained")
for ax, (name, cell) in zip(axes, models.items(), strict=True):
    response = rk.studies.pulse_response(cell, up_then_down)
    ax.plot(response.weight)
    ax.axhline(cell.w_max, color="0.6", ls=":")
    ax.axhline(cell.w_min, color="0.6", ls=":")
    ax.set(title=name, xlabel="pulse")
_ = axes[0].set_ylabel("weight")

# %% [markdown]
# ## Noise and spread
#
# Real steps scatter. *Cycle-to-cycle* noise (`dw_min_std`) is drawn for every pulse;
# *device-to-device* spread (everything that ends in `_dtod`) is drawn once for each cell, when the
# tile is made. Both are relative: 0.3 is 30 % of the mean.

# %%
kinds = {
    "cycle to cycle": EXACT | {"dw_min_std": 1.0},
    "device to device": EXACT | {"dw_min_dtod": 0.3, "w_max_dtod": 0.3, "w_min_dtod": 0.3},
    "both": EXACT | {"dw_min_std": 1.0, "dw_min_dtod": 0.3, "w_max_dtod": 0.3, "w_min_dtod": 0.3},
}
fig, axes = plt.subplots(1, 3, figsize=(11, 3), sharey=True, layout="constrained")
for ax, (name, spread) in zip(axes, kinds.items(), strict=True):
    cell = rk.SoftBounds(dw_min=0.01, **spread)
    response = rk.studies.pulse_response(cell, up_then_down, n_cell=5, seed=3)
    ax.plot(response.weight, lw=0.9)
    ax.set(title=name, xlabel="pulse")
_ = axes[0].set_ylabel("weight of five cells")

# %% [markdown]
# ## Asymmetry
#
# `up_down` makes the steps of one direction smaller: a positive value those down, a negative one
# those up. With 0.4 a step up is `dw_min` and a step down is 0.6 `dw_min`. Where both are equal
# lies the symmetric point, the subject of [a later tutorial](05_asymmetry.ipynb).

# %%
fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
w = np.linspace(-0.6, 0.6, 7)
for up_down, colour in ((0.0, "C0"), (0.4, "C1")):
    cell = rk.SoftBounds(dw_min=0.01, up_down=up_down, **EXACT)
    sizes = rk.AnalogTile((1, 1), cell).cells
    u, q = float(sizes["step_up"][0, 0]), float(sizes["step_down"][0, 0])
    ax.plot(w, q * (1 + w / 0.6), color=colour, ls="--", label=f"down, up_down = {up_down}")
ax.plot(w, u * (1 - w / 0.6), color="black", label="up, both")
ax.set(xlabel="weight", ylabel="size of a step")
_ = ax.legend(fontsize="small", loc="lower center")

# %% [markdown]
# ## Trains
#
# An update of a whole array is a train of time slots. In each slot a row and a column fire or do
# not, at random, with probabilities in proportion to `|d|` and `|x|`. A device steps in the slots
# in which both lines fire, so its mean number of steps is in proportion to the product: the array
# computes the outer product by coincidence. `tile.pulse_trains` shows the trains without sending
# them; the number of slots is the *bit length* BL.

# %%
tile = rk.AnalogTile((4, 6), rk.ConstantStep(dw_min=0.001), seed=5)
x = np.array([[0.1, 0.3, 0.5, 0.7, 0.9, -0.4]], np.float32)
d = np.array([[0.2, 0.5, -0.8, 1.0]], np.float32)
x_train, d_train = (train[0] for train in tile.pulse_trains(x, d, lr=0.02))
slots = np.flatnonzero(x_train.any(axis=1) | d_train.any(axis=1))
x_train, d_train = x_train[: slots[-1] + 1], d_train[: slots[-1] + 1]

fig, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained", width_ratios=(1, 1, 1.1))
axes[0].imshow(x_train.T, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
axes[0].set(title="x: columns that fire", xlabel="time slot", ylabel="column")
axes[1].imshow(d_train.T, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
axes[1].set(title="d: rows that fire", xlabel="time slot", ylabel="row", yticks=range(4))
coincidences = -np.einsum("ti,tj->ij", d_train.astype(int), x_train)
image = axes[2].imshow(coincidences, cmap="PuOr", vmin=-20, vmax=20, aspect="auto")
for i, j in np.ndindex(coincidences.shape):
    axes[2].text(j, i, f"{coincidences[i, j]:+d}", ha="center", va="center", fontsize=8)
_ = axes[2].set(title="steps of the devices", xlabel="column", ylabel="row", yticks=range(4))

# %% [markdown]
# Red is a positive sign, blue a negative one. A device goes down where the signs agree, since the
# update subtracts. Averaged over many samples the pulses give `-lr d x^T`:

# %%
n = 2000
tile = rk.AnalogTile((4, 6), rk.ConstantStep(dw_min=1e-6, w_max=9, w_min=-9, dw_min_dtod=0))
tile.update(np.repeat(x, n, axis=0), np.repeat(d, n, axis=0), lr=2e-5)
mean = np.asarray(tile) / n / 2e-5
fig, ax = plt.subplots(figsize=(3.6, 3.2), layout="constrained")
ax.plot((-d.T @ x).ravel(), mean.ravel(), "o")
ax.axline((0, 0), slope=1, color="0.6", lw=0.8)
_ = ax.set(xlabel="-d x$^T$", ylabel="mean change over lr")

# %% [markdown]
# ## How many slots
#
# A train of BL slots can make at most BL steps of size `dw_min`. *Update management* divides the
# probabilities fairly between rows and columns; *bit-length management* gives every sample only
# as many slots as its largest product needs, `lr max|x| max|d| / dw_min`, at most `desired_bl`.
# What exceeds that is lost: with one pulse in every slot the change cannot grow further.

# %%
fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
one = np.ones((1, 1), np.float32)
wanted = np.linspace(0.0005, 0.06, 40)
for bl in (5, 15, 31):
    update = rk.UpdateParameters(desired_bl=bl)
    got = []
    for lr in wanted:
        tile = rk.AnalogTile((50, 1), rk.ConstantStep(dw_min=0.001), seed=2, update=update)
        got.append(-np.asarray(tile.update(one, np.ones((1, 50), np.float32), lr=lr)).mean())
    ax.plot(wanted, got, label=f"desired_bl = {bl}")
ax.axline((0, 0), slope=1, color="0.6", lw=0.8)
ax.set(xlabel="lr d x", ylabel="mean change of the weight")
_ = ax.legend()

# %% [markdown]
# ## States
#
# The number of states is the range over the size of a step at weight 0: the resolution of a
# device. `cell.n_states` gives it for the mean device. Presets hold devices fitted to
# measurements; `rk.plot.plot_devices` draws their responses.

# %%
print("ConstantStep(dw_min=0.01):", round(rk.ConstantStep(dw_min=0.01).n_states), "states")
chosen = {name: rk.presets.device(name) for name in ("EcRam", "ReRamSB", "ReRamArrayOM")}
_ = rk.plot.plot_devices(chosen, n_cell=10, seed=1)

# %% [markdown]
# Next: [why noise management](04_noise_management.ipynb), about the way of the numbers into the
# array and out of it. All models and presets: [devices](../devices.md). Every step of the update,
# to the bit: [semantics](../semantics/update.md).
