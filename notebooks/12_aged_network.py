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
# # From pip install to an aged network
#
# A digital network becomes one whose weights are in phase-change cells. It is trained with the
# noise of the hardware, written once, and read for a year. Install:
#
# ```
# pip install "rpukit[torch,plot]" scikit-learn
# ```

# %%
import torch

import rpukit as rk
from rpukit import inference
from rpukit.demo import load_digits
from rpukit.torch import optim

digits = load_digits()  # 8 x 8 pixels and a constant
x, labels = torch.from_numpy(digits.x_train[:, :64]), torch.from_numpy(digits.y_train)
x_test, y_test = torch.from_numpy(digits.x_test[:, :64]), torch.from_numpy(digits.y_test)

torch.manual_seed(0)
torch.set_num_threads(1)
digital = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

# %% [markdown]
# ## Onto hardware
#
# Each step of training sees weights with noise, which stand for those that will be written. Each
# layer learns the range of its inputs.

# %% tags=["varies"]
cell = rk.InferenceCell(
    noise=inference.PCMLike(),
    modifier=inference.WeightModifier(type="add_normal", std_dev=0.05),
    weight_clip=inference.WeightClip(type="layer_gaussian", sigma=2.5),
    input_range=inference.InputRange(learned=True),
    compensation="global",
)
model = rk.torch.convert(digital, cell, seed=7)
optimiser = optim.AnalogSGD(model.parameters(), lr=0.2)
for _ in range(8):
    for rows in torch.arange(len(x)).split(16):
        optimiser.zero_grad()
        rk.torch.cross_entropy(model(x[rows]), labels[rows]).backward()
        optimiser.step()
print(rk.torch.report(model, costs=rk.costs.preset("example")))

# %% [markdown]
# ## A year later
#
# The network is programmed five times, each time with draws of its own, and scored from a second
# to a year afterwards.


# %% tags=["varies"]
def accuracy(network):
    return (network(x_test).argmax(1) == y_test).float().mean()


found = rk.torch.over_time(model, accuracy, n_program=5)
print(found)
axis = rk.plot.plot_ageing(found)
axis.set_ylabel("accuracy")
assert found.digital > 0.9
assert found.mean[-1] > 0.8
