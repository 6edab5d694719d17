"""The Gaussian mixture as a model: its steps and their prices, its density, its parameters and their standard errors.

Standard errors have the sandwich form of :func:`~dpem.fitting.surrogate.error_roots`, taken over the surrogate rows;
the delta method carries them to the reported numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from dpem._validation import ArgumentError
from dpem.fitting.model import PredictedFit, Sizes
from dpem.fitting.step import Step, prices
from dpem.fitting.surrogate import ScoreStep, SurrogateFit, SurrogateModel, error_units
from dpem.fitting.uncertainty import Uncertainty
from dpem.models.gaussian_mixture.component_number import MOST
from dpem.models.gaussian_mixture.covariance_types import TYPES, CovarianceType
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.planning import EFFECT, Shares, predicted_fit, shares_of
from dpem.models.gaussian_mixture.score_steps import ExactEM, MixtureCheck
from dpem.models.gaussian_mixture.start_steps import FindCentres, FindMargins, FindShape, FindSpreads, StartFromSketch
from dpem.models.gaussian_mixture.state import TUNING, MixtureState, noise_gain, redrawn, restarts_for
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.schema import Schema

#: The number of components that prices are set for where the number is not given.
ASSUMED = 4
#: The number of components whose directions second moments look for where the number is not given.
SEARCHED = MOST - 2
#: The largest change of a parameter between answers, in standard errors, that widens these.
LARGEST_CHANGE = 10.0
ADVICE = (
    "Try fewer components, more rows, a larger epsilon or, where columns are correlated, covariance_type='full'; or "
    "publish one component."
)


@dataclass(frozen=True)
class Parameters:
    """A fitted mixture in unit coordinates, its errors and its diagnostics.

    ``path`` are the scores of numbers of components; ``seen`` and ``empty`` the shares of values present and of rows
    without any. ``errors`` (3 × values) are the standard errors of :func:`values`: per unit of noise in whitened
    scores, by the sampling of one row, and by the surrogate rows; ``noise`` is that of all answers together.
    ``moved`` is the share of rows that a second private fit may put into another component, ``missed`` the share that
    one Gaussian describes far better; ``floored`` is 1 for columns in which a component has the least spread.
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
    """A mixture of K Gaussians; ``n_components`` 0 finds their number. ``proportions`` (1/half²) are those of the
    variances, in unit coordinates, of a component that is round in the table's units.
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
            FindShape(rho.moments, self.n_components or SEARCHED),
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

    def proportions_of(self, state: MixtureState) -> FloatArray:
        """The proportions for the columns in use."""
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
        weights, noise = fit.surrogate.weights, fit.noise
        order = np.argsort(-fit.theta.weights, kind="stable")
        mixture = fit.theta.reordered(order)

        def reported(other: Gaussians) -> FloatArray:
            return values(self.kind.name, other.reordered(order))

        sampling, base = (float(weights @ weights), 1 / TUNING.score_kappa[1]) if noise else (0.0, 0.0)
        errors = error_units(fit.query, fit.surrogate, reported, sampling, base)
        if noise:
            privacy = np.maximum(np.hypot(noise * errors[0], errors[2]), 1e-12)
            change = (reported(fit.theta) - reported(fit.queried[0])) / privacy
            change = np.clip(change, -LARGEST_CHANGE, LARGEST_CHANGE)
            widening = TUNING.unsettled * math.sqrt(float(np.mean(change**2)))
            errors[[0, 2]] *= min(max(1.0, widening), TUNING.most_unsettled)
        sizeable = mixture.weights >= TUNING.sizeable
        floored = np.any(mixture.variances[sizeable] <= fit.family.floor * (1 + 1e-6), axis=0)
        return Parameters(
            kind=self.kind.name,
            weights=mixture.weights,
            means=mixture.means,
            covariances=mixture.covariances,
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


def mixture_of(theta: Parameters) -> Gaussians:
    return Gaussians(theta.weights, theta.means, theta.covariances)


def values(kind: str, mixture: Gaussians) -> FloatArray:
    """Shares, means and covariances in the order of :func:`names`."""
    return np.concatenate([mixture.weights, mixture.means.ravel(), TYPES[kind].values(mixture.covariances)])


def names(kind: str, K: int, columns: tuple[str, ...]) -> list[tuple[str, str]]:
    """The name of each value and its kind, such as "share"; components are counted from 1, the largest first."""
    components = [f"component {k + 1}" for k in range(K)]
    shares = [(f"{component}: share", "share") for component in components]
    means = [(f"{component}: mean of {name}", "") for component in components for name in columns]
    return shares + means + TYPES[kind].names(components, columns)


def uncertainty(theta: Parameters, schema: Schema, n: int) -> Uncertainty:
    """Estimates in the table's units and their standard errors, by sampling and by privacy."""
    K, d = theta.means.shape
    full = theta.covariances.ndim == 3
    ones = np.ones((K, d, d)) * np.outer(schema.half, schema.half) if full else np.ones((K, d)) * schema.half**2
    scale = np.concatenate([np.ones(K), np.tile(schema.half, K), TYPES[theta.kind].values(ones)])
    estimate = scale * values(theta.kind, mixture_of(theta))
    estimate[K : K + K * d] += np.tile(schema.middle, K)
    labels, kinds = zip(*names(theta.kind, K, schema.names), strict=True)
    sampling = scale * theta.errors[1] / math.sqrt(n * max(1 - theta.empty, 1e-9))
    privacy = scale * np.hypot(TUNING.widened * theta.errors[0] * theta.noise, theta.errors[2])
    note = "sandwich form on the surrogate rows, with the noise of the score answers"
    return Uncertainty.of(labels, estimate, sampling, privacy, note, kinds)
