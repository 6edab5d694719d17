"""Private standardisation as a scikit-learn transformer: the query, the step and the estimator."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpem import _validation as arguments
from dpem._validation import ArgumentError
from dpem.fitting.plan import Plan
from dpem.fitting.results import Fitted
from dpem.fitting.sequence import PrivateFit, atomic, keeps_arguments, privacy_remarks
from dpem.fitting.serialization import name_model
from dpem.fitting.step import State, Step, run_steps
from dpem.privacy import Budget, Curator, Guarantee, largest_price, together
from dpem.query import Bound, Chunk, FloatArray
from dpem.tables import Source
from dpem.tables.blocks import pieces
from dpem.tables.inputs import source_of
from dpem.tables.new_rows import scaled, scaled_rows

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from dpem.privacy import Ledger


@dataclass(frozen=True)
class ColumnMoments:
    """Σu, Σ1.5·u² and Σ0.85·[observed] of each column, with u the entry scaled to [−1, 1] by public bounds.

    Missing and infinite entries add 0.

    *Lemma.* ℓ2 sensitivity 2√d, the same as that of Σu alone. *Proof.* One column at a time. For two observed entries
    u ≥ v the squared distance is (u−v)²(1 + 2.25(u+v)²). For a given difference it grows with |u+v|, so take u = 1,
    v = t − 1 (the case v = −1 is symmetric): it is 4 + t·g(t) with g(t) = −4 + 10t − 9t² + 2.25t³, and g < 0 on [0, 2]
    (its largest value there is about −0.61), so it is at most 4. An observed and a missing entry: u² + 2.25u⁴ + 0.7225
    ≤ 3.9725 < 4. Two missing entries: 0. Adding d columns gives 4d. ∎
    """

    low: FloatArray = field(repr=False)
    high: FloatArray = field(repr=False)
    blocked: bool = False
    label: str = "first and second moments and counts of each column"

    @property
    def bound(self) -> Bound:
        root = math.sqrt(len(self.low))
        return Bound(linf=2.0, l2=2 * root, size_linf=1.5, size_l2=2 * root)

    @np.errstate(over="ignore")
    def sum(self, chunk: Chunk) -> FloatArray:
        d = len(self.low)
        total = np.zeros(3 * d)
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        for rows in pieces(chunk.X, 4096):
            observed = np.isfinite(rows)
            u = np.clip((np.where(observed, rows, 0.0) - middle) / half, -1.0, 1.0) * observed
            total[:d] += u.sum(axis=0)
            total[d : 2 * d] += 1.5 * np.square(u).sum(axis=0)
            total[2 * d :] += 0.85 * observed.sum(axis=0)
        return total


@dataclass(frozen=True)
class Parameters:
    """Released mean and spread of each column, in the table's units."""

    mean: FloatArray
    scale: FloatArray


@dataclass(frozen=True)
class ColumnScales(Step):
    """Release the moments of each column within ``low`` and ``high``.

    A variance is at least the standard deviation of the noise (of entries scaled to [−1, 1]).
    """

    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def describe(self) -> str:
        return "centre and spread of each column"

    def run(self, curator: Curator, model: object, state: State) -> State:
        low, high, d = np.array(self.low), np.array(self.high), curator.n_features
        query = ColumnMoments(low, high)
        noise = curator.noise_scale(query, self.rho)
        released = curator.measure(query, self.rho)
        observed = np.clip(released[2 * d :] / 0.85, max(noise, 1 / curator.n_rows), 1.0)
        mean = np.clip(released[:d] / observed, -1.0, 1.0)
        variance = released[d : 2 * d] / 1.5 / observed - mean**2
        smallest = max(noise, 1e-12)
        middle, half = (low + high) / 2, (high - low) / 2
        spread = half * np.sqrt(np.clip(variance, smallest, 1.0))
        return replace(state, theta=Parameters(middle + half * mean, spread))


class DPStandardScaler(OneToOneFeatureMixin, TransformerMixin, PrivateFit, Fitted):
    """Centre and scale columns under differential privacy, with public bounds.

    Parameters
    ----------
    epsilon, delta : float
        The privacy guarantee for replacing one row, or all rows of one person. Both must be given.
    bounds : (low, high)
        Public bounds of the columns: two numbers, or two vectors with one entry per column. Entries outside are
        clipped for the estimate, but not by ``transform``. Do not compute bounds from the data: use the range of the
        measurement.
    {shared}

    Attributes
    ----------
    mean_, scale_ : arrays
        Released centre and standard deviation of each column.
    mean_error_, scale_error_, only_noise_ : arrays
        Their standard errors, and the columns whose spread noise alone explains.
    releases_, guarantee_
        The releases with their prices, and the guarantee.

    Examples
    --------
    >>> from dpem import DPStandardScaler
    >>> X = np.random.default_rng(0).normal(50, 10, size=(5000, 3))
    >>> scaler = DPStandardScaler(epsilon=1.0, delta=1e-5, bounds=(0, 100)).fit(X)
    >>> bool(np.all(np.abs(scaler.mean_ - 50) < 5))
    True
    """

    _step_kinds = (ColumnScales,)

    @keeps_arguments
    def __init__(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        bounds: object = None,
        person: str | None = None,
        rows_per_person: int = 1,
        budget: Budget | Ledger | None = None,
        random_state: int | None = None,
    ) -> None: ...

    @atomic
    def fit(self, X: object, y: object = None) -> Self:
        """Release the mean and spread of each column; entries that are not finite are missing. ``y`` is ignored."""
        self._check_arguments()
        source = source_of(self, X, needs_y=False, accept_sparse=False, **self._unit())
        plan = self._preview_plan(source)
        state, guarantee, charge = self._spend(
            source, plan, lambda curator: run_steps(curator, None, plan.steps, State())
        )
        self._set_fitted(state, plan, guarantee)
        name_model(charge, self)
        return self

    def _set_fitted(self, state: State, plan: Plan, guarantee: Guarantee) -> None:
        """Set the fitted attributes; a ValueError refuses parameters of a file that do not fit its columns."""
        theta, d = state.theta, self.n_features_in_
        self._bounds(d)
        if not theta.mean.shape == theta.scale.shape == (d,) or not (theta.scale > 0).all():
            raise ValueError("fitted.theta must have a mean and a positive scale for each column")
        self.theta_, self.chosen_, self.fit_check_ = theta, None, None
        self.mean_, self.scale_ = theta.mean, theta.scale
        self.plan_, self.guarantee_, self.releases_ = plan, guarantee, guarantee.mechanisms

    def _check_arguments(self) -> None:
        self._privacy_parameters()

    def _check_columns(self, source: Source) -> None:
        self._preview_plan(source)

    def _preview_plan(self, source: Source) -> Plan:
        """The plan of a fit to these rows, refused where the fit would be. No query is sent."""
        epsilon, delta = self._privacy_parameters()
        n, d = source.n_rows, source.n_features
        rows_per_person = arguments.rows_per_person(self.rows_per_person, n)
        low, high = self._bounds(d)
        price, remarks = largest_price(epsilon, delta, gaussian=True), privacy_remarks(epsilon, delta, n)
        step = ColumnScales(price.rho, tuple(low.tolist()), tuple(high.tolist()))
        return Plan(self._name(), n, d, epsilon, delta, rows_per_person, (step,), price, remarks=remarks)

    @classmethod
    def _name(cls) -> str:
        return "scale"

    def transform(self, X: object) -> Any:
        """``(X − mean_) / scale_``, as the same kind of table as X."""
        check_is_fitted(self)
        return scaled_rows(self, X, self.mean_, self.scale_)

    def inverse_transform(self, X: object) -> NDArray[np.floating]:
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
        with np.errstate(all="ignore"):  # infinite bounds, and finite ones too large or too close for floating point
            middle, half = (low + high) / 2, (high - low) / 2
        if not (np.isfinite(middle) & np.isfinite(half) & (half > 0)).all():
            raise ArgumentError("bounds", "must be finite, with low below high and a finite width in every column.")
        return low, high

    @property
    def mean_error_(self) -> FloatArray:
        """Standard errors of ``mean_`` by noise and sampling, if no entry is missing."""
        noise, n, half = self._released_noise()
        return np.asarray(half * np.hypot(noise, self.scale_ / half / math.sqrt(n)))

    @property
    def scale_error_(self) -> FloatArray:
        """Standard errors of ``scale_``, likewise; where noise alone explains a spread, the spread itself."""
        noise, n, half = self._released_noise()
        low, high = self._bounds(len(self.mean_))
        mean, spread = np.abs(self.mean_ - (low + high) / 2) / half, self.scale_ / half  # of entries in [−1, 1]
        noise_error, sampling_error = noise * np.hypot(1 / 1.5, 2 * mean) / (2 * spread), spread / math.sqrt(2 * n)
        return np.where(self.only_noise_, self.scale_, half * np.hypot(noise_error, sampling_error))

    @property
    def only_noise_(self) -> NDArray[np.bool_]:
        """Whether noise alone could give a constant column this spread."""
        noise, _, half = self._released_noise()
        return np.asarray(self.scale_ <= half * math.sqrt(max(2 * noise, 1e-12)) * (1 + 1e-6))

    def _released_noise(self) -> tuple[float, int, FloatArray]:
        """The standard deviation of the noise of a moment, the number of rows, and half the width of the bounds."""
        check_is_fitted(self)
        release, (low, high) = self.releases_[-1], self._bounds(len(self.mean_))
        return release.scale, release.n_rows, (high - low) / 2

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


def pipeline_guarantee(pipeline: Pipeline) -> Guarantee:
    """The joint guarantee of the private steps of a fitted scikit-learn pipeline.

    Refuses a pipeline with a fitted step that states no guarantee. If steps protect different numbers of rows per
    person, the guarantee is for the smallest.
    """
    guarantees = []
    for name, step in pipeline.steps:
        if step is None or step == "passthrough":
            continue
        check_is_fitted(step)
        if not isinstance(getattr(step, "guarantee_", None), Guarantee):
            raise ValueError(f"the pipeline's step {name!r} states no guarantee, so the pipeline has none.")
        guarantees.append(step.guarantee_)
    return together(guarantees)
