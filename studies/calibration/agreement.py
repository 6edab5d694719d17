"""How far two fits to the same table are apart, with their components or classes matched."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment


def moved_share(one: Any, other: Any, X: Any, y: Any = None) -> float:
    """The share of rows that two mixtures assign to different components."""
    probabilities = [model.predict_proba(X) if y is None else model.predict_proba(X, y) for model in (one, other)]
    first, second = (np.argmax(p, axis=1) for p in probabilities)
    return rows_apart(first, second)


def rows_apart(one: Any, other: Any) -> float:
    """The share of rows with different labels, under the best matching of the labels."""
    K = int(max(one.max(), other.max())) + 1
    counts = np.zeros((K, K))
    np.add.at(counts, (one, other), 1)
    return 1 - float(counts[linear_sum_assignment(-counts)].sum()) / len(one)


def probabilities_apart(one: Any, other: Any) -> float:
    """The root mean square difference of two latent class models' probabilities."""
    first, second = (np.hstack(list(model.probabilities_.values())) for model in (one, other))
    squares = np.mean((first[:, None] - second[None]) ** 2, axis=2)
    return math.sqrt(float(np.mean(squares[linear_sum_assignment(squares)])))
