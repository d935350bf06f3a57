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
# # Sequences, classes, and a circuit that a network conditions
#
# Three ways to use probabilistic circuits without building a graph by hand: `HMM`, a hidden Markov
# model with the names of hmmlearn; `CircuitClassifier`, one circuit for each class; and
# `rk.torch.Circuit`, a circuit as a module of PyTorch, whose gradients are its flows.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits, load_iris, load_wine

import rpukit as rk
from rpukit import circuits
from rpukit.estimators import HMM, CircuitClassifier

torch.set_num_threads(1)
torch.manual_seed(0)

# %% [markdown]
# ## Two kinds of letters
#
# The words of a text, each a sequence of its own length: `lengths` says where words end, and no
# word is padded. A hidden Markov model of two states finds, from nothing but the order of letters,
# what a reader would call vowels and consonants. (The text describes two data sets.)

# %%
text = (load_iris().DESCR + load_wine().DESCR).lower()
words = "".join(letter if "a" <= letter <= "z" else " " for letter in text).split()
words = [word for word in words if len(word) > 1]
letters = np.array([[ord(letter) - ord("a")] for word in words for letter in word])
lengths = [len(word) for word in words]

model = HMM(2, emission="categorical", n_features=26, n_iter=200, tol=0.1, random_state=1)
model.fit(letters, lengths)
print(f"{len(words)} words of {min(lengths)} to {max(lengths)} letters")
single = HMM(1, emission="categorical", n_features=26).fit(letters, lengths)
for name, hmm in (("one state", single), ("two states", model)):
    score = hmm.score(letters, lengths) / len(letters)
    print(f"{name}, after {hmm.monitor_.iter} steps of EM: {score:.3f} nats a letter")

# %%
vowels = model.emissionprob_[:, [ord(v) - ord("a") for v in "aeiou"]].sum(axis=1).argmax()
fig, axes = plt.subplots(1, 2, figsize=(9, 2.6), width_ratios=[4, 1], layout="constrained")
places = np.arange(26)
for state, name in ((vowels, "state of the vowels"), (1 - vowels, "the other state")):
    shift = -0.2 if state == vowels else 0.2
    axes[0].bar(places + shift, model.emissionprob_[state], 0.4, label=name)
axes[0].set_xticks(places, [chr(ord("a") + k) for k in places])
axes[0].set_ylabel("probability")
axes[0].legend(frameon=False)
order = [vowels, 1 - vowels]
axes[1].imshow(model.transmat_[order][:, order], cmap="Blues", vmin=0, vmax=1)
for i in range(2):
    for j in range(2):
        p = model.transmat_[order][:, order][i, j]
        axes[1].text(j, i, f"{p:.2f}", ha="center", va="center", color="w" if p > 0.6 else "k")
axes[1].set_xticks([0, 1], ["vowel", "other"])
axes[1].set_yticks([0, 1], ["vowel", "other"])
axes[1].set_title("next state", fontsize="medium")
plt.show()

word = "circuit"
states = model.predict([[ord(letter) - ord("a")] for letter in word])
print(" ".join(f"{a}:{'v' if s == vowels else '-'}" for a, s in zip(word, states, strict=True)))

# %% [markdown]
# ## A signal with gaps
#
# NaN is missing. It is summed over exactly, in learning and in queries: the posterior of the
# states inside a gap comes from both sides.

# %%
truth = HMM(2)
truth.startprob_, truth.transmat_ = np.array([1.0, 0.0]), np.array([[0.97, 0.03], [0.05, 0.95]])
truth.means_, truth.covars_ = np.array([[0.0], [2.0]]), np.array([[0.5], [0.5]])
signal, hidden = truth.sample(240, random_state=5)
seen = signal.copy()
seen[70:95] = seen[150:160] = np.nan

tries = [HMM(2, n_iter=50, random_state=k).fit(seen) for k in range(8)]
found = max(tries, key=lambda hmm: hmm.score(seen))
found_order = found.means_.ravel().argsort()
posterior = found.predict_proba(seen)[:, found_order[1]]
print("means", found.means_.ravel()[found_order].round(2))
print("transitions", found.transmat_[found_order][:, found_order].round(3).tolist())

fig, axes = plt.subplots(2, 1, figsize=(9, 3.4), sharex=True, layout="constrained")
axes[0].plot(signal, ".", color="0.8", label="not shown to the model")
axes[0].plot(seen, ".", color="C0", label="seen")
axes[0].set_ylabel("signal")
axes[0].set_ylim(-2, 6)
axes[0].legend(frameon=False, loc="upper right", ncols=2)
axes[1].fill_between(np.arange(240), hidden, step="mid", color="0.9", label="state that drew it")
axes[1].plot(posterior, color="C1", label="P(upper state | what is seen)")
axes[1].set_ylabel("probability")
axes[1].set_ylim(-0.05, 1.5)
axes[1].set_xlabel("time")
axes[1].legend(frameon=False, loc="upper right", ncols=2)
plt.show()

# %% [markdown]
# The number of states, by the Bayesian information criterion, and the best of some starts:

# %%
for n in (1, 2, 3):
    tries = [HMM(n, n_iter=50, random_state=k).fit(seen) for k in range(8)]
    model = max(tries, key=lambda hmm: hmm.score(seen))
    print(f"{n} state(s): log-likelihood {model.score(seen):8.2f}, BIC {model.bic(seen):8.2f}")

# %% [markdown]
# ## A classifier that bears missing values
#
# One circuit for each class, and Bayes' rule. What is missing in an image is summed over, so that
# probabilities need no imputation.

# %%
digits = load_digits()
images, labels = digits.data, digits.target
test = np.arange(len(images)) % 5 == 0
classifier = CircuitClassifier(8, random_state=0).fit(images[~test], labels[~test])
covered = np.where(np.arange(64) >= 32, np.nan, images)
for name, x in (("whole images", images), ("upper halves", covered)):
    print(f"{name}: {100 * classifier.score(x[test], labels[test]):.1f} % right")

# %% [markdown]
# ## A circuit that a network conditions
#
# What is the lower half of a digit, given the upper half? A mixture of 40 independent
# distributions of pixels describes lower halves. EM finds it first. Then a small network reads the
# upper half and says how much each component weighs for this image: its outputs are soft evidence
# about the variable that chooses the component, which differs from sample to sample. Network and
# mixture learn together, by the gradient of the likelihood; the circuit's gradients are its flows.

# %%
N_COMPONENT = 40
upper = torch.from_numpy(images[:, :32] / 16).float()
data = torch.cat(
    [torch.full((len(images), 1), torch.nan), torch.from_numpy(images[:, 32:]).float()], dim=1
)
train = torch.from_numpy(~test)
chosen = circuits.inputs(0, circuits.Indicator(n_values=N_COMPONENT), N_COMPONENT)
pixels = [circuits.inputs(v, circuits.Binomial(n_trials=16), N_COMPONENT) for v in range(1, 33)]
root = circuits.sum(circuits.product(chosen, *pixels), n_nodes=1)

mixture = rk.Circuit(root, seed=0)
mixture.fit(data[train].numpy(), n_epochs=20, pseudocount=0.1)
alone = mixture.log_likelihood(data[~train].numpy()).mean()
print(f"lower halves of test images, alone:   {alone:.2f} nats")

# %% tags=["varies"]
module = rk.torch.Circuit(mixture)
weights = module.free_parameters(root).requires_grad_(False)  # EM's; the network multiplies them
network = torch.nn.Sequential(
    *(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Dropout(0.3)),
    torch.nn.Linear(64, N_COMPONENT),
)


def log_likelihood(rows):
    """Lower halves given upper halves: the network's weights over those of the mixture."""
    wanted = network(upper[rows]).log_softmax(1)
    return module(data[rows], soft={0: wanted - weights.log_softmax(0).reshape(-1)})


learned = [p for p in module.parameters() if p.requires_grad]
optimiser = torch.optim.Adam([*learned, *network.parameters()], lr=0.01)
places, trace = torch.nonzero(train)[:, 0], []
for _ in range(20):
    network.train()
    for rows in places[torch.randperm(len(places))].split(128):
        optimiser.zero_grad()
        (-log_likelihood(rows).mean()).backward()
        optimiser.step()
    network.eval()
    with torch.no_grad():
        trace.append(float(log_likelihood(~train).mean()))
print(f"given the upper halves, by a network: {trace[-1]:.2f} nats")

# %%
fig, ax = plt.subplots(figsize=(5, 2.6), layout="constrained")
ax.axhline(alone, color="0.6", label="lower halves alone")
ax.plot(np.arange(1, 21), trace, label="given upper halves, by a network")
ax.set_xlabel("epoch")
ax.set_xticks(range(0, 21, 5))
ax.set_ylabel("test log-likelihood, nats")
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# The module's circuit answers queries: here the expectation of each unknown pixel, which is the
# mean of `conditional` given the network's soft evidence.

# %%
shown = np.flatnonzero(test)[3:15]
with torch.no_grad():
    chances = network(upper[shown]).softmax(1).numpy()
pc = module.update_circuit()
soft = np.ones((len(shown), 33, N_COMPONENT), np.float32)
soft[:, 0] = chances / weights.softmax(0).reshape(-1).numpy()
posterior = pc.conditional(None, soft=soft)
completed = (posterior[:, 1:, :17] * np.arange(17)).sum(axis=2)

fig, axes = plt.subplots(2, 12, figsize=(9, 2.1), layout="constrained")
for k, place in enumerate(shown):
    half = np.concatenate([images[place, :32], completed[k]])
    for ax, image in zip(axes[:, k], (images[place], half), strict=True):
        ax.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
        ax.axhline(3.5, color="C1", lw=0.8)
        ax.set_xticks([])
        ax.set_yticks([])
axes[0, 0].set_ylabel("image")
axes[1, 0].set_ylabel("expected")
plt.show()
