"""Draw the two sets of pulses that are shipped with rpukit, in rpukit/studies/data.

    python tools/make_pulse_data.py

They are synthetic. Cells of a known model are pulsed by `rpukit.studies.pulse_response`, and what
they show is read as a laboratory would read it: as conductances, rounded to the last digit of an
instrument, with a measured noise of reads, or with a few reads that are false. The same bytes come
from every machine, since the bits of pulses do not depend on it; a test compares them.

``reram.csv``: `SoftBounds` with steps of 3 % of half the range, 60 % noise on each step, writing
noise of 1.5 steps, smaller down steps, and 15 % spread; 15 to 65 microsiemens. Four reads are off
by 8 to 15 microsiemens, as by a bad contact.

``ecram.csv``: `LinearStep` with small steps, 20 % noise, no writing noise, and 5 % spread; 400 to
1400 nanosiemens; reads with a noise of 4 nanosiemens, which is given with each read.
"""

from pathlib import Path

import numpy as np

import rpukit as rk

FOLDER = Path(__file__).resolve().parents[1] / "rpukit/studies/data"
HEAD = "# Synthetic, drawn by tools/make_pulse_data.py of rpukit; no measurement.\n"

RERAM = rk.SoftBounds(
    dw_min=0.03,
    dw_min_std=0.6,
    dw_min_dtod=0.15,
    up_down=0.1,
    up_down_dtod=0.02,
    w_max=1.0,
    w_min=-1.0,
    w_max_dtod=0.1,
    w_min_dtod=0.1,
    write_noise_std=1.5,
)
ECRAM = rk.LinearStep(
    dw_min=0.025,
    dw_min_std=0.2,
    dw_min_dtod=0.05,
    up_down_dtod=0.01,
    w_max=1.0,
    w_min=-1.0,
    w_max_dtod=0.05,
    w_min_dtod=0.05,
    gamma_up=0.4,
    gamma_down=0.7,
    gamma_up_dtod=0.03,
    gamma_down_dtod=0.03,
)


def reram() -> str:
    """Return the text of ``reram.csv``."""
    names = ("A1", "A2", "B1")
    up = np.tile(np.repeat([True, False], 50), 5)
    seen = rk.studies.pulse_response(RERAM, up, n_cell=len(names), start=-0.7, seed=11).weight
    conductance = 40 + 25 * seen.astype(np.float64)
    for pulse, device, error in ((61, 0, 15.0), (203, 1, -12.0), (377, 1, 8.0), (444, 2, -9.0)):
        conductance[pulse, device] += error
    lines = [HEAD + "device,pulse,direction,conductance (uS)\n"]
    for d, name in enumerate(names):
        lines.append(f"{name},0,,{conductance[0, d]:.2f}\n")
        for k, way in enumerate(up, 1):
            lines.append(f"{name},{k},{'up' if way else 'down'},{conductance[k, d]:.2f}\n")
    return "".join(lines)


def ecram() -> str:
    """Return the text of ``ecram.csv``."""
    names = ("E1", "E2", "E3", "E4")
    up = np.tile(np.repeat([True, False], 80), 3)
    seen = rk.studies.pulse_response(ECRAM, up, n_cell=len(names), start=-0.8, seed=5).weight
    noise = rk.elementwise.random_fill(rk.Stream.from_seed(6), seen.shape, "normal")
    conductance = 900 + 500 * seen.astype(np.float64) + 4 * noise.astype(np.float64)
    lines = [HEAD + "cell id;pulse number;direction;conductance_nS;read_noise_nS\n"]
    for d, name in enumerate(names):
        for k in range(up.size + 1):
            way = "" if k == 0 else "1" if up[k - 1] else "-1"
            lines.append(f"{name};{k};{way};{conductance[k, d]:.1f};4.0\n")
    return "".join(lines)


def main() -> None:
    """Write both files."""
    for name, text in (("reram", reram()), ("ecram", ecram())):
        path = FOLDER / f"{name}.csv"
        path.write_bytes(text.encode())
        print(f"{path.name}: {len(text)} bytes")


if __name__ == "__main__":
    main()
