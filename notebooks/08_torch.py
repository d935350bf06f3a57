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
# # A convolutional network on tiles, with PyTorch
#
# A small LeNet learns scikit-learn's digits three times: in digital, by pulses on devices with
# constant steps, and by the second version of Tiki-Taka on a measured device whose steps depend
# on its state. The layers are PyTorch's, converted; their weights and biases are in tiles.

# %%
import copy
import hashlib

import matplotlib.pyplot as plt
import torch

import rpukit as rk
from rpukit.demo import load_digits
from rpukit.torch import nn, optim

torch.set_num_threads(1)
EPOCHS, BATCH = 5, 16
digits = load_digits()
x, labels = torch.from_numpy(digits.x_train[:, :64]), torch.from_numpy(digits.y_train)
x_test, y_test = torch.from_numpy(digits.x_test[:, :64]), torch.from_numpy(digits.y_test)
x, x_test = x.reshape(-1, 1, 8, 8), x_test.reshape(-1, 1, 8, 8)

# %% [markdown]
# ## The network
#
# `convert` makes layers with the same weights. With `analog_bias=True` the biases are in tiles,
# too, and the report shows where the parameters are.

# %%
torch.manual_seed(0)
lenet = torch.nn.Sequential(
    *(torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
    *(torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
    *(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)),
)
tiki_taka = rk.presets.config("TTv2EcRam").cell
cells = {"constant steps": rk.ConstantStep(dw_min=0.001), "Tiki-Taka v2": tiki_taka}
models = {"digital": copy.deepcopy(lenet)}
for name, cell in cells.items():
    settings = nn.AnalogSettings(cell=cell, analog_bias=True)
    models[name] = rk.torch.convert(lenet, settings, seed=7)
print(rk.torch.report(models["Tiki-Taka v2"]))


# %% [markdown]
# ## Training
#
# The loop is PyTorch's. A mini-batch may come in parts, whose gradients add up: the loss is summed
# and divided by the size of the whole mini-batch.


# %% tags=["varies"]
def accuracy(model):
    model.eval()
    with torch.no_grad():
        found = (model(x_test).argmax(1) == y_test).float().mean().item()
    model.train()
    return found


def step(model, optimiser, rows, n_part=1):
    optimiser.zero_grad()
    for part in rows.chunk(n_part):
        loss = rk.torch.cross_entropy(model(x[part]), labels[part], reduction="sum")
        (loss / len(rows)).backward()
    optimiser.step()


def order(epoch):
    return torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))


curves = {}
for name, model in models.items():
    optimiser = optim.AnalogSGD(model.parameters(), lr=0.4)
    curves[name] = []
    for epoch in range(EPOCHS):
        for rows in order(epoch).split(BATCH):
            step(model, optimiser, rows)
        curves[name].append(accuracy(model))
    print(f"{name}: {curves[name][-1]:.3f}")

# %%
fig, axis = plt.subplots(figsize=(5, 3), layout="constrained")
for name, values in curves.items():
    axis.plot(range(1, EPOCHS + 1), values, "o-", label=name)
axis.set(xlabel="epoch", ylabel="accuracy on the test set", ylim=(0, 1))
axis.legend()
plt.show()

# %% [markdown]
# ## The same bits
#
# Every draw is named by the number of its sample. So ten steps with whole mini-batches and ten
# steps with mini-batches in two parts end in the same weights, to the bit. The hash is that of the
# cells of all layers.


# %%
def sha256(model):
    found = hashlib.sha256()
    for layer in rk.torch.analog_layers(model).values():
        found.update(layer.get_weights().cpu().numpy().tobytes())
    return found.hexdigest()


hashes = []
for n_part in (1, 2):
    model = copy.deepcopy(models["constant steps"])
    optimiser = optim.AnalogSGD(model.parameters(), lr=0.4)
    for rows in order(EPOCHS)[: 10 * BATCH].split(BATCH):
        step(model, optimiser, rows, n_part)
    hashes.append(sha256(model))
    print(f"{n_part} part(s): {hashes[-1]}")
assert hashes[0] == hashes[1]
assert hashes[0] != sha256(models["constant steps"])
assert curves["digital"][-1] > 0.7
assert curves["constant steps"][-1] > 0.7
assert curves["Tiki-Taka v2"][-1] > 0.4
