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
# # From measured pulses to a network on your device
#
# A laboratory has pulsed some devices and read their conductance after each pulse. This notebook
# reads such a file, fits device models to it, looks at what the fit can and cannot know, ranks the
# models, and trains a network on the fitted device.
#
# The two sets used here are shipped with rpukit. They are synthetic:
# `tools/make_pulse_data.py` draws them, so that we know what should come out.

# %%
import io
import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import rpukit as rk
from rpukit import demo, studies

SEED = 7

# %% [markdown]
# ## The file
#
# A line for each read: the device, the number of the pulse, its direction, and the conductance,
# whose unit is part of the heading. The first line of a device is its read before the first pulse.
# Optional columns are the standard deviation of a read (`read_noise`) and the number of a cycle.

# %%
text = """device,pulse,direction,conductance (uS)
A1,0,,23.9
A1,1,up,25.1
A1,2,up,27.4
A1,3,down,25.8
"""
studies.read_pulses(io.StringIO(text))

# %% [markdown]
# A path or a pandas `DataFrame` does as well; other headings are named by
# `columns={"device": "cell id"}`. What cannot be read is named by its line and column.

# %%
try:
    studies.read_pulses(io.StringIO(text.replace("27.4", "overflow")))
except rk.errors.FormatError as error:
    print(error)

# %% [markdown]
# ## A fit
#
# The set `reram` has three resistive memories, with five cycles of 50 up and 50 down pulses. Four
# of its reads are false, as by a bad contact.

# %%
data = studies.example_pulses("reram")
fit = studies.fit_device(data, "SoftBounds")
print(data)
print(fit)

# %% [markdown]
# Each number has its standard error. The grey dots below are the reads, the line is the mean
# response from the first read of each cycle. It need not go through the dots: the noise of the
# steps adds up along a cycle, and the device wanders off its mean.
#
# The lower row shows the errors of one-step predictions, in which each read is predicted from
# those before it. They scatter without a trend within the grey band, which is what the fit
# expects; the false reads stand out (crosses), and have hardly any weight in the fit. Of 1500 good
# reads, one is beyond four deviations by chance.

# %%
fig, axes = plt.subplots(2, 3, figsize=(12, 6), layout="constrained")
for column, device in zip(axes.T, data.devices, strict=True):
    rk.plot.plot_fit(fit, data, device, ax=column[0])
    rk.plot.plot_residuals(fit, data, device, ax=column[1])

# %% [markdown]
# Conductances are on the left, weights on the right. A tile computes with weights; the map is
#
# $$ g = g_0 + g_1 w, $$
#
# by default such that nearly all reads (from the 1 % to the 99 % quantile) lie between the weights
# -1 and 1. `scale=studies.ConductanceMap(g_zero, g_per_weight)` sets another one, for instance
# that of your read-out circuit, where a weight is the difference of a device and a reference of
# conductance $g_0$.

# %%
print(fit.scale)
print(f"a step at weight 0: {fit.cell.dw_min * fit.scale.g_per_weight:.3f} uS")

# %% [markdown]
# The set was drawn with steps of 0.75 µS, smaller down steps (0.1), 60 % noise on each step and
# writing noise of 1.5 steps. With the map of the generator the fit gives back what was drawn,
# within two or three standard errors. The mean of three devices is that of these three: it
# differs from that of the generator by their spread, too.

# %%
drawn = studies.fit_device(data, scale=studies.ConductanceMap(40.0, 25.0))
truth = {"dw_min": 0.03, "up_down": 0.1, "dw_min_std": 0.6, "write_noise_std": 1.5, "w_max": 1.0}
for name, true in truth.items():
    value, error = drawn.parameters[name]
    print(f"{name:16s} {value:6.3f} +- {error:5.3f}, drawn with {true}")
    assert abs(value - true) < 3 * error

# %% [markdown]
# ## Which model?
#
# `"all"` fits every model. The ranking is by Akaike's criterion (AIC), which charges for
# parameters, and shows the error on cycles that were left out of the fit. Differences below
# about 10 say little: soft bounds by three, four or more parameters describe these devices alike.
# That the steps do not depend on the weight (`ConstantStep`) is ruled out.

# %%
every = studies.fit_device(data, "all")
ax = rk.plot.plot_ranking(every)
names = [line.model for line in every.ranking]
assert names[-1] == "ConstantStep"

# %% [markdown]
# ## What the data do not say
#
# The second set, `ecram`, holds electrochemical cells that were pulsed within a part of their
# range. A model with hard bounds cannot know bounds that no device has reached. The fit says so:
# those parameters have no standard error, and the cell keeps a guess just outside of what was
# seen. Either pulse the devices further, or do not use the cell beyond that range.

# %%
slow = studies.example_pulses("ecram")
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    linear = studies.fit_device(slow, "LinearStep")
print(said[0].message)
print(linear.undetermined)
fig, axes = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
rk.plot.plot_fit(linear, slow, "E2", ax=axes[0])
_ = rk.plot.plot_residuals(linear, slow, "E2", ax=axes[1])

# %% [markdown]
# ## A file for the drawer
#
# The fit is saved as JSON: the cell, all parameters with standard errors, the map, the ranking,
# and where it came from, with the SHA-256 of the data.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "reram.json"
    fit.save(path)
    again = studies.load_fit(path)
print(again.source)
assert again.cell == fit.cell

# %% [markdown]
# ## Training on it
#
# `fit.cell` goes into a tile like any other cell. The cells of the tile are drawn with the spread
# from device to device that was found, as far as three devices can tell. A step of the resistive
# memories is 2 % of their range and has 60 % noise, a step of the electrochemical cells is
# smaller and less noisy. Next to floating point, each costs a network on scanned digits some
# points. SciPy's fit ends in other last digits on other processors, and so does the accuracy.

# %% tags=["varies"]
digits = demo.load_digits()
settings = {
    "epochs": 6,
    "lr": 0.02,
    "n_hidden": 64,
    "batch": 16,
    "seed": SEED,
    "device": "cpu",
    "progress": False,
}
runs = {
    "floating point": demo.train(
        "floating point", rk.Ideal(), rk.IOParameters(is_perfect=True), digits, **settings
    ),
    "ecram": demo.train("ecram", linear.cell, rk.IOParameters(), digits, **settings),
    "reram": demo.train("reram", fit.cell, rk.IOParameters(), digits, **settings),
}
for name, run in runs.items():
    print(f"{name:16s} {100 * run.accuracy[-1]:5.1f} %")
final = {name: run.accuracy[-1] for name, run in runs.items()}
assert final["reram"] < final["floating point"]

# %% [markdown]
# ## States, and what time does to them
#
# `count_states` needs a response that covers the range, and says so where it does not. For cells
# with writing noise it takes the persistent weights, on which pulses act.

# %%
response = studies.pulse_response(fit.cell, np.tile(np.repeat([True, False], 300), 8), n_cell=20)
counted = np.median(studies.count_states(response))
print(f"median of states {counted:.0f}, of the mean cell {fit.cell.n_states:.0f}")
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    studies.count_states(data.response("A1"))
print(said[0].message)

# %% [markdown]
# Retention shows drift, decay and diffusion on a logarithmic axis of time. The fit knows nothing
# of them, since pulses alone do not show them: here they are given by hand. Endurance follows the
# states over the cycles of a response. No model of rpukit wears out, and none depends on
# temperature: with simulated cells this curve shows nothing but chance.

# %%
even = {"w_max_dtod": 0.05, "w_min_dtod": 0.05}
kept = {
    "drift": rk.SoftBounds(drift=rk.DriftParameters(nu=0.05, nu_dtod=0.3), **even),
    "decay": rk.SoftBounds(lifetime=1e4, lifetime_dtod=0.3, **even),
    "diffusion": rk.SoftBounds(diffusion=5e-4, **even),
}
fig, axes = plt.subplots(1, 4, figsize=(14, 3.2), layout="constrained")
for ax, (name, cell) in zip(axes, kept.items(), strict=False):
    forgotten = studies.retention(cell, np.geomspace(1, 2e4, 20), n_cell=100, seed=SEED)
    rk.plot.plot_retention(forgotten, ax=ax).set_title(name)
_ = rk.plot.plot_endurance(studies.endurance(response), ax=axes[3]).set_title("endurance")
