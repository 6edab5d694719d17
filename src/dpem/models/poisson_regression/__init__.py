"""Poisson regression of counts: coefficients, rate ratios, offsets and overdispersion."""

from dpem.models.poisson_regression.estimator import DPPoissonRegression

__all__ = ["DPPoissonRegression"]
