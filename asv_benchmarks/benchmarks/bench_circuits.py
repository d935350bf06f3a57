"""Likelihood and EM of hidden Markov models over states and samples."""

import numpy as np

import rpukit as rk

from .common import put, require, synchronise


class HiddenMarkov:
    params = ([8, 64, 256], [1, 64])
    param_names = ["n_states", "n_sample"]

    def setup(self, n_states, n_sample):
        self.pc = rk.Circuit(rk.circuits.hmm(100, n_states, 50), seed=1)
        self.x = np.random.default_rng(0).integers(0, 50, (n_sample, 100))
        self.run_all()

    def run_all(self):
        self.pc.log_likelihood(self.x)
        self.pc.em_step(self.x, step=0.1, pseudocount=0.1)

    def time_log_likelihood(self, *_):
        self.pc.log_likelihood(self.x)

    def time_em_step(self, *_):
        self.pc.em_step(self.x, step=0.1, pseudocount=0.1)


class Sequences:
    """Posteriors and a step of EM of `HMM`, one sequence and many of several lengths."""

    params = ([8, 64], [1, 64])
    param_names = ["n_states", "n_sequence"]

    def setup(self, n_states, n_sequence):
        rng = np.random.default_rng(0)
        self.lengths = rng.integers(60, 101, n_sequence)
        self.x = rng.integers(0, 50, (self.lengths.sum(), 1))
        self.model = rk.estimators.HMM(n_states, emission="categorical", n_iter=1, random_state=0)
        self.model.fit(self.x, self.lengths)

    def time_posteriors(self, *_):
        self.model.predict_proba(self.x, self.lengths)

    def time_step(self, *_):
        self.model.fit(self.x, self.lengths)


class Module:
    """Forward and backward of `rk.torch.Circuit`."""

    def setup(self):
        try:
            import torch
        except ImportError as error:
            raise NotImplementedError("no PyTorch") from error
        nodes = rk.circuits.mixture(32, 40, rk.circuits.Gaussian())
        self.module = rk.torch.Circuit(nodes, seed=0)
        self.x = torch.from_numpy(np.random.default_rng(0).normal(size=(128, 32))).float()
        self.time_step()

    def time_step(self):
        self.module.zero_grad()
        (-self.module(self.x).mean()).backward()


class Captured:
    """Steps of learning on a GPU: as CUDA graphs, and as launches that come again."""

    params = ([128, 1024], [1, 8, 64, 512])
    param_names = ["n_states", "n_sample"]
    precision = "fp32"

    def setup(self, n_states, n_sample):
        require("gpu")
        root, how = rk.circuits.hmm(32, n_states, 4023), self.precision
        self.pc = rk.Circuit(root, seed=1, device="gpu", precision=how)
        self.x = put(np.random.default_rng(0).integers(0, 4023, (n_sample, 32)), "gpu")
        self.step = self.pc.captured(n_sample)
        self.em = self.pc.captured(n_sample, step=0.1, pseudocount=0.1)
        for call in (self.step, self.em, *3 * [self.pc.accumulate]):
            call(self.x)
        synchronise("gpu")

    def time_step(self, *_):
        self.step.replay()
        synchronise("gpu")

    def time_em_step(self, *_):
        self.em.replay()
        synchronise("gpu")

    def time_accumulate(self, *_):
        self.pc.accumulate(self.x)
        synchronise("gpu")


class TensorSums(Captured):
    """The same with sums on tensor cores."""

    params = ([1024], [16, 64, 512])
    precision = "bf16"


class SplitSums(Captured):
    """The same with sums and counts by pairs of bfloat16."""

    precision = "bf16x3"


class Images:
    """Steps of learning of 784 pixels on a GPU, as CUDA graphs: 13 and 17 million edges."""

    params = (["rat", "pd"], [1, 32, 256])
    param_names = ["structure", "n_sample"]

    def setup(self, structure, n_sample):
        require("gpu")
        leaf = rk.circuits.Categorical(n_values=256)
        if structure == "rat":
            root = rk.circuits.rat_spn(784, 128, leaf, n_repetitions=1)
        else:
            root = rk.circuits.pd((28, 28), 64, leaf, n_splits=7)
        self.pc = rk.Circuit(root, seed=1, device="gpu")
        x = put(np.random.default_rng(0).integers(0, 256, (n_sample, 784)), "gpu")
        self.em = self.pc.captured(n_sample, step=0.1, pseudocount=0.1)
        self.em(x)
        synchronise("gpu")

    def time_em_step(self, *_):
        self.em.replay()
        synchronise("gpu")


class Compile:
    """Tables of a tree of a hundred variables, 3 million edges."""

    def setup(self):
        x = np.random.default_rng(0).integers(0, 2, (500, 100))
        self.root = rk.circuits.hclt(x, 256)

    def time_compile(self):
        rk.Circuit(self.root)


class Structures:
    """Structures from data, on 2000 samples of 40 bits in two groups."""

    def setup(self):
        rng = np.random.default_rng(0)
        group = rng.integers(0, 2, (2000, 1))
        hidden = rng.integers(0, 2, (2000, 10))
        x = np.repeat(hidden, 4, axis=1) ^ (rng.random((2000, 40)) < 0.1)
        self.x = np.where(group, x, np.roll(x, 2, axis=1))
        self.root = rk.circuits.hclt(self.x, 8)
        self.time_learn_spn(), self.time_chow_liu_mixture(), self.time_distil()

    def time_learn_spn(self):
        rk.circuits.learn_spn(self.x, min_samples=200)

    def time_chow_liu_mixture(self):
        rk.circuits.chow_liu_mixture(self.x, 2, n_epochs=3)

    def time_distil(self):
        rk.circuits.distil(self.root, self.x)


class Functions:
    """Leaves that functions evaluate: 64 mixtures of Gamma and Student's t."""

    def setup(self):
        rng = np.random.default_rng(0)
        self.x = rng.gamma(2.0, size=(1000, 8))
        leaves = 4 * [rk.circuits.Gamma(), rk.circuits.StudentT()]
        self.pc = rk.Circuit(rk.circuits.mixture(8, 64, leaves), seed=1)
        self.time_log_likelihood(), self.time_em_step()

    def time_log_likelihood(self):
        self.pc.log_likelihood(self.x)

    def time_em_step(self):
        self.pc.em_step(self.x, step=0.1)


class FullCovariance(Functions):
    """64 normal leaves of 8 variables."""

    def setup(self):
        self.x = np.random.default_rng(0).normal(size=(1000, 8))
        leaf = rk.circuits.MultivariateNormal(n_variables=8)
        self.pc = rk.Circuit(rk.circuits.mixture(8, 64, leaf), seed=1)
        self.time_log_likelihood(), self.time_em_step()
