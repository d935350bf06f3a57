"""The estimator behind `rpukit.estimators`; imported when it is first used."""

from __future__ import annotations

from typing import Any

import numpy as np

from rpukit._checks import MOST, one_of
from rpukit.circuits import (
    Bernoulli,
    Categorical,
    Circuit,
    Gaussian,
    MultivariateNormal,
    hclt,
    inputs,
    mixture,
    product,
)
from rpukit.circuits import sum as mixture_of
from rpukit.errors import ParameterError
from rpukit.estimators._scikit import (
    BaseEstimator,
    MeanScore,
    check_is_fitted,
    check_random_state,
    validate_data,
)

__all__ = ["CircuitDensity"]

Array = Any


class CircuitDensity(MeanScore, BaseEstimator):  # type: ignore[misc]
    """Density estimation by a probabilistic circuit that is found for the data.

    Parameters
    ----------
    n_components : int
        States of hidden variables, or components of the mixture.
    structure : {"auto", "hclt", "mixture"}
        "auto" takes a hidden Chow-Liu tree for whole numbers and a mixture for others.
    covariance_type : {"diag", "full"}
        Of columns of numbers in a mixture: independent in each component, or all together one
        `MultivariateNormal` of it.
    n_epochs : int
    pseudocount : float
    random_state : int, RandomState or None

    Attributes
    ----------
    circuit_ : rpukit.Circuit
    trace_ : list of float
        Mean log-likelihood of each epoch.
    n_features_in_ : int

    Notes
    -----
    Columns of whole numbers from 0 to at most 255 in all samples become `Categorical` (`Bernoulli`
    for 0 and 1), all others `Gaussian`, and then the circuit is one of float64: columns may have
    any offset and scale. NaN is missing, in fitting and in scoring. A value of a `Categorical`
    column that no sample of the fit had has the probability p / (k (n + p)), with n samples, k
    values seen and p the pseudocount; the rest of its sample is scored as usual.

    Examples
    --------
    >>> import numpy as np
    >>> from rpukit.estimators import CircuitDensity
    >>> x = np.random.default_rng(0).integers(0, 2, (200, 5)).astype(float)
    >>> CircuitDensity(4, n_epochs=3, random_state=0).fit(x).score_samples(x).shape
    (200,)
    """

    def __init__(
        self,
        n_components: int = 8,
        *,
        structure: str = "auto",
        covariance_type: str = "diag",
        n_epochs: int = 20,
        pseudocount: float = 0.1,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.structure = structure
        self.covariance_type = covariance_type
        self.n_epochs = n_epochs
        self.pseudocount = pseudocount
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> CircuitDensity:
        """Find a structure for data and learn its parameters.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)
        y : None
            Not used.

        Returns
        -------
        CircuitDensity
            The estimator.

        Raises
        ------
        ParameterError
        ValueError
            From scikit-learn's check of X.
        """
        if self.structure not in ("auto", "hclt", "mixture"):
            raise ParameterError(
                f'structure: got {self.structure!r}, need "auto", "hclt" or "mixture"'
            )
        full = one_of(self.covariance_type, "covariance_type", ("diag", "full")) == "full"
        if full and self.structure == "hclt":
            raise ParameterError(
                'covariance_type: got "full" with structure="hclt", whose leaves are of one '
                'column: take structure="mixture"'
            )
        data = self._checked(X, reset=True)
        seed = int(check_random_state(self.random_state).randint(1 << 31))
        leaves = [_leaf(data[:, v]) for v in range(data.shape[1])]
        whole = not any(isinstance(leaf, Gaussian) for leaf in leaves)
        if self.structure == "hclt" or (self.structure == "auto" and whole and len(leaves) > 1):
            filled = np.where(np.isnan(data), np.nanmedian(data, axis=0), data)
            codes: Any = filled.astype(np.int64) if whole else filled
            bins = None if whole else 16
            root = hclt(codes, self.n_components, leaves, n_bins=bins)
        else:
            root = (_full if full else mixture)(data.shape[1], self.n_components, leaves)
        known = (~np.isnan(data)).sum(axis=0)
        values = np.array([max(leaf.support, 1) for leaf in leaves])
        with np.errstate(divide="ignore"):  # without a pseudocount unseen values are impossible
            share = self.pseudocount / (values * (known + self.pseudocount))
            log_unseen = np.log(share)
        pc = Circuit(root, seed=seed, dtype=np.float32 if whole else np.float64)
        trace = pc.fit(data, n_epochs=self.n_epochs, pseudocount=self.pseudocount)
        self.__dict__.update(_log_unseen=log_unseen, circuit_=pc, trace_=trace["train"])
        return self

    def score_samples(self, X: Any) -> Array:
        """Compute the log-likelihood of each sample, nats.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)

        Returns
        -------
        array, shape (n_samples,)
        """
        check_is_fitted(self)
        data = self._checked(X, reset=False)
        unseen = self._unseen(data)
        found = self.circuit_.log_likelihood(np.where(unseen, np.nan, data)).astype(np.float64)
        for v in np.flatnonzero(unseen.any(axis=0)):
            found[unseen[:, v]] += self._log_unseen[v]
        return found

    def sample(self, n_samples: int = 1) -> Array:
        """Draw samples.

        Parameters
        ----------
        n_samples : int

        Returns
        -------
        array, shape (n_samples, n_features)
        """
        check_is_fitted(self)
        return self.circuit_.sample(n_samples).astype(np.float64)

    def _checked(self, X: Any, *, reset: bool) -> Array:
        finite = "allow-nan"
        return validate_data(
            self, X, reset=reset, dtype=np.float64, ensure_all_finite=finite, ensure_min_samples=1
        )

    def _unseen(self, data: Array) -> Array:
        """Where a column of values has one that no sample of the fit had."""
        unseen = np.zeros(data.shape, bool)
        for nodes in self.circuit_.layout.inputs:
            if nodes.leaf.TABLE:
                column = data[:, nodes.var]
                inside = (column >= 0) & (column < nodes.leaf.support)
                seen = inside & (column == np.floor(column))
                unseen[:, nodes.var] = ~(seen | np.isnan(column))
        return unseen

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _full(n_columns: int, n_components: int, leaves: list[Any]) -> Any:
    """Make a mixture whose columns of numbers have full covariances."""
    numbers = [v for v in range(n_columns) if isinstance(leaves[v], Gaussian)]
    parts: list[Any] = [
        inputs(v, leaves[v], n_components) for v in range(n_columns) if v not in numbers
    ]
    if numbers:
        of = {
            name: tuple(getattr(leaves[v], name) for v in numbers)
            for name in ("mean", "std", "min_std")
        }
        leaf = MultivariateNormal(n_variables=len(numbers), **of)
        parts.append(inputs(numbers, leaf, n_components))
    return mixture_of(parts[0] if len(parts) == 1 else product(*parts), n_nodes=1)


def _leaf(column: Array) -> Any:
    known = column[~np.isnan(column)]
    if known.size and abs(known).max() > MOST:
        raise ParameterError(
            f"X: got {abs(known).max():g}, need numbers up to {MOST:g}: scale them"
        )
    if known.size and (known == np.floor(known)).all() and 0 <= known.min() <= known.max() < 256:
        n_values = int(known.max()) + 1
        return Bernoulli() if n_values <= 2 else Categorical(n_values=n_values)
    mean = float(known.mean()) if known.size else 0.0
    std = float(known.std()) if known.size else 1.0
    constant = std <= 1e-12 * abs(mean)  # but for rounding
    least = 1e-6 * (abs(mean) or 1.0) if constant else 1e-3 * std
    return Gaussian(mean=mean, std=max(std, least), min_std=least)
