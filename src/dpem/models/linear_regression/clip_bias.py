"""Which way clipping moves the score: the direction of what it cuts off, and a release that measures it.

A score v = e·a is clipped to the length C. What is cut off, (‖v‖ − C)₊·v/‖v‖, has a mean of length A(C)·‖ℓ‖: A is the
mean length of what is cut off, which the histogram of lengths shows (:mod:`.clipping`), and ℓ, with ‖ℓ‖ ≤ 1, says how
much of it does not cancel. Symmetric errors have ℓ = 0. On most tables ℓ lies along the fitted values, as a relation is
curved or errors are skewed and grow with it, and hardly depends on C. So it is released once, from scores between two
lengths (:class:`TailScore`), and every score is corrected by A(C)·ℓ; what remains unknown of ℓ and of A is the misfit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dpem.models.linear_regression.gaussian_posterior import Posterior
from dpem.models.linear_regression.queries import At, Rows
from dpem.models.linear_regression.tuning import TUNING
from dpem.queries.narrow import into_ball, rounded, sum_in_ball, weighted, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace


@dataclass(frozen=True)
class TailScore(At):
    """Σ t·v/‖v‖ over the rows' scores v, t = (‖v‖ − low)/(high − low) clamped to [0, 1]: the difference between scores
    that are clipped at ``high`` and at ``low``, over high − low.

    *Lemma.* ℓ2 sensitivity 2. *Proof.* The whole contribution is scaled into the unit ball after it is computed. ∎
    """

    low: float
    high: float

    @property
    def label(self) -> str:
        return f"direction of the scores between the lengths {self.low:.4g} and {self.high:.4g}"

    @property
    def bound(self) -> Bound:
        return rounded(Bound.symmetric(l2=1.0), len(self.theta))

    def added(self, xp: Namespace, rows: Rows) -> Array:
        factor = rows.r * self.sigma / rows.v
        length = zero_nonfinite(xp, xp.abs(factor) * rows.size)
        part = xp.clip((length - self.low) / (self.high - self.low), 0.0, 1.0)
        times = factor * part / xp.clip(length, self.low, math.inf)
        if rows.shares is None:
            return sum_in_ball(xp, rows.a, 1.0, times, rows.size)
        return xp.sum(weighted(into_ball(xp, rows.a, 1.0, times, rows.size), rows.shares), axis=0)


class Direction(NamedTuple):
    """ℓ is normal with this mean and covariance."""

    mean: FloatArray
    covariance: FloatArray

    @property
    def square(self) -> float:
        """The part of E‖ℓ‖² that cannot be corrected for."""
        return float(np.trace(self.covariance[1:, 1:]))

    def measured(self, value: FloatArray, noise: float) -> Direction:
        """After a release of ℓ with noise of that standard deviation, from scores that are not quite those cut off."""
        blur = TUNING.tails_vary**2 * self.covariance + noise**2 * np.eye(len(value))
        gain = np.linalg.solve(self.covariance + blur, self.covariance).T
        rest = self.covariance - gain @ self.covariance
        return Direction(self.mean + gain @ (value - self.mean), (rest + rest.T) / 2)


def usual_direction(posterior: Posterior) -> Direction:
    """Before it is measured: longest along the fitted values of these coefficients."""
    theta, V = posterior
    k = len(theta)
    fitted = np.outer(theta[1:], theta[1:]) + V[1:, 1:]
    out = np.diag(np.append(TUNING.tails_level**2, np.full(k - 1, TUNING.tails_beside**2)) / k)
    out[1:, 1:] += TUNING.tails_along**2 * fitted / max(float(np.trace(fitted)), 1e-300)
    return Direction(np.zeros(k), out)
