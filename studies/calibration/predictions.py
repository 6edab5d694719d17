"""Predicted against realised: what plans say beforehand, and the median of what then happened.

Rows that are as a plan supposes (``typical…`` in :mod:`studies.calibration.typical`) and rows that are not
(:mod:`studies.calibration.simulations`). The realised error is the distance from the non-private fit of the same rows:

- linear regression: the mean squared distance of private from non-private predictions of new rows, over the variance of
  the response. Its mean over fits is by how much R² falls; the fall of R² itself has in it the luck of least squares on
  these rows, which with many rows is far larger than what privacy does.
- latent classes: the root mean square distance of private from non-private probabilities, classes matched. (Shares of
  rows jump: all rows with the same answers change class together.)
- mixtures: the share of new rows put into another component than by the non-private fit, components matched.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from studies.calibration.simulations import Drawn, Simulation

#: New rows on which fits are compared, and more of them for shares.
NEW_ROWS, SHARE_ROWS = 4_000, 20_000


class Outcome(NamedTuple):
    """What a plan predicts in one setting, and what happened."""

    quantity: str
    predicted: float
    low: float
    high: float
    failure: float
    realised: float
    inside: float
    failed: float
    warned: float
    feasible: bool

    @property
    def ratio(self) -> float:
        return self.predicted / max(self.realised, 1e-12)

    def note(self) -> str:
        words = f"{self.quantity}: predicted {self.predicted:.3g} ({self.low:.3g} to {self.high:.3g}), realised "
        words += f"{self.realised:.3g}; {100 * self.inside:.0f} % of fits within"
        if self.failure > 0.005 or self.failed > 0:
            words += f"; failed starts: predicted {100 * self.failure:.0f} %, seen {100 * self.failed:.0f} %"
        return words + (f"; fit check warns in {100 * self.warned:.0f} %" if self.warned else "")


def outcome(simulation: Simulation, n: int, epsilon: float, fits: int, first_seed: int) -> Outcome | None:
    """The plan for that many rows, beside that many fits."""
    columns = simulation.draw(16, np.random.default_rng(0)).X.shape[1]
    plan = simulation.estimator(epsilon=epsilon, delta=1e-6).plan(n, columns)
    prediction = plan.prediction
    if prediction is None:
        return None
    seen, failed, warned = [], [], []
    for seed in range(first_seed, first_seed + fits):
        private, rows = simulation.fit(n, epsilon, seed)
        share, failure = _distance(simulation, private, rows, seed)
        seen.append(share)
        failed.append(failure)
        warned.append(not private.fit_check_.better)
    found = np.array(seen)
    inside = float(np.mean((prediction.low <= found) & (found <= prediction.high)))
    stated = (prediction.quantity, prediction.median, prediction.low, prediction.high, prediction.failure)
    return Outcome(
        *stated, float(np.median(found)), inside, float(np.mean(failed)), float(np.mean(warned)), plan.feasible
    )


def _distance(simulation: Simulation, private: Any, rows: Drawn, seed: int) -> tuple[float, bool]:
    """How far the private fit is from the non-private one of the same rows, and whether it is another optimum."""
    new = simulation.draw(
        NEW_ROWS if simulation.model == "linear-regression" else SHARE_ROWS, np.random.default_rng(seed + 10**6)
    )
    plain = simulation.estimator(epsilon=math.inf, delta=1e-6)
    plain = plain.fit(rows.X) if rows.y is None else plain.fit(rows.X, rows.y)
    if simulation.model == "linear-regression":
        away = private.predict(new.X) - plain.predict(new.X)
        return float(np.mean(away**2) / np.nanvar(new.y)), False
    moved, K = moved_share(private, plain, new)
    found = probabilities_apart(private, plain) if simulation.model == "latent-class" else moved
    return found, moved > min(0.6, 0.3 * (K - 1)) / K


def moved_share(private: Any, plain: Any, new: Drawn) -> tuple[float, int]:
    """The share of rows that two fits put into different components, these matched, and the number of components."""
    chances = [m.predict_proba(new.X) if new.y is None else m.predict_proba(new.X, new.y) for m in (private, plain)]
    first, second = (np.argmax(part, axis=1) for part in chances)
    return rows_apart(first, second), max(part.shape[1] for part in chances)


def rows_apart(one: Any, other: Any) -> float:
    """The share of rows with different labels, labels matched as well as they can be."""
    K = int(max(one.max(), other.max())) + 1
    counts = np.zeros((K, K))
    np.add.at(counts, (one, other), 1)
    return 1 - float(counts[linear_sum_assignment(-counts)].sum()) / len(one)


def probabilities_apart(private: Any, plain: Any) -> float:
    """The root mean square of the differences between two fits' probabilities, once classes are matched."""
    first, second = (np.hstack(list(model.probabilities_.values())) for model in (private, plain))
    apart = np.mean((first[:, None] - second[None]) ** 2, axis=2)
    return math.sqrt(float(np.mean(apart[linear_sum_assignment(apart)])))
