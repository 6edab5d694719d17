"""Choosing columns of a wide table: the choice itself, and which of the chosen ones are kept."""

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
    """The columns chosen before, and so many more with the largest scores; the query is about the others alone."""
    before = np.empty(0, dtype=np.intp) if before is None else before
    others = np.delete(np.arange(width), before)
    return np.concatenate([before, others[curator.select(query, columns, rho)]])


@dataclass(frozen=True)
class KeepColumns(Step):
    """The fit is from here on about the columns that were kept (:func:`best_columns`): no query."""

    columns: int = 1
    passes = 0

    def describe(self) -> str:
        return f"the best {self.columns} of the chosen columns are kept, the others have slope 0"

    def run(self, curator: Curator, model: Any, state: Any) -> Any:
        return replace(state, chosen=state.theta.chosen)


def best_columns(information: FloatArray, slopes: FloatArray, most: int) -> NDArray[np.intp]:
    """The columns left, in order, after that one is taken away again and again which the slopes need least.

    ``information`` is the inverse C of the covariance of all that is unsure in the slopes. Without column j the slopes
    fit worse by b_j²/(C⁻¹)_jj, where b and C are those of the columns still there, given that the others have slope 0.

    >>> best_columns(np.eye(3), np.array([0.5, 0.1, -0.4]), 2).tolist()
    [0, 2]
    """
    kept, beside = np.arange(len(slopes)), information @ slopes
    while len(kept) > most:
        unsure = np.linalg.inv(information[np.ix_(kept, kept)])
        worse = (unsure @ beside[kept]) ** 2 / np.diag(unsure)
        kept = np.delete(kept, np.argmin(worse))
    return kept
