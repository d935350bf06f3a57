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
# # Asymmetry, symmetric points, Tiki-Taka
#
# On a real device a step down does not undo a step up. This tutorial shows why that spoils
# learning, where the weights go, and how a second array repairs it: Tiki-Taka, with choppers and
# with gamma.

# %%
import matplotlib.pyplot as plt
import numpy as np

import rpukit as rk

PLAIN = {"dw_min_dtod": 0, "up_down_dtod": 0, "w_max_dtod": 0, "w_min_dtod": 0}

# %% [markdown]
# ## Where pulses up and down cancel
#
# A soft-bounds device takes larger steps down near its upper bound and larger steps up near its
# lower one. Under alternating pulses its weight moves to the point where both are equal, whatever
# it was before: the *symmetric point*. With steps u and q at weight 0 it is
#
# $$ w_\mathrm{sp} = \frac{u - q}{u / w_\mathrm{max} - q / w_\mathrm{min}} . $$

# %%
device = rk.SoftBounds(dw_min=0.02, up_down=0.4, dw_min_std=0.3, **PLAIN)
u, q = 0.02, 0.02 * (1 - 0.4)  # up_down > 0 makes steps down smaller
point = (u - q) / (u / 0.6 + q / 0.6)
w = np.linspace(-0.6, 0.6, 100)

fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
axes[0].plot(w, u * (1 - w / 0.6), label="step up")
axes[0].plot(w, q * (1 + w / 0.6), label="step down")
axes[0].axvline(point, color="0.6", ls=":")
axes[0].set(xlabel="weight", ylabel="size of a step")
axes[0].legend()
for start in (-0.5, 0.0, 0.5):
    pulses = np.arange(400) % 2 == 0
    response = rk.studies.pulse_response(device, pulses, n_cell=1, start=start, seed=1)
    axes[1].plot(response.weight, lw=0.9)
axes[1].axhline(point, color="0.6", ls=":")
_ = axes[1].set(xlabel="pulse, up and down in turn", ylabel="weight", ylim=(-0.6, 0.6))

# %% [markdown]
# ## What that does to learning
#
# Gradients are noisy: near a minimum a device gets as many pulses up as down. Each pair pulls it
# to its symmetric point, and the weight settles between that and the minimum. Below, single
# weights follow targets from -0.4 to 0.4 with noisy gradients.

# %%
N = 2000
targets = np.linspace(-0.4, 0.4, 11).astype(np.float32)[:, None]  # one output each


def follow(cell, n=N, seed=3, noise=0.2, record=None):
    """Let the weights of a tile follow the targets; return the mean over the last half."""
    tile, rng = rk.AnalogTile((11, 1), cell, seed=seed), np.random.default_rng(seed)
    total = np.zeros((11, 1))
    for k in range(n):
        gradient = np.asarray(tile) - targets + rng.normal(0, noise, (11, 1))
        tile.update(np.ones((1, 1), np.float32), gradient.T.astype(np.float32), lr=0.1)
        total += np.asarray(tile) * (k >= n // 2)
        if record is not None:
            record(tile)
    return total / (n - n // 2)


fig, ax = plt.subplots(figsize=(4.6, 3.6), layout="constrained")
for up_down, colour in ((0.0, "C0"), (0.4, "C1")):
    cell = rk.SoftBounds(dw_min=0.02, up_down=up_down, dw_min_std=0.3, **PLAIN)
    sp = up_down / (2 - up_down) * 0.6
    ax.plot(targets, follow(cell), "o-", color=colour, label=f"up_down = {up_down}")
    ax.axhline(sp, color=colour, ls=":", lw=0.9)
ax.axline((0, 0), slope=1, color="0.6", lw=0.8)
ax.set(xlabel="target", ylabel="learned weight")
_ = ax.legend(title="dotted: symmetric point", fontsize="small")

# %% [markdown]
# ## Two arrays: Tiki-Taka
#
# The transfer family keeps the weight on a slow array C and lets a fast array A collect the
# gradient. A is near its symmetric point when the gradient is zero, so pulses that cancel leave it
# there and write nothing. Now and then a column of A is read and transferred to C by pulses.
# With the symmetric point subtracted (`SoftBoundsReference`), that works well. Without, A reports
# a gradient that is not there:

# %%


def shifted(offset, n_states=60):
    """A device whose symmetric point is off by `offset` after the subtraction."""
    return rk.SoftBoundsReference(
        dw_min=2 / n_states,
        w_max=1,
        w_min=-1,
        dw_min_std=0.3,
        reference_mean=offset,
        subtract_symmetry_point=True,
        mult_noise=False,
        **PLAIN,
    )


READ = rk.IOParameters(is_perfect=True)
OPTIONS = {
    "fast_lr": 0.3,
    "transfer_lr": 0.01,
    "units_in_mbatch": False,
    "scale_fast_lr": False,
    "scale_transfer_lr": False,
    "transfer_forward": READ,
}


def family(offset):
    """The four versions with A off by an offset, and C exact."""
    options = OPTIONS | {"devices": (shifted(offset), shifted(0.0))}
    return {
        "TTv1: Transfer": rk.Transfer(**options),
        "TTv2: BufferedTransfer": rk.BufferedTransfer(**options),
        "TTv3: ChoppedTransfer": rk.ChoppedTransfer(
            **options, in_chop_random=False, in_chop_prob=0.02
        ),
        "TTv4: DynamicTransfer": rk.DynamicTransfer(**options, in_chop_prob=0.05),
    }


offsets = (0.0, 0.2, 0.4)
results = {}
for offset in offsets:
    cells = {"one array": shifted(offset)} | family(offset)
    for name, cell in cells.items():
        error = follow(cell) - targets
        results.setdefault(name, []).append(float(np.sqrt(np.mean(error**2))))

fig, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
for k, (name, values) in enumerate(results.items()):
    ax.bar(np.arange(3) + 0.16 * (k - 2), values, 0.15, label=name)
ax.set(xlabel="error of the symmetric point of A", ylabel="error of the mean weights, r.m.s.")
ax.set_xticks(range(3), [str(offset) for offset in offsets])
_ = ax.legend(fontsize="small")

# %% [markdown]
# ## Choppers
#
# TTv3 multiplies the gradient of a column by a sign that flips from time to time, the *chopper*,
# and undoes it after the read. The gradient is unchanged by that; the bias of A, which does not
# know of the chopper, changes its sign and averages out. The figure follows the weight of the
# target 0.24. Grey: the chopper is -1.

# %%
seen = {}


def watch(name):
    """Make a function that records A, C and the chopper of the cell of target 0.24."""
    seen[name] = []

    def record(tile):
        arrays = tile.state()["arrays"]
        chopper = arrays["chopper_in"][0] if "chopper_in" in arrays else 1
        seen[name].append((arrays["0.weight"][8, 0], arrays["1.weight"][8, 0], chopper))

    return record


for name in ("TTv2: BufferedTransfer", "TTv3: ChoppedTransfer", "TTv4: DynamicTransfer"):
    follow(family(0.4)[name], n=600, record=watch(name))

fig, axes = plt.subplots(2, 3, figsize=(10, 4.2), sharex=True, sharey="row", layout="constrained")
for column, (name, trace) in zip(axes.T, seen.items(), strict=True):
    a, c, chopper = np.array(trace).T
    column[0].plot(a, lw=0.8, color="C0")
    column[1].plot(c, lw=0.8, color="C1")
    column[1].axhline(targets[8], color="black", lw=0.8)
    for ax in column:
        stripes = {"where": chopper < 0, "transform": ax.get_xaxis_transform()}
        ax.fill_between(range(600), 0, 1, color="0.9", lw=0, zorder=0, **stripes)
    column[0].set_title(name, fontsize="medium")
    column[1].set_xlabel("update")
axes[0, 0].set_ylabel("fast array A")
_ = axes[1, 0].set_ylabel("slow array C (line: target)")

# %% [markdown]
# Without a gradient A would rest at -0.4 here. TTv2 transfers until A reads 0, which takes a
# gradient that balances the pull towards -0.4: C stays below its target. With TTv3, A rests near
# -0.4, which counts with one sign and then with the other: C goes round its target. TTv4 subtracts
# what A showed at the end of the last chopper period, and C stays where it should be.
#
# ## Gamma
#
# C cannot hold a weight better than one of its steps. With `gamma > 0` the fast array is part of
# the weight, `W = gamma A + C`: A learns the residual that C leaves. Here C has ten states, with
# steps of 0.2, and the target is between two of them.

# %%
kept = []


def keep(tile):
    kept.append(np.asarray(tile)[:, 0])


fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for gamma, colour in ((0.0, "C0"), (0.2, "C1")):
    options = OPTIONS | {"devices": (shifted(0.0), shifted(0.0, n_states=10)), "gamma": gamma}
    kept.clear()
    follow(rk.BufferedTransfer(**options), noise=0.05, record=keep)
    weights = np.array(kept)
    error = np.sqrt(np.mean((weights - targets[:, 0]) ** 2, axis=1))
    axes[0].plot(weights[:800, 8], color=colour, lw=0.9)
    axes[1].plot(
        np.convolve(error, np.ones(50) / 50, "valid"), color=colour, label=f"gamma = {gamma}"
    )
axes[0].axhline(targets[8], color="black", lw=0.8)
axes[0].set(xlabel="update", ylabel="weight (line: target)")
axes[1].set(xlabel="update", ylabel="error of the weights, r.m.s.", yscale="log")
_ = axes[1].legend()

# %% [markdown]
# The recursions and all options are in [the transfer family](../transfer.md); the notebook
# [05_transfer](../../notebooks/05_transfer.ipynb) compares six ways of learning. Next:
# [programming and drift](06_drift.ipynb).
