"""The latent models: per-record weight, clipped contribution, its sensitivity, likelihood, posterior, sampling."""

from dpem.paper.models.base import LatentModel
from dpem.paper.models.missing_regression import MissingRegression
from dpem.paper.models.symmetric_mixture import SymmetricMixture
from dpem.paper.models.symmetric_regression import SymmetricRegression

__all__ = ["LatentModel", "MissingRegression", "SymmetricMixture", "SymmetricRegression"]
