"""What the estimators take from scikit-learn; says what to install where it is missing."""

from __future__ import annotations

from typing import Any

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, DensityMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data
except ImportError as error:
    from rpukit.errors import EstimatorError

    raise EstimatorError(
        f"rpukit.estimators needs scikit-learn from 1.6: pip install 'rpukit[sklearn]' ({error})"
    ) from error

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "MeanScore",
    "RegressorMixin",
    "check_classification_targets",
    "check_is_fitted",
    "check_random_state",
    "validate_data",
]


class MeanScore(DensityMixin):  # type: ignore[misc]
    """Density estimator whose score is the mean of ``score_samples``."""

    def score(self, X: Any, y: Any = None) -> float:
        """Compute the mean log-likelihood of samples.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)
        y : None
            Not used.

        Returns
        -------
        float
        """
        return float(self.score_samples(X).mean())
