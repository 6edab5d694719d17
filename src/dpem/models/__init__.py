"""The latent models: per-record weight, clipped contribution, its sensitivity, likelihood, posterior, sampling."""

from dpem.models.base import LatentModel
from dpem.models.gaussian_mixture import GaussianMixture
from dpem.models.missing_regression import MissingRegression
from dpem.models.mixture_regression import MixtureRegression

__all__ = ["GaussianMixture", "LatentModel", "MissingRegression", "MixtureRegression"]
