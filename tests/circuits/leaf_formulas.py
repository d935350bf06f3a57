"""Gradients of leaves in free parameters, written out with NumPy for the tests.

Free are: logits of a table's values; the logit of a probability; mean (in units of the standard
deviation or scale) and logarithm of the standard deviation or scale; the logarithm of a rate. All
is float64, one row a node.
"""

from __future__ import annotations

import numpy as np

from rpukit.circuits.graph.leaves import (
    BERNOULLI,
    BINOMIAL,
    CATEGORICAL,
    DISCRETE_LOGISTIC,
    GAUSSIAN,
    INDICATOR,
)
from rpukit.elementwise import exp, sigmoid

PI_BY_ROOT_3 = 1.8137993642342178  # standard deviation of a logistic distribution of scale 1


def added(terms):
    """Add up along the last axis, one after another."""
    return np.add.accumulate(terms, axis=-1)[..., -1]


def score(leaf, p, flow):
    """Gradient of the likelihood in free parameters; ``flow`` as of `parameter_flows`.

    Missing values have no part in it.
    """
    flow = flow[:, :-1]
    if leaf.KIND == CATEGORICAL:
        return flow - added(flow)[:, None] * p
    if leaf.KIND in (BERNOULLI, BINOMIAL):
        hits = added(flow * np.arange(leaf.support))
        return hits[:, None] - (leaf.support - 1) * added(flow)[:, None] * p
    if leaf.KIND == DISCRETE_LOGISTIC:
        return np.stack([added(flow * slope) for slope in _logistic_slopes(leaf, p)], axis=1)
    if leaf.KIND == INDICATOR:
        return np.zeros_like(p)
    s1, s2, whole = flow.T
    if leaf.KIND == GAUSSIAN:
        mean, std = p.T
        rise = (s1 - whole * mean) / std
        spread = (s2 - 2 * mean * s1 + whole * (mean * mean)) / (std * std) - whole
        return np.stack([rise, spread], axis=1)
    return (s1 - whole * p[:, 0])[:, None]


def moved(leaf, p, change):
    """Parameters after a change of the free ones."""
    if leaf.KIND == CATEGORICAL:
        weights = p * exp(change)
        return weights / added(weights)[:, None]
    if leaf.KIND in (BERNOULLI, BINOMIAL):
        up = p * exp(change)
        return up / (up + (1 - p))
    if leaf.KIND == INDICATOR:
        return p
    if leaf.KIND in (GAUSSIAN, DISCRETE_LOGISTIC):
        unit = PI_BY_ROOT_3 if leaf.KIND == DISCRETE_LOGISTIC else 1.0
        mean, spread = p[:, 0] + p[:, 1] * change[:, 0], p[:, 1] * exp(change[:, 1])
        return np.stack([mean, np.maximum(spread, leaf.constants()[2] / unit)], axis=1)
    return p * exp(change)


def _logistic_slopes(leaf, p):
    """Slopes of the log-probabilities of all bins in mean / scale and in log scale.

    A bin has the probability s(b) - s(a), and s' = s (1 - s): the first is s(a) + s(b) - 1.
    """
    low, width, _ = leaf.constants()
    edges = low + width * np.arange(leaf.support + 1)
    z = (edges - p[:, :1]) / p[:, 1:]
    up, down = sigmoid(z), sigmoid(-z)
    up[:, 0], down[:, 0], up[:, -1], down[:, -1] = 0.0, 1.0, 1.0, 0.0
    left, right = z[:, :-1] > 0, slice(1, None)
    # The difference of the smaller ones: where both are near 1 it would lose all its digits.
    part = np.where(left, down[:, :-1] - down[:, right], up[:, right] - up[:, :-1])
    z[:, 0] = z[:, -1] = 0.0
    steep = z * up * down
    by_mean = up[:, :-1] - down[:, right]
    by_scale = (steep[:, :-1] - steep[:, right]) / np.maximum(part, 1e-300)
    return by_mean, by_scale
