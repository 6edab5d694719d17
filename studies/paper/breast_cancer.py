"""The Breast Cancer Wisconsin data as the paper prepares them (its Section 6.3), and with private preparation.

The paper standardises, balances the two classes by their labels and centres, all without noise: that is **not private**
(erratum E9). It is used here for comparison with the published table; only the fit is private.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from dpem.fitting.scaler import DPStandardScaler
from dpem.paper import DPSymmetricMixture
from dpem.paper.queries import IntArray
from dpem.query import FloatArray

#: Public upper bounds of the ten measurements, of means and worst values, and of standard errors.
_LIMITS = (40.0, 50.0, 250.0, 2500.0, 0.25, 0.6, 0.8, 0.3, 0.5, 0.15)
_ERROR_LIMITS = (3.0, 4.0, 20.0, 300.0, 0.03, 0.15, 0.3, 0.05, 0.08, 0.03)
BOUNDS = (np.zeros(30), np.array([*_LIMITS, *_ERROR_LIMITS, *_LIMITS]))

PUBLISHED = {(0.2, 5): 0.14, (0.2, 10): 0.12, (0.2, 15): 0.10, (0.5, 5): 0.08, (0.5, 10): 0.07, (0.5, 15): 0.07}
#: Assumptions about standardised columns: noise below their unit variance, a dozen of them shifted by almost 1.
ASSUMED: dict[str, Any] = {"sigma": 0.75, "signal": 3.0}


class Split(NamedTuple):
    train: FloatArray
    test: FloatArray
    labels: IntArray  # of the test rows: 1 is benign
    names: list[str]


def as_in_the_paper(seed: int) -> Split:
    """Standardise, drop benign rows until both classes have 212, centre, and split 70 : 30."""
    data = load_breast_cancer()
    X = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    rng = np.random.default_rng(seed)
    benign, malignant = np.flatnonzero(data.target == 1), np.flatnonzero(data.target == 0)
    kept = np.concatenate([malignant, rng.choice(benign, size=len(malignant), replace=False)])
    X, labels = X[kept] - X[kept].mean(axis=0), data.target[kept]
    train, test, _, test_labels = train_test_split(X, labels, test_size=0.3, random_state=seed)
    return Split(train, test, test_labels, list(data.feature_names))


def misclassification(direction: FloatArray, split: Split) -> float:
    """The fraction of the test rows on the wrong side of the hyperplane, for the better labelling of the two sides."""
    wrong = float(np.mean((split.test @ direction > 0) != split.labels))
    return min(wrong, 1 - wrong)


def as_they_are(seed: int) -> Split:
    """Split 70 : 30, without any preparation."""
    data = load_breast_cancer()
    train, test, _, labels = train_test_split(data.data, data.target, test_size=0.3, random_state=seed)
    return Split(train, test, labels, list(data.feature_names))


def rates(seed: int, epsilon: float, sparsity: int) -> dict[str, float]:
    """Misclassification of each method on one split."""
    split = as_in_the_paper(seed)
    n = len(split.train)
    common: dict[str, Any] = {"delta": 1 / (2 * n), "sparsity": sparsity, "random_state": seed, **ASSUMED}
    fits = {
        "paper": DPSymmetricMixture(epsilon=epsilon, method="published", start="equal", n_iter=50, **common),
        "improved, equal start": DPSymmetricMixture(epsilon=epsilon, start="equal", **common),
        "improved, no start": DPSymmetricMixture(epsilon=epsilon, **common),
        "non-private": DPSymmetricMixture(epsilon=float("inf"), start="equal", **common),
    }
    out = {name: misclassification(model.fit(split.train).coef_, split) for name, model in fits.items()}

    raw = as_they_are(seed)
    half: dict[str, Any] = {"epsilon": epsilon / 2, "delta": 1 / (4 * len(raw.train)), "random_state": seed}
    scaler = DPStandardScaler(bounds=BOUNDS, **half).fit(raw.train)
    model = DPSymmetricMixture(sparsity=sparsity, **ASSUMED, **half).fit(scaler.transform(raw.train))
    out["end to end"] = misclassification(model.coef_, raw._replace(test=scaler.transform(raw.test).astype(float)))
    return out
