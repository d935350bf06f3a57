"""Hidden Markov models with the names of hmmlearn; imported when first used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from rpukit._checks import integer, one_of
from rpukit.circuits import Leaf
from rpukit.errors import ParameterError, ShapeError
from rpukit.estimators._scikit import BaseEstimator, check_is_fitted, check_random_state
from rpukit.estimators.hmm_checks import (
    DECODERS,
    checked_settings,
    emission_of,
    normalised_counts,
    read_samples,
    variances_of,
)
from rpukit.estimators.hmm_emissions import Emission, need_rows
from rpukit.estimators.hmm_monitor import Monitor
from rpukit.estimators.hmm_sequences import BEST, Bucket, Chains, Counts, check_lengths

__all__ = ["HMM"]

Array = Any


class HMM(BaseEstimator):  # type: ignore[misc]
    """Hidden Markov model of sequences, with the names and `lengths` of hmmlearn.

    Parameters
    ----------
    n_components : int
        Number of states.
    emission : {"gaussian", "categorical", "poisson"} or rpukit.circuits.Leaf
        Distribution of each column of X, given the state; columns are independent given it, but
        with a full covariance.
    covariance_type : {"diag", "spherical", "full", "tied"}
        Of Gaussian emissions; tied is one full covariance of all states.
    n_features : int, optional
        Number of symbols of categorical emissions; default: as many as X or `emissionprob_` has.
    n_iter : int
        Largest number of steps of EM.
    tol : float
        EM ends when a step gains less log-likelihood.
    params, init_params : str
        What `fit` updates, and what it begins anew: letters of "s" (`startprob_`), "t"
        (`transmat_`), "m" (`means_`), "c" (`covars_`), "e" (`emissionprob_`, `emissionparams_`),
        "l" (`lambdas_`). A parameter that is not begun anew keeps the value it was given.
    algorithm : {"viterbi", "map"}
        Of `decode` and `predict`: the most probable sequence of states, or of each time the most
        probable state.
    startprob_prior, transmat_prior, emissionprob_prior : float or array
        Of Dirichlet distributions; 1 adds nothing to the counts.
    means_prior, means_weight, covars_prior, covars_weight : float or array
        Of Gaussian emissions, as in hmmlearn.
    min_covar : float
        Added to the first variances.
    lambdas_prior, lambdas_weight : float or array
        Of Poisson emissions, as in hmmlearn.
    dtype : dtype
        float64 or float32, in which likelihoods and counts are computed.
    device : str
        "cpu", "gpu" or "gpu:1"; data and results are arrays on the CPU.
    verbose : bool
        Print each step of EM to stderr.
    random_state : int, RandomState or None

    Attributes
    ----------
    startprob_ : array, shape (n_components,)
    transmat_ : array, shape (n_components, n_components)
        Row i: probabilities of the states after state i.
    means_ : array, shape (n_components, n_features)
    covars_ : array, shape (n_components, n_features, n_features)
        If diagonal, it may be set as (n_components, n_features), too.
    emissionprob_ : array, shape (n_components, n_symbols)
    lambdas_ : array, shape (n_components, n_features)
    emissionparams_ : array, shape (n_features, n_components, n_parameters)
        Of a leaf, as `Circuit.parameters` gives them.
    monitor_ : Monitor
    n_features_in_ : int

    Notes
    -----
    Parameters may be set by hand, before `fit` or instead of it. NaN in X is missing and summed
    over, exactly. A sequence is evaluated by a probabilistic circuit; sequences of several lengths
    share circuits without padded times, so that a sequence's likelihood and posteriors have the
    same bits in float64 whatever stands beside it. Circuits grow with the longest sequence: 0.3 s
    to build one of 1000 times, 4 s for 5000.
    Source: Rabiner, Proc. IEEE 77, 257 (1989).

    Examples
    --------
    >>> import numpy as np
    >>> from rpukit.estimators import HMM
    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(0, 1, 40), rng.normal(5, 1, 60)])[:, None]
    >>> model = HMM(2, random_state=0).fit(x, lengths=[70, 30])
    >>> np.sort(model.means_.ravel()).round(0) + 0.0
    array([0., 5.])
    >>> model.predict([[-0.2], [0.3], [np.nan], [5.1]]).shape
    (4,)
    """

    def __init__(
        self,
        n_components: int = 1,
        *,
        emission: str | Leaf = "gaussian",
        covariance_type: str = "diag",
        n_features: int | None = None,
        n_iter: int = 10,
        tol: float = 1e-2,
        params: str = "stmcel",
        init_params: str = "stmcel",
        algorithm: str = "viterbi",
        startprob_prior: Any = 1.0,
        transmat_prior: Any = 1.0,
        emissionprob_prior: Any = 1.0,
        means_prior: Any = 0.0,
        means_weight: Any = 0.0,
        covars_prior: Any = 1e-2,
        covars_weight: Any = 1.0,
        min_covar: float = 1e-3,
        lambdas_prior: Any = 0.0,
        lambdas_weight: Any = 0.0,
        dtype: Any = "float64",
        device: str = "cpu",
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.emission = emission
        self.covariance_type = covariance_type
        self.n_features = n_features
        self.n_iter = n_iter
        self.tol = tol
        self.params = params
        self.init_params = init_params
        self.algorithm = algorithm
        self.startprob_prior = startprob_prior
        self.transmat_prior = transmat_prior
        self.emissionprob_prior = emissionprob_prior
        self.means_prior = means_prior
        self.means_weight = means_weight
        self.covars_prior = covars_prior
        self.covars_weight = covars_weight
        self.min_covar = min_covar
        self.lambdas_prior = lambdas_prior
        self.lambdas_weight = lambdas_weight
        self.dtype = dtype
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    @property
    def covars_(self) -> Array:
        """Covariances of Gaussian emissions, (n_components, n_features, n_features)."""
        if "_variances" not in self.__dict__:
            raise AttributeError("covars_: not set; call fit, or set it before")
        held = self._variances
        return held.copy() if held.ndim == 3 else np.stack([np.diag(line) for line in held])

    @covars_.setter
    def covars_(self, covars: Any) -> None:
        self._variances = variances_of(self, covars)

    def fit(self, X: Any, lengths: Any = None) -> Self:
        """Learn the parameters by EM.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)
            Sequences, one after another.
        lengths : array of int, shape (n_sequences,), optional
            Their lengths, which sum to n_samples; default: one sequence.

        Returns
        -------
        HMM
            The estimator.

        Raises
        ------
        ParameterError, ShapeError, DTypeError, DeviceError
        ValueError
            From scikit-learn's check of X.
        """
        emission = checked_settings(self)
        x = read_samples(self, X, emission, reset=True)
        lengths = check_lengths(lengths, len(x))
        self._begin(emission, x)
        self._check_parameters(emission)
        n_iter = integer(self.n_iter, "n_iter", low=0)
        chains = self._chains(emission, x, lengths)
        monitor = Monitor(self.tol, n_iter, self.verbose)
        for _ in range(n_iter):
            chains.put(self.startprob_, self.transmat_, emission.parameters(self))
            counts, found = chains.counts()
            self._step(emission, counts, chains)
            monitor.report(float(np.add.accumulate(found)[-1]))
            if monitor.converged:
                break
        self.monitor_ = monitor
        return self

    def score(self, X: Any, lengths: Any = None) -> float:
        """Compute the log-likelihood of all sequences, nats.

        Parameters
        ----------
        X, lengths : array
            As of `fit`.

        Returns
        -------
        float
        """
        return float(np.add.accumulate(self._ready(X, lengths).log_likelihoods())[-1])

    def score_samples(self, X: Any, lengths: Any = None) -> tuple[float, Array]:
        """Compute the log-likelihood of all sequences, and the posteriors of the states.

        Parameters
        ----------
        X, lengths : array
            As of `fit`.

        Returns
        -------
        log_prob : float
        posteriors : array, shape (n_samples, n_components)
        """
        chains = self._ready(X, lengths)
        return float(np.add.accumulate(chains.log_likelihoods())[-1]), chains.flows()

    def predict_proba(self, X: Any, lengths: Any = None) -> Array:
        """Compute the probability of each state at each time, given the whole sequence.

        Parameters
        ----------
        X, lengths : array
            As of `fit`.

        Returns
        -------
        array, shape (n_samples, n_components)
            Zeros for a sequence that the model says is impossible.
        """
        return self._ready(X, lengths).flows()

    def decode(
        self, X: Any, lengths: Any = None, algorithm: str | None = None
    ) -> tuple[float, Array]:
        """Find the states behind sequences.

        Parameters
        ----------
        X, lengths : array
            As of `fit`.
        algorithm : {"viterbi", "map"}, optional
            Default: that of the estimator.

        Returns
        -------
        log_prob : float
            Of the states and X together; for "map" the sum of the largest posteriors.
        state_sequence : array of int, shape (n_samples,)
        """
        algorithm = one_of(algorithm or self.algorithm, "algorithm", DECODERS)
        chains = self._ready(X, lengths)
        if algorithm == "map":
            flows = chains.flows()
            return float(np.add.accumulate(flows.max(axis=1))[-1]), flows.argmax(axis=1)
        best = np.add.accumulate(chains.log_likelihoods(BEST))[-1]
        return float(best), chains.flows(BEST).argmax(axis=1)

    def predict(self, X: Any, lengths: Any = None) -> Array:
        """Find the states behind sequences, as `decode` does.

        Parameters
        ----------
        X, lengths : array
            As of `fit`.

        Returns
        -------
        array of int, shape (n_samples,)
        """
        return self.decode(X, lengths)[1]

    def sample(
        self, n_samples: int = 1, random_state: Any = None, currstate: int | None = None
    ) -> tuple[Array, Array]:
        """Draw one sequence.

        Parameters
        ----------
        n_samples : int
            Its length.
        random_state : int, RandomState or None
            Default: that of the estimator.
        currstate : int, optional
            First state; default: drawn by `startprob_`.

        Returns
        -------
        X : array, shape (n_samples, n_features)
        state_sequence : array of int, shape (n_samples,)
        """
        check_is_fitted(self, "startprob_")
        emission = checked_settings(self)
        self._check_parameters(emission)
        n = integer(n_samples, "n_samples", low=1)
        rng = check_random_state(self.random_state if random_state is None else random_state)
        if currstate is None:
            state = int((np.cumsum(self.startprob_) > rng.random_sample()).argmax())
        else:
            state = integer(currstate, "currstate", low=0, high=self.n_components - 1)
        along, states = np.cumsum(self.transmat_, axis=1), [state]
        drawn = [emission.draw(self, state, rng)]
        for _ in range(n - 1):
            states.append(int((along[states[-1]] > rng.random_sample()).argmax()))
            drawn.append(emission.draw(self, states[-1], rng))
        return np.stack(drawn), np.array(states)

    def aic(self, X: Any, lengths: Any = None) -> float:
        """Compute Akaike's information criterion; lower is better.

        Parameters
        ----------
        X, lengths : array
            As of `fit`.

        Returns
        -------
        float
        """
        return -2 * self.score(X, lengths) + 2 * self._n_free()

    def bic(self, X: Any, lengths: Any = None) -> float:
        """Compute the Bayesian information criterion; lower is better.

        Parameters
        ----------
        X, lengths : array
            As of `fit`.

        Returns
        -------
        float
        """
        return -2 * self.score(X, lengths) + self._n_free() * float(np.log(len(X)))

    def get_stationary_distribution(self) -> Array:
        """Compute the distribution of the states that the transitions keep.

        Returns
        -------
        array, shape (n_components,)
        """
        check_is_fitted(self, "transmat_")
        n = self.n_components
        balance = np.concatenate([self.transmat_.T - np.eye(n), np.ones((1, n))])
        return np.linalg.lstsq(balance, np.append(np.zeros(n), 1.0), rcond=None)[0]

    def _begins(self, letter: str, name: str) -> bool:
        """Whether `fit` begins a parameter anew."""
        return letter in self.init_params or not hasattr(self, name)

    def _begin(self, emission: Emission, x: Array) -> None:
        rng, n = check_random_state(self.random_state), self.n_components
        if self._begins("s", "startprob_"):
            self.startprob_ = rng.dirichlet(np.full(n, 1 / n))
        if self._begins("t", "transmat_"):
            self.transmat_ = rng.dirichlet(np.full(n, 1 / n), size=n)
        emission.begin(self, x, rng)

    def _step(self, emission: Emission, counts: Counts, chains: Chains) -> None:
        """Take an M step; impossible starts and transitions stay so."""
        if "s" in self.params:
            self.startprob_ = normalised_counts(
                self.startprob_, counts.start, self.startprob_prior
            )
        if "t" in self.params:
            self.transmat_ = normalised_counts(
                self.transmat_, counts.transition, self.transmat_prior
            )
        emission.step(self, counts.leaves, lambda: chains.groups[0][0].maximised(counts.leaves))

    def _check_parameters(self, emission: Emission) -> None:
        """Check the parameters, which a user may have set."""
        n = self.n_components
        self.startprob_ = need_rows(self, "startprob_", (n,))
        self.transmat_ = need_rows(self, "transmat_", (n, n))
        self.n_features_in_ = emission.check(self)

    def _chains(self, emission: Emission, x: Array, lengths: Array) -> Chains:
        if x.shape[1] != self.n_features_in_:
            raise ShapeError(f"X: got {x.shape[1]} columns, need {self.n_features_in_}")
        leaves = emission.leaves(self)
        support = max(leaf.support for leaf in leaves)
        largest = np.abs(x[~np.isnan(x)]).max(initial=0)
        if support and not largest < support:
            raise ParameterError(f"X: got {largest:g}, need integers from 0 to {support - 1}")
        kept: dict[Any, Bucket] = self.__dict__.setdefault("_buckets", {})
        given = (leaves, self.n_components, self.dtype, self.device, kept)
        return Chains(x, lengths, *given)

    def _ready(self, X: Any, lengths: Any) -> Chains:
        """Check samples and parameters, and set those of the circuits."""
        check_is_fitted(self, "startprob_")
        emission = checked_settings(self)
        self._check_parameters(emission)
        x = read_samples(self, X, emission, reset=False)
        chains = self._chains(emission, x, check_lengths(lengths, len(x)))
        chains.put(self.startprob_, self.transmat_, emission.parameters(self))
        return chains

    def _n_free(self) -> int:
        n = self.n_components
        return n - 1 + n * (n - 1) + emission_of(self).n_free(self)

    def __getstate__(self) -> Mapping[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_buckets", None)  # built again where they are needed
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
