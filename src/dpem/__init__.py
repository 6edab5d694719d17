"""Latent-variable models fitted by EM under differential privacy."""

from dpem._version import __version__
from dpem.estimators import (
    DPGaussianMixture,
    DPMissingRegression,
    DPMixtureRegression,
    DPStandardScaler,
    pipeline_guarantee,
)
from dpem.planning import Plan, plan
from dpem.privacy import Budget, BudgetExceeded, Guarantee

__all__ = [
    "Budget",
    "BudgetExceeded",
    "DPGaussianMixture",
    "DPMissingRegression",
    "DPMixtureRegression",
    "DPStandardScaler",
    "Guarantee",
    "Plan",
    "__version__",
    "pipeline_guarantee",
    "plan",
]
