"""The fit check: the variance that the slopes explain, and tests of linearity and of equal error variances."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpem.fitting.check import check_lead
from dpem.fitting.step import Step
from dpem.models.linear_regression.clipping import clipped_square
from dpem.models.linear_regression.parameters import Linearity
from dpem.models.linear_regression.rows import RowQuery, Rows
from dpem.models.linear_regression.state import Estimate, LinearState
from dpem.models.linear_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.queries.narrow import rounded, weighted, zero_nonfinite
from dpem.query import Array, Bound, Namespace

if TYPE_CHECKING:
    from dpem.models.linear_regression.model import LinearRegression

#: Largest absolute contributions of a row to the curvature and to the heteroscedasticity, and the weights of these two
#: beside the explained squares.
MOST_CURVATURE, MOST_UNEQUAL, CURVATURE_SHARE, UNEQUAL_SHARE = 6.0, 6.0, 0.7, 0.6


@dataclass(frozen=True)
class Explained(RowQuery):
    """Σ (t, t²/most, b·most·s, u·most·q), t = clamp((z of y − middle)² − r², ±most): the reduction of the squared
    residual by the slopes. With e the residual in standard deviations and f the fitted value minus the middle over
    ``fitted_spread``, both clipped:

    - s in [−1, 1] is e·(f² − 1) over its largest value: its mean is not 0 if residuals have one sign at both ends of
      the line and the other between (Ramsey's RESET with one degree of freedom);
    - q in [−1, 1] is (e² − its mean)·f likewise: its mean is not 0 if errors are larger at one end (Breusch and Pagan's
      test).

    *Lemma.* ℓ2 sensitivity 2·most·√(1 + b² + u²). *Proof.* 2·most for the first two, by the proof of
    :class:`~dpem.fitting.check.LogRatio` word for word, and twice the largest size for each of the others. ∎
    """

    middle: float
    most: float
    fitted_spread: float
    in_frame = False

    @property
    def label(self) -> str:
        return (
            f"fit check: squares explained by the slopes, clamped at {self.most:.4g}, and whether the model is linear"
        )

    @property
    def bound(self) -> Bound:
        B, more = self.most, CURVATURE_SHARE**2 + UNEQUAL_SHARE**2
        l2, size = 2 * B * math.sqrt(1 + more), B * math.sqrt(2 + more)
        return rounded(Bound(linf=2 * B, l2=l2, size_linf=B, size_l2=size), 4)

    def added(self, xp: Namespace, rows: Rows) -> Array:
        deviation = rows.fitted + rows.r - self.middle
        t = zero_nonfinite(xp, deviation**2 - rows.r**2) / self.most
        e = xp.clip(zero_nonfinite(xp, rows.r / xp.sqrt(rows.v)), -2.4, 2.4)
        f = xp.clip(zero_nonfinite(xp, (rows.fitted - self.middle) / self.fitted_spread), -2.0, 2.0)
        s = e * xp.clip(f * f - 1.0, -1.0, 2.5) / MOST_CURVATURE
        q = (xp.clip(e * e, 0.0, 4.0) - float(clipped_square(4.0))) * f / MOST_UNEQUAL
        seen = weighted(xp.astype(rows.seen, xp.float64), rows.shares)
        t, s, q = (xp.clip(value, -1.0, 1.0) for value in (t, s, q))
        sums = [xp.sum(seen * t), xp.sum(seen * t * t)]
        sums += [CURVATURE_SHARE * xp.sum(seen * s), UNEQUAL_SHARE * xp.sum(seen * q)]
        return self.most * xp.stack(sums)


ADVICE = "More rows, a larger epsilon, fewer columns or narrower bounds would help; or the columns explain nothing."


@dataclass(frozen=True)
class CheckExplained(Step):
    """Release R², against the mean alone, and tests of linearity and of equal error variances."""

    widths: float = 4.0

    def describe(self) -> str:
        return "fit check against the mean alone: variance explained, curvature, unequal variances"

    def run(self, curator: Curator, model: LinearRegression, state: LinearState) -> LinearState:
        fit = state.fit
        theta, S, n = fit.posterior.mean, fit.information.value, curator.effective_rows
        fitted = float(theta[1:] @ S[1:, 1:] @ theta[1:]) / max(float(S[0, 0]), 0.1)
        most = self.widths * math.sqrt(4 * fit.variance * fitted + 2 * fitted**2 + 0.02**2)
        spread = math.sqrt(max(fitted, 1e-12))
        query = fit.query(Explained, model.schema_of(state), middle=float(theta[0]), most=most, fitted_spread=spread)
        first, second, curved, unequal = (float(part) for part in curator.measure(query, self.rho))
        noise, rows = curator.noise_scale(query, self.rho), n * fit.present
        gain = first / fit.present
        row_spread = math.sqrt(min(max(second * most - first**2, 0.0), most**2))
        gain_error = math.hypot(noise, row_spread / math.sqrt(n)) / fit.present
        total = max(gain, 0.0) + fit.variance
        variance_error = math.hypot(fit.variance_error, fit.variance_misfit, fit.variance * math.sqrt(2 / rows))
        share = gain / total
        released_error = math.hypot(gain_error * fit.variance / total**2, TUNING.r_squared_error)
        share_error = math.hypot(released_error, gain * variance_error / total**2)
        lead = -math.log(max(1 - share, 1e-6)) / 2  # its sign does not depend on the error variance
        lead_error = released_error / max(2 * (1 - share), 2e-6)
        if fit.columns.crowded[-1] and noise:  # the clip may hide the rows that make most of the variance
            share_error, lead_error = math.hypot(share_error, 1.0), math.hypot(lead_error, lead)
        check = check_lead(lead, lead_error, "the mean alone", ADVICE)
        words = f"it explains {100 * share:.1f} % of the variance (standard error {100 * share_error:.1f})"
        if share_error > TUNING.unknown_r_squared:
            words = "how much of the variance it explains is not known"

        def linearity(value: float, unit: float) -> Estimate:
            unit /= most * fit.present
            return Estimate(unit * value, math.hypot(unit * noise, TUNING.linearity_spread / math.sqrt(rows)))

        tests = Linearity(
            linearity(curved, MOST_CURVATURE / CURVATURE_SHARE), linearity(unequal, MOST_UNEQUAL / UNEQUAL_SHARE)
        )
        theta = replace(state.theta, r_squared=Estimate(share, share_error), linearity=tests)
        return replace(state, theta=theta, check=replace(check, verdict=f"{check.verdict}: {words}"))
