"""A generalised linear model in unit coordinates: its parameters, its steps, and the likelihood of rows."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.model import Effect, Model, PredictedFit, Sizes
from dpem.fitting.step import Step
from dpem.models._glm import planning
from dpem.models._glm.diagnostics import FIELDS
from dpem.models._glm.families import Family
from dpem.models._glm.implied_terms import ImpliedTerms
from dpem.models._glm.posterior import PRIOR_INTERCEPT, Posterior, full_coefficients
from dpem.models._glm.queries import Predictor, complete
from dpem.models._glm.selection import FamilyResiduals
from dpem.models._glm.steps import GlmState
from dpem.query import Array, FloatArray, Namespace


@dataclass(frozen=True)
class Parameters:
    """A fitted model in unit coordinates, for the ``chosen`` of ``width`` coordinates.

    ``sampling`` and ``privacy`` are covariances of the errors of (intercept, coef) over the free coordinates, and
    ``prior_part`` is the fraction of each that comes from the prior. ``mean`` and ``covariance`` are those of the
    coordinates. ``response`` is the mean response, ``response_end`` the share of responses in the last bin,
    ``complete`` the share of complete rows, ``explained`` the share of the response's variance that the columns
    explain. ``crowded``, ``at_bound``, ``rare`` and ``collinear`` are what the diagnostics name. ``dispersion`` (value,
    standard error) and ``calibration`` (:class:`~dpem.models._glm.diagnostics.Calibrate`) are empty where they were not
    measured. ``labels`` name the levels of the response.
    """

    intercept: float
    coef: FloatArray
    sampling: FloatArray
    privacy: FloatArray
    mean: FloatArray
    covariance: FloatArray
    response: float
    complete: float
    prior_part: FloatArray
    crowded: tuple[bool, ...]
    at_bound: tuple[bool, ...]
    rare: tuple[bool, ...]
    collinear: tuple[bool, ...]
    response_end: float
    explained: float
    dispersion: tuple[float, ...]
    converged: bool
    labels: tuple[str, ...]
    width: int
    chosen: NDArray[np.intp]
    calibration: FloatArray


@dataclass(frozen=True)
class GeneralisedLinearModel(Model[Parameters]):
    """g(E y) = intercept + coef·u + offset, fitted to complete rows.

    ``offset_coordinate`` and ``exposure`` are coordinates, −1 without one; ``carriers`` are coordinates from which a
    formula computes other terms, ``rare`` those of levels that are left out.
    """

    family: Family = field(kw_only=True)
    offset_coordinate: int = field(default=-1, kw_only=True)
    exposure: int = field(default=-1, kw_only=True)
    carriers: tuple[int, ...] = field(default=(), kw_only=True)
    rare: tuple[int, ...] = field(default=(), kw_only=True)
    labels: tuple[str, ...] = field(default=(), kw_only=True)
    baseline: str = field(default="the intercept alone", kw_only=True)
    sparsity: int | None = field(default=None, kw_only=True)
    terms: ImpliedTerms | None = field(default=None, kw_only=True)
    effect = Effect("standard deviation of the linear predictor over the rows", 1.0, (0.25, 0.5, 1.0, 2.0))

    @property
    def gaussian(self) -> bool:  # type: ignore[override]
        """Whether all noise is Gaussian: that of a choice of columns is not."""
        return self.sparsity is None

    def start(self) -> GlmState:
        return GlmState(chosen=None if self.sparsity is None else self.fixed, family=self.family)

    @property
    def fixed(self) -> NDArray[np.intp]:
        """The coordinates whose coefficient is not fitted: offset or exposure, carriers, and rare levels."""
        fixed = (self.offset_coordinate, self.exposure, *self.carriers, *self.rare)
        return np.array([j for j in fixed if j >= 0], dtype=np.intp)

    def restricted_to(self, chosen: NDArray[np.intp] | None) -> Self:
        """The model of these coordinates alone."""
        if chosen is None or np.array_equal(chosen, np.arange(self.schema.width)):
            return self
        places = {int(j): i for i, j in enumerate(chosen)}
        offset, exposure = (places.get(j, -1) for j in (self.offset_coordinate, self.exposure))
        carriers = tuple(places[j] for j in self.carriers)
        schema = self.schema.take(chosen)
        return replace(self, schema=schema, offset_coordinate=offset, exposure=exposure, carriers=carriers)

    @cached_property
    def released(self) -> NDArray[np.intp]:
        """The coordinates whose marginals and moments are released: all that a formula does not compute from others.

        Where columns are chosen, these are all, since the others may not be chosen.
        """
        if self.terms is None or self.sparsity is not None:
            return np.arange(self.schema.width)
        return np.flatnonzero(~self.terms.mask(self.schema))

    def with_implied_terms(self, u: FloatArray) -> FloatArray:
        """Rows of all coordinates from rows of the released ones."""
        assert self.terms is not None
        rows = np.zeros((len(u), self.schema.width))
        rows[:, self.released] = u
        return self.terms.fill(self.schema, rows)

    @cached_property
    def free(self) -> NDArray[np.intp]:
        """The columns of (1, u) whose coefficients are fitted."""
        return np.delete(np.arange(self.schema.width + 1), self.fixed + 1)

    @cached_property
    def offset(self) -> FloatArray:
        """The known coefficients of (1, u): 0, except for the offset, whose coefficient is 1 in its own unit."""
        out = np.zeros(self.schema.width + 1)
        if self.offset_coordinate >= 0:
            j = self.offset_coordinate
            out[0], out[1 + j] = self.schema.middle[j], self.schema.half[j]
        return out

    def predictor(self, coef: FloatArray) -> Predictor:
        if self.exposure < 0:
            return Predictor(coef, rare=self.rare)
        middle, half = self.schema.middle[self.exposure], self.schema.half[self.exposure]
        return Predictor(coef, self.exposure, float(middle), float(half), self.rare)

    def predictor_at(self, values: FloatArray) -> Predictor:
        """The linear predictor with these coefficients of (1, free u)."""
        return self.predictor(full_coefficients(values, self.free, self.offset))

    def mean_offset(self, rows: FloatArray) -> float:
        """The mean of the offset over surrogate rows."""
        return float(np.mean(self.predictor(self.offset)(np, rows[:, 1:])))

    @property
    def middle_offset(self) -> float:
        """The offset in the middle of its bounds."""
        return self.mean_offset(np.zeros((1, self.schema.width + 1)))

    def residuals(self, state: GlmState) -> FamilyResiduals:
        """Residuals from the fit on the columns chosen so far."""
        assert state.chosen is not None
        predictor = self.restricted_to(state.chosen).predictor_at(state.coef)
        return FamilyResiduals(state.family, predictor, state.chosen)

    @abstractmethod
    def response_of(self, shares: FloatArray, noise: float) -> tuple[float, Family]:
        """The mean response, from the noisy shares of its bins, and the family with a first dispersion."""

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        return planning.steps(self, sizes)

    def score_steps(self, rho: float) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """The first score step and the others, with the steps that a family adds."""
        return planning.score_steps(rho)

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        return planning.predicted_fit(self, sizes, steps)

    def parameters(self, state: GlmState, posterior: Posterior) -> Parameters:
        """The parameters at the end of a fit."""
        surrogate, marginals = state.surrogate, state.marginals
        coef = full_coefficients(posterior.coef, self.free, self.offset)
        if self.rare:
            posterior = self._with_rare_levels(posterior)
        fitted = self.family.mean(np, self.predictor(coef)(np, surrogate.rows[:, 1:]))
        return Parameters(
            intercept=float(coef[0]),
            coef=coef[1:],
            sampling=posterior.sampling,
            privacy=posterior.privacy,
            mean=surrogate.mean,
            covariance=surrogate.covariance,
            response=float(np.mean(fitted)) if state.scores else state.mean,
            complete=surrogate.complete,
            prior_part=posterior.prior_part,
            crowded=tuple(map(bool, marginals.crowded)),
            at_bound=tuple(map(bool, marginals.at_bound)),
            rare=tuple(j in self.rare for j in range(self.schema.width)),
            collinear=surrogate.collinear,
            response_end=state.response_end,
            explained=self.explained_share(fitted),
            dispersion=(),
            converged=True,
            labels=self.labels,
            width=self.schema.width,
            chosen=np.arange(self.schema.width),
            calibration=np.empty((0, FIELDS)),
        )

    def _with_rare_levels(self, posterior: Posterior) -> Posterior:
        """The posterior of all coefficients: the effect of a rare level, against the baseline, has its prior."""
        free = replace(self, rare=()).free
        places = np.searchsorted(free, self.free)
        embedding = np.zeros((len(free), len(places)))
        embedding[places, np.arange(len(places))] = 1.0
        effect = np.zeros(
            (len(free), len(self.rare))
        )  # of 1 on η: 0.5 on the level's coordinate, ±1, and the intercept
        effect[0], effect[np.searchsorted(free, 1 + np.array(self.rare)), np.arange(len(self.rare))] = 0.5, 0.5
        return Posterior(
            embedding @ posterior.coef,
            embedding @ posterior.sampling @ embedding.T,
            embedding @ posterior.privacy @ embedding.T + PRIOR_INTERCEPT * effect @ effect.T,
            1 - embedding @ (1 - posterior.prior_part),
        )

    def explained_share(self, fitted: FloatArray) -> float:
        """The share of the response's variance that the fitted means explain; 0 where it is not used."""
        return 0.0

    def eta(self, xp: Namespace, theta: Parameters, x: Array) -> Array:
        """The linear predictor of complete rows."""
        return self.restricted_to(theta.chosen).predictor(np.concatenate([[theta.intercept], theta.coef]))(xp, x)

    def log_density(self, xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
        rows, response, weight = complete(xp, self.family, x, y)
        return weight * self.family.log_density(xp, self.eta(xp, theta, rows), response)

    def simpler(self, theta: Parameters) -> Parameters:
        submodel = self.restricted_to(theta.chosen)
        level = self.family.link(theta.response) - float(submodel.predictor(submodel.offset)(np, theta.mean[None])[0])
        return replace(theta, intercept=level + float(submodel.offset[0]), coef=submodel.offset[1:])
