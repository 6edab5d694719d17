"""What the steps of a fit hand to each other, and the numbers that were set by studies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.step import State
from dpem.fitting.surrogate import Answer, ScoreQuery, Surrogate
from dpem.models.gaussian_mixture.family import GaussianFamily
from dpem.models.gaussian_mixture.gaussians import Gaussians
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
    sketch_kappa, margin_kappa, score_kappa : ranges of κ, the weight of the base rows, for each block of answers.
    sketch_components, margin_components, score_components : principal components of the answers that tilt the rows.
    floor : the least standard deviation of a component, as a part of a column's.
    effective : rows are drawn again when less than this share of them carries the weights.
    restarts, last_restarts : random starts of EM on the surrogate after a query, and after the last one.
    richest, more : components of base rows at most, and beyond K where they are drawn again.
    patterns : patterns of missing values among the surrogate rows.
    ridge, levels : of the whitener, and the quantiles of the norms at which scores may be clipped.
    widened : the privacy part of standard errors over its linear form, by simulated coverage.
    moving : by how much the noise is taken larger where the rows that it moves are counted.
    near : a fit is nearly as good as the best if its mean log-likelihood is less than that lower.
    unstable : the share of rows in other components above which components are called unstable.
    check : the part of ρ that the fit check gets.
    """

    rows: int = 5000
    wide_rows: float = 0.15
    wide_weight: float = 1e-3
    queries: int = 6
    growth: float = 1.2
    sketch_kappa: tuple[float, float] = (1.0, 3e4)
    score_kappa: tuple[float, float] = (10.0, 160.0)
    sketch_components: int = 60
    margin_kappa: tuple[float, float] = (1.0, 1e3)
    margin_components: int = 60
    score_components: int = 300
    floor: float = 0.02
    effective: float = 0.15
    restarts: int = 2
    last_restarts: int = 8
    richest: int = 6
    more: int = 6
    patterns: int = 32
    ridge: float = 0.002
    levels: tuple[float, ...] = (0.4, 0.6, 0.8, 0.9, 0.97)
    widened: float = 1.25
    moving: float = 2.0
    near: float = 0.01
    unstable: float = 0.03
    check: float = 0.08

    def rows_for(self, n: int) -> int:
        """Surrogate rows for a table of n: with few rows the noise is larger than what more of them would add."""
        return min(self.rows, max(2 * n, self.rows // 5))


TUNING = Tuning()


class Moments(NamedTuple):
    """What the second moments tell, in coordinates of unit spread: variances along directions between centres.

    ``directions`` are columns, ``between`` the variance of centres along each, ``within`` that of a component in any,
    ``edge`` what noise alone can look like, ``correlation`` that of all rows together.
    """

    directions: FloatArray
    between: FloatArray
    within: float
    edge: float
    correlation: FloatArray


@dataclass(frozen=True)
class Presence:
    """Shares of rows with a value in each column, and of rows without any value."""

    seen: FloatArray
    empty: float = 0.0

    @property
    def given(self) -> FloatArray:
        """The shares with a value among rows that are not empty."""
        return np.minimum(self.seen / (1 - self.empty), 1.0)

    @property
    def complete(self) -> bool:
        return bool(np.all(self.given >= 1))

    @property
    def pairs(self) -> FloatArray:
        """Shares of rows with values in both of two columns, if rows that are not empty miss them independently."""
        both = (1 - self.empty) * np.outer(self.given, self.given)
        both[np.diag_indices(len(both))] = self.seen
        return both

    def patterns(self, P: int, rng: np.random.Generator) -> FloatArray | None:
        """P patterns of rows that are not empty (1 where a value is seen), None where no value is missing."""
        if self.complete:
            return None
        found = (rng.random((20 * P, len(self.seen))) < self.given).astype(float)
        found = found[found.sum(axis=1) > 0]
        return found[:P] if len(found) else np.ones((1, len(self.seen)))


class Far(NamedTuple):
    """Cells far from a column's centre that hold rows: the column, the ends in unit coordinates, the share of rows."""

    column: NDArray[np.intp]
    low: FloatArray
    high: FloatArray
    share: FloatArray

    def moments(self, centre: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of the columns, what lies far from the centres added to centre and spread."""
        away = (self.low + self.high) / 2 - centre[self.column]
        first, second, share = np.zeros(len(centre)), np.zeros(len(centre)), np.zeros(len(centre))
        np.add.at(first, self.column, self.share * away)
        np.add.at(second, self.column, self.share * away**2)
        np.add.at(share, self.column, self.share)
        share = np.minimum(share, 0.9)
        return centre + first, np.sqrt((1 - share) * spread**2 + np.maximum(second - first**2, 0.0))

    def rows(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """The rows with values in far cells, each in one of them at least: the cells by their shares, and every
        further column that has such cells in half of the rows.
        """
        rows = rows.copy()
        first = rng.choice(len(self.share), size=len(rows), p=self.share / self.share.sum())
        for j in np.unique(self.column):
            cells = np.flatnonzero(self.column == j)
            cell = rng.choice(cells, size=len(rows), p=self.share[cells] / self.share[cells].sum())
            own = self.column[first] == j
            cell = np.where(own, first, cell)
            value = self.low[cell] + rng.random(len(rows)) * (self.high - self.low)[cell]
            rows[:, j] = np.where(own | (rng.random(len(rows)) < 0.5), value, rows[:, j])
        return rows


def restarts_for(count: int, usual: int) -> int:
    """Random starts of EM for so many parameters: they cost most where they are least likely to be believed."""
    return usual if count <= 150 else usual // 4


def noise_gain(count: int, noise: float) -> float:
    """½ps²: what noise of standard deviation s in whitened scores adds to the mean log-likelihood of a mixture of p
    parameters that follows it.
    """
    return 0.5 * count * noise**2


@dataclass(frozen=True)
class SurrogateFit:
    """The surrogate rows and the mixture that fits them.

    ``noises`` are the standard deviations of the score answers so far, each over the part of the score that its clip
    kept; ``query`` is the last one, at the mixture that it gave; ``runs`` are
    where EM on the surrogate converged last, with the log-likelihood there, the best first; ``before`` are the mixtures
    that the last two queries were asked at.
    """

    family: GaussianFamily
    surrogate: Surrogate
    runs: tuple[tuple[float, Gaussians], ...]
    before: tuple[Gaussians, ...] = ()
    noises: tuple[float, ...] = ()
    query: ScoreQuery | None = field(default=None, repr=False)
    path: FloatArray = field(default_factory=lambda: np.zeros(0))
    converged: bool = True

    @property
    def mixture(self) -> Gaussians:
        return self.runs[0][1]


_NONE = np.zeros(0)


@dataclass(frozen=True)
class MixtureState(State):
    """The state of a fit: where columns lie, then the surrogate rows and the mixture that fits them."""

    centre: FloatArray = field(default_factory=lambda: _NONE)
    presence: Presence = field(default_factory=lambda: Presence(_NONE))
    spread: FloatArray = field(default_factory=lambda: _NONE)
    moments: Moments = field(default_factory=lambda: Moments(_NONE, _NONE, 1.0, 0.0, _NONE))
    margins: Answer | None = None
    far: Far | None = None
    constant: tuple[tuple[int, float, float], ...] = ()
    surrogate_fit: SurrogateFit | None = None

    @property
    def fit(self) -> SurrogateFit:
        if self.surrogate_fit is None:
            raise RuntimeError("the start of the mixture has not been run.")
        return self.surrogate_fit

    @property
    def wide(self) -> Gaussians:
        """One Gaussian with the means, the standard deviations and the correlation of all rows."""
        mean, spread = self.centre, self.spread
        if self.far is not None:
            mean, spread = self.far.moments(mean, spread)
        return Gaussians(np.ones(1), mean[None], (np.outer(spread, spread) * self.moments.correlation)[None])
