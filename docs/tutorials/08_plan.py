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
# # A plan
#
# A microcontroller has little fast memory and a slow link to a larger one. `rk.tiled` cuts the
# training of a network into pieces that fit, and plans where each piece is and when it is copied.
# Whatever the plan, the results have the same bits.

# %%
import matplotlib.pyplot as plt
import numpy as np

import rpukit as rk
from rpukit import tiled

# %% [markdown]
# ## A graph
#
# A `Builder` takes inputs, parameters and operations by the names of ONNX. `training` adds the
# gradients and the optimiser.

# %%
rng = np.random.default_rng(0)
b = tiled.Builder("classifier")
x = b.input("x", (8, 64))
labels = b.input("labels", (8,), np.int64)
w1, c1 = b.parameter("w1", rng.normal(size=(48, 64)) * 0.15), b.parameter("c1", np.zeros(48))
w2, c2 = b.parameter("w2", rng.normal(size=(10, 48)) * 0.15), b.parameter("c2", np.zeros(10))
hidden = b.apply("Relu", b.apply("Gemm", x, w1, c1, transB=1, name="layer1"))
logits = b.apply("Gemm", hidden, w2, c2, transB=1, name="layer2")
loss = b.apply("SoftmaxCrossEntropyLoss", logits, labels, name="loss")
training = b.training(loss, tiled.SGD(lr=0.1))
print(training)

# %% [markdown]
# ## A plan for 16 kB
#
# `siracusa_l2` describes a processor of two levels of memory; `l1` is the size of the fast one.
# With one buffer for each operand the copies and the computing take turns (`"single"`); with
# `"auto"` the planner chooses tiles and buffers so that they overlap.

# %%
levels = tiled.siracusa_l2(l1=16_000)
plans = {kind: tiled.plan(training, levels, buffering=kind) for kind in ("single", "auto")}
for kind, plan in plans.items():
    print(f"{kind:7s}{plan.cycles:7d} cycles")

# %% [markdown]
# The upper panel shows which value occupies which addresses of the fast memory, op by op; the
# lower one when the link and the processor are busy.

# %%
for kind, plan in plans.items():
    rk.plot.plot_plan(plan, training)
    plt.gcf().suptitle(kind)
    plt.show()

# %% [markdown]
# ## Training by the plan
#
# A trainer runs the instructions of the plan: copies, waits, tiles. Two plans, one result:

# %%
from rpukit import demo

digits = demo.load_digits()
order = rng.permutation(len(digits.x_train) // 8 * 8).reshape(-1, 8)
batches = [(digits.x_train[k, :64], digits.y_train[k].astype(np.int64)) for k in order]
losses = {}
for kind, plan in plans.items():
    trainer = plan.trainer(training)
    losses[kind] = np.array(trainer.fit(batches))
rk.testing.assert_same_bits(losses["single"], losses["auto"])

w1, c1, w2, c2 = (trainer.parameters()[name] for name in ("w1", "c1", "w2", "c2"))
out = np.maximum(digits.x_test[:, :64] @ w1.T + c1, 0) @ w2.T + c2
print(f"{100 * np.mean(out.argmax(axis=1) == digits.y_test):.1f} % of the test digits are right")

fig, ax = plt.subplots(figsize=(5.5, 3), layout="constrained")
ax.plot(np.convolve(losses["auto"], np.ones(10) / 10, "valid"))
_ = ax.set(xlabel="mini-batch", ylabel="loss, mean of ten", ylim=(0, None))

# %% [markdown]
# ## How small may the memory be?

# %%
sizes = [200, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000]
fig, ax = plt.subplots(figsize=(5.5, 3), layout="constrained")
for kind in plans:
    cycles = []
    for size in sizes:
        try:
            cycles.append(tiled.plan(training, tiled.siracusa_l2(l1=size), buffering=kind).cycles)
        except rk.errors.PlanError as error:
            cycles.append(np.nan)
            print(f"{kind}, {size} bytes: {str(error).splitlines()[0]}")
    ax.semilogx(sizes, cycles, "o-", label=kind)
ax.set(xlabel="bytes of fast memory", ylabel="cycles of a step", ylim=(0, None))
_ = ax.legend()

# %% [markdown]
# The plan can be written as C for a microcontroller (`tiled.generate_c`), read from ONNX
# (`tiled.training_from_onnx`), and hold analog tiles as operations:
# [training graphs](../tiled.md).
