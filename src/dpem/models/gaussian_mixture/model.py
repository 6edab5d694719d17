"""The Gaussian mixture as a model: its parameters, its steps and their prices, its densities and simpler models."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from dpem._validation import ArgumentError
from dpem.fitting.model import Model, PredictedFit, Sizes
from dpem.fitting.rehearsal import generator
from dpem.fitting.step import Step, prices
from dpem.fitting.surrogate import combined_noise, error_roots, regrouped, share_moved
from dpem.models.gaussian_mixture.check_step import MixtureCheck
from dpem.models.gaussian_mixture.columns import CENTRES, CHOICE, ChooseColumns, after_choice, missed, with_choice
from dpem.models.gaussian_mixture.covariance_types import CovarianceType
from dpem.models.gaussian_mixture.family import inside, with_missing
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.intervals import error_units
from dpem.models.gaussian_mixture.planning import EFFECT, predicted_fit, rules
from dpem.models.gaussian_mixture.prediction import SEPARATION
from dpem.models.gaussian_mixture.score_steps import ExactEM, ScoreStep
from dpem.models.gaussian_mixture.start_steps import (
    MOST,
    FindCentres,
    FindMargins,
    FindShape,
    FindSpreads,
    StartFromSketch,
)
from dpem.models.gaussian_mixture.state import TUNING, MixtureState, Presence
from dpem.query import Array, FloatArray, Namespace

#: How many components are assumed, for prices and steps, where their number is to be found.
ASSUMED = 4
#: Up to so many parameters standard errors take the sandwich form, from so many rows.
MOST_PARAMETERS, SANDWICH_ROWS = 150, 2000
ADVICE = (
    "Try fewer components, more rows, a larger epsilon or, where columns are correlated, covariance_type='full'; or "
    "publish one component."
)


@dataclass(frozen=True)
class Parameters:
    """A fitted mixture in unit coordinates and what is known of its errors.

    ``path`` are the scores of numbers of components; ``seen`` and ``empty`` shares of values present and of rows
    without any. ``errors`` are the standard errors of :func:`~dpem.models.gaussian_mixture.intervals.values` per unit
    of noise in whitened scores, of one row's sampling and of what the surrogate leaves open; ``noise`` is the standard
    deviation of the answers. ``moved`` is the largest share of rows that twice such noise, one of the last two
    queries or a fit that is nearly as good puts into another component, ``missed`` the share that one Gaussian
    describes far better; ``floored`` is 1 for columns in which a component has the least spread.
    """

    kind: str
    weights: FloatArray
    means: FloatArray
    covariances: FloatArray
    path: FloatArray
    seen: FloatArray
    empty: float
    errors: FloatArray
    noise: float
    moved: float
    floored: FloatArray
    missed: float = 0.0
    converged: bool = True


@dataclass(frozen=True)
class GaussianMixture(Model):
    """K Gaussians with weights; ``n_components`` 0: their number is found too. ``proportions`` is the shape of a round
    component in unit coordinates: 1/half².
    """

    n_components: int
    kind: CovarianceType
    proportions: FloatArray = field(repr=False)
    effect = EFFECT

    def start(self) -> MixtureState:
        return MixtureState()

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        return self._fit(sizes, self.schema.width)

    def _fit(self, sizes: Sizes, width: int) -> tuple[Step, ...]:
        rule = rules(sizes, width, self.n_components or ASSUMED)
        exact = math.isinf(sizes.rho)
        growing = [1.0] if exact else [rule.growth**t for t in range(rule.queries)]
        shares = [*rule.start, *(rule.scores * own / math.fsum(growing) for own in growing)]
        if sizes.check:
            shares.append(TUNING.check / (1 - TUNING.check) * math.fsum(shares))
        rho = prices(sizes.rho, shares)
        found: list[Step] = [
            FindCentres(rho[0]),
            FindSpreads(rho[1]),
            FindShape(rho[2], self.n_components or MOST - 2),
            FindMargins(rho[3]),
            StartFromSketch(rho[4], self.n_components),
        ]
        last = len(growing) - 1
        found += [ExactEM(rho[5])] if exact else [ScoreStep(rho[5 + t], t, t == last) for t in range(last + 1)]
        if sizes.check:
            found.append(MixtureCheck(rho[-1], ADVICE))
        return tuple(found)

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        K = self.n_components or ASSUMED
        if sizes.n < K:
            raise ArgumentError("n_components", f"must be at most the number of rows, got {K} for {sizes.n} rows.")
        return predicted_fit(self, sizes, K, assumed_number=not self.n_components)

    def proportions_of(self, state: Any) -> FloatArray:
        """The proportions of a round component's variances over the coordinates in use."""
        return self.proportions if state.chosen is None else self.proportions[state.chosen]

    def parameters(self, state: MixtureState, n: int) -> Parameters:
        """The record of a finished fit, the largest component first."""
        fit, presence = state.fit, state.presence
        own, surrogate, family, query = fit.mixture, fit.surrogate, fit.family, fit.query
        if query is None:
            raise RuntimeError("no score has been asked for.")
        noise = combined_noise(fit.noises) if fit.noises else 0.0
        order = np.argsort(-own.weights, kind="stable")
        roots = [query.whitener, query.whitener, 0.0 * query.whitener]
        if family.count <= MOST_PARAMETERS:
            x, _ = surrogate.resampled(SANDWICH_ROWS, generator(9))
            scatter = float(surrogate.weights @ surrogate.weights) if noise > 0 else 0.0
            base = 1 / TUNING.score_kappa[1] if noise > 0 else 0.0
            by_noise, by_rows, by_surrogate = error_roots(query, x, None, scatter, base)
            roots = [query.kept(x, None, np.full(len(x), 1 / len(x))) * by_noise, by_rows, by_surrogate]
        others = ((fit.runs[0][0], other) for other in fit.before)
        moved = regrouped(family, surrogate, [*fit.runs, *others], TUNING.near)
        if noise > 0:
            rows = (surrogate.x, None, surrogate.weights)
            error = TUNING.moving * math.hypot(noise, n**-0.5)
            moved = max(moved, share_moved(family, own, *rows, query.whitener, error, generator(7)))
        first = own.reordered(order)
        floored = np.any(first.variances <= family.floor * (1 + 1e-6), axis=0)
        return Parameters(
            kind=self.kind.name,
            weights=first.weights,
            means=first.means,
            covariances=first.covariances,
            path=fit.path,
            seen=presence.seen,
            empty=presence.empty,
            errors=np.array([error_units(family, own, order, root) for root in roots]),
            noise=noise,
            moved=moved,
            floored=floored.astype(float),
            converged=fit.converged,
        )

    def log_density(self, xp: Namespace, theta: Parameters, x: Array, y: Array) -> Array:
        return mixture_of(theta).log_density(xp, x)

    def simpler(self, theta: Parameters) -> Parameters:
        """One Gaussian, correlated, with the mean and the covariance of the whole mixture."""
        one = mixture_of(theta).pooled()
        return replace(theta, weights=one.weights, means=one.means, covariances=one.covariances)

    def draw(self, theta: Parameters, n: int, rng: np.random.Generator) -> tuple[FloatArray, None]:
        rows = inside(mixture_of(theta), n, rng)
        rows = with_missing(rows, Presence(theta.seen, theta.empty).patterns(n, rng))
        rows[rng.random(n) < theta.empty] = np.nan
        return rows, None


@dataclass(frozen=True)
class SparseGaussianMixture(GaussianMixture):
    """The same on ``sparsity`` columns of many: those that vary together most."""

    sparsity: int = 2
    gaussian: ClassVar[bool] = False

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        return (
            FindCentres(CENTRES * sizes.rho),
            ChooseColumns(CHOICE * sizes.rho, self.sparsity),
            *self._fit(after_choice(sizes), self.sparsity),
        )

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        some = np.arange(self.sparsity)
        narrow = GaussianMixture(self.schema.take(some), self.n_components, self.kind, self.proportions[some])
        expected = narrow.predict_fit(after_choice(sizes), steps)
        return with_choice(expected, missed(sizes, self.schema.width, self.sparsity, sizes.effect or SEPARATION))


def mixture_of(theta: Parameters) -> Gaussians:
    return Gaussians(theta.weights, theta.means, theta.covariances)
