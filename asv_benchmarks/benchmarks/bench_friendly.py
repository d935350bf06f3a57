"""What other libraries and people ask for: summaries, SciPy's operators, estimators."""

import numpy as np
from scipy.sparse.linalg import aslinearoperator, cg

import rpukit as rk

from .common import DEVICES, batch, require, synchronise


class Summaries:
    params = ([64, 1024, 4096], DEVICES)
    param_names = ["size", "device"]

    def setup(self, size, device):
        require(device)
        self.tile = rk.AnalogTile((size, size), rk.ConstantStep(), seed=1, device=device)
        rk.summary(self.tile)

    def time_summary(self, size, device):
        rk.summary(self.tile)

    def time_html(self, size, device):
        self.tile._repr_html_()


class Operators:
    params = ([64, 1024], DEVICES)
    param_names = ["size", "device"]

    def setup(self, size, device):
        require(device)
        self.tile = rk.AnalogTile((size, size), rk.Ideal(), seed=1, device=device)
        self.x = batch(1, size, device)[0][0]
        self.tile.matvec(self.x)
        synchronise(device)

    def time_matvec(self, size, device):
        self.tile.matvec(self.x)
        synchronise(device)


class Solver:
    """Conjugate gradients of 20 analog products."""

    def setup(self):
        weight = np.eye(256, dtype=np.float32)
        self.tile = rk.AnalogTile((256, 256), rk.Ideal(), seed=1).set_weights(weight)
        self.b = np.ones(256)
        self.time_cg()

    def time_cg(self):
        cg(aslinearoperator(self.tile), self.b, rtol=0.0, maxiter=20)


class Estimators:
    """An epoch of 1,000 samples, and predictions of them."""

    params = (["AnalogClassifier", "AnalogRegressor"], DEVICES)
    param_names = ["estimator", "device"]

    def setup(self, estimator, device):
        require(device)
        rng = np.random.default_rng(0)
        self.x = rng.normal(size=(1000, 64))
        self.y = np.arange(1000) % 10
        kind = getattr(rk.estimators, estimator)
        self.found = kind((64,), epochs=1, batch_size=32, random_state=0, device=device)
        self.time_fit(estimator, device)
        self.time_predict(estimator, device)

    def time_fit(self, estimator, device):
        self.found.fit(self.x, self.y)

    def time_predict(self, estimator, device):
        self.found.predict(self.x)


class Circuits:
    """Fit and predict ten classes."""

    def setup(self):
        rng = np.random.default_rng(0)
        self.y = np.arange(1000) % 10
        self.x = (rng.random((1000, 20)) < (self.y[:, None] + 1) / 12).astype(float)
        self.found = rk.estimators.CircuitClassifier(4, n_epochs=2, random_state=0)
        self.time_fit()
        self.time_predict()

    def time_fit(self):
        self.found.fit(self.x, self.y)

    def time_predict(self):
        self.found.predict_proba(self.x)
