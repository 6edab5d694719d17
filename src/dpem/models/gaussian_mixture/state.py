"""What the steps of a fit hand to each other, the surrogate rows, and the numbers that were set by studies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dpem.fitting.step import State
from dpem.fitting.surrogate import Answer, Surrogate, SurrogateFit
from dpem.models.gaussian_mixture.family import GaussianFamily, inside, with_missing
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.location import Far, Moments, Presence
from dpem.query import FloatArray


@dataclass(frozen=True)
class Tuning:
    """Numbers set on the first half of the public tables (``python -m studies.gaussian_mixture_real tune``) and on the
    simulated settings of ``studies.gaussian_mixture`` with seeds below 1000.

    Attributes
    ----------
    rows : surrogate rows at most.
    wide_rows, wide_weight : the share of them drawn from one Gaussian and wider ones, and their base weight.
    queries, growth : score queries, and the factor by which the price of each exceeds the last one's.
    margin_kappa, score_kappa : ranges of κ, the weight of the base rows, for each block of answers; 160 instead of 1000
        as the highest lets noise raise rows that lie far from all others.
    margin_components, score_components : principal components of the answers that tilt the rows.
    floor : the least standard deviation of a component, as a part of a column's.
    effective : rows are drawn again when less than this share of them carries the weights; without that, one simulated
        fit in ten ends far from the components.
    restarts, last_restarts : random starts of EM on the surrogate after a query, and after the last one.
    more : components of base rows beyond K where they are drawn again.
    patterns : patterns of missing values among the surrogate rows.
    levels : the quantiles of the norms at which scores may be clipped.
    widened : the privacy part of standard errors over its linear form, by simulated coverage.
    sizeable : the least share of a component whose collapse onto repeated values is reported.
    unsettled : the privacy part of standard errors is at least that many times the root mean square by which the last
        two answers moved the parameters, in these errors; it is 0.85 on rows that follow the model.
    moving : by how much errors exceed their linear form where the rows that they move are counted.
    near : another solution may be that of a second fit if its mean log-likelihood is less than that lower.
    unstable : the share of rows in other components above which components are called unstable.
    check : the part of ρ that the fit check gets.
    """

    rows: int = 5000
    wide_rows: float = 0.15
    wide_weight: float = 1e-3
    queries: int = 6
    growth: float = 1.2
    score_kappa: tuple[float, float] = (10.0, 1000.0)
    margin_kappa: tuple[float, float] = (1.0, 1e3)
    margin_components: int = 60
    score_components: int = 300
    floor: float = 0.02
    effective: float = 0.15
    restarts: int = 2
    last_restarts: int = 8
    more: int = 6
    patterns: int = 32
    levels: tuple[float, ...] = (0.4, 0.6, 0.8, 0.9, 0.97)
    widened: float = 1.25
    sizeable: float = 0.02
    unsettled: float = 1.2
    moving: float = 2.5
    near: float = 0.01
    unstable: float = 0.03
    check: float = 0.08

    def rows_for(self, n: int) -> int:
        """Surrogate rows for a table of n: with few rows the noise is larger than what more of them would add."""
        return min(self.rows, max(2 * n, self.rows // 5))


TUNING = Tuning()


def restarts_for(count: int, usual: int) -> int:
    """Random starts of EM for so many parameters: they cost most where they are least likely to be believed."""
    return usual if count <= 150 else usual // 4


def noise_gain(count: int, noise: float) -> float:
    """½ps²: what noise of standard deviation s in whitened scores adds to the mean log-likelihood of a mixture of p
    parameters that follows it.
    """
    return 0.5 * count * noise**2


_NONE = np.zeros(0)


@dataclass(frozen=True)
class MixtureState(State):
    """The state of a fit: where columns lie, then the surrogate rows and the mixture that fits them."""

    centre: FloatArray = field(default_factory=lambda: _NONE)
    presence: Presence = field(default_factory=lambda: Presence(_NONE))
    spread: FloatArray = field(default_factory=lambda: _NONE)
    moments: Moments = field(default_factory=lambda: Moments(_NONE, _NONE, 1.0, 0.0, _NONE))
    margins: tuple[Answer, ...] = ()
    far: Far | None = None
    constant: tuple[tuple[int, float, float], ...] = ()
    path: FloatArray = field(default_factory=lambda: _NONE)
    fit: SurrogateFit[Gaussians] = None  # type: ignore[assignment]  # set by the last step of the start

    @property
    def wide(self) -> Gaussians:
        """One Gaussian with the means, the standard deviations and the correlation of all rows."""
        mean, spread = self.centre, self.spread
        if self.far is not None:
            mean, spread = self.far.moments(mean, spread)
        return Gaussians(np.ones(1), mean[None], (np.outer(spread, spread) * self.moments.correlation)[None])


#: How many times as wide as all rows together rows of the wide Gaussian are: in all columns, and in one of them.
ALL_WIDER, ONE_WIDER = np.array([1.0, 1.0, 2.0, 4.0]), np.array([4.0, 8.0, 16.0])
TAIL_WEIGHTS = np.concatenate([np.ones(len(ALL_WIDER)), 4 / ONE_WIDER])


def base_rows(
    mixture: Gaussians, state: MixtureState, count: int, patterns: FloatArray | None, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Rows within the bounds and their base weights. Rows of one wide Gaussian weigh little, the less the farther out,
    so that only an answer that asks for rows between or beyond the components raises them. Rows in far cells of the
    histograms weigh what these say.
    """
    few = round(TUNING.wide_rows * count)
    parts, weights = [_tails(state.wide, few, rng)], [TUNING.wide_weight * _shared(TAIL_WEIGHTS, few)]
    if state.far is not None and len(state.far.share):
        parts.append(state.far.rows(inside(mixture, few, rng), rng))
        weights.append(min(float(state.far.share.sum()), 0.5) * _shared(np.ones(1), few))
    rest = count - len(parts) * few
    parts.append(inside(mixture, rest, rng, even=True))
    weights.append((1 - sum(float(own.sum()) for own in weights)) * _shared(np.ones(1), rest))
    rows = np.vstack(parts)
    for j, low, high in state.constant:  # rows beside a constant would be a component of their own
        rows[:, j] = np.clip(rows[:, j], low, high)
    return with_missing(rows, patterns), np.concatenate(weights)


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
    rich = surrogate.fit(more, [], restarts=2, rng=rng, short_steps=15, finalists=1, max_steps=60)[0].theta
    return surrogate.redrawn(*base_rows(rich, state, len(surrogate.x), family.patterns, rng))
