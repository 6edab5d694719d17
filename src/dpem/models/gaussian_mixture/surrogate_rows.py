"""Rows for the surrogate: drawn from a mixture that the answers suggest, and from one wide Gaussian beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpem.fitting.surrogate import Converged, Surrogate
from dpem.models.gaussian_mixture.family import GaussianFamily, inside
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.state import TUNING
from dpem.query import FloatArray


def base_rows(
    rich: Gaussians, wide: Gaussians, count: int, patterns: FloatArray | None, rng: np.random.Generator
) -> tuple[FloatArray, None, FloatArray]:
    """Rows within the bounds and their base weights. Rows of the wide Gaussian, and of the same two and four times as
    wide, weigh little, so that only an answer that asks for rows between or beyond the components raises them.
    """
    few = round(TUNING.wide_rows * count)
    scales = np.array([1.0, 4.0, 16.0])
    tails = Gaussians(
        np.array([0.5, 0.25, 0.25]), np.repeat(wide.means, 3, 0), scales[:, None, None] * wide.covariances
    )
    rows = np.vstack([inside(rich, count - few, rng), inside(tails, few, rng)])
    if patterns is not None:
        rows[patterns[np.arange(len(rows)) % len(patterns)] < 0.5] = np.nan
    weights = np.full(len(rows), (1 - TUNING.wide_weight) / (len(rows) - few))
    weights[len(rows) - few :] = TUNING.wide_weight / few
    return rows, None, weights


def redrawn(surrogate: Surrogate, family: GaussianFamily, wide: Gaussians, rng: np.random.Generator) -> Surrogate:
    """The same answers on rows drawn from a richer mixture that fits the weighted rows."""
    more = replace(family, K=family.K + TUNING.more)
    for _ in range(2):
        rich = surrogate.fit(more, [], restarts=2, rng=rng, short=15, kept=1, most=60)[0].theta
        surrogate = surrogate.redrawn(*base_rows(rich, wide, len(surrogate.x), family.patterns, rng))
        if surrogate.effective_share >= TUNING.effective:
            break
    return surrogate


def runs_of(fits: Sequence[Converged[Gaussians]]) -> tuple[tuple[float, Gaussians], ...]:
    """Where EM converged, the best first; the best even if it did not."""
    return tuple((own.log_likelihood, own.theta) for own in fits if own.converged or own is fits[0])
