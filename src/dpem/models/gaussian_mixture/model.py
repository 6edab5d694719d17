"""The Gaussian mixture as a model: its parameters and their standard errors, its steps and their prices, its densities.

Noise of standard deviation s in an answer of the score, and sampling of n rows, move the solution by
:func:`~dpem.fitting.surrogate.error_roots`, taken over the surrogate rows. Small moves of the mixture carry this to the
reported numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpem._validation import ArgumentError
from dpem.fitting.model import PredictedFit, Sizes
from dpem.fitting.step import Step, prices
from dpem.fitting.surrogate import ScoreStep, SurrogateFit, SurrogateModel, error_units
from dpem.fitting.uncertainty import Uncertainty
from dpem.models.gaussian_mixture.component_number import MOST
from dpem.models.gaussian_mixture.covariance_types import TYPES, CovarianceType
from dpem.models.gaussian_mixture.family import inside, with_missing
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.location import Presence
from dpem.models.gaussian_mixture.planning import EFFECT, Shares, predicted_fit, shares_of
from dpem.models.gaussian_mixture.score_steps import ExactEM, MixtureCheck
from dpem.models.gaussian_mixture.start_steps import FindCentres, FindMargins, FindShape, FindSpreads, StartFromSketch
from dpem.models.gaussian_mixture.state import TUNING, MixtureState, noise_gain, redrawn, restarts_for
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.schema import Schema

#: How many components are assumed, for prices and steps, where their number is to be found.
ASSUMED = 4
ADVICE = (
    "Try fewer components, more rows, a larger epsilon or, where columns are correlated, covariance_type='full'; or "
    "publish one component."
)


@dataclass(frozen=True)
class Parameters:
    """A fitted mixture in unit coordinates and what is known of its errors.

    ``path`` are the scores of numbers of components; ``seen`` and ``empty`` shares of values present and of rows
    without any. ``errors`` are the standard errors of :func:`~dpem.models.gaussian_mixture.model.values` per unit
    of noise in whitened scores, of one row's sampling and of what the surrogate leaves open; ``noise`` is the standard
    deviation of the answers. ``moved`` is the share of rows that a second private fit may put into another
    component, ``missed`` the share that one Gaussian describes far better; ``floored`` is 1 for columns in which a
    component has the least spread.
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
class GaussianMixture(SurrogateModel):
    """K Gaussians with weights; ``n_components`` 0: their number is found too. ``proportions`` is the shape of a round
    component in unit coordinates: 1/half².
    """

    n_components: int
    kind: CovarianceType
    proportions: FloatArray = field(repr=False)
    effect = EFFECT
    queries = TUNING.queries
    clip_quantiles = TUNING.levels

    def start(self) -> MixtureState:
        return MixtureState()

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        return self._fit(sizes, self.schema.width)

    def _fit(self, sizes: Sizes, width: int) -> tuple[Step, ...]:
        exact = math.isinf(sizes.rho)
        check, rest = prices(sizes.rho, (TUNING.check, 1 - TUNING.check)) if sizes.check else (0.0, sizes.rho)
        rho = Shares._make(prices(rest, shares_of(sizes, width, self.n_components or ASSUMED)))
        scores = prices(rho.scores, [TUNING.growth**t for t in range(1 if exact else TUNING.queries)])
        steps: list[Step] = [
            FindCentres(rho.centres),
            FindSpreads(rho.spreads),
            FindShape(rho.moments, self.n_components or MOST - 2),
            FindMargins(rho.histograms),
            StartFromSketch(rho.sketch, self.n_components),
        ]
        last = len(scores) - 1
        steps += [ExactEM(price) if exact else ScoreStep(price, t, t == last) for t, price in enumerate(scores)]
        if sizes.check:
            steps.append(MixtureCheck(check, ADVICE))
        return tuple(steps)

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        K = self.n_components or ASSUMED
        if sizes.n < K:
            raise ArgumentError("n_components", f"must be at most the number of rows, got {K} for {sizes.n} rows.")
        return predicted_fit(self, sizes, K, assumed_number=not self.n_components)

    def proportions_of(self, state: Any) -> FloatArray:
        """The proportions of a round component's variances over the coordinates in use."""
        return self.proportions if state.chosen is None else self.proportions[state.chosen]

    def share_present(self, state: MixtureState) -> float:
        return 1 - state.presence.empty

    def refitted(self, state: MixtureState, step: ScoreStep, rng: np.random.Generator) -> SurrogateFit[Gaussians]:
        fit, surrogate, family = state.fit, state.fit.surrogate, state.fit.family
        if surrogate.effective_share < TUNING.effective:
            surrogate = redrawn(surrogate, family, state, rng)
        solutions = surrogate.fit(
            family,
            [fit.theta],
            restarts=restarts_for(family.count, TUNING.last_restarts if step.last else TUNING.restarts),
            rng=rng,
            margin=noise_gain(family.count, fit.noise),
            finalists=4 if step.last else 1,
        )
        return replace(fit, surrogate=surrogate, solutions=solutions)

    def published(self, state: MixtureState, n: int) -> Parameters:
        """The record of a finished fit, the largest component first."""
        fit, presence = state.fit, state.presence
        own, weights, noise = fit.theta, fit.surrogate.weights, fit.noise
        order = np.argsort(-own.weights, kind="stable")

        def reported(mixture: Gaussians) -> FloatArray:
            return values(self.kind.name, mixture.reordered(order))

        scatter, base = (float(weights @ weights), 1 / TUNING.score_kappa[1]) if noise else (0.0, 0.0)
        errors = error_units(fit.query, fit.surrogate, reported, scatter, base)
        if noise:
            privacy = np.maximum(np.hypot(noise * errors[0], errors[2]), 1e-12)
            change = np.clip((reported(own) - reported(fit.queried[0])) / privacy, -10.0, 10.0)
            factor = min(max(1.0, TUNING.unsettled * math.sqrt(float(np.mean(change**2)))), TUNING.most_unsettled)
            errors[[0, 2]] *= factor
        first = own.reordered(order)
        sizeable = first.weights >= TUNING.sizeable
        floored = np.any(first.variances[sizeable] <= fit.family.floor * (1 + 1e-6), axis=0)
        return Parameters(
            kind=self.kind.name,
            weights=first.weights,
            means=first.means,
            covariances=first.covariances,
            path=state.path,
            seen=presence.seen,
            empty=presence.empty,
            errors=errors,
            noise=noise,
            moved=fit.share_unstable(n, TUNING.moving, TUNING.near),
            floored=floored.astype(float),
            converged=bool(noise) or fit.solutions[0].converged,
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


def mixture_of(theta: Parameters) -> Gaussians:
    return Gaussians(theta.weights, theta.means, theta.covariances)


def values(kind: str, own: Gaussians) -> FloatArray:
    """Shares, means and covariances in the order of :func:`names`."""
    return np.concatenate([own.weights, own.means.ravel(), TYPES[kind].values(own.covariances)])


def names(kind: str, K: int, columns: tuple[str, ...]) -> list[tuple[str, str]]:
    """What each number is called and what it can be; components are counted from 1, the largest first."""
    components = [f"component {k + 1}" for k in range(K)]
    found = [(f"{component}: share", "share") for component in components]
    found += [(f"{component}: mean of {name}", "") for component in components for name in columns]
    return found + TYPES[kind].names(components, columns)


def uncertainty(theta: Any, schema: Schema, n: int) -> Uncertainty:
    """Estimates in the table's units and their standard errors, of sampling and of privacy."""
    K, d = theta.means.shape
    full = theta.covariances.ndim == 3
    ones = np.ones((K, d, d)) * np.outer(schema.half, schema.half) if full else np.ones((K, d)) * schema.half**2
    scale = np.concatenate([np.ones(K), np.tile(schema.half, K), TYPES[theta.kind].values(ones)])
    estimate = scale * values(theta.kind, Gaussians(theta.weights, theta.means, theta.covariances))
    estimate[K : K + K * d] += np.tile(schema.middle, K)
    called, kinds = zip(*names(theta.kind, K, schema.names), strict=True)
    sampling = scale * theta.errors[1] / math.sqrt(n * max(1 - theta.empty, 1e-9))
    privacy = scale * np.hypot(TUNING.widened * theta.errors[0] * theta.noise, theta.errors[2])
    note = "sandwich form on the surrogate rows, with the noise of the score answers"
    return Uncertainty.of(called, estimate, sampling, privacy, note, kinds)
