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
from dpem.models._glm.posterior import PRIOR_INTERCEPT, Posterior, placed
from dpem.models._glm.queries import Predictor, complete
from dpem.models._glm.selection import FamilyResiduals
from dpem.models._glm.steps import GlmState
from dpem.query import Array, FloatArray, Namespace


@dataclass(frozen=True)
class Parameters:
    """A fitted model in unit coordinates. ``sampling`` and ``privacy`` are covariances of (intercept, coef) over the
    free coordinates; ``chosen`` of ``width`` coordinates it is about, in order; ``mean`` and ``covariance`` are theirs.
    ``response`` is the mean response, ``response_end`` the share of responses in the last bin, ``complete`` the share
    of complete rows, ``prior_part`` how much of each coefficient comes from the prior. ``crowded`` columns have nearly
    all values in one bin, ``at_bound`` most at a bound, ``rare`` levels next to no rows, ``collinear`` ones a released
    correlation with another that is nearly 1. ``explained`` is the share of the response's variance that the columns
    explain. ``dispersion`` (value, standard error) and ``calibration``, a row for each interval as in
    :mod:`dpem.models._glm.diagnostics`, are empty where they were not measured. ``labels`` name the levels of the
    response.
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
class GeneralisedLinearModel(Model):
    """g(E y) = intercept + coef·u + offset; fitted to complete rows."""

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
        """A choice of columns is not made with Gaussian noise."""
        return self.sparsity is None

    def start(self) -> GlmState:
        return GlmState(chosen=None if self.sparsity is None else self.fixed, family=self.family)

    @property
    def fixed(self) -> NDArray[np.intp]:
        """The coordinates that have no coefficient to be fitted: the offset or the exposure, the columns from which
        other terms are computed, and levels that are too rare.
        """
        without = (self.offset_coordinate, self.exposure, *self.carriers, *self.rare)
        return np.array([j for j in without if j >= 0], dtype=np.intp)

    def on(self, chosen: NDArray[np.intp] | None) -> Self:
        """The model of these coordinates alone."""
        if chosen is None or np.array_equal(chosen, np.arange(self.schema.width)):
            return self
        places = {int(j): i for i, j in enumerate(chosen)}
        offset, exposure = (places.get(j, -1) for j in (self.offset_coordinate, self.exposure))
        carriers = tuple(places[j] for j in self.carriers)
        schema = self.schema.take(chosen)
        return replace(self, schema=schema, offset_coordinate=offset, exposure=exposure, carriers=carriers)

    @cached_property
    def drawn(self) -> NDArray[np.intp]:
        """The coordinates of which marginals and moments are released: all but those that a formula computes from
        others. Where columns are chosen, the chosen ones may lack those.
        """
        if self.terms is None or self.sparsity is not None:
            return np.arange(self.schema.width)
        return np.flatnonzero(~self.terms.mask(self.schema))

    def completed(self, u: FloatArray) -> FloatArray:
        """Rows of all coordinates from rows of those that are drawn."""
        if len(self.drawn) == self.schema.width:
            return u
        assert self.terms is not None
        whole = np.zeros((len(u), self.schema.width))
        whole[:, self.drawn] = u
        return self.terms.completed(self.schema, whole)

    @cached_property
    def free(self) -> NDArray[np.intp]:
        """The columns of (1, u) whose coefficients are fitted."""
        return np.delete(np.arange(self.schema.width + 1), self.fixed + 1)

    @cached_property
    def offset(self) -> FloatArray:
        """Coefficients of (1, u) that are known: 0 but for the offset, which has coefficient 1 in its own unit."""
        out = np.zeros(self.schema.width + 1)
        if self.offset_coordinate >= 0:
            j = self.offset_coordinate
            out[0], out[1 + j] = self.schema.middle[j], self.schema.half[j]
        return out

    def predictor(self, coef: FloatArray) -> Predictor:
        if self.exposure < 0:
            return Predictor(coef, rare=self.rare)
        middle, half = (float(each[self.exposure]) for each in (self.schema.middle, self.schema.half))
        return Predictor(coef, self.exposure, middle, half, self.rare)

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
        model = self.on(state.chosen)
        predictor = model.predictor(placed(state.coef, model.free, model.offset))
        return FamilyResiduals(state.family, predictor, state.chosen)

    @abstractmethod
    def response_of(self, shares: FloatArray, noise: float) -> tuple[float, Family]:
        """The mean response from the noisy shares of the bins of its unit coordinate, and the family as it clips."""

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        return planning.steps(self, sizes)

    def score_steps(self, rho: float) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """The first step along a score and the others; what a family needs to measure besides is among them."""
        return planning.score_steps(rho)

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        return planning.predicted_fit(self, sizes, steps)

    def finished(self, state: GlmState, posterior: Posterior) -> Parameters:
        """The parameters at the end of a fit."""
        surrogate, marginals = state.surrogate, state.marginals
        coef = placed(posterior.coef, self.free, self.offset)
        if self.rare:
            posterior = self._with_rare(posterior)
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
            explained=self.explained(fitted),
            dispersion=(),
            converged=True,
            labels=self.labels,
            width=self.schema.width,
            chosen=np.arange(self.schema.width),
            calibration=np.empty((0, FIELDS)),
        )

    def _with_rare(self, posterior: Posterior) -> Posterior:
        """The posterior of all coefficients: of the effect of a rare level, against the baseline, nothing is known."""
        free = replace(self, rare=()).free
        places = np.searchsorted(free, self.free)
        wide = np.zeros((len(free), len(places)))
        wide[places, np.arange(len(places))] = 1.0
        effect = np.zeros((len(free), len(self.rare)))
        effect[0], effect[np.searchsorted(free, 1 + np.array(self.rare)), np.arange(len(self.rare))] = 0.5, 0.5
        return Posterior(
            wide @ posterior.coef,
            wide @ posterior.sampling @ wide.T,
            wide @ posterior.privacy @ wide.T + PRIOR_INTERCEPT * effect @ effect.T,
            1 - wide @ (1 - posterior.prior_part),
        )

    def explained(self, fitted: FloatArray) -> float:
        """The share of the response's variance that the columns explain."""
        return 0.0

    def eta(self, xp: Namespace, theta: Parameters, x: Array) -> Array:
        """The linear predictor of complete rows."""
        return self.on(theta.chosen).predictor(np.concatenate([[theta.intercept], theta.coef]))(xp, x)

    def log_density(self, xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
        rows, response, weight = complete(xp, self.family, x, y)
        return weight * self.family.log_density(xp, self.eta(xp, theta, rows), response)

    def simpler(self, theta: Parameters) -> Parameters:
        submodel = self.on(theta.chosen)
        level = self.family.link(theta.response) - float(submodel.predictor(submodel.offset)(np, theta.mean[None])[0])
        return replace(theta, intercept=level + float(submodel.offset[0]), coef=submodel.offset[1:])
