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
# # A convolutional network on plain arrays, and what it costs
#
# `rk.layers` has convolutions, pooling and dense layers on arrays of NumPy or CuPy, with all
# weights in tiles. Here a network in the manner of LeNet learns scanned digits on three kinds of
# devices. Then its events are multiplied by a table of costs, and its last layers are read in
# slices.

# %%
import matplotlib.pyplot as plt
import numpy as np

import rpukit as rk
from rpukit import demo
from rpukit import layers as L

data = demo.load_digits()
x, x_test = (v[:, :64].reshape(-1, 1, 8, 8) for v in (data.x_train, data.x_test))
y, y_test = data.y_train, data.y_test
print(x.shape, x_test.shape)

# %% [markdown]
# ## The network
#
# A convolution copies the patches of its images to the rows of a matrix; each patch is one
# sample of its tiles. The bias of a layer is digital.


# %%
def lenet(cell):
    return L.Network(
        [
            L.Conv2d(1, 8, 3, cell, padding=1, seed=1),
            L.Tanh(),
            L.MaxPool2d(2),
            L.Conv2d(8, 16, 3, cell, seed=2),
            L.Tanh(),
            L.Flatten(),
            L.Dense(64, 32, cell, seed=3),
            L.Tanh(),
            L.Dense(32, 10, cell, seed=4),
        ]
    )


def train(cell, lr, epochs=6, batch=10):
    net, rng, accuracy = lenet(cell), np.random.default_rng(0), []
    for epoch in range(epochs):
        order = rng.permutation(len(x))
        rate = lr if 3 * epoch < 2 * epochs else lr / 5
        for first in range(0, len(x), batch):
            part = order[first : first + batch]
            net.learn(x[part], y[part], rate)
        accuracy.append(net.accuracy(x_test, y_test))
    return net, accuracy


lenet(rk.ConstantStep())

# %% [markdown]
# ## Three devices
#
# `ConstantStep` has steps of one size; those of `SoftBounds` shrink towards its bounds, so steps
# up and down differ, and noise in the gradients pulls its weights to 0. Tiki-Taka (`Transfer`)
# gives the same devices a fast array that takes the gradients, and a slow one that is written
# from it.

# %%
soft = rk.SoftBounds()
cells = {
    "ConstantStep": (rk.ConstantStep(), 0.02),
    "SoftBounds": (soft, 0.02),
    "SoftBounds, Tiki-Taka": (
        rk.Transfer(devices=(soft, soft), transfer_every=2, units_in_mbatch=False),
        0.05,
    ),
}
nets, curves = {}, {}
for name, (cell, lr) in cells.items():
    nets[name], curves[name] = train(cell, lr)
    print(f"{name:22} {100 * curves[name][-1]:.1f} % of the test set")

# %%
figure, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
for name, curve in curves.items():
    ax.plot(range(1, len(curve) + 1), 100 * np.array(curve), "o-", ms=4, label=name)
ax.set(xlabel="epoch", ylabel="accuracy on the test set (%)", ylim=(0, 100))
ax.set_title("digits, 8 x 8 pixels")
ax.grid(alpha=0.3)
ax.legend(loc="lower right")
plt.show()

# %% [markdown]
# ## What it cost
#
# The tiles know how many samples they have processed and how many pulses they have received.
# From that and the resolution of the converters follow all events. The table "example" has round
# figures of no device; docs/costs.md says what is in the others, and how to bring your own.

# %%
table = rk.costs.preset("example")
print(rk.costs.total(nets["ConstantStep"], table))

# %%
costs = {name: rk.costs.total(net, table) for name, net in nets.items()}
figure, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
phases = ("forward", "backward", "update", "transfer")
left = np.zeros(len(costs))
for phase in phases:
    energy = [1e6 * sum(c.energy.get(phase, {}).values()) for c in costs.values()]
    ax.barh(list(costs), energy, left=left, label=phase)
    left += energy
ax.set(xlabel="energy of training and tests (uJ), by round figures")
ax.invert_yaxis()
ax.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.4, 1.25), frameon=False)
plt.show()

# %% [markdown]
# ## The last layers in slices
#
# What would converters of few bits do? Both dense layers of the trained network are read with
# two bits of each weight in a tile and one bit of each input at a time, by `SlicedTile`. A layer
# of one's own needs `forward`.


# %%
class Sliced(L.Layer):
    """A trained dense layer, read in slices."""

    def __init__(self, dense, bits):
        weight = dense.array.get_weights()
        adc = None if bits is None else rk.crossbar.Adc(bits, weight.shape[1] / 2)
        self.tile = rk.crossbar.SlicedTile(
            weight.shape, rk.Ideal(), w_max=float(abs(weight).max()), adc=adc
        ).set_weights(weight)
        self.bias = dense.array.get_bias()

    def forward(self, x):
        return self.tile.forward(x) + self.bias

    def backward(self, d):
        raise NotImplementedError("only read")


net = nets["ConstantStep"]
hidden = x_test  # the convolutions once, then the dense layers by each kind of converter
for layer in net.layers[:6]:
    hidden = layer.forward(hidden)
for bits in (3, 4, 5, 6, 8, None):
    tail = L.Network([Sliced(net.layers[6], bits), L.Tanh(), Sliced(net.layers[8], bits)])
    name = "no converters" if bits is None else f"{bits} bits"
    print(f"{name:14} {100 * tail.accuracy(hidden, y_test):.1f} %")
