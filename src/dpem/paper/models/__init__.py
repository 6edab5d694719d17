"""The paper's latent models: weight of a record, clipped contribution, sensitivity, likelihood, posterior, sampling."""

from collections.abc import Callable
from typing import Any

from dpem.paper.models.base import LatentModel
from dpem.paper.models.missing_regression import MissingRegression
from dpem.paper.models.symmetric_mixture import SymmetricMixture
from dpem.paper.models.symmetric_regression import SymmetricRegression

#: The models by name; each is constructed from its noise level.
MODELS: dict[str, Callable[[float], Any]] = {
    "symmetric-mixture": SymmetricMixture,
    "symmetric-regression": SymmetricRegression,
    "missing-regression": MissingRegression,
}

__all__ = ["MODELS", "LatentModel", "MissingRegression", "SymmetricMixture", "SymmetricRegression"]
