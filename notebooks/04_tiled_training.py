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
# # Training a network that does not fit
#
# A microcontroller with 16 kB of fast memory trains an autoencoder whose tensors need 207 kB.
# Every op is cut into tiles that fit, and copies overlap with kernels. This notebook plans the
# training with single and double buffering, looks at the memory map and the schedule, trains by
# the plans, and checks that no plan changes a bit.

# %%
import tempfile
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import rpukit as rk
from rpukit import plot, tiled

rng = np.random.default_rng(0)

# %% [markdown]
# ## A training graph
#
# Forward pass, loss, gradients and accumulators form one graph. A step of the optimiser is
# another.

# %%
WIDTHS = (128, 64, 32, 64, 128)
b = tiled.Builder("autoencoder")
x = b.input("x", (4, WIDTHS[0]))
target = b.input("target", (4, WIDTHS[-1]))
h = x
for k, (n_in, n_out) in enumerate(pairwise(WIDTHS)):
    w = b.parameter(f"w{k}", rng.normal(size=(n_out, n_in)) * np.sqrt(2 / n_in))
    c = b.parameter(f"c{k}", np.zeros(n_out))
    h = b.apply("Gemm", h, w, c, transB=1, name=f"layer{k}")
    if k < len(WIDTHS) - 2:
        h = b.apply("Relu", h)
training = b.training(b.apply("MSELoss", h, target), tiled.SGD(lr=0.5))
print(training)

# %% [markdown]
# ## Plans
#
# `levels` gives the sizes of the memories and the cost of a copy between them. `"single"` gives
# every operand one buffer, so that copies and kernels alternate. `"double"` gives two. `"auto"`
# chooses tiles and buffers op by op, and starts copies while earlier ops are still running.

# %%
levels = tiled.siracusa_l2(l1=16_000)
plans = {
    name: tiled.plan(training, levels, buffering=name) for name in ("single", "double", "auto")
}
for name, plan in plans.items():
    print(f"{name:7s} {plan.cycles:7d} cycles a step and an update")

# %% [markdown]
# A printed plan shows for every op how it is cut, where its operands are placed, and why it has
# one buffer if it does. Its first lines:

# %%
print("\n".join(str(plans["auto"]).split("\n")[:18]))

# %% [markdown]
# ## The memory map and the schedule
#
# The upper part shows which value occupies which addresses of the fast memory, op by op. The
# lower part shows when copies in, kernels and copies out are busy. Colours mean the same in both:
# what lies in memory, and what a copy moves. With one buffer copies and kernels alternate. Under
# `"auto"` dark and light kernels alternate in some places: neighbouring ops that are cut along the
# same axis run part by part. The third figure is a part of the second one.

# %%
for name in ("single", "auto"):
    plot.plot_plan(plans[name], training)
    plt.gcf().suptitle(name)
    plt.show()
plot.plot_plan(plans["auto"], training, time=(20_000, 28_000))
plt.show()

# %% [markdown]
# The same timeline as a page for a browser, in which bars tell what they are and what they wait
# for; with `.json` as a file for ui.perfetto.dev.

# %%
path = tiled.write_trace(plans["auto"], training, Path(tempfile.mkdtemp()) / "plan.html")
print(f"{path.name}: {path.stat().st_size // 1000} kB")

# %% [markdown]
# ## Training
#
# The three plans train on the same mini-batches, with copies completed when they are issued, when
# they are waited for, and at random moments. The data are sparse patterns that a bottleneck of 32
# numbers can represent.

# %%
basis = rng.normal(size=(6, WIDTHS[0]))
data = np.tanh(rng.normal(size=(300, 4, 6)) @ basis).astype(np.float32)
losses, weights = {}, {}
for name, transfers in (("single", "at_issue"), ("double", "at_wait"), ("auto", "mixed")):
    trainer = plans[name].trainer(training, transfers=transfers)
    losses[name] = trainer.fit((batch, batch) for batch in data)
    weights[name] = trainer.parameters()

plt.figure(figsize=(6, 3), layout="constrained")
plt.plot(losses["auto"], lw=0.8)
plt.xlabel("mini-batch")
plt.ylabel("mean squared error")
plt.show()

# %% [markdown]
# The losses and weights are the same to the last bit, and equal those of the graph computed
# without tiles:

# %%
for name in ("double", "auto"):
    rk.testing.assert_same_bits(losses[name], losses["single"])
    for key, value in weights[name].items():
        rk.testing.assert_same_bits(value, weights["single"][key])
start = {**training.initial, "x": data[0], "target": data[0]}
start |= {training.reset: np.array([True])}
start |= {
    k: np.zeros_like(training.initial[p])
    for k, p in zip(training.accumulators, training.parameters, strict=True)
}
untiled = training.train.run({name: start[name] for name in training.train.inputs})
print("first loss:", losses["auto"][0], "by the plan,", float(untiled[training.loss]), "untiled")
assert losses["auto"][0] == float(untiled[training.loss])

# %% [markdown]
# ## How much memory is needed
#
# Less fast memory means more tiles, more copies and more cycles. Below some size the smallest
# tile of an op does not fit, and the error names the op.

# %%
sizes = [4_000, 8_000, 16_000, 32_000, 64_000, 128_000]
sweep = tiled.sweep_levels(training, levels, "L1", sizes)
print(sweep)
plot.plot_sweep(sweep)
plt.show()

# %%
try:
    tiled.plan(training, tiled.siracusa_l2(l1=200))
except rk.errors.PlanError as error:
    print(error)
