"""Mixture of K regressions: components with weights, intercepts and residual spreads of their own (latent classes)."""

from dpem.models.mixture_regression.estimator import DPMixtureRegression

__all__ = ["DPMixtureRegression"]
