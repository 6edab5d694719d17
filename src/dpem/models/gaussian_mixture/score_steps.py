"""EM on the table where nothing is paid, and the fit check."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from dpem.fitting.check import check_lead
from dpem.fitting.rehearsal import generator
from dpem.fitting.step import Step
from dpem.fitting.surrogate import NOT_CLIPPED, best_of, exact, score_query
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.state import MixtureState
from dpem.privacy import Curator
from dpem.queries.narrow import NarrowQuery, rounded, zero_nonfinite
from dpem.query import Array, Bound, Namespace


@dataclass(frozen=True)
class ExactEM(Step):
    """Without privacy: EM on the table from the best optima of the surrogate, the best of them to convergence."""

    starts: int = 10
    most: int = 5000

    def describe(self) -> str:
        return f"EM from {self.starts} starts until it converges, at most {self.most} steps"

    def run(self, curator: Curator, model: Any, state: MixtureState) -> MixtureState:
        fit, rng, schema = state.fit, generator(100), model.schema_of(state)
        surrogate, family = fit.surrogate, fit.family
        fits = surrogate.fit(
            family, [fit.theta], restarts=2 * self.starts, rng=rng, finalists=self.starts, max_steps=100
        )
        starts = [own.theta for own in fits[: self.starts]]
        found = best_of(
            family,
            starts,
            exact(curator, schema, family),
            short_steps=60,
            finalists=3,
            tolerance=1e-10,
            max_steps=self.most,
        )
        query = score_query(schema, family, found[0].theta, surrogate.x, surrogate.weights, rng)
        new = replace(fit, solutions=found, query=replace(query, radius=NOT_CLIPPED))
        state = replace(state, fit=new)
        return replace(state, theta=model.published(state, curator.n_rows))


#: The advice where one component is worse than one Gaussian with the correlations of the columns.
ADVICE_FOR_ONE = "Use covariance_type='full': the columns are correlated."
#: A row is missed by the mixture if one Gaussian of independent columns describes it that much better, in log-density.
MISSED = 8.0
#: What a missed row counts in the query: the larger, the less noise in their share and the more in the leads.
WEIGHT = 3.0
#: Missed rows are reported from so many standard deviations of the noise and from this share on.
NEEDED, LEAST = 2.5, 0.005


@dataclass(frozen=True)
class Leads(NarrowQuery):
    """Σ (t_i, t_i²) for m simpler models i, and Σ c·1{the row is missed}; t_i = clamp(log p(row | fitted) − log p(row |
    simpler model i), ±1).

    *Lemma.* Replacing a row moves the sum by at most √(4m + c²). *Proof.* Each pair (t_i, t_i²) moves by at most 2
    (:class:`~dpem.fitting.check.LogRatio`, whose other lemma says that a simpler model that is right has an
    expected t_i of at most 0), the last entry by at most c, and the squares add. ∎
    """

    fitted: Gaussians = field(repr=False)
    wide: Gaussians = field(repr=False)

    @property
    def simpler(self) -> tuple[str, ...]:
        """The simpler models: one Gaussian with the moments of all rows that were released before, one with those of
        the mixture, and independent columns with the mixture's own margins.
        """
        return ("one Gaussian", "one Gaussian", "independent columns")[: 3 if self.schema.width > 1 else 2]

    @property
    def label(self) -> str:
        return "fit check: log-density beyond the simpler models', clamped at 1, and rows that the mixture misses"

    @property
    def bound(self) -> Bound:
        m = len(self.simpler)
        change, size = math.sqrt(4 * m + WEIGHT**2), math.sqrt(2 * m + WEIGHT**2)
        return rounded(Bound(linf=max(2.0, WEIGHT), l2=change, size_linf=max(1.0, WEIGHT), size_l2=size), 2 * m + 1)

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        own = self.fitted.log_density(xp, x)
        others = [self.wide.log_density(xp, x), self.fitted.pooled().log_density(xp, x)]
        if len(self.simpler) == 3:
            others.append(self.fitted.product_of_margins(xp, x))
        leads = [zero_nonfinite(xp, own - other) for other in others]
        clamped = [xp.clip(lead, -1.0, 1.0) for lead in leads]
        round_one = Gaussians(self.wide.weights, self.wide.means, self.wide.variances)
        behind = zero_nonfinite(xp, round_one.log_density(xp, x) - own) > MISSED
        missed = WEIGHT * xp.sum(xp.astype(behind, xp.float64))
        return xp.stack([*(part for t in clamped for part in (xp.sum(t), xp.sum(t * t))), missed])


@dataclass(frozen=True)
class MixtureCheck(Step):
    """Ask for the mean leads over the simpler models and for the share of rows that the mixture misses; the least
    convincing lead is the verdict.

    The first simpler model owes nothing to the mixture, so a mixture that misses part of the rows does not lend its
    errors to it. Skewed or bimodal columns alone make a mixture describe rows better than one Gaussian does; components
    are what columns say together, so the last simpler model has the mixture's own margins and independent columns.
    """

    advice: str = ""

    def describe(self) -> str:
        return "fit check against one Gaussian and against independent columns"

    def run(self, curator: Curator, model: Any, state: MixtureState) -> MixtureState:
        query = Leads(model.schema_of(state), state.fit.theta, state.wide)
        answer, noise = curator.measure(query, self.rho), curator.noise_scale(query, self.rho)
        checks, advice = [], self.advice if len(query.fitted.weights) > 1 else ADVICE_FOR_ONE
        for name, mean, square in zip(query.simpler, answer[:-1:2], answer[1:-1:2], strict=True):
            spread = math.sqrt(min(max(float(square - mean**2), 0.0), 1.0))
            error = math.hypot(noise, spread / math.sqrt(curator.effective_rows))
            checks.append(check_lead(float(mean), max(error, 1e-12), name, advice))
        missed = float(answer[-1]) / WEIGHT
        missed = min(missed, 1.0) if missed > max(NEEDED * noise / WEIGHT, LEAST) else 0.0
        worst = min(checks, key=lambda own: own.lead / own.standard_error)
        return replace(state, check=worst, theta=replace(state.theta, missed=missed))
