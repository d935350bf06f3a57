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
# # How a device responds to pulses
#
# A crossbar array stores each weight in a device whose conductance moves a little with every
# voltage pulse. No two devices are alike, and no two pulses on one device are alike. This notebook
# looks at both with a few lines of `rpukit`: response curves, step sizes, the spread from device
# to device, the number of states, and the symmetric point.

# %%
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np

import rpukit as rk
from rpukit import demo

SEED = 7

# %% [markdown]
# ## Response curves
#
# A *soft-bounds* device takes smaller and smaller steps towards its bounds. We send 1,000 up
# pulses and then 1,000 down pulses to 500 cells, each with its own bounds and step size
# (`w_max_dtod`, `dw_min_dtod`), and with 30 % noise on every step (`dw_min_std`).

# %%
soft = rk.SoftBounds(dw_min=0.004, dw_min_std=0.3, dw_min_dtod=0.3, w_max_dtod=0.2, w_min_dtod=0.2)
up_down = np.repeat([True, False], 1000)
response = rk.studies.pulse_response(soft, up_down, n_cell=500, seed=SEED)

fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
rk.plot.plot_response(response, ax=axes[0]).set_title("soft bounds")
constant = rk.ConstantStep(
    dw_min=0.004, dw_min_std=0.3, dw_min_dtod=0.3, w_max_dtod=0.2, w_min_dtod=0.2
)
linear = rk.studies.pulse_response(constant, up_down, n_cell=500, seed=SEED)
_ = rk.plot.plot_response(linear, ax=axes[1]).set_title("constant step")

# %% [markdown]
# ## Step size against weight
#
# The step of a soft-bounds device falls linearly with the weight and vanishes at the bound; that
# of a constant-step device does not. The shade is the noise from cycle to cycle and from device to
# device.

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained", sharey=True)
rk.plot.plot_steps(response, ax=axes[0]).set_title("soft bounds")
_ = rk.plot.plot_steps(linear, ax=axes[1]).set_title("constant step")

# %% [markdown]
# ## Spread from device to device
#
# The parameters drawn for each cell are plain arrays, by name, in `tile.cells`.

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
rk.plot.plot_spread(response.tile, ("w_min", "w_max"), ax=axes[0]).set_title("bounds")
_ = rk.plot.plot_spread(response.tile, ("step_up", "step_down"), ax=axes[1]).set_title(
    "steps at weight 0"
)

# %% [markdown]
# ## States
#
# The number of states is the range divided by the mean step at weight 0. It says how finely a
# device can be set. A cell class gives it for its mean parameters; `count_states` measures it for
# each cell.

# %%
for name, cell in {"soft bounds": soft, "coarse": rk.SoftBounds(dw_min=0.03)}.items():
    print(f"{name:12s} {cell.n_states:6.0f} states")
states = rk.studies.count_states(response)
print(f"measured on {states.size} cells: median {np.median(states):.0f}")
assert 0.5 < np.median(states) / soft.n_states < 1.5

# %% [markdown]
# ## The symmetric point
#
# Under alternating up and down pulses a soft-bounds device drifts to the weight where both steps
# are equal. With bounds $w_\mathrm{max}$, $w_\mathrm{min}$ and steps $u$, $q$ at weight 0, this
# is
#
# $$ w_\mathrm{sp} = \frac{u - q}{u / w_\mathrm{max} - q / w_\mathrm{min}} . $$
#
# Algorithms that train on such devices have to know this point or to work around it.

# %%
lopsided = rk.SoftBounds(
    dw_min=0.02, up_down=0.2, up_down_dtod=0.1, w_max_dtod=0.2, w_min_dtod=0.2
)
alternating = rk.studies.pulse_response(
    lopsided, np.arange(400) % 2 == 0, n_cell=300, start=-0.3, seed=SEED
)
measured = rk.studies.symmetric_point(lopsided, n_cell=300, n_pulse=3000, seed=SEED)
cells = {name: array[:, 0] for name, array in alternating.tile.cells.items()}
u, q = cells["step_up"], cells["step_down"]
theory = (u - q) / (u / cells["w_max"] - q / cells["w_min"])

fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
rk.plot.plot_response(alternating, ax=axes[0]).set_title("alternating pulses")
axes[1].plot(theory, measured, ".", ms=3)
axes[1].axline((0, 0), slope=1, color="0.6", lw=0.8)
_ = axes[1].set(xlabel="symmetric point by formula", ylabel="mean under alternating pulses")

# %% [markdown]
# The measured points lie on the line. The same seed draws the same cells on a CPU and on a GPU,
# to the last bit.

# %%
deviation = np.abs(measured - theory).mean()
print(f"mean deviation {deviation:.4f}, spread of the symmetric points {theory.std():.3f}")
assert deviation < 0.02 < theory.std()

# %% [markdown]
# ## All models side by side
#
# Each model is a class with the parameters and defaults of its source; `docs/devices.md` has the
# formulas. The spread from cell to cell is small here, so that the shapes can be seen; dotted are
# even steps between the mean bounds. The insets show the mean step against the weight.

# %%
calm = {
    "dw_min": 0.01,
    "dw_min_std": 0.2,
    "dw_min_dtod": 0.1,
    "w_max_dtod": 0.05,
    "w_min_dtod": 0.05,
}
models = {
    "ConstantStep": rk.ConstantStep(**calm),
    "LinearStep": rk.LinearStep(gamma_up=0.5, gamma_down=0.5, **calm),
    "SoftBounds": rk.SoftBounds(**calm),
    "SoftBoundsPmax": rk.SoftBoundsPmax(p_max=200, alpha=0.01, dw_min_dtod=0.1, w_max_dtod=0.05),
    "SoftBoundsReference": rk.SoftBoundsReference(
        up_down=0.3, reference_std=0.05, subtract_symmetry_point=True, **calm
    ),
    "ExpStep": rk.ExpStep(A_up=0.0023, A_down=0.97, **calm),
    "PowStep": rk.PowStep(pow_gamma=2, **calm),
    "PowStepReference": rk.PowStepReference(pow_gamma=2, reference_mean=0.1, **calm),
    "PiecewiseStep": rk.PiecewiseStep(
        piecewise_up=(0.2, 1.5, 1.0, 0.3), piecewise_down=(0.1, 0.8, 1.6, 0.9), **calm
    ),
}
_ = rk.plot.plot_devices(models, n_pulse=200, n_cell=20, seed=SEED)

# %% [markdown]
# ## Measured devices
#
# Presets hold published fits of capacitors, electrochemical and resistive memories, and
# phase-change memory. In devices with write noise, pulses act on a persistent weight, and the
# visible weight is that plus noise.

# %%
measured_devices = {name: rk.presets.device(name) for name in rk.presets.device_names()}
_ = rk.plot.plot_devices(measured_devices, n_cell=20, seed=SEED)

# %% [markdown]
# ## A model of your own
#
# A new model needs a step function for the CPU (Numba), the same function for a GPU (CUDA), and a
# class that names it. The steps of this one decrease with the square of the weight.

# %%
f4 = np.float32


def square_step(w, p, g, up, xi):
    part = f4(w / p[1]) if up else f4(w / p[0])
    dw = f4((p[3] if up else p[2]) * f4(f4(1) - f4(part * part)))
    dw = f4(dw * f4(f4(1) + f4(g[0] * xi)))
    w = f4(w + dw) if up else f4(w - dw)
    return p[0] if w < p[0] else p[1] if w > p[1] else w


SQUARE_STEP = """
__device__ float square_step(float w, const float *p, const float *g, bool up, float xi) {
    float part = w / (up ? p[1] : p[0]);
    float dw = (up ? p[3] : p[2]) * (1.0f - part * part) * (1.0f + g[0] * xi);
    return rk_clip(up ? w + dw : w - dw, p[0], p[1]);
}
"""
rk.register_step("square_step", square_step, SQUARE_STEP)


@dataclass(frozen=True, slots=True, kw_only=True)
class SquareStep(rk.PulsedCell):
    STEP = "square_step"


square = rk.studies.pulse_response(
    SquareStep(**calm), np.repeat([True, False], 200), n_cell=200, start=-0.5, seed=SEED
)
steps = rk.studies.step_statistics(square, n_bin=21)
ax = rk.plot.plot_steps(square)
_ = ax.plot(steps.weight, 0.01 * (1 - (steps.weight / 0.6) ** 2), "k:", lw=1)

# %% [markdown]
# The mean measured step agrees with the formula of the mean cell.

# %%
middle = abs(steps.weight) < 0.3
error = steps.mean[1, middle] / (0.01 * (1 - (steps.weight[middle] / 0.6) ** 2)) - 1
print(f"largest relative error of a mean step: {abs(error).max():.3f}")
assert abs(error).max() < 0.1

# %% [markdown]
# ## The same training on three devices
#
# What does this mean for learning? One network, with one schedule and one seed, is trained on
# three devices and in floating point. Two tiles of 65 x 64 and 64 x 10 cells learn scanned digits
# by pulses. Every product goes through the default converters and noise.
#
# A device with more than a thousand even steps learns as well as floating point. A hundred steps
# that shrink towards the bounds cost several points. The measured ReRAM device costs more: its up
# and down steps differ and scatter widely, so every pulse also pulls a weight towards its
# symmetric point. The transfer cells of `docs/transfer.md` are made for such devices.

# %%
digits = demo.load_digits()
settings = {
    "epochs": 8,
    "lr": 0.01,
    "n_hidden": 64,
    "batch": 16,
    "seed": SEED,
    "device": "cpu",
    "progress": False,
}
runs = {
    "floating point": demo.train(
        "floating point", rk.Ideal(), rk.IOParameters(is_perfect=True), digits, **settings
    )
}
for name, cell in {
    "constant step": rk.ConstantStep(),
    "soft bounds, 100 states": rk.SoftBounds(dw_min=0.012),
    "ReRAM": rk.presets.device("ReRamES"),
}.items():
    runs[name] = demo.train(name, cell, rk.IOParameters(), digits, **settings)

fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
rk.plot.plot_learning({name: run.accuracy for name, run in runs.items()}, ax=axes[0])
for name, run in runs.items():
    w = np.asarray(run.tiles[0])
    axes[1].hist(w.ravel(), np.linspace(-0.65, 0.65, 66), histtype="step", label=name)
    print(f"{name:24s} {100 * run.accuracy[-1]:5.1f} %  {run.n_pulses / 1e6:5.2f} million pulses")
axes[1].set(xlabel="weights of the first tile (weight units)", ylabel="number of cells")
axes[1].set_yscale("log")
_ = axes[1].legend(frameon=False, fontsize="x-small", loc="lower center")

# %%
final = {name: run.accuracy[-1] for name, run in runs.items()}
assert abs(final["constant step"] - final["floating point"]) < 0.02
assert final["ReRAM"] < final["soft bounds, 100 states"] < final["constant step"]
