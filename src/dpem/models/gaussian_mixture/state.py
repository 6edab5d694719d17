"""The state that the steps of a fit pass on, the tuning constants, and the base rows of the surrogate."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dpem.fitting.step import State
from dpem.fitting.surrogate import Answer, Surrogate, SurrogateFit
from dpem.models.gaussian_mixture.family import GaussianFamily, inside, with_missing
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.location import ConstantColumn, Presence, VarianceComponents
from dpem.query import FloatArray


@dataclass(frozen=True)
class Tuning:
    """Numbers set on the first half of the public tables (``python -m studies.gaussian_mixture_real tune``) and on the
    simulated settings of ``studies.gaussian_mixture`` with seeds below 1000.

    Attributes
    ----------
    rows : the largest number of surrogate rows.
    wide_rows, wide_weight : the share of surrogate rows drawn from one wide Gaussian, and their total base weight.
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
    """The state of a fit: centres and spreads of the columns, then the surrogate rows and the mixture fitted to them.

    ``all_rows`` are the means and standard deviations of the columns with their tails; ``path`` are the scores of
    numbers of components, for "auto".
    """

    centre: FloatArray = field(default_factory=lambda: _NONE)
    presence: Presence = field(default_factory=lambda: Presence(_NONE))
    spread: FloatArray = field(default_factory=lambda: _NONE)
    variances: VarianceComponents = field(default_factory=lambda: VarianceComponents(_NONE, _NONE, 1.0, 0.0, _NONE))
    margins: tuple[Answer, ...] = ()
    all_rows: tuple[FloatArray, FloatArray] = (_NONE, _NONE)
    constant: tuple[ConstantColumn, ...] = ()
    path: FloatArray = field(default_factory=lambda: _NONE)
    fit: SurrogateFit[Gaussians] = None  # type: ignore[assignment]  # set by the last step of the start

    @property
    def wide(self) -> Gaussians:
        """One Gaussian with the means, the standard deviations and the correlation of all rows."""
        mean, spread = self.all_rows
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
    rows between or beyond the components raises them.
    """
    wide = round(TUNING.wide_rows * count)
    rows = np.vstack([_wide_rows(state.wide, wide, rng), inside(mixture, count - wide, rng, even=True)])
    turns = WIDE_WEIGHTS[np.arange(wide) % len(WIDE_WEIGHTS)]
    of_mixture = np.full(count - wide, (1 - TUNING.wide_weight) / (count - wide))
    weights = np.concatenate([TUNING.wide_weight * turns / turns.sum(), of_mixture])
    for j, low, high in state.constant:  # rows beside the constant would be a component of their own
        rows[:, j] = np.clip(rows[:, j], low, high)
    return with_missing(rows, patterns), weights


def _wide_rows(wide: Gaussians, count: int, rng: np.random.Generator) -> FloatArray:
    """Rows of the Gaussian and of wider ones in turn, as :data:`WIDE_WEIGHTS` has them."""
    rows = inside(wide, count, rng)
    turn = np.arange(count) % len(WIDE_WEIGHTS)
    scale = np.repeat(np.concatenate([ALL_WIDER, ONE_WIDER])[turn, None], rows.shape[1], axis=1)
    widened_column = np.arange(rows.shape[1]) == rng.integers(rows.shape[1], size=(count, 1))
    scale[(turn >= len(ALL_WIDER))[:, None] & ~widened_column] = 1.0
    return np.clip(wide.means + scale * (rows - wide.means), -1.0, 1.0)


def redrawn(surrogate: Surrogate, family: GaussianFamily, state: MixtureState, rng: np.random.Generator) -> Surrogate:
    """The same answers on rows drawn from a mixture of more components that is fitted to the weighted rows."""
    larger = replace(family, K=family.K + TUNING.more)
    mixture = surrogate.fit(larger, [], restarts=2, rng=rng, short_steps=15, finalists=1, max_steps=60)[0].theta
    return surrogate.redrawn(*base_rows(mixture, state, len(surrogate.x), family.patterns, rng))
