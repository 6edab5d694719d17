"""The last steps: EM on the table without privacy, and the fit check."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dpem.fitting.check import check_lead
from dpem.fitting.rehearsal import generator
from dpem.fitting.step import Step
from dpem.fitting.surrogate import NOT_CLIPPED, best_of, exact, score_query
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.state import MixtureState
from dpem.privacy import Curator
from dpem.queries.narrow import NarrowQuery, rounded, zero_nonfinite
from dpem.query import Array, Bound, Namespace

if TYPE_CHECKING:
    from dpem.models.gaussian_mixture.model import GaussianMixture


@dataclass(frozen=True)
class ExactEM(Step["GaussianMixture", MixtureState]):
    """Without privacy: EM on the table, from the best solutions on the surrogate rows."""

    starts: int = 10
    most: int = 5000

    def describe(self) -> str:
        return f"EM from {self.starts} starts until it converges, at most {self.most} steps"

    def run(self, curator: Curator, model: GaussianMixture, state: MixtureState) -> MixtureState:
        fit, rng, schema = state.fit, generator(100), model.schema_of(state)
        surrogate, family = fit.surrogate, fit.family
        on_surrogate = surrogate.fit(
            family, [fit.theta], restarts=2 * self.starts, rng=rng, finalists=self.starts, max_steps=100
        )
        solutions = best_of(
            family,
            [solution.theta for solution in on_surrogate[: self.starts]],
            exact(curator, schema, family),
            short_steps=60,
            finalists=3,
            tolerance=1e-10,
            max_steps=self.most,
        )
        query = score_query(schema, family, solutions[0].theta, surrogate.x, surrogate.weights, rng)
        state = replace(state, fit=replace(fit, solutions=solutions, query=replace(query, radius=NOT_CLIPPED)))
        return replace(state, theta=model.published(state, curator.n_rows))


#: The advice where one component is worse than one Gaussian with the correlations of the columns.
ADVICE_FOR_ONE = "Use covariance_type='full': the columns are correlated."
#: The mixture misses a row if one Gaussian with independent columns describes it this much better, in log-density.
MISSED = 8.0
#: The contribution c of a missed row: a larger one means less noise in their share and more in the leads.
MISSED_WEIGHT = 3.0
#: Missed rows are reported if their share exceeds this number of standard deviations of the noise, and this share.
MISSED_NOISE, LEAST_MISSED = 2.5, 0.005


@dataclass(frozen=True)
class Leads(NarrowQuery):
    """Σ (t_i, t_i²) for m simpler models i, and Σ c·1{the mixture misses the row}, with t_i = clamp(log p(row | fitted)
    − log p(row | simpler model i), ±1).

    *Lemma.* Replacing a row moves the sum by at most √(4m + c²). *Proof.* Each pair (t_i, t_i²) moves by at most 2
    (:class:`~dpem.fitting.check.LogRatio`, whose other lemma says that a simpler model that is right has an
    expected t_i of at most 0), the last entry by at most c, and the squares add. ∎
    """

    fitted: Gaussians = field(repr=False)
    wide: Gaussians = field(repr=False)

    @property
    def simpler(self) -> tuple[str, ...]:
        """The simpler models, in words: one Gaussian with the released moments of all rows, one with those of the
        mixture, and, with several columns, independent columns with the mixture's marginal distributions.
        """
        return ("one Gaussian", "one Gaussian", "independent columns")[: 3 if self.schema.width > 1 else 2]

    @property
    def label(self) -> str:
        return "fit check: log-density beyond the simpler models', clamped at 1, and rows that the mixture misses"

    @property
    def bound(self) -> Bound:
        m = len(self.simpler)
        change, size = math.sqrt(4 * m + MISSED_WEIGHT**2), math.sqrt(2 * m + MISSED_WEIGHT**2)
        return rounded(
            Bound(linf=max(2.0, MISSED_WEIGHT), l2=change, size_linf=max(1.0, MISSED_WEIGHT), size_l2=size), 2 * m + 1
        )

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        fitted = self.fitted.log_density(xp, x)
        simpler = [self.wide.log_density(xp, x), self.fitted.pooled().log_density(xp, x)]
        if len(self.simpler) == 3:
            simpler.append(self.fitted.product_of_margins(xp, x))
        clamped = [xp.clip(zero_nonfinite(xp, fitted - other), -1.0, 1.0) for other in simpler]
        uncorrelated = Gaussians(self.wide.weights, self.wide.means, self.wide.variances)
        is_missed = zero_nonfinite(xp, uncorrelated.log_density(xp, x) - fitted) > MISSED
        missed = MISSED_WEIGHT * xp.sum(xp.astype(is_missed, xp.float64))
        return xp.stack([*(part for t in clamped for part in (xp.sum(t), xp.sum(t * t))), missed])


@dataclass(frozen=True)
class MixtureCheck(Step["GaussianMixture", MixtureState]):
    """Release the mean leads over the simpler models and the share of rows that the mixture misses. The least
    significant lead is the verdict.

    The first simpler model does not depend on the mixture, so that it describes rows that the mixture misses. The last
    one has independent columns with the mixture's marginal distributions: skewed or bimodal columns alone make a
    mixture better than one Gaussian, but components show in the dependence of columns.
    """

    advice: str = ""

    def describe(self) -> str:
        return "fit check against one Gaussian and against independent columns"

    def run(self, curator: Curator, model: GaussianMixture, state: MixtureState) -> MixtureState:
        query = Leads(model.schema_of(state), state.fit.theta, state.wide)
        answer, noise = curator.measure(query, self.rho), curator.noise_scale(query, self.rho)
        checks, advice = [], self.advice if len(query.fitted.weights) > 1 else ADVICE_FOR_ONE
        for name, mean, square in zip(query.simpler, answer[:-1:2], answer[1:-1:2], strict=True):
            spread = math.sqrt(min(max(float(square - mean**2), 0.0), 1.0))
            error = math.hypot(noise, spread / math.sqrt(curator.effective_rows))
            checks.append(check_lead(float(mean), max(error, 1e-12), name, advice))
        missed = float(answer[-1]) / MISSED_WEIGHT
        missed = min(missed, 1.0) if missed > max(MISSED_NOISE * noise / MISSED_WEIGHT, LEAST_MISSED) else 0.0
        worst = min(checks, key=lambda check: check.lead / check.standard_error)
        return replace(state, check=worst, theta=replace(state.theta, missed=missed))
