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
# # Sweeps over device parameters
#
# How many states does a device need, and how much noise may its steps have? Such questions are
# answered by many small runs. `rk.distributed.sweep` makes them: in this process, on the cores of
# this machine, or on a cluster. The results are the same everywhere, to the bit, since the random
# seed of each run follows from its point.

# %%
import hashlib
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

import rpukit as rk

# %% [markdown]
# ## One run
#
# A tile learns a linear map from samples of it. A device has `states` steps between
# its bounds, and the size of each step has a relative noise.


# %%
def error_after_training(states, noise, seed):
    """Root mean square error of the weights, in units of the target's own size."""
    rng = np.random.default_rng(seed)
    target = rng.uniform(-0.4, 0.4, (8, 16)).astype(np.float32)
    device = rk.SoftBounds(dw_min=1.2 / states, dw_min_std=noise, w_min=-0.6, w_max=0.6)
    tile = rk.AnalogTile((8, 16), device, seed=seed)
    for _ in range(60):
        x = rng.uniform(-1, 1, (20, 16)).astype(np.float32)
        tile.update(x, tile.forward(x) - x @ target.T, lr=0.02)
    return float(np.sqrt(np.mean((np.asarray(tile) - target) ** 2) / np.mean(target**2)))


print(f"{error_after_training(100, 0.3, seed=1):.3f}")

# %% [markdown]
# ## Many runs, on a cluster
#
# A `LocalCluster` has processes on this machine. A client of any other cluster of Dask takes its
# place without another change: workers that SLURM starts, for example (`docs/distributed.md`).

# %% tags=["varies"]
cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
client = Client(cluster)
points = [
    {"states": states, "noise": noise}
    for states in (10, 30, 100, 300)
    for noise in (0.0, 0.3, 1.0, 3.0)
]
folder = tempfile.TemporaryDirectory()
record = Path(folder.name) / "runs.jsonl"
runs = rk.distributed.sweep(error_after_training, points, seeds=2, client=client, record=record)
print(f"{len(runs)} runs; the first: {runs[0]}")

# %% [markdown]
# Each result was on the disk as soon as it came. A sweep that is started again takes what is there
# and makes the other runs: a larger grid, more seeds, or what a stop left undone.

# %% tags=["varies"]
before = time.perf_counter()
again = rk.distributed.sweep(error_after_training, points, seeds=2, client=client, record=record)
print(f"all of them again: {time.perf_counter() - before:.2f} s, equal: {again == runs}")
one = rk.distributed.sweep(error_after_training, points[:1], seeds=2)
print(f"the first point in this process, equal: {[run.result for run in one]}")
print(f"                  and on the cluster:   {[run.result for run in runs[:2]]}")

# %% [markdown]
# More states help until the noise of the steps is the larger of the two.

# %%
error = np.array([run.result for run in runs]).reshape(4, 4, 2).mean(axis=2)
fig, ax = plt.subplots(figsize=(4.5, 3.2))
image = ax.imshow(error, origin="lower", cmap="viridis")
ax.set_xticks(range(4), ["0", "0.3", "1", "3"])
ax.set_yticks(range(4), ["10", "30", "100", "300"])
ax.set(xlabel="noise of a step", ylabel="states", title="error of the weights")
for i, j in np.ndindex(4, 4):
    color = "k" if error[i, j] > 1.2 else "w"
    ax.text(j, i, f"{error[i, j]:.2f}", ha="center", va="center", color=color)
fig.colorbar(image)
fig.tight_layout()

# %% [markdown]
# ## A circuit that learns from data on many machines
#
# `rk.distributed.fit` has the workers count, and adds up their counts in the order of the samples.
# So the number of workers does not show in the result.

# %%
x = np.random.default_rng(0).integers(0, 6, (3000, 5))


def hash_of_a_fit(client):
    """Learn, and hash the parameters."""
    pc = rk.Circuit(rk.circuits.hmm(5, 8, 6), seed=1)
    rk.distributed.fit(pc, x, n_epochs=2, unit=512, client=client)
    arrays = pc.state()["arrays"]
    return hashlib.sha256(arrays["theta"].tobytes() + arrays["leaf_parameters"].tobytes())


print(f"in this process: {hash_of_a_fit(None).hexdigest()[:16]}")
print(f"by two workers:  {hash_of_a_fit(client).hexdigest()[:16]}")

# %%
client.close()
cluster.close()
folder.cleanup()
