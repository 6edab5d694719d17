"""How far counts vary beyond Poisson's law: the dispersion φ = Var y / E y, measured at the fitted coefficients."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpem.fitting.rehearsal import generator
from dpem.fitting.step import Step
from dpem.models._glm.families import Poisson
from dpem.models._glm.model import GeneralisedLinearModel
from dpem.models._glm.posterior import placed
from dpem.models._glm.queries import RowQuery
from dpem.models._glm.steps import GlmState
from dpem.privacy import Curator
from dpem.queries.narrow import rounded, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace

#: Squares are capped at so many times what is expected of them, at least and at most: as far as the noise of the
#: dispersion stays below this part of it.
LEAST_CAP, MOST_CAP, NOISE = 20.0, 200.0, 0.1
#: Dispersions that are tried, for what the cap takes away.
TRIED = np.geomspace(0.5, 512.0, 41)


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
        each = xp.clip(zero_nonfinite(xp, (response - mean) ** 2 / (mean + self.floor)), 0.0, self.cap)
        return xp.sum(weight * each)[None]


@dataclass(frozen=True)
class FindDispersion(Step):
    """The dispersion at the present coefficients. At the end it widens the standard errors."""

    final: bool = False

    def describe(self) -> str:
        return "dispersion of the counts around the fit"

    def run(self, curator: Curator, model: GeneralisedLinearModel, state: GlmState) -> GlmState:
        private = math.isfinite(self.rho)
        if not private and not self.final:
            return state
        model, family, complete_share = state.of(model), state.family, state.surrogate.complete
        assert isinstance(family, Poisson)
        predictor = model.predictor(placed(state.coef, model.free, model.offset))
        most = NOISE * curator.n_rows * math.sqrt(2 * self.rho) / curator.rows_per_person
        cap = family.dispersion * min(max(most, LEAST_CAP), MOST_CAP) if private else math.inf
        query = PearsonSquares(model.schema, family, predictor, 0.5 if private else 0.0, cap)
        released = float(curator.measure(query, self.rho)[0]) / complete_share
        if private:
            noise = curator.noise_scale(query, self.rho) / complete_share
            phi, error = dispersion_of(released, noise, predictor(np, state.surrogate.rows[:, 1:]), cap)
        else:
            degrees = curator.n_rows * complete_share
            phi, error = released * degrees / max(degrees - len(state.coef), 1), math.sqrt(2 / degrees)
        used = family.dispersion if private else 1.0
        state = replace(state, family=replace(family, dispersion=max(phi, 1.0)))
        if not self.final:
            return state
        wider = max(phi, 1.0) / used if private or state.weights is None else 1.0  # a sandwich is wide enough
        theta = replace(state.theta, sampling=state.theta.sampling * wider, dispersion=(phi, error))
        return replace(state, theta=theta)


def dispersion_of(released: float, noise: float, eta: FloatArray, cap: float) -> tuple[float, float]:
    """The dispersion of which capped squares have this mean, and its standard error; rows have these predictors.

    The mean of capped squares rises with the dispersion, then falls: nearly all counts are 0 and the others are capped.
    A larger value than any law has is taken for the dispersion where it is largest.
    """
    means = np.array([_capped(eta, float(phi), cap) for phi in TRIED])
    tried = TRIED[: int(np.argmax(means)) + 1]
    means = np.maximum.accumulate(means[: len(tried)]) + 1e-9 * np.arange(len(tried))
    reached = min(released, float(means[-1]))
    phi, *ends = np.interp([reached, reached - noise, reached + noise], means, tried)
    return float(phi), max(float(ends[1] - ends[0]) / 2, 1e-9)


def _capped(eta: FloatArray, phi: float, cap: float) -> float:
    """The mean of capped squares of counts with dispersion φ, invented at these predictors."""
    rng, mu = generator(2), np.exp(np.minimum(eta, 20.0))
    if phi > 1.01:
        y = rng.poisson(rng.gamma(mu / (phi - 1), phi - 1))
        return float(np.mean(np.minimum((y - mu) ** 2 / (mu + 0.5), cap)))
    poisson = float(np.mean(np.minimum((rng.poisson(mu) - mu) ** 2 / (mu + 0.5), cap)))
    return phi * poisson
