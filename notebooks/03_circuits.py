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
# # A distribution that answers questions
#
# A probabilistic circuit learns the distribution of small images. Its likelihood is exact, and so
# is every conditional query: what is missing, what is expected there, how surprising an image is.
# No query needs new training.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import rpukit as rk
from rpukit import circuits

SEED = 3
digits = load_digits()
order = np.random.default_rng(SEED).permutation(len(digits.data))
x, y = digits.data[order].astype(int), digits.target[order]
train, valid, test = np.split(x, [1300, 1450])
y_train, _, y_test = np.split(y, [1300, 1450])
BITS = 1 / (64 * np.log(2))


def show(ax, images, columns, title=""):
    """Draw images in a grid; -1 is unknown."""
    rows = -(-len(images) // columns)
    grid = np.full((rows * 9 - 1, columns * 9 - 1), np.nan)
    for k, image in enumerate(images):
        r, c = divmod(k, columns)
        known = np.where(image < 0, np.nan, image).reshape(8, 8)
        grid[r * 9 : r * 9 + 8, c * 9 : c * 9 + 8] = known
    ax.imshow(grid, cmap="gray_r", vmin=0, vmax=16)
    ax.set_title(title, fontsize="medium")
    ax.set_axis_off()


# %% [markdown]
# ## The tree, and learning
#
# Pixels with the largest mutual information are connected to a tree, each inner one with a hidden
# variable of 16 states. EM in small batches learns the weights. The measure is the likelihood of
# test images, in bits a pixel. Independent pixels need 2.4.

# %%
tree = circuits.hclt(train, 16, circuits.Categorical(n_values=17), n_bins=8)
pc = rk.Circuit(tree, seed=SEED)
print(pc)
trace = pc.fit(
    train,
    n_epochs=20,
    batch_size=100,
    step=0.4,
    final_step=0.02,
    pseudocount=0.1,
    x_valid=valid,
)
bits = -BITS * pc.log_likelihood(test).mean()
print(f"test: {bits:.2f} bits a pixel")
parents, _ = circuits.chow_liu_tree(circuits.mutual_information(train, n_bins=8))

fig, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
for v, parent in enumerate(parents):
    if parent >= 0:
        axes[0].plot([v % 8, parent % 8], [v // 8, parent // 8], "k-", lw=1)
axes[0].imshow(train.mean(0).reshape(8, 8), cmap="gray_r", alpha=0.4)
axes[0].set(title="tree over the mean image", xticks=[], yticks=[])
for name in ("train", "valid"):
    axes[1].plot(np.arange(1, 21), -BITS * np.array(trace[name]), marker=".", label=name)
axes[1].set(xlabel="epoch", ylabel="bits a pixel")
_ = axes[1].legend(frameon=False)

# %% [markdown]
# ## What flows through a circuit
#
# This is a small circuit for eight pixels in the middle of the image. Sums (circles) are mixtures
# over hidden states, products (crosses) combine independent parts, and leaves (squares) are
# pixels. The width of an edge is its weight on the left, its flow over all images in the middle,
# and its flow for one image on the right: a single path in some places, a mixture of states in
# others.

# %%
middle = [19, 20, 27, 28, 35, 36, 43, 44]
few = (train[:, middle] > 8).astype(int)
small = rk.Circuit(circuits.hclt(few, 4), seed=SEED)
small.fit(few, n_epochs=40)
fig, axes = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
for ax, data, title in zip(
    axes, (None, few, few[:1]), ("weights", "flow, all images", "flow, one image"), strict=True
):
    rk.plot.plot_structure(small, data, ax=ax).set_title(title, fontsize="medium")

# %% [markdown]
# ## Samples

# %%
drawn = pc.sample(40)
fig, axes = plt.subplots(1, 2, figsize=(9, 2.4), layout="constrained")
show(axes[0], test[:40], 10, "images")
show(axes[1], drawn, 10, "drawn from the circuit")

# %% [markdown]
# ## Half an image
#
# The lower half is hidden. The circuit completes it in three ways: by samples given the upper
# half, by the most probable completion (jointly with one assignment of all hidden states), and by
# the mean of each pixel. Known pixels are kept.

# %%
shown = np.array([np.flatnonzero(y_test == k)[0] for k in range(10)])
images = test[shown]
hidden = np.zeros((10, 64), bool)
hidden[:, 32:] = True
posterior = pc.conditional(images, missing=hidden)
means = posterior @ np.arange(17)
best, _ = pc.most_probable(images, missing=hidden)
rows = {
    "images": images,
    "what is known": np.where(hidden, -1, images),
    "drawn": pc.sample(x=images, missing=hidden),
    "drawn again": pc.sample(x=images, missing=hidden),
    "most probable": best,
    "mean": means,
}
fig, axes = plt.subplots(len(rows), 1, figsize=(6, 5.2), layout="constrained")
for ax, (name, row) in zip(axes, rows.items(), strict=True):
    show(ax, row, 10)
    ax.text(-2, 4, name, ha="right", va="center")

# %% [markdown]
# How far is the mean from the truth? It is nearer than the mean image of the data set, which
# ignores the upper half. The most probable completion is farther off than that: it follows a
# single assignment of the hidden states, out of very many that are about as probable.

# %%
part = np.zeros((len(test), 64), bool)
part[:, 32:] = True
guess = pc.conditional(test, missing=part)[:, 32:] @ np.arange(17)
likeliest = pc.most_probable(test, missing=part)[0][:, 32:]
truth = test[:, 32:]
errors = {
    "mean image": np.mean((train[:, 32:].mean(0) - truth) ** 2),
    "most probable": np.mean((likeliest - truth) ** 2),
    "mean given the upper half": np.mean((guess - truth) ** 2),
}
for name, error in errors.items():
    print(f"{name:26s} mean square error {error:5.1f}")

# %% [markdown]
# ## What is surprising
#
# The likelihood distinguishes images from others that have the same pixels in other places.

# %%
strange = {
    "digits": test,
    "upside down": test[:, ::-1],
    "shuffled pixels": np.random.default_rng(SEED).permuted(test, axis=1),
}
fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
edges = np.linspace(-240, -50, 60)
surprise = {name: pc.log_likelihood(data) for name, data in strange.items()}
for name, ll in surprise.items():
    ax.hist(ll, edges, alpha=0.5, label=name)
ax.set(xlabel="log-likelihood, nats", ylabel="images")
_ = ax.legend(frameon=False)

# %% [markdown]
# ## The label is one more variable
#
# Add the label as one more variable of the tree. A classifier is then the posterior of a missing
# variable, and it works with half an image, too.

# %%
both = np.concatenate([train, y_train[:, None]], axis=1)
kinds = [circuits.Categorical(n_values=17)] * 64 + [circuits.Categorical(n_values=10)]
labelled = rk.Circuit(circuits.hclt(both, 16, kinds, n_bins=8), seed=SEED)
labelled.fit(both, n_epochs=15, batch_size=100, step=0.4, final_step=0.02, pseudocount=0.1)
asked = np.concatenate([test, np.zeros((len(test), 1), int)], axis=1)
found = {}
for name, first in (("whole images", 64), ("upper halves", 32)):
    unknown = np.arange(65) >= first
    label = labelled.conditional(asked, missing=unknown)[:, 64].argmax(axis=1)
    found[name] = np.mean(label == y_test)
    print(f"{name}: {100 * found[name]:.0f} % right")

# %%
assert bits < 2.2
np.testing.assert_allclose(posterior.sum(axis=2), 1, atol=1e-4)  # float32
assert (best[:, :32] == images[:, :32]).all()
assert errors["mean given the upper half"] < 0.8 * errors["mean image"]
assert np.median(surprise["digits"]) > np.median(surprise["upside down"]) + 8
assert np.median(surprise["digits"]) > np.median(surprise["shuffled pixels"]) + 60
assert found["whole images"] > 0.8
