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
import subprocess
import tempfile
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnx
from sklearn.datasets import load_digits

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

# %% [markdown]
# ## A model that PyTorch exported
#
# `digits.onnx` is a small MobileNet for images of 8 x 8, written by PyTorch's exporter
# (`tools/compare_exports.py --notebook`): convolutions, batch normalisation, SiLU, a gated block.
# It is trained on the statistics of each mini-batch. What to train is said by name; the labels and
# the loss are added here.

# %%
path = Path("digits.onnx")
file = onnx.load(path)
names = [one.name for one in file.graph.initializer if one.name.endswith(("weight", "bias"))]
b = tiled.Builder.from_onnx(path, names, batch_statistics=True)
labels = b.input("labels", (16,), np.int64)
loss = b.apply("SoftmaxCrossEntropyLoss", "scores", labels)
print(sorted({node.op_type for node in file.graph.node}))

# %% [markdown]
# Elementwise ops of one shape are fused: a chain is one op of one kernel, whose intermediate
# results are stored nowhere. Values that the backward pass needs are further results of the chain.
# Bits stay as they are; bytes and cycles fall.

# %%
levels = tiled.siracusa_l2(l1=32_000)
fused, plain = (b.training(loss, tiled.Adam(lr=0.01), fuse=fuse) for fuse in (True, False))
for name, one in (("unfused", plain), ("fused", fused)):
    plan = tiled.plan(one, levels, buffering="double")
    moved = sum(sum(both) for program in plan.programs for both in program.moved.values())
    print(
        f"{name:8s}{len(one.train.nodes):4d} ops{plan.cycles:9d} cycles{moved // 1000:6d} kB moved"
    )
print(next(node.attributes["ops"] for node in fused.train.nodes if node.op == "FusedPointwise"))

# %% [markdown]
# A part of the timeline of the plan of the fused graph, and training on handwritten digits.

# %%
plot.plot_plan(plan, fused, time=(0, 40_000))
plt.show()

# %%
images, kinds = load_digits(return_X_y=True)
order = rng.permutation(len(images))
images = (images[order].reshape(-1, 1, 8, 8) / 16).astype(np.float32)
batches = [(images[k : k + 16], kinds[order][k : k + 16]) for k in range(0, 1760, 16)]
trainer = plan.trainer(fused)
losses = trainer.fit(batches[:90])
graph = b.graph(b.apply("ArgMax", "scores", axis=1, keepdims=0, name="label"))
right = [
    (graph.run({**trainer.parameters(), "x": x})["label"] == kind).mean()
    for x, kind in batches[90:]
]
print(
    f"losses {losses[0]:.2f} to {losses[-1]:.2f}; {np.mean(right):.0%} of other images are right"
)

# %% [markdown]
# The same plan as C. `make run` trains on this computer and compares losses and all parameters
# with the bits of the plan.

# %%
folder = Path(tempfile.mkdtemp())
plan.generate_c(folder, fused, batches[:2])
done = subprocess.run(["make", "run"], cwd=folder, check=True, capture_output=True, text=True)
print(done.stdout.strip().splitlines()[-1])
