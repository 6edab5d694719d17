"""Column selection for wide tables: a private selection, and backward elimination among the selected columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.step import Step
from dpem.privacy import Curator
from dpem.query import FloatArray, Query


def chosen_after(
    curator: Curator, query: Query, columns: int, rho: float, before: NDArray[np.intp] | None, width: int
) -> NDArray[np.intp]:
    """The columns ``before``, followed by the ``columns`` others with the largest noisy scores.

    The query has one score for each of the ``width`` columns that is not in ``before``.
    """
    before = np.empty(0, dtype=np.intp) if before is None else before
    others = np.delete(np.arange(width), before)
    return np.concatenate([before, others[curator.select(query, columns, rho)]])


@dataclass(frozen=True)
class KeepColumns(Step):
    """Restrict the fit to the columns that :func:`best_columns` kept. It sends no query."""

    columns: int = 1
    passes = 0

    def describe(self) -> str:
        return f"the best {self.columns} of the chosen columns are kept, the others have slope 0"

    def run(self, curator: Curator, model: Any, state: Any) -> Any:
        return replace(state, chosen=state.theta.chosen)


def best_columns(information: FloatArray, slopes: FloatArray, most: int) -> NDArray[np.intp]:
    """Backward elimination: drop the least useful column until ``most`` are left; return those, in order.

    ``information`` is C, the inverse covariance of the estimated slopes. Dropping column j increases the quadratic loss
    by b_j²/(C⁻¹)_jj, where b and C are those of the remaining columns when the dropped ones have slope 0.

    >>> best_columns(np.eye(3), np.array([0.5, 0.1, -0.4]), 2).tolist()
    [0, 2]
    """
    remaining, score = np.arange(len(slopes)), information @ slopes
    while len(remaining) > most:
        covariance = np.linalg.inv(information[np.ix_(remaining, remaining)])
        loss = (covariance @ score[remaining]) ** 2 / np.diag(covariance)
        remaining = np.delete(remaining, np.argmin(loss))
    return remaining
