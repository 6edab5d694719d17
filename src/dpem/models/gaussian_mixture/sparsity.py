"""The choice of a few columns that separate components, from one query about all pairs of columns.

If two columns both separate components, rows above the centre of one are above (or below) the centre of the other more
often than by chance. Only these signs are used, so that no column's scale need be known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import ClassVar

import numpy as np

from dpem.fitting.model import PredictedFit, Sizes
from dpem.fitting.step import Step
from dpem.models.gaussian_mixture.model import GaussianMixture
from dpem.models.gaussian_mixture.planning import SEPARATION
from dpem.models.gaussian_mixture.start_steps import FindCentres
from dpem.models.gaussian_mixture.state import MixtureState
from dpem.privacy import Curator
from dpem.queries.block_loop import PIECE, narrow_sum, over_rows
from dpem.queries.narrow import NarrowQuery, rounded
from dpem.query import Array, Bound, Chunk, FloatArray, Namespace
from dpem.tables.blocks import like

#: The shares of ρ for the centres of all columns and for the choice.
CENTRES, CHOICE = 0.05, 0.22
#: The most columns to choose from: pairs of more do not fit into memory.
MOST_COLUMNS = 2000
#: The number of partners in a column's score: a single one may be its copy.
PARTNERS = 2


@dataclass(frozen=True)
class PairedSides(NarrowQuery):
    """Σ (f, f fᵀ) with f_j = ±½ above or below the column's centre, 0 where the value is missing; from it one score for
    each column.

    The score of column j is the mean of the :data:`PARTNERS` largest |cov(f_j, f_l)|, l ≠ j, over the rows.

    *Lemma.* Replacing a row moves every score by at most 1/n. *Proof.* With a and b the means of f and g over the other
    n − 1 rows, n·cov(f, g) = S + (1 − 1/n)(f − a)(g − b), where S does not depend on the row. For f and g in [−½, ½]
    the product is largest and smallest at corners; with p = ½ − a and q = ½ − b, both in [0, 1], its largest value is
    pq or (1 − p)(1 − q), its smallest −p(1 − q) or −(1 − p)q, and each of the four sums of a largest and the size of
    a smallest is p, q, 1 − p or 1 − q: at most 1. So cov moves by less than 1/n, |cov| and a mean of some |cov| do
    too, and the mean of the largest is the supremum over all choices of partners. ∎ What is summed are multiples of
    ¼, exactly; the fold rounds by at most six units of 2⁻⁵³ in two tables, less than the source's slack for a sum of n
    rows.
    """

    centre: FloatArray = field(repr=False)

    @property
    def label(self) -> str:
        return f"sides of all pairs of {self.schema.width} columns"

    @property
    def bound(self) -> Bound:
        return rounded(Bound(linf=1.0, size_linf=1.0), 8)

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        half = xp.full_like(x, 0.5)
        side = xp.where(x >= like(xp, self.centre, x), half, -half)
        side = xp.where(xp.isnan(x), xp.zeros_like(x), side)
        pairs = over_rows(xp, side, side)
        return xp.concat([xp.sum(side, axis=0), xp.reshape(pairs, (-1,))])

    def sum(self, chunk: Chunk) -> FloatArray:
        """The sum over the chunk, a few blocks of rows at a time, as the pairs of a block are large."""
        n = chunk.X.shape[0]
        step = 8 * max(256, PIECE // self.schema.width)
        parts = (narrow_sum(self, Chunk(chunk.X[first : first + step], None)) for first in range(0, n, step))
        return np.asarray(reduce(np.add, parts), dtype=float)

    def folded(self, means: FloatArray) -> FloatArray:
        """The score of each column: the mean of its largest absolute covariances."""
        d = self.schema.width
        sizes = np.abs(means[d:].reshape(d, d) - np.outer(means[:d], means[:d]))
        np.fill_diagonal(sizes, 0.0)
        partners = min(PARTNERS, d - 1)
        return np.asarray(np.sort(sizes, axis=1)[:, d - partners :].mean(axis=1))


@dataclass(frozen=True)
class ChooseColumns(Step["SparseGaussianMixture", MixtureState]):
    """Choose the columns with the largest scores; they stay in the order of the table."""

    columns: int = 2

    def describe(self) -> str:
        return f"choice of {self.columns} columns that go together"

    def run(self, curator: Curator, model: SparseGaussianMixture, state: MixtureState) -> MixtureState:
        chosen = curator.select(PairedSides(model.schema, state.centre), self.columns, self.rho)
        return MixtureState(chosen=np.sort(chosen))


def after_choice(sizes: Sizes) -> Sizes:
    """The sizes with the part of ρ that remains for the fit on the chosen columns."""
    return sizes._replace(rho=sizes.rho * (1 - CENTRES - CHOICE))


def missed_share(sizes: Sizes, d: int, s: int, separation: float) -> float:
    """The expected share of the columns that separate components which the choice misses, for two components with equal
    distances in s columns.

    Two such columns have a correlation r, so the covariance of their signs is asin(r)/2π. The noise is Gumbel's: a
    column loses to the best of d − s others with the logistic probability of the difference.

    >>> missed_share(Sizes(10_000, 1.0, 1e-6, 0.024), 200, 5, 4.0) < 0.01
    True
    """
    if math.isinf(sizes.rho) or d <= s:
        return 0.0
    between = separation**2 / (4 * s)
    score = math.asin(between / (1 + between)) / (2 * math.pi)
    chance = 0.25 * math.sqrt(2 * math.log(d) / sizes.n)
    noise = sizes.rows_per_person * math.sqrt(s / (2 * CHOICE * sizes.rho)) / sizes.n
    return 1 / (1 + math.exp(min(max((score - chance) / noise - math.log(d - s), -700.0), 700.0)))


def with_choice(expected: PredictedFit, wrong: float) -> PredictedFit:
    """The prediction of a fit on chosen columns, a share of which is wrong."""
    if expected.prediction is None:
        return expected
    p = expected.prediction
    words = f" About {100 * wrong:.0f} % of the columns that carry components will be missed." if wrong > 0.005 else ""
    failure = 1 - (1 - p.failure) * (1 - wrong)
    prediction = replace(p, failure=failure, meaning=f"{p.meaning}{words}")
    if wrong < 0.5:
        return expected._replace(prediction=prediction)
    advice = (
        "most columns that carry components will be missed; more rows, a larger epsilon or a larger sparsity would help"
    )
    return expected._replace(prediction=prediction, feasible=False, advice=advice)


@dataclass(frozen=True)
class SparseGaussianMixture(GaussianMixture):
    """A mixture on the ``sparsity`` columns that depend most on each other."""

    sparsity: int = 2
    gaussian: ClassVar[bool] = False

    def steps(self, sizes: Sizes) -> tuple[Step, ...]:
        return (
            FindCentres(CENTRES * sizes.rho),
            ChooseColumns(CHOICE * sizes.rho, self.sparsity),
            *self._fit(after_choice(sizes), self.sparsity),
        )

    def predict_fit(self, sizes: Sizes, steps: tuple[Step, ...]) -> PredictedFit:
        first = np.arange(self.sparsity)  # which columns does not matter
        narrow = GaussianMixture(self.schema.take(first), self.n_components, self.kind, self.proportions[first])
        expected = narrow.predict_fit(after_choice(sizes), steps)
        return with_choice(expected, missed_share(sizes, self.schema.width, self.sparsity, sizes.effect or SEPARATION))
