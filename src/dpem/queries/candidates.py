"""How well each of a few fitted models describes the rows: the query of a private choice among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import logsumexp

from dpem.query import Bound, Chunk, FloatArray
from dpem.tables.blocks import pieces, response

#: Rows whose densities are held at once.
_PIECE = 4096


@dataclass(frozen=True)
class CandidateScores:
    """For each of k candidates, Σ clamp(log p_c(row) − log p̄(row), ±log 2k), where p̄ is the candidates' average.

    Beside their average, densities have no unit, and the logarithm is at most log k; the clamp below makes it the
    same size downwards, so that a row that one candidate cannot explain counts, but for no more than any other.

    *Lemma.* ℓ∞ sensitivity 2·log 2k. *Proof.* Every entry of a contribution is clamped to ±log 2k after it is computed;
    what is not a number counts as 0. ∎
    """

    densities: tuple[Callable[[FloatArray, FloatArray | None], FloatArray], ...] = field(repr=False)
    blocked: bool = False

    @property
    def most(self) -> float:
        return math.log(2 * len(self.densities))

    @property
    def label(self) -> str:
        return f"log-density of {len(self.densities)} candidates beside their average, clamped at {self.most:.4g}"

    @property
    def bound(self) -> Bound:
        return Bound.symmetric(linf=self.most, l2=math.sqrt(len(self.densities)) * self.most)

    @np.errstate(all="ignore")
    def sum(self, chunk: Chunk) -> FloatArray:
        total, first = np.zeros(len(self.densities)), 0
        y = None if chunk.y is None else response(chunk)
        for rows in pieces(chunk.X, _PIECE):
            responses = None if y is None else y[first : first + len(rows)]
            total += self._contributions(rows, responses).sum(axis=0)
            first += len(rows)
        return total

    def _contributions(self, rows: FloatArray, y: FloatArray | None) -> FloatArray:
        """One row for each record, one column for each candidate. A response that is not finite says nothing."""
        odd = np.zeros(len(rows), dtype=bool) if y is None else ~np.isfinite(y)
        known: Any = None if y is None else np.where(odd, 0.0, y)
        logs = np.column_stack([density(rows, known) for density in self.densities])
        logs[odd] = np.nan
        ahead = logs - (logsumexp(logs, axis=1, keepdims=True) - math.log(logs.shape[1]))
        return np.clip(np.nan_to_num(ahead, nan=0.0), -self.most, self.most)
