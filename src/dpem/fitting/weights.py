"""Weights of rows, such as survey weights: a protected column with a public upper bound ``max_weight``.

Every query multiplies a row's clipped contribution by s = weight/max_weight, which lies in [0, 1]; its sensitivity
stays the same (:class:`~dpem.queries.narrow.NarrowQuery`). The first step releases E s and E s². Later answers and
their noise are divided by E s, which makes them weighted means. Sampling errors follow from Kish's effective sample
size n·(E s)²/E s². So a mean weight far below its bound costs accuracy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, cast

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from dpem import _validation as arguments
from dpem._validation import ArgumentError
from dpem.fitting.model import Model
from dpem.fitting.step import State, Step
from dpem.privacy import Curator
from dpem.queries.narrow import NarrowQuery, rounded
from dpem.query import Array, Bound, FloatArray, Namespace, Query
from dpem.tables.blocks import is_dask, is_frame, is_on_device, is_source
from dpem.tables.inputs import frame_of, response_of
from dpem.tables.validation import numeric_array

#: The share of ρ for the moments of the weights.
WEIGHTS_SHARE = 0.03
#: The mean of s is taken to be at least this: answers are divided by it.
SMALLEST_MEAN = 0.01
#: The end of a prediction's ``assumed``.
ASSUMED = " All weights are assumed to be max_weight: if their mean is s times max_weight, noise is 1/s times as large."


class Weights(NamedTuple):
    """The mean of s = weight/max_weight, and E s²/E s."""

    mean: float
    ratio: float

    def weighted_curator(self, curator: Curator) -> Curator:
        """The curator whose answers are weighted means."""
        return cast(Curator, WeightedCurator(curator, self))


@dataclass(frozen=True)
class WeightedCurator:
    """A curator whose answers are weighted means.

    Weights leave the sensitivity of a query unchanged only if it is at least the norm of every contribution
    (:class:`~dpem.queries.narrow.NarrowQuery`); any other query is refused before it is charged.
    """

    curator: Curator
    weights: Weights

    @property
    def n_rows(self) -> int:
        """Kish's effective number of rows."""
        return max(round(self.curator.n_rows * self.weights.mean / self.weights.ratio), 2)

    @property
    def rows_per_person(self) -> int:
        return self.curator.rows_per_person

    @property
    def effective_rows(self) -> int:
        return max(self.n_rows // self.rows_per_person, 2)

    def noise_scale(self, query: Query, rho: float) -> float:
        return self.curator.noise_scale(query, rho) / self.weights.mean

    def measure(self, query: Query, rho: float) -> FloatArray:
        if query.bound.size_l2 > query.bound.l2:
            raise ValueError(
                f"'{query.label}' has contributions larger than its sensitivity, so its rows cannot have weights."
            )
        return self.curator.measure(query, rho) / self.weights.mean


@dataclass(frozen=True)
class WeightMoments(NarrowQuery):
    """Σ (s, s²) over the rows, with s = weight/max_weight.

    *Lemma.* ℓ2 sensitivity √2. *Proof.* Both entries lie in [0, 1]. ∎
    """

    label: str = "mean and mean square of the weights"

    @property
    def bound(self) -> Bound:
        return rounded(Bound(linf=1.0, l2=math.sqrt(2.0), size_linf=1.0, size_l2=math.sqrt(2.0)), 2)

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        return xp.stack([xp.sum(shares), xp.sum(shares * shares)])


@dataclass(frozen=True)
class FindWeights(Step[Model, State]):
    """Measure the mean and the mean square of the weights, relative to their bound."""

    def describe(self) -> str:
        return "mean and mean square of the weights"

    def run(self, curator: Curator, model: Model, state: State) -> State:
        query = WeightMoments(model.schema)
        first, second = curator.measure(query, self.rho).tolist()
        noise = curator.noise_scale(query, self.rho)
        mean = min(max(first, SMALLEST_MEAN, noise), 1.0)
        ratio = min(max((second + noise) / mean, mean), 1.0)
        return replace(state, weights=Weights(mean, ratio))


class WeightedFit:
    """``fit`` with weights of rows, for models with the constructor arguments ``weights`` and ``max_weight``."""

    _fit: Any
    weights: str | None
    max_weight: float | None

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Fit the model to the rows under differential privacy.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix, source, Dask collection or array on a device
            The rows. Entries that are not finite are missing.
        y : array, optional
            The responses, where X or a formula does not hold them.
        sample_weight : array, optional
            Weights of rows in memory, clipped to [0, ``max_weight``]; for a column of X, use ``weights`` instead. A
            missing or negative weight counts as 0.
        """
        bound = None if self.max_weight is None else arguments.positive("max_weight", self.max_weight)
        if sample_weight is not None and self.weights is not None:
            raise ArgumentError("sample_weight", "must be None where weights names the column of the weights.")
        weighted = self.weights is not None or sample_weight is not None
        if weighted and bound is None:
            raise ArgumentError("max_weight", "must be given: the public upper bound of the weights.")
        if bound is not None and not weighted:
            raise ArgumentError("max_weight", "must be None, since neither weights nor sample_weight is given.")
        if sample_weight is None:
            self._fit(X, y, self.weights)
        else:
            self._fit(*_with_column(X, sample_weight, y))
        return self


def _with_column(X: Any, values: object, y: object) -> tuple[object, object, str]:
    """The rows with the weights as their last column, the responses, and the name of that column."""
    if is_dask(X) or is_source(X) or is_on_device(X):
        raise ArgumentError(
            "sample_weight", "must be None for rows that are not in memory; name their column in weights."
        )
    weights = np.asarray(response_of(values, name="sample_weight"))
    if weights.dtype.kind not in "biuf":
        raise ArgumentError("sample_weight", "must be an array of numbers.")
    if not is_frame(X):
        X = numeric_array(X, "X")
    n = frame_of(X).n_rows if is_frame(X) else np.shape(X)[0]
    if weights.shape != (n,):
        raise ArgumentError(
            "sample_weight", f"must have one weight for each of the {n} rows, got shape {weights.shape}."
        )
    if is_frame(X):
        return frame_of(X).with_column("sample_weight", weights.astype(float)), y, "sample_weight"
    if sparse.issparse(X):
        return sparse.hstack([X, weights[:, None]], format="csr"), y, f"x{X.shape[1]}"
    return np.column_stack([X, weights]), y, f"x{np.shape(X)[1]}"


def without_weight(estimator: BaseEstimator, names: tuple[str, ...], weight: str | None) -> tuple[str, ...]:
    """The names without that of the weights; also removes it from the estimator's ``feature_names_in_`` and
    ``n_features_in_``.
    """
    if weight is None:
        return names
    if weight not in names:
        raise ArgumentError("weights", f"must be the name of a column of the table, got {weight!r}.")
    others = tuple(name for name in names if name != weight)
    estimator.n_features_in_ = min(estimator.n_features_in_, len(others))
    if hasattr(estimator, "feature_names_in_"):
        estimator.feature_names_in_ = np.array([n for n in estimator.feature_names_in_ if n != weight], dtype=object)
    return others
