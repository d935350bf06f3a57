"""Networks of analog tiles as a classifier and a regressor; imported when first used."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from rpukit._checks import shown
from rpukit.analog import Cell, ConstantStep, IOParameters, UpdateParameters
from rpukit.errors import ParameterError
from rpukit.estimators._scikit import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    check_classification_targets,
    check_is_fitted,
    check_random_state,
    validate_data,
)
from rpukit.estimators.network import Periphery, Scale, TileNetwork
from rpukit.estimators.probabilities import softmax

__all__ = ["AnalogClassifier", "AnalogRegressor"]

Array = Any
_SCALINGS = ("minmax", "standard", "none")


class AnalogNetwork(BaseEstimator):  # type: ignore[misc]
    """What `AnalogClassifier` and `AnalogRegressor` share."""

    network_: TileNetwork
    scale_: Scale
    loss_curve_: list[float]

    def __init__(
        self,
        hidden_sizes: tuple[int, ...] = (64,),
        *,
        cell: Cell | None = None,
        learning_rate: float = 0.02,
        epochs: int = 15,
        batch_size: int = 10,
        scaling: str = "minmax",
        forward: IOParameters | None = None,
        backward: IOParameters | None = None,
        update: UpdateParameters | None = None,
        read_noise: bool = True,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        self.hidden_sizes = hidden_sizes
        self.cell = cell
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.batch_size = batch_size
        self.scaling = scaling
        self.forward = forward
        self.backward = backward
        self.update = update
        self.read_noise = read_noise
        self.device = device
        self.random_state = random_state

    @property
    def tiles_(self) -> list[Any]:
        """The tiles, from inputs to outputs; the last column of each is the bias."""
        check_is_fitted(self)
        return list(self.network_.tiles)

    @property
    def n_pulses_(self) -> int:
        """Number of pulses that all devices have received."""
        return sum(tile.n_pulses for tile in self.tiles_)

    # ---- checks -------------------------------------------------------------------------------

    def _check_settings(self) -> None:
        sizes = self.hidden_sizes
        counts = [("epochs", self.epochs), ("batch_size", self.batch_size)]
        if not isinstance(sizes, (tuple, list)):
            raise ParameterError(f"hidden_sizes: got {sizes!r}, need a tuple of integers")
        counts += [("hidden_sizes", size) for size in sizes]
        for name, value in counts:
            whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            if not whole or value < 1:
                raise ParameterError(f"{name}: got {value!r}, need an integer from 1")
        rate = self.learning_rate
        real = isinstance(rate, (int, float, np.number)) and not isinstance(rate, bool)
        if not (real and math.isfinite(rate) and rate > 0):
            raise ParameterError(f"learning_rate: got {rate!r}, need a positive number")
        if self.scaling not in _SCALINGS:
            known = ", ".join(_SCALINGS)
            raise ParameterError(f"scaling: got {self.scaling!r}, need one of {known}")

    # ---- learning -----------------------------------------------------------------------------

    def _start(self, x: np.ndarray, n_out: int, **more: Any) -> None:
        """Make a fresh network for these data; it and ``more`` replace what was learned before."""
        periphery = Periphery(
            self.cell or ConstantStep(),
            self.forward or IOParameters(),
            self.backward or IOParameters(),
            self.update or UpdateParameters(),
            self.device,
        )
        seed = int(check_random_state(self.random_state).randint(1 << 31))
        sizes = [x.shape[1], *map(int, self.hidden_sizes), n_out]
        fresh = {"scale_": Scale.of(x, self.scaling), "loss_curve_": [], **more}
        self.__dict__.update(fresh, network_=TileNetwork(sizes, periphery, seed))

    def _learn(self, x: np.ndarray, target: np.ndarray, n_epoch: int, *, mixed: bool) -> Self:
        network = self.network_
        there, goal = network.put(self.scale_.apply(x)), network.put(target)
        for epoch in range(n_epoch):
            fall = mixed and 3 * epoch >= 2 * n_epoch
            rate = self.learning_rate / 5 if fall else self.learning_rate
            size, classes = int(self.batch_size), isinstance(self, ClassifierMixin)
            loss = network.epoch(there, goal, float(rate), size, classes=classes, mixed=mixed)
            self.loss_curve_.append(loss)
        return self

    def _outputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, dtype=np.float64)
        there = self.network_.put(self.scale_.apply(x))
        return self.network_.outputs(there, noise=self.read_noise)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "network_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The draws of a read belong to a place in the batch: rows in another order read otherwise.
        tags.non_deterministic = bool(self.read_noise)
        return tags


def _labels(classes: Any) -> Array:
    """Return the classes in order, each once."""
    try:
        labels = np.asarray(classes)
        if labels.ndim == 1:
            return np.unique(labels)
    except (TypeError, ValueError):  # lists of several lengths, labels that have no order
        pass
    raise ParameterError(f"classes: got {shown(classes)}, need a list of labels of one type")


class AnalogClassifier(ClassifierMixin, AnalogNetwork):  # type: ignore[misc]
    """Classifier by a network of analog tiles that learns by pulses.

    Parameters
    ----------
    hidden_sizes : tuple of int
        Units of each hidden layer, with tanh; () for none.
    cell : Cell, optional
        What sits at each cross-point; default: `ConstantStep`.
    learning_rate : float
        Of the first two thirds of the epochs, and a fifth of it from then on.
    epochs, batch_size : int
    scaling : {"minmax", "standard", "none"}
        Of each column of the inputs: to [-1, 1], to mean 0 and deviation 1, or as they are.
    forward, backward : IOParameters, optional
        Converters and noise of the products, of learning and of predictions.
    update : UpdateParameters, optional
    read_noise : bool
        Whether predictions go through the periphery too; False: they are computed exactly from
        the weights of the tiles.
    device : str
        Compute device, "cpu", "gpu" or "gpu:1". Data and predictions are arrays on the CPU.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    tiles_ : list of AnalogTile
    loss_curve_ : list of float
        Mean cross-entropy of each epoch, while it learned.
    n_features_in_ : int

    Notes
    -----
    The same random_state gives the same bits on every device and for any number of threads.
    Sample k of a prediction always meets the draws of sample k of the same clock, so that
    predicting twice gives the same answer. An epoch of `partial_fit` keeps the order of the
    samples.

    Examples
    --------
    >>> import numpy as np
    >>> from rpukit.estimators import AnalogClassifier
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = np.where(x.sum(axis=1) > 0, "above", "below")
    >>> found = AnalogClassifier((8,), random_state=0).fit(x, y)
    >>> found.score(x, y) > 0.9
    True
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Learn classes with fresh tiles.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)
        y : array, shape (n_samples,)

        Returns
        -------
        AnalogClassifier
            The estimator.

        Raises
        ------
        ParameterError, DeviceError
        ValueError
            From scikit-learn's check of X and y.
        """
        self._check_settings()
        x, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        classes, codes = np.unique(labels, return_inverse=True)
        self._start(x, len(classes), classes_=classes)
        return self._learn(x, codes.astype(np.int32), int(self.epochs), mixed=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn from some samples once, in their order.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)
            Those of the first call also give the scale of the inputs.
        y : array, shape (n_samples,)
        classes : array, optional
            All classes there will be; the first call needs them.

        Returns
        -------
        AnalogClassifier
            The estimator.

        Raises
        ------
        ParameterError, DeviceError, ValueError
        """
        self._check_settings()
        first = not hasattr(self, "network_")
        x, labels = validate_data(self, X, y, dtype=np.float64, reset=first)
        check_classification_targets(labels)
        if first and classes is None:
            raise ParameterError("classes: the first call of partial_fit needs all of them")
        given = None if classes is None else _labels(classes)
        known: Any = given if first else self.classes_
        if given is not None and not np.array_equal(given, known):
            got, before = shown(given.tolist()), shown(known.tolist())
            raise ParameterError(f"classes: got {got}, the first call gave {before}")
        strange = np.setdiff1d(labels, known)
        if strange.size:
            raise ParameterError(f"y: got {strange[0]}, which is not among the classes {known}")
        if first:
            self._start(x, len(known), classes_=known)
        return self._learn(x, np.searchsorted(known, labels).astype(np.int32), 1, mixed=False)

    def predict_proba(self, X: Any) -> Array:
        """Compute the probability of each class, the softmax of the outputs.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)

        Returns
        -------
        array, shape (n_samples, n_classes), float64
        """
        return softmax(self._outputs(X).astype(np.float64))

    def predict(self, X: Any) -> Array:
        """Find the most probable class.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)

        Returns
        -------
        array, shape (n_samples,)
        """
        found = self._outputs(X).argmax(axis=1)
        return self.classes_[found]


class AnalogRegressor(RegressorMixin, AnalogNetwork):  # type: ignore[misc]
    """Regressor by a network of analog tiles that learns by pulses.

    Parameters
    ----------
    hidden_sizes : tuple of int
        Units of each hidden layer, with tanh; () for none.
    cell : Cell, optional
        What sits at each cross-point; default: `ConstantStep`.
    learning_rate : float
        Of the first two thirds of the epochs, and a fifth of it from then on.
    epochs, batch_size : int
    scaling : {"minmax", "standard", "none"}
        Of each column of the inputs: to [-1, 1], to mean 0 and deviation 1, or as they are.
    forward, backward : IOParameters, optional
        Converters and noise of the products, of learning and of predictions.
    update : UpdateParameters, optional
    read_noise : bool
        Whether predictions go through the periphery too; False: they are computed exactly from
        the weights of the tiles.
    device : str
        Compute device, "cpu", "gpu" or "gpu:1". Data and predictions are arrays on the CPU.
    random_state : int, RandomState or None

    Attributes
    ----------
    tiles_ : list of AnalogTile
    loss_curve_ : list of float
        Mean of half the squared error of each epoch, in units of the targets' variance.
    n_features_in_ : int

    Notes
    -----
    Targets are scaled to mean 0 and deviation 1, by the samples of `fit` or of the first
    `partial_fit`. As of `AnalogClassifier`, the same random_state gives the same bits.

    Examples
    --------
    >>> import numpy as np
    >>> from rpukit.estimators import AnalogRegressor
    >>> x = np.random.default_rng(0).normal(size=(300, 2))
    >>> y = 100 * x[:, 0] - 50 * x[:, 1]
    >>> AnalogRegressor((16,), random_state=0).fit(x, y).score(x, y) > 0.8
    True
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Learn numbers with fresh tiles.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)
        y : array, shape (n_samples,) or (n_samples, n_targets)

        Returns
        -------
        AnalogRegressor
            The estimator.

        Raises
        ------
        ParameterError, DeviceError
        ValueError
            From scikit-learn's check of X and y.
        """
        self._check_settings()
        x, target = self._checked(X, y, reset=True)
        self._prepare(x, target)
        return self._learn(x, self._scaled(target), int(self.epochs), mixed=True)

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Learn from some samples once, in their order.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)
            Those of the first call also give the scales.
        y : array, shape (n_samples,) or (n_samples, n_targets)

        Returns
        -------
        AnalogRegressor
            The estimator.

        Raises
        ------
        ParameterError, DeviceError, ValueError
        """
        self._check_settings()
        first = not hasattr(self, "network_")
        x, target = self._checked(X, y, reset=first)
        if first:
            self._prepare(x, target)
        if target.shape[1:] != self._shape:
            raise ParameterError(f"y: got {target.shape[1:]} targets a sample, need {self._shape}")
        return self._learn(x, self._scaled(target), 1, mixed=False)

    def predict(self, X: Any) -> Array:
        """Compute the numbers that belong to samples.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)

        Returns
        -------
        array, shape (n_samples,) or (n_samples, n_targets), float64
        """
        out = self._outputs(X)
        return self.target_scale_.undo(out).reshape(len(out), *self._shape)

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        x, target = validate_data(
            self, X, y, reset=reset, dtype=np.float64, multi_output=True, y_numeric=True
        )
        return x, target.astype(np.float64)

    def _prepare(self, x: np.ndarray, target: np.ndarray) -> None:
        columns = target.reshape(len(target), -1)
        scale = Scale.of(columns, "standard")
        self._start(x, columns.shape[1], target_scale_=scale, _shape=target.shape[1:])

    def _scaled(self, target: np.ndarray) -> Array:
        return self.target_scale_.apply(target.reshape(len(target), -1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
