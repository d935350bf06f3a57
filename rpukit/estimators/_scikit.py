"""What the estimators take from scikit-learn; says what to install where it is missing."""

from __future__ import annotations

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
    "DensityMixin",
    "RegressorMixin",
    "check_classification_targets",
    "check_is_fitted",
    "check_random_state",
    "validate_data",
]
