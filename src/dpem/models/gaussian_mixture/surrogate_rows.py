"""Rows for the surrogate: drawn from a mixture that the answers suggest, and from one wide Gaussian beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpem.fitting.surrogate import Converged, Surrogate
from dpem.models.gaussian_mixture.family import GaussianFamily, inside, with_missing
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.state import TUNING, MixtureState
from dpem.query import FloatArray

#: How many times as wide as all rows together rows of the wide Gaussian are: in all columns, and in one of them.
ALL_WIDER, ONE_WIDER = np.array([1.0, 1.0, 2.0, 4.0]), np.array([4.0, 8.0, 16.0])
TAIL_WEIGHTS = np.concatenate([np.ones(len(ALL_WIDER)), 4 / ONE_WIDER])


def base_rows(
    rich: Gaussians, state: MixtureState, count: int, patterns: FloatArray | None, rng: np.random.Generator
) -> tuple[FloatArray, None, FloatArray]:
    """Rows within the bounds and their base weights. Rows of one wide Gaussian weigh little, the less the farther out,
    so that only an answer that asks for rows between or beyond the components raises them. Rows in far cells of the
    histograms weigh what these say.
    """
    few = round(TUNING.wide_rows * count)
    parts, weights = [_tails(state.wide, few, rng)], [TUNING.wide_weight * _shared(TAIL_WEIGHTS, few)]
    if state.far is not None and len(state.far.share):
        parts.append(state.far.rows(inside(rich, few, rng), rng))
        weights.append(min(float(state.far.share.sum()), 0.5) * _shared(np.ones(1), few))
    rest = count - len(parts) * few
    parts.append(inside(rich, rest, rng, even=True))
    weights.append((1 - sum(float(own.sum()) for own in weights)) * _shared(np.ones(1), rest))
    rows = np.vstack(parts)
    for j, low, high in state.constant:  # rows beside a constant would be a component of their own
        rows[:, j] = np.clip(rows[:, j], low, high)
    return with_missing(rows, patterns), None, np.concatenate(weights)


def _tails(wide: Gaussians, count: int, rng: np.random.Generator) -> FloatArray:
    """Rows of the Gaussian and of wider ones in turn, as :data:`TAIL_WEIGHTS` has them."""
    rows = inside(wide, count, rng)
    turn = np.arange(count) % len(TAIL_WEIGHTS)
    scale = np.repeat(np.concatenate([ALL_WIDER, ONE_WIDER])[turn, None], rows.shape[1], axis=1)
    one = np.arange(rows.shape[1]) == rng.integers(rows.shape[1], size=(count, 1))
    scale[(turn >= len(ALL_WIDER))[:, None] & ~one] = 1.0
    return np.clip(wide.means + scale * (rows - wide.means), -1.0, 1.0)


def _shared(parts: FloatArray, count: int) -> FloatArray:
    """Weights of rows that belong to the parts in turn; they add up to 1."""
    weights = parts[np.arange(count) % len(parts)]
    return np.asarray(weights / weights.sum())


def redrawn(surrogate: Surrogate, family: GaussianFamily, state: MixtureState, rng: np.random.Generator) -> Surrogate:
    """The same answers on rows drawn from a richer mixture that fits the weighted rows."""
    more = replace(family, K=family.K + TUNING.more)
    rich = surrogate.fit(more, [], restarts=2, rng=rng, short=15, kept=1, most=60)[0].theta
    return surrogate.redrawn(*base_rows(rich, state, len(surrogate.x), family.patterns, rng))


def runs_of(fits: Sequence[Converged[Gaussians]]) -> tuple[tuple[float, Gaussians], ...]:
    """Where EM converged, the best first; the best even if it did not."""
    return tuple((own.log_likelihood, own.theta) for own in fits if own.converged or own is fits[0])
