"""The Breast Cancer Wisconsin data as the paper prepares them (its Section 6.4).

That preparation standardises, balances the two classes by their labels and centres, all without noise: it is **not
private** (erratum E9). It is kept for comparison with the published table; what is private here is the fit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from dpem.estimators import DPGaussianMixture
from dpem.models.base import IntArray
from dpem.query import FloatArray


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


def misclassification(model: DPGaussianMixture, split: Split) -> float:
    """Part of the test rows on the wrong side, the components named to fit (as the paper's rate is up to their
    names).
    """
    wrong = float(np.mean(model.predict(split.test) != split.labels))
    return min(wrong, 1 - wrong)
