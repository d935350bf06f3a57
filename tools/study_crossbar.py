"""Draw the figures of docs/array_effects.md, and print their tables.

    python tools/study_crossbar.py [--out docs/images]

Wires: nodal analysis of matrices of 16 outputs, weights uniform in [-1, 1], 20 vectors of inputs,
and the fast ``ir_drop`` of a tile beside it. Converters: integral nonlinearity of three
architectures, and their error on sums of 128 products of normal numbers. Slices: error of a
product of 8-bit weights and inputs by the resolution of the converters. About 10 s of one core.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

import rpukit as rk
from rpukit.crossbar import Adc, SlicedTile, Wires, compare_wires, sweep_adc

SIZES = (16, 32, 64, 128, 256)
G_MAX = 20e-6  # siemens
KINDS = ("flash", "sar", "ramp")
NAMES = {"flash": "flash", "sar": "SAR", "ramp": "ramp"}
MISMATCH = {"flash": 0.3, "sar": 0.02, "ramp": 0.02}
BITS = tuple(range(3, 13))


def wires(path: Path) -> None:
    """Loss and error by the length of the lines, for two kinds of inputs."""
    rng = np.random.default_rng(1)
    cases = {
        "inputs 1, weights 0..1": (0.0, lambda n: np.ones((20, n))),
        "inputs 0..1, weights -1..1": (-1.0, lambda n: rng.uniform(0, 1, (20, n))),
        "inputs -1..1, weights -1..1": (-1.0, lambda n: rng.uniform(-1, 1, (20, n))),
    }
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.3), layout="constrained", sharey=True)
    print("| case | inputs | loss, exact | loss, fast | error of fast | error, r_in too |")
    print("|---|---|---|---|---|---|")
    for ax, (name, (low, inputs)) in zip(axes, cases.items(), strict=True):
        rows = []
        for n in SIZES:
            w, x = rng.uniform(low, 1, (16, n)), inputs(n)
            out = compare_wires(w, x, Wires(r_out=1.0), g_max=G_MAX)
            both = compare_wires(w, x, Wires(r_out=1.0, r_in=1.0), g_max=G_MAX)
            rows.append((out.loss, out.fast_loss, out.error, both.error))
            cells = " | ".join(f"{100 * v:.2f} %" for v in rows[-1])
            print(f"| {name} | {n} | {cells} |")
        loss, fast, error, both_error = (100 * np.array(part) for part in zip(*rows, strict=True))
        ax.loglog(SIZES, loss, "k-", label="loss, nodal analysis")
        ax.loglog(SIZES, fast, "C0--", label="loss, ir_drop")
        ax.loglog(SIZES, error, "C3o-", ms=4, label="error of ir_drop")
        ax.loglog(SIZES, both_error, "C1s:", ms=4, label="error, input lines too")
        ax.set(title=name, xlabel="inputs of a tile", xticks=SIZES)
        ax.set_xticklabels(map(str, SIZES))
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("% of the rms output")
    axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def converters(path: Path) -> None:
    """Nonlinearity of one converter of each kind, and errors by resolution."""
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.3), layout="constrained")
    for kind in KINDS:
        adc = Adc.of_kind(kind, 8, 1.0, mismatch=MISMATCH[kind], seed=3)
        code = np.arange(adc.n_transition) + adc.codes[0]
        axes[0].plot(code, adc.inl, lw=1, label=f"{NAMES[kind]}, {MISMATCH[kind]}")
    axes[0].set(title="8 bits, one converter", xlabel="code", ylabel="nonlinearity (LSB)")
    look = {"handlelength": 1.0, "columnspacing": 0.8, "loc": "lower center"}
    axes[0].legend(title="mismatch", fontsize=7, title_fontsize=7, ncols=3, **look)
    axes[0].set_ylim(-1.9, 1.1)
    rng = np.random.default_rng(2)
    y = rng.normal(0, 1, (2000, 128)) @ rng.normal(0, 1, (128, 16)) / np.sqrt(128)
    size = float(abs(y).max())
    ideal = sweep_adc(y, BITS, full_scale=size)
    real = sweep_adc(y, BITS, full_scale=size, mismatch=MISMATCH, seed=4)
    axes[1].semilogy(BITS, 100 * ideal.error["sar"], "k--", label="perfect, any kind")
    for kind in KINDS:
        axes[1].semilogy(BITS, 100 * real.error[kind], "o-", ms=3, label=NAMES[kind])
        axes[2].semilogy(BITS, real.periods[kind], "o-", ms=3, label=NAMES[kind])
    axes[1].set(title="16 converters with mismatch", xlabel="bits", ylabel="rms error (%)")
    axes[2].set(title="time of a conversion", xlabel="bits", ylabel="periods of the comparator")
    for ax in axes[1:]:
        ax.legend(fontsize=8)
        ax.grid(alpha=0.3)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    print("\n| bits | perfect | flash | SAR | ramp |\n|---|---|---|---|---|")
    for k, bits in enumerate(BITS):
        cells = " | ".join(f"{100 * real.error[kind][k]:.3g} %" for kind in KINDS)
        print(f"| {bits} | {100 * ideal.error['sar'][k]:.3g} % | {cells} |")


class Seen(Adc):
    """A converter that changes nothing and remembers the largest value."""

    most = 0.0

    def convert(self, y: np.ndarray) -> np.ndarray:
        self.most = max(self.most, float(abs(y).max()))
        return y


def slices(path: Path) -> None:
    """Error of a sliced product by the resolution of converters of the range that is used."""
    rng = np.random.default_rng(5)
    w, x = rng.normal(0, 0.3, (32, 128)), rng.uniform(-1, 1, (50, 128))
    w, x = w.astype(np.float32), x.astype(np.float32)
    figure, ax = plt.subplots(figsize=(4.6, 3.3), layout="constrained")
    print("\n| cell bits | DAC bits | largest sum | bits for 1 % |\n|---|---|---|---|")
    for cell_bits, dac_bits, style in ((1, 1, "o-"), (2, 1, "s-"), (2, 2, "d-"), (4, 4, "^-")):
        options = {"cell_bits": cell_bits, "dac_bits": dac_bits}
        seen = Seen(2, 1.0)
        exact = SlicedTile((32, 128), rk.Ideal(), adc=seen, **options).set_weights(w)
        want, errors = exact.forward(x), []
        for bits in BITS:
            adc = Adc(bits, seen.most)
            tile = SlicedTile((32, 128), rk.Ideal(), adc=adc, **options).set_weights(w)
            off = tile.forward(x) - want
            errors.append(100 * float(np.sqrt(np.mean(off**2) / np.mean(want**2))))
        label = f"{cell_bits}-bit cells, {dac_bits}-bit inputs"
        ax.semilogy(BITS, errors, style, ms=4, label=label)
        enough = next((b for b, e in zip(BITS, errors, strict=True) if e < 1), None)
        share = f"{seen.most:.0f} of {exact.full_scale}"
        print(f"| {cell_bits} | {dac_bits} | {share} | {enough or 'more than 12'} |")
    ax.set(xlabel="bits of the converters", ylabel="rms error (%)")
    ax.set_title("8-bit weights and inputs in slices", fontsize=10)
    ax.legend(fontsize=8)
    ax.grid(alpha=0.3)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    out = parser.parse_args().out
    wires(out / "crossbar_wires.png")
    converters(out / "crossbar_adc.png")
    slices(out / "crossbar_slices.png")


if __name__ == "__main__":
    main()
