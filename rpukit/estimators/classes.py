"""Circuits as a classifier, one for each class; imported when first used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from rpukit import _device
from rpukit.circuits import Circuit, Gaussian, hclt, mixture
from rpukit.circuits.compiled.frames import categories_of, is_frame, numbers_of
from rpukit.elementwise import exp, log
from rpukit.errors import ParameterError
from rpukit.estimators._scikit import (
    BaseEstimator,
    ClassifierMixin,
    check_classification_targets,
    check_is_fitted,
    check_random_state,
    validate_data,
)
from rpukit.estimators.density import _leaf
from rpukit.estimators.probabilities import log_softmax
from rpukit.random import Stream

__all__ = ["CircuitClassifier"]

Array = Any
_STRUCTURES = ("auto", "hclt", "mixture")
_BINS = 16  # of numbers, where a tree is looked for


class CircuitClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier by Bayes' rule: one probabilistic circuit for the samples of each class.

    Parameters
    ----------
    n_components : int
        States of hidden variables, or components of the mixture.
    structure : {"auto", "hclt", "mixture"}
        Found on all samples and the same for all classes; "auto" takes a hidden Chow-Liu tree for
        whole numbers and a mixture for others.
    n_epochs : int
    pseudocount : float
    prior : {"counts", "equal"}
        Probability of a class before its features are known.
    device : str
        "cpu", "gpu" or "gpu:1"; data and predictions are arrays on the CPU.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    circuits_ : list of rpukit.Circuit
        Of each class.
    class_log_prior_ : array, shape (n_classes,)
    n_features_in_ : int

    Notes
    -----
    Columns of whole numbers from 0 to at most 255 in all samples become `Categorical` (`Bernoulli`
    for 0 and 1), all others `Gaussian`, and then the circuits are those of float64: columns may
    have any offset and scale. NaN is missing, in fitting and in predictions: it is
    summed over, exactly. Of a pandas table, categories are taken by their names, and what is
    missing is NaN. A sample has the same bits alone or in any batch.

    Examples
    --------
    >>> import numpy as np
    >>> from rpukit.estimators import CircuitClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 300)
    >>> x = (rng.random((300, 6)) < np.where(y, 0.8, 0.2)[:, None]).astype(float)
    >>> found = CircuitClassifier(2, n_epochs=5, random_state=0).fit(x, y)
    >>> x[0, :3] = np.nan
    >>> found.score(x, y) > 0.9
    True
    """

    def __init__(
        self,
        n_components: int = 8,
        *,
        structure: str = "auto",
        n_epochs: int = 20,
        pseudocount: float = 1.0,
        prior: str = "counts",
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.structure = structure
        self.n_epochs = n_epochs
        self.pseudocount = pseudocount
        self.prior = prior
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Find a structure for all samples, and learn its parameters for each class.

        Parameters
        ----------
        X : array or pandas.DataFrame, shape (n_samples, n_features)
        y : array, shape (n_samples,)

        Returns
        -------
        CircuitClassifier
            The estimator.

        Raises
        ------
        ParameterError, DTypeError, DeviceError
        ValueError
            From scikit-learn's check of X and y.
        """
        for name, value, known in (
            ("structure", self.structure, _STRUCTURES),
            ("prior", self.prior, ("counts", "equal")),
        ):
            if value not in known:
                raise ParameterError(f"{name}: got {value!r}, need one of {', '.join(known)}")
        categories = categories_of(X) if is_frame(X) else None
        data, labels = validate_data(self, _plain(X, categories), y, **_RULES)
        check_classification_targets(labels)
        classes, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        seed = int(check_random_state(self.random_state).randint(1 << 31))
        root, stream = self._structure(data), Stream.from_seed(seed)
        numbers = any(isinstance(leaf, Gaussian) for leaf in map(_leaf, data.T))
        dtype = np.float64 if numbers else np.float32
        where = _device.parse_device(self.device)
        circuits = []
        for k in range(len(classes)):
            pc = Circuit(root, seed=stream.child(k), dtype=dtype, device=self.device)
            part = _device.to_device(data[codes == k], where)
            pc.fit(part, n_epochs=self.n_epochs, pseudocount=self.pseudocount)
            circuits.append(pc)
        counts = sizes.astype(np.float64) if self.prior == "counts" else np.ones(len(sizes))
        self.__dict__.update(
            _categories=categories,
            classes_=classes,
            circuits_=circuits,
            class_log_prior_=log(counts / counts.sum()),
        )
        return self

    def _structure(self, data: np.ndarray) -> Any:
        leaves = [_leaf(column) for column in data.T]
        whole = not any(isinstance(leaf, Gaussian) for leaf in leaves)
        if self.structure == "hclt" or (self.structure == "auto" and whole and len(leaves) > 1):
            middle = np.array([_middle(column) for column in data.T])
            filled = np.where(np.isnan(data), middle, data)
            if whole:
                return hclt(filled.astype(np.int64), self.n_components, leaves)
            return hclt(filled, self.n_components, leaves, n_bins=_BINS)
        return mixture(data.shape[1], self.n_components, leaves)

    def predict_log_proba(self, X: Any) -> Array:
        """Compute the logarithm of the probability of each class.

        Parameters
        ----------
        X : array or pandas.DataFrame, shape (n_samples, n_features)
            Values of whole numbers that no sample of the fit had count as missing.

        Returns
        -------
        array, shape (n_samples, n_classes), float64
        """
        check_is_fitted(self)
        data = validate_data(self, _plain(X, self._categories), reset=False, **_RULES)
        data = _within(self.circuits_[0], data)
        columns = []
        for pc in self.circuits_:
            there = _device.to_device(data, _device.parse_device(pc.device))
            columns.append(_device.to_numpy(pc.log_likelihood(there)).astype(np.float64))
        return log_softmax(np.stack(columns, axis=1) + self.class_log_prior_)

    def predict_proba(self, X: Any) -> Array:
        """Compute the probability of each class.

        Parameters
        ----------
        X : array or pandas.DataFrame, shape (n_samples, n_features)

        Returns
        -------
        array, shape (n_samples, n_classes), float64
        """
        return exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> Array:
        """Find the most probable class.

        Parameters
        ----------
        X : array or pandas.DataFrame, shape (n_samples, n_features)

        Returns
        -------
        array, shape (n_samples,)
        """
        found = self.predict_log_proba(X).argmax(axis=1)
        return self.classes_[found]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


_RULES: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}


def _plain(x: Any, categories: Mapping[int, list[Any]] | None) -> Any:
    return numbers_of(x, categories or {}) if is_frame(x) else x


def _middle(column: np.ndarray) -> float:
    """A value that stands for missing ones where a tree is looked for."""
    known = np.sort(column[~np.isnan(column)])
    return float(known[len(known) // 2]) if known.size else 0.0


def _within(pc: Circuit, data: np.ndarray) -> np.ndarray:
    """Take for missing what is outside the values of a column of whole numbers."""
    data = data.copy()
    for nodes in pc.layout.inputs:
        if nodes.leaf.TABLE:
            column = data[:, nodes.var]
            known = (column >= 0) & (column < nodes.leaf.support) & (column == np.floor(column))
            column[~known] = np.nan
    return data
