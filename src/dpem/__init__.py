"""Latent-variable models fitted by EM under differential privacy."""

from dpem._version import __version__
from dpem.estimators import DPGaussianMixture, DPMissingRegression, DPMixtureRegression
from dpem.planning import Plan, plan
from dpem.privacy import Budget, BudgetExceeded, Guarantee

__all__ = [
    "Budget",
    "BudgetExceeded",
    "DPGaussianMixture",
    "DPMissingRegression",
    "DPMixtureRegression",
    "Guarantee",
    "Plan",
    "__version__",
    "plan",
]
