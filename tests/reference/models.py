"""Training graphs with recorded losses, gradients and weights of another toolkit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rpukit import tiled
from tests import reference


def folder() -> Path:
    """Where the files of this topic are."""
    return reference.folder("tiled")


NAMES = sorted(
    path.parent.relative_to(folder()).as_posix() for path in folder().glob("*/*/golden_f64.npz")
)


@dataclass
class ReferenceModel:
    """One model: its files and its mini-batches."""

    path: Path
    data: dict[str, np.ndarray]
    golden: dict[str, np.ndarray]

    def file(self, kind: str) -> Path:
        return next(self.path.glob(f"*_{kind}/network.onnx"))

    @property
    def n_accum(self) -> int:
        return int(self.data.get("meta_n_accum", [1])[0])

    @property
    def n_batches(self) -> int:
        return int(self.data["meta_n_batches"][0])

    def batch(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Data and target of a mini-batch."""
        place = number % int(self.data["meta_data_size"][0])
        ahead = f"mb{place}_" if place else ""
        return self.data[f"{ahead}arr_0000"], self.data[f"{ahead}arr_0001"]

    def start(self, names) -> dict[str, np.ndarray]:
        """Values of the parameters before training, given their names in order."""
        return {name: self.data[f"arr_{2 + i:04}"] for i, name in enumerate(names)}


def load(name: str) -> ReferenceModel:
    """Read a model by the name that `NAMES` gives it."""
    path = folder() / name
    with np.load(next(path.glob("*_train/inputs.npz"))) as file:
        data = dict(file)
    with np.load(path / "golden_f64.npz") as file:
        golden = dict(file)
    with np.load(next(path.glob("*_train/outputs.npz"), path / "golden_f64.npz")) as file:
        ends = {f"final/{key}": file[key] for key in file.files if "/" not in key}
    return ReferenceModel(path, data, {**ends, **golden})


def train(training: tiled.Training, reference: ReferenceModel, start: dict[str, np.ndarray]):
    """Train with the reference execution: losses, gradients of the first batch, final values."""
    real = training.train.tensors[training.loss].dtype
    state = {}
    for name in (*training.parameters, *training.accumulators, *training.state):
        graph = training.train if name in training.train.tensors else training.optimiser
        tensor = graph.tensors[name]
        state[name] = np.asarray(start.get(name, np.zeros(tensor.shape)), tensor.dtype)
    losses, first = [], {}
    for number in range(reference.n_batches):
        data, target = reference.batch(number)
        target = target.astype(real) if target.dtype.kind == "f" else target
        inputs = {training.data: data.astype(real), training.target: target}
        step = number % reference.n_accum
        inputs[training.reset] = np.array([step == 0])
        _run(training.train, inputs, state, losses, training.loss)
        if number == 0:
            pairs = zip(training.parameters, training.accumulators, strict=True)
            first = {name: state[total] for name, total in pairs}
        if step == reference.n_accum - 1:
            _run(training.optimiser, {}, state)
    return np.array(losses), first, {name: state[name] for name in training.parameters}


def _run(graph, inputs, state, losses=None, loss=""):
    """Run a graph and take over what it changed in place."""
    kept = {name: state[name] for name in graph.inputs if name in state}
    result = graph.run({**inputs, **kept})
    if losses is not None:
        losses.append(float(result[loss]))
    homes = graph.aliases
    state.update((homes[name], value) for name, value in result.items() if name in homes)
