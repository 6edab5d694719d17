"""The state that the steps of a fit pass on, the tuning constants, and the base rows of the surrogate."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dpem.fitting.step import State
from dpem.fitting.surrogate import Answer, Surrogate, SurrogateFit
from dpem.models.gaussian_mixture.family import GaussianFamily, inside, with_missing
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.location import ConstantColumn, Presence, TailCells, VarianceComponents
from dpem.query import FloatArray


@dataclass(frozen=True)
class Tuning:
    """Numbers set on the first half of the public tables (``python -m studies.gaussian_mixture_real tune``) and on the
    simulated settings of ``studies.gaussian_mixture`` with seeds below 1000.

    Attributes
    ----------
    rows : the largest number of surrogate rows.
    wide_rows, wide_weight : the share of surrogate rows drawn from one wide Gaussian, and their total base weight.
    tail_weight : the largest total base weight of rows in the tails of the histograms.
    queries, growth : the number of score queries, and the ratio of the prices of consecutive ones.
    margin_kappa, score_kappa : ranges of κ, the weight of the base rows, for each block of answers; 160 instead of 1000
        as the highest lets noise raise rows that lie far from all others.
    margin_components, score_components : principal components of the answers that tilt the rows.
    floor : the least standard deviation of a component, over its column's.
    effective : rows are drawn again when their effective share falls below this; without that, one simulated fit in ten
        ends far from the components.
    restarts, last_restarts : random starts of EM on the surrogate after a query, and after the last one.
    more : components of base rows beyond K where they are drawn again.
    patterns : patterns of missing values among the surrogate rows.
    levels : the quantiles of norms that the radius of scores is chosen from.
    widened : the privacy part of standard errors over its linear form, by simulated coverage.
    sizeable : the least share of a component whose collapse onto repeated values is reported.
    unsettled, most_unsettled : the privacy part of standard errors is multiplied by ``unsettled`` times the root mean
        square of the change of the parameters over the last two answers, in these errors, if that is more than 1, and
        at most by ``most_unsettled``; the root mean square is 0.85 on rows that follow the model.
    moving : the multiple of linear errors at which the rows that change component are counted.
    near : a solution whose mean log-likelihood is at most this much lower may be that of a second fit.
    unstable : the share of rows in other components above which components are called unstable.
    tiny : the share below which a component is reported. Of 80 simulated fits with components of at least 5 %, 14 had
        merged two; 13 of these and none of the others had a component below this share.
    check : the share of ρ for the fit check.
    """

    rows: int = 5000
    wide_rows: float = 0.15
    wide_weight: float = 1e-3
    tail_weight: float = 0.5
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
    most_unsettled: float = 4.0
    moving: float = 2.5
    near: float = 0.01
    unstable: float = 0.03
    tiny: float = 0.01
    check: float = 0.08

    def rows_for(self, n: int) -> int:
        """The number of surrogate rows for a table of n rows: few where the noise exceeds the error of few."""
        return min(self.rows, max(2 * n, self.rows // 5))


TUNING = Tuning()


def restarts_for(parameters: int, usual: int) -> int:
    """The number of random starts of EM: a quarter for mixtures of many parameters, where a start costs most and rarely
    wins.
    """
    return usual if parameters <= 150 else usual // 4


def noise_gain(parameters: int, noise: float) -> float:
    """½ps², the gain in mean log-likelihood of a mixture of p parameters that fits noise of standard deviation s in the
    whitened scores.
    """
    return 0.5 * parameters * noise**2


_NONE = np.zeros(0)


@dataclass(frozen=True)
class MixtureState(State):
    """The state of a fit: centres, spreads and tails of the columns, then the surrogate rows and the mixture fitted to
    them. ``path`` are the scores of numbers of components, for "auto".
    """

    centre: FloatArray = field(default_factory=lambda: _NONE)
    presence: Presence = field(default_factory=lambda: Presence(_NONE))
    spread: FloatArray = field(default_factory=lambda: _NONE)
    variances: VarianceComponents = field(default_factory=lambda: VarianceComponents(_NONE, _NONE, 1.0, 0.0, _NONE))
    margins: tuple[Answer, ...] = ()
    tails: TailCells | None = None
    constant: tuple[ConstantColumn, ...] = ()
    path: FloatArray = field(default_factory=lambda: _NONE)
    fit: SurrogateFit[Gaussians] = None  # type: ignore[assignment]  # set by the last step of the start

    @property
    def wide(self) -> Gaussians:
        """One Gaussian with the means, the standard deviations and the correlation of all rows."""
        mean, spread = self.centre, self.spread
        if self.tails is not None:
            mean, spread = self.tails.with_tails(mean, spread)
        return Gaussians(np.ones(1), mean[None], (np.outer(spread, spread) * self.variances.correlation)[None])


#: Rows of the wide Gaussian come in turn from these multiples of its spread, in all columns or in one of them; the
#: weight of a row falls with its multiple.
ALL_WIDER, ONE_WIDER = np.array([1.0, 1.0, 2.0, 4.0]), np.array([4.0, 8.0, 16.0])
WIDE_WEIGHTS = np.concatenate([np.ones(len(ALL_WIDER)), 4 / ONE_WIDER])


def base_rows(
    mixture: Gaussians, state: MixtureState, count: int, patterns: FloatArray | None, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Rows within the bounds and their base weights.

    Most rows are of the mixture. Those of the wide Gaussian have little weight, so that only an answer that asks for
    rows between or beyond the components raises them. Those in the tails of the histograms have the weight of their
    cells.
    """
    few = round(TUNING.wide_rows * count)
    parts, weights = [_wide_rows(state.wide, few, rng)], [TUNING.wide_weight * _weights_in_turn(WIDE_WEIGHTS, few)]
    if state.tails is not None and len(state.tails.share):
        parts.append(state.tails.moved_into(inside(mixture, few, rng), rng))
        in_tails = min(float(state.tails.share.sum()), TUNING.tail_weight)
        weights.append(in_tails * _weights_in_turn(np.ones(1), few))
    rest = count - len(parts) * few
    parts.append(inside(mixture, rest, rng, even=True))
    weights.append((1 - sum(float(part.sum()) for part in weights)) * _weights_in_turn(np.ones(1), rest))
    rows = np.vstack(parts)
    for j, low, high in state.constant:  # rows beside the constant would be a component of their own
        rows[:, j] = np.clip(rows[:, j], low, high)
    return with_missing(rows, patterns), np.concatenate(weights)


def _wide_rows(wide: Gaussians, count: int, rng: np.random.Generator) -> FloatArray:
    """Rows of the Gaussian and of wider ones in turn, as :data:`WIDE_WEIGHTS` has them."""
    rows = inside(wide, count, rng)
    turn = np.arange(count) % len(WIDE_WEIGHTS)
    scale = np.repeat(np.concatenate([ALL_WIDER, ONE_WIDER])[turn, None], rows.shape[1], axis=1)
    widened_column = np.arange(rows.shape[1]) == rng.integers(rows.shape[1], size=(count, 1))
    scale[(turn >= len(ALL_WIDER))[:, None] & ~widened_column] = 1.0
    return np.clip(wide.means + scale * (rows - wide.means), -1.0, 1.0)


def _weights_in_turn(weights: FloatArray, count: int) -> FloatArray:
    """The weights of rows that take these in turn; they sum to 1."""
    weights = weights[np.arange(count) % len(weights)]
    return np.asarray(weights / weights.sum())


def redrawn(surrogate: Surrogate, family: GaussianFamily, state: MixtureState, rng: np.random.Generator) -> Surrogate:
    """The same answers on rows drawn from a mixture of more components that is fitted to the weighted rows."""
    larger = replace(family, K=family.K + TUNING.more)
    mixture = surrogate.fit(larger, [], restarts=2, rng=rng, short_steps=15, finalists=1, max_steps=60)[0].theta
    return surrogate.redrawn(*base_rows(mixture, state, len(surrogate.x), family.patterns, rng))
