"""Private standardisation as a scikit-learn transformer."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpem import _validation as arguments
from dpem._json import plain, rebuild, record
from dpem._validation import ArgumentError
from dpem.fitting import serialization as content
from dpem.fitting.column_scales import ColumnScales
from dpem.fitting.plan import Plan
from dpem.fitting.sequence import PrivateFit, all_at_once, keeps_arguments, remarks_on
from dpem.privacy import (
    Budget,
    Guarantee,
    largest_price,
    together,
)
from dpem.query import FloatArray
from dpem.tables.inputs import source_of
from dpem.tables.new_rows import scaled, scaled_rows

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from dpem.privacy import Ledger


class DPStandardScaler(OneToOneFeatureMixin, TransformerMixin, PrivateFit):
    """Centre and scale columns under differential privacy, with public bounds.

    Parameters
    ----------
    epsilon, delta : float
        The privacy guarantee for replacing one row, or all rows of one person. Both must be given.
    bounds : (low, high)
        Public bounds of the columns: two numbers, or two vectors with one entry per column. Entries outside are
        clipped for the estimate (not in what ``transform`` returns). They must not be computed from the data: use
        what is known of the measurement.
    {shared}

    Attributes
    ----------
    mean_, scale_ : arrays
        Released centre and standard deviation of each column.
    mean_error_, scale_error_, only_noise_ : arrays
        Their standard errors, and which spreads are no more than noise makes of a constant column.
    releases_, guarantee_
        The releases with their prices; the statement.

    Examples
    --------
    >>> from dpem import DPStandardScaler
    >>> X = np.random.default_rng(0).normal(50, 10, size=(5000, 3))
    >>> scaler = DPStandardScaler(epsilon=1.0, delta=1e-5, bounds=(0, 100)).fit(X)
    >>> bool(np.all(np.abs(scaler.mean_ - 50) < 5))
    True
    """

    @keeps_arguments
    def __init__(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        bounds: Any = None,
        person: str | None = None,
        rows_per_person: int = 1,
        budget: Budget | Ledger | None = None,
        random_state: int | None = None,
    ) -> None: ...

    @all_at_once
    def fit(self, X: Any, y: Any = None) -> Self:
        """Release the centre and spread of each column. NaN and infinite entries count as missing. ``y`` is ignored."""
        epsilon, delta = self._privacy_parameters()
        source = source_of(self, X, needs_y=False, accept_sparse=False, **self._who())
        n, d = source.n_rows, source.n_features
        rows_per_person = arguments.rows_per_person(self.rows_per_person, n)
        low, high = self._bounds(d)
        price, remarks = largest_price(epsilon, delta, gaussian=True), remarks_on(epsilon, delta, n)
        step = ColumnScales(price.rho, tuple(low.tolist()), tuple(high.tolist()))
        plan = Plan("scale", n, d, epsilon, delta, rows_per_person, (step,), price, remarks=remarks)
        for remark in plan.remarks:
            warnings.warn(remark, UserWarning, stacklevel=3)
        noise = self._noise(stacklevel=4)
        found, self.guarantee_, charge = self._spend(source, plan, noise, lambda curator: step.run(curator, None, None))
        self.mean_, self.scale_ = found
        self.releases_ = self.guarantee_.mechanisms
        content.name_model(charge, self)
        return self

    def transform(self, X: Any) -> Any:
        """``(X − mean_) / scale_``: an array for a table in memory, a source for a source, and so on for every kind of
        rows, so that a pipeline can be fitted to any of them.
        """
        check_is_fitted(self)
        return scaled_rows(self, X, self.mean_, self.scale_)

    def inverse_transform(self, X: Any) -> NDArray[np.floating]:
        """``X · scale_ + mean_``."""
        check_is_fitted(self)
        X = scaled(X, len(self.mean_))
        return np.asarray(X * self.scale_.astype(X.dtype) + self.mean_.astype(X.dtype))

    def _bounds(self, d: int) -> tuple[FloatArray, FloatArray]:
        if self.bounds is None:
            raise ArgumentError("bounds", "must be given: bounds=(low, high), public limits of the columns.")
        try:
            low, high = (np.asarray(side) for side in self.bounds)
        except (TypeError, ValueError):
            low = high = np.empty(0)
        if not all(side.dtype.kind in "iuf" and side.shape in ((), (d,)) for side in (low, high)):
            raise ArgumentError("bounds", f"must be (low, high), two numbers or two vectors of length {d}.")
        low, high = (np.full(d, side, dtype=float) for side in (low, high))
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise ArgumentError("bounds", "must be finite, with low below high in every column.")
        with np.errstate(over="ignore"):
            middle, half = (low + high) / 2, (high - low) / 2
        if not (np.isfinite(middle).all() and np.isfinite(half).all() and (half > 0).all()):
            raise ArgumentError("bounds", "must have a middle and a width that are ordinary floating-point numbers.")
        return low, high

    @property
    def mean_error_(self) -> FloatArray:
        """Standard errors of the released centres, in units: by noise and by sampling, if no entry is missing."""
        noise, n, half = self._released_noise()
        return np.asarray(half * np.hypot(noise, self.scale_ / half / math.sqrt(n)))

    @property
    def scale_error_(self) -> FloatArray:
        """Standard errors of the released spreads, in units, likewise; of one that is only noise, all of it."""
        noise, n, half = self._released_noise()
        low, high = self._bounds(len(self.mean_))
        middle, size = np.abs(self.mean_ - (low + high) / 2) / half, self.scale_ / half
        blur = noise * np.hypot(1 / 1.5, 2 * middle) / (2 * size)
        return np.where(self.only_noise_, self.scale_, half * np.hypot(blur, size / math.sqrt(2 * n)))

    @property
    def only_noise_(self) -> NDArray[np.bool_]:
        """Which spreads are no more than noise makes of a constant column, three standard deviations of it."""
        noise, _, half = self._released_noise()
        return np.asarray(self.scale_ <= half * math.sqrt(max(2 * noise, 1e-12)) * (1 + 1e-6))

    def _released_noise(self) -> tuple[float, int, FloatArray]:
        """The noise of a released moment, the number of rows, and half the width of the bounds."""
        check_is_fitted(self)
        release, (low, high) = self.releases_[-1], self._bounds(len(self.mean_))
        return release.scale, release.n_rows, (high - low) / 2

    def _to_content(self) -> dict[str, Any]:
        """What a file holds of this fitted scaler."""
        given = {"epsilon": float(self.epsilon), "delta": float(self.delta)}
        bounds = [np.asarray(side, dtype=float) for side in self.bounds]
        return {
            "parameters": plain(
                {**given, "person": self.person, "rows_per_person": int(self.rows_per_person), "bounds": bounds}
            ),
            "features": content.features_written(self),
            "fitted": plain({"mean": self.mean_, "scale": self.scale_}),
            "plan": None,
        }

    @classmethod
    def _from_content(cls, found: Mapping[str, Any], guarantee: Guarantee) -> Self:
        """The fitted scaler that a file describes."""
        d, names = content.features_read(found["features"])
        given = record(found["parameters"], "parameters", ("epsilon", "delta", "person", "rows_per_person", "bounds"))
        kinds: dict[str, Any] = {"epsilon": float, "delta": float, "person": str | None, "rows_per_person": int}
        plain_ones = {name: rebuild(kind, given[name], f"parameters.{name}") for name, kind in kinds.items()}
        sides = given["bounds"]
        if not isinstance(sides, list) or len(sides) != 2:
            raise ValueError("parameters.bounds must be a list of two")
        where = "parameters.bounds"
        low, high = (content.vector(s, where, d) if isinstance(s, list) else rebuild(float, s, where) for s in sides)
        if found["plan"] is not None:
            raise ValueError("plan must be null for a scaler")
        scaler = cls(**plain_ones, bounds=(low, high))
        scaler._bounds(d)
        fitted = record(found["fitted"], "fitted", ("mean", "scale"))
        scaler.mean_, scaler.scale_ = (content.vector(fitted[key], f"fitted.{key}", d) for key in ("mean", "scale"))
        if not (scaler.scale_ > 0).all():
            raise ValueError("fitted.scale must be positive")
        scaler.n_features_in_ = d
        if names is not None:
            scaler.feature_names_in_ = names
        scaler.releases_, scaler.guarantee_ = guarantee.mechanisms, guarantee
        return scaler

    def __sklearn_is_fitted__(self) -> bool:
        """A refused fit has counted the columns, but has released nothing."""
        return hasattr(self, "mean_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


def pipeline_guarantee(pipeline: Pipeline) -> Guarantee:
    """One guarantee for a fitted scikit-learn pipeline of private steps: everything its steps released, together, at
    the prices that were fixed and charged before any query.

    Refuses a pipeline with a step that was fitted to the data but states no guarantee. If steps count different numbers
    of rows per person, the smallest is what all of them promise, and is stated.
    """
    guarantees = []
    for name, step in pipeline.steps:
        if step is None or step == "passthrough":
            continue
        check_is_fitted(step)
        if not isinstance(getattr(step, "guarantee_", None), Guarantee):
            raise ValueError(f"step {name!r} of the pipeline states no guarantee, so neither can the whole.")
        guarantees.append(step.guarantee_)
    return together(guarantees)
