"""Write tests/data/circuits/hmmlearn.npz: hidden Markov models of hmmlearn, for `HMM`.

    pip install hmmlearn==0.3.3
    python tools/record_hmmlearn.py

For each kind of emission: sequences of several lengths, parameters to begin with, what hmmlearn
says of the sequences, and the parameters after eight steps of EM.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
from hmmlearn import hmm

LENGTHS = [12, 5, 1, 9, 20, 12, 3]
STATES, SYMBOLS, STEPS = 3, 5, 8
OUT = Path(__file__).resolve().parents[1] / "tests" / "data" / "circuits" / "hmmlearn.npz"
PRIORS = {"startprob_prior": 1.5, "transmat_prior": 1.2}
MEANS = {"means_prior": 1.0, "means_weight": 0.3}


def cases(rng: np.random.Generator) -> dict[str, tuple[Any, np.ndarray, dict[str, np.ndarray]]]:
    """Models, samples and emission parameters to begin with."""
    n, options = sum(LENGTHS), {"init_params": "", "n_iter": STEPS, "tol": -np.inf}
    centres = 4 * rng.integers(0, STATES, (n, 1))
    means = rng.normal(size=(STATES, 2)) + 4 * np.arange(STATES)[:, None] + 10
    normal = rng.normal(size=(n, 2)) + centres + 10
    diag = hmm.GaussianHMM(STATES, "diag", **options)
    spherical = hmm.GaussianHMM(STATES, "spherical", **PRIORS, **MEANS, **options)
    categorical = hmm.CategoricalHMM(STATES, **PRIORS, emissionprob_prior=1.1, **options)
    poisson = hmm.PoissonHMM(STATES, lambdas_prior=0.5, lambdas_weight=0.2, **options)
    diag.n_features = spherical.n_features = 2
    categorical.n_features = SYMBOLS
    symbols = rng.dirichlet(np.ones(SYMBOLS), STATES)
    full = hmm.GaussianHMM(STATES, "full", **PRIORS, **MEANS, **options)
    tied = hmm.GaussianHMM(STATES, "tied", covars_weight=6.0, **options)
    full.n_features = tied.n_features = 2
    sloped = np.array([[1.5, 0.6], [0.6, 1.0]])
    return {
        "diag": (diag, normal, {"means_": means, "covars_": np.full((STATES, 2), 1.5)}),
        "spherical": (spherical, normal, {"means_": means, "covars_": np.full(STATES, 1.5)}),
        "categorical": (
            categorical,
            rng.integers(0, SYMBOLS, (n, 1)),
            {"emissionprob_": symbols},
        ),
        "poisson": (
            poisson,
            rng.poisson(3 + centres, (n, 2)),
            {"lambdas_": rng.gamma(3, 2, (STATES, 2))},
        ),
        "full": (full, normal, {"means_": means, "covars_": np.tile(sloped, (STATES, 1, 1))}),
        "tied": (tied, normal, {"means_": means, "covars_": sloped}),
    }


def main() -> None:
    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {"lengths": LENGTHS}
    for name, (model, x, emission) in cases(rng).items():
        begin = {
            "startprob_": rng.dirichlet(np.ones(STATES)),
            "transmat_": rng.dirichlet(np.full(STATES, 2.0), STATES),
            **emission,
        }
        for key, value in begin.items():
            setattr(model, key, value)
            found[f"{name}.begin.{key}"] = value
        found[f"{name}.x"] = x
        found[f"{name}.score"] = model.score(x, LENGTHS)
        found[f"{name}.aic"], found[f"{name}.bic"] = model.aic(x, LENGTHS), model.bic(x, LENGTHS)
        found[f"{name}.posteriors"] = model.predict_proba(x, LENGTHS)
        for way in ("viterbi", "map"):
            found[f"{name}.{way}"], found[f"{name}.{way}.states"] = model.decode(x, LENGTHS, way)
        model.fit(x, LENGTHS)
        found[f"{name}.history"] = list(model.monitor_.history)
        for key in begin:
            # Spherical covariances of hmmlearn 0.3.3 cannot be read back after a fit.
            value = model._covars_ if key == "covars_" else getattr(model, key)
            found[f"{name}.end.{key}"] = value
    np.savez_compressed(OUT, **found)


if __name__ == "__main__":
    main()
