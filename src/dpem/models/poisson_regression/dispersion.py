"""The dispersion φ = Var y / E y of counts, measured at the fitted coefficients; it is 1 for Poisson counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpem.fitting.rehearsal import generator
from dpem.fitting.step import Step
from dpem.models._glm.families import POISSON_DISPERSION, Poisson
from dpem.models._glm.model import GeneralisedLinearModel
from dpem.models._glm.queries import RowQuery
from dpem.models._glm.steps import GlmState
from dpem.privacy import Curator
from dpem.queries.narrow import rounded, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace

#: The least and largest cap of squares, relative to their mean; between them it keeps the noise of the dispersion below
#: this fraction of the dispersion.
LEAST_CAP, MOST_CAP, NOISE = 20.0, 200.0, 0.1
#: Dispersions for which the mean of capped squares is simulated.
GRID = np.geomspace(0.5, 512.0, 41)


@dataclass(frozen=True)
class PearsonSquares(RowQuery):
    """Σ min((y − μ)²/(μ + floor), cap) over complete rows.

    *Lemma.* Sensitivity cap. *Proof.* A contribution lies in [0, cap]. ∎
    """

    floor: float
    cap: float

    @property
    def label(self) -> str:
        return f"squares of standardised residuals, capped at {self.cap:.4g}"

    @property
    def bound(self) -> Bound:
        if math.isinf(self.cap):
            return Bound()
        return rounded(Bound(linf=self.cap, l2=self.cap, size_linf=self.cap, size_l2=self.cap), 4)

    def contributions(self, xp: Namespace, x: Array, y: Array, shares: Array = None) -> Array:
        _, response, eta, weight = self.complete_rows(xp, x, y, shares)
        mean = self.family.mean(xp, eta)
        squares = xp.clip(zero_nonfinite(xp, (response - mean) ** 2 / (mean + self.floor)), 0.0, self.cap)
        return xp.sum(weight * squares)[None]


@dataclass(frozen=True)
class FindDispersion(Step[GeneralisedLinearModel, GlmState]):
    """The dispersion at the current coefficients; the ``final`` one scales the standard errors."""

    final: bool = False

    def describe(self) -> str:
        return "dispersion of the counts around the fit"

    def run(self, curator: Curator, model: GeneralisedLinearModel, state: GlmState) -> GlmState:
        private = math.isfinite(self.rho)
        if not private and not self.final:
            return state
        model, family, complete_share = state.fitted_part(model), state.family, state.surrogate.complete
        assert isinstance(family, Poisson)
        predictor = model.predictor_at(state.coef)
        largest = NOISE * curator.n_rows * math.sqrt(2 * self.rho) / curator.rows_per_person
        cap = family.dispersion * min(max(largest, LEAST_CAP), MOST_CAP) if private else math.inf
        query = PearsonSquares(model.schema, family, predictor, 0.5 if private else 0.0, cap)
        released = float(curator.measure(query, self.rho)[0]) / complete_share
        if private:
            noise = curator.noise_scale(query, self.rho) / complete_share
            phi, error = dispersion_of(released, noise, predictor(np, state.surrogate.rows[:, 1:]), cap)
        else:
            degrees = curator.n_rows * complete_share
            phi, error = released * degrees / max(degrees - len(state.coef), 1), math.sqrt(2 / degrees)
        assumed = family.dispersion if private else 1.0
        state = replace(state, family=replace(family, dispersion=max(phi, 1.0)))
        if not self.final:
            return state
        sandwich = not private and state.weights is not None  # its variances need no dispersion
        scale = 1.0 if sandwich else max(phi, 1.0) / assumed
        theta = replace(state.theta, sampling=state.theta.sampling * scale, dispersion=(phi, error))
        return replace(state, theta=theta)


def dispersion_of(released: float, noise: float, eta: FloatArray, cap: float) -> tuple[float, float]:
    """The dispersion at which the mean of capped squares is the released one, and its standard error.

    The mean of capped squares rises with the dispersion, then falls: nearly all counts are 0 and the others are capped.
    A released mean above its maximum gives the dispersion of the maximum.
    """
    means = np.array([_capped_mean(eta, float(phi), cap) for phi in GRID])
    rising = GRID[: int(np.argmax(means)) + 1]
    means = np.maximum.accumulate(means[: len(rising)]) + 1e-9 * np.arange(len(rising))
    mean = min(released, float(means[-1]))
    phi, low, high = np.interp([mean, mean - noise, mean + noise], means, rising)
    return float(phi), max(float(high - low) / 2, 1e-9)


def _capped_mean(eta: FloatArray, phi: float, cap: float) -> float:
    """The mean of capped squares of simulated counts with these predictors and the dispersion φ."""
    rng, mu = generator(2), np.exp(np.minimum(eta, 20.0))
    if phi > POISSON_DISPERSION:
        y = rng.poisson(rng.gamma(mu / (phi - 1), phi - 1))
        return float(np.mean(np.minimum((y - mu) ** 2 / (mu + 0.5), cap)))
    poisson = float(np.mean(np.minimum((rng.poisson(mu) - mu) ** 2 / (mu + 0.5), cap)))
    return phi * poisson
