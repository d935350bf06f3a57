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
# # A circuit
#
# A probabilistic circuit is a distribution written as a graph: leaves are simple distributions of
# one variable, products put independent parts together, sums mix alternatives. In exchange for
# that structure every marginal and conditional probability is exact and takes one or two passes.

# %%
import matplotlib.pyplot as plt
import numpy as np

import rpukit as rk
from rpukit import circuits

# %% [markdown]
# ## By hand
#
# Two sensors see the same room, which is warm 30 % of the time. Given the room, their readings are
# independent. That sentence is a circuit: a sum over the state of the room, below it products of
# one leaf for each sensor.

# %%
warm_cold = [[0.9, 0.1], [0.2, 0.8]]  # P(reading 0, reading 1) in the cold, in the warm
bit = circuits.Categorical(n_values=2)
sensors = [circuits.inputs(v, bit, 2, parameters=warm_cold) for v in (0, 1)]
room = circuits.sum(circuits.product(*sensors), n_nodes=1, parameters=[[0.7, 0.3]])
pc = rk.Circuit(room)

readings = np.array([[0, 0], [0, 1], [1, 1]])
by_hand = [0.7 * 0.81 + 0.3 * 0.04, 0.7 * 0.09 + 0.3 * 0.16, 0.7 * 0.01 + 0.3 * 0.64]
print("P(readings)           ", np.exp(pc.log_likelihood(readings)).round(4))
print("by hand               ", np.round(by_hand, 4))

unknown = np.array([[False, True]])
print("P(second | first is 1)", pc.conditional([[1, 0]], missing=unknown)[0, 1].round(4))
ax = rk.plot.plot_structure(pc)
_ = ax.set_title("a sum over two products of two leaves", fontsize="medium")

# %% [markdown]
# ## A hidden Markov model
#
# A device trapped in one of two states, with a noisy read: random telegraph noise. `circuits.hmm`
# makes the circuit of a sequence; its leaves may be of any kind, here normal distributions of the
# current.

# %%
rng = np.random.default_rng(2)
T, N = 60, 200
state = np.zeros((N, T), int)
for t in range(1, T):
    state[:, t] = np.where(rng.random(N) < 0.06, 1 - state[:, t - 1], state[:, t - 1])
current = (np.array([1.0, 1.6])[state] + rng.normal(0, 0.25, state.shape)).astype(np.float32)

rough = [[0.8, 0.4], [1.8, 0.4]]  # mean and deviation of each state: EM climbs from here
graph = circuits.hmm(seq_len=T, n_states=2, leaf=circuits.Gaussian(), emission=rough)
hmm = rk.Circuit(graph, seed=0)
_ = hmm.fit(current, n_epochs=30)
leaves = [nodes for nodes in hmm.layout.nodes if isinstance(nodes, circuits.InputNodes)]
leaves.sort(key=lambda nodes: nodes.var)
for mean, std in hmm.parameters(leaves[0]):
    print(f"a state of current {mean:.3f}, noise {std:.3f}")

# %% [markdown]
# EM found both currents and their noise (1.0, 1.6 and 0.25 went in). The *flow* of a node is the
# posterior probability that it is used: for the leaves of one time, that of the two states then.

# %%
flows = hmm.flows(current[:1])
posterior = np.array([flows[nodes][0] for nodes in leaves])
high = hmm.parameters(leaves[0])[:, 0].argmax()

fig, axes = plt.subplots(2, 1, figsize=(7, 4), sharex=True, layout="constrained")
axes[0].plot(current[0], "o-", ms=3, lw=0.6)
axes[0].set_ylabel("current, µA")
axes[1].step(range(T), state[0], where="mid", color="0.6", label="true state")
axes[1].plot(posterior[:, high], color="C3", label="posterior")
axes[1].set(xlabel="time", ylabel="P(high state)", ylim=(-0.05, 1.05))
_ = axes[1].legend(fontsize="small")

# %% [markdown]
# ## What is missing
#
# No new training is needed for a question that nobody thought of before. Here 12 readings are lost
# (NaN, or a mask): the circuit gives their mean, and draws of what they may have been.

# %%
broken = current[:1].copy()
broken[0, 20:32] = np.nan
mean = hmm.expectation(broken)[0]
draws = np.array([hmm.sample(x=broken, missing=np.isnan(broken))[0] for _ in range(4)])

fig, ax = plt.subplots(figsize=(7, 2.8), layout="constrained")
ax.axvspan(19.5, 31.5, color="0.93", lw=0)
for drawn in draws:
    ax.plot(range(19, 33), drawn[19:33], color="C0", lw=0.7, alpha=0.6)
ax.plot(broken[0], "o-", ms=3, lw=0.6, color="0.3", label="readings")
ax.plot(range(20, 32), mean[20:32], color="C3", label="mean, given the others")
ax.set(xlabel="time", ylabel="current, µA")
_ = ax.legend(fontsize="small")

# %% [markdown]
# ## Structure from data
#
# `circuits.hclt` makes a tree of hidden variables from data, `rat_spn` random splits, `pd` splits
# of images; `rk.Circuit` learns them all with the same calls. The notebook
# [03_circuits](../../notebooks/03_circuits.ipynb) completes images of digits;
# [circuits](../circuits.md) lists structures, leaves, queries and ways to learn. Next:
# [a plan](08_plan.ipynb).
