"""Estimators of the paper's three models, with scikit-learn's methods."""

from dpem.paper.estimators.missing_regression import DPMissingRegression
from dpem.paper.estimators.symmetric_mixture import DPSymmetricMixture
from dpem.paper.estimators.symmetric_regression import DPSymmetricRegression

__all__ = ["DPMissingRegression", "DPSymmetricMixture", "DPSymmetricRegression"]
