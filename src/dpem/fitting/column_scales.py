"""The private mean and spread of each column: the query, and the step of the scaler's plan."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpem.fitting.step import State, Step
from dpem.privacy import Curator
from dpem.query import Bound, Chunk, FloatArray
from dpem.tables.blocks import pieces


@dataclass(frozen=True)
class ColumnMoments:
    """The moments Σu, Σ1.5·u² and Σ0.85·[observed] of each column, with u the entry scaled to [−1, 1] by public bounds.
    Missing and infinite entries add 0.

    *Lemma.* ℓ2 sensitivity 2√d, the same as that of Σu alone. *Proof.* One column at a time. Two observed entries
    u ≥ v: the squared distance is (u−v)²(1 + 2.25(u+v)²). For a given difference it grows with |u+v|, so take u = 1,
    v = t − 1 (the other end mirrors it): it is 4 + t·g(t) with g(t) = −4 + 10t − 9t² + 2.25t³, and g < 0 on [0, 2]
    (its largest value there is about −0.61), so it is at most 4. Observed against missing: u² + 2.25u⁴ + 0.7225 ≤
    3.9725 < 4. Two missing: 0. Adding d columns gives 4d. ∎
    """

    low: FloatArray = field(repr=False)
    high: FloatArray = field(repr=False)
    blocked: bool = False
    label: str = "first and second moments and counts of each column"

    @property
    def bound(self) -> Bound:
        root = math.sqrt(len(self.low))
        return Bound(linf=2.0, l2=2 * root, size_linf=1.5, size_l2=2 * root)

    @np.errstate(over="ignore")
    def sum(self, chunk: Chunk) -> FloatArray:
        d = len(self.low)
        total = np.zeros(3 * d)
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        for rows in pieces(chunk.X, 4096):
            seen = np.isfinite(rows)
            u = np.clip((np.where(seen, rows, 0.0) - middle) / half, -1.0, 1.0) * seen
            total[:d] += u.sum(axis=0)
            total[d : 2 * d] += 1.5 * np.square(u).sum(axis=0)
            total[2 * d :] += 0.85 * seen.sum(axis=0)
        return total


@dataclass(frozen=True)
class Parameters:
    """Released mean and spread of each column, in the table's units."""

    mean: FloatArray
    scale: FloatArray


@dataclass(frozen=True)
class ColumnScales(Step):
    """Release the moments of each column within ``low`` and ``high``; spreads are at least what the noise can make."""

    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def describe(self) -> str:
        return "centre and spread of each column"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        low, high, d = np.array(self.low), np.array(self.high), curator.n_features
        query = ColumnMoments(low, high)
        noise = curator.noise_scale(query, self.rho)
        released = curator.measure(query, self.rho)
        observed = np.clip(released[2 * d :] / 0.85, max(noise, 1 / curator.n_rows), 1.0)
        mean = np.clip(released[:d] / observed, -1.0, 1.0)
        variance = released[d : 2 * d] / 1.5 / observed - mean**2
        smallest = max(noise, 1e-12)
        middle, half = (low + high) / 2, (high - low) / 2
        spread = half * np.sqrt(np.clip(variance, smallest, 1.0))
        return replace(state, theta=Parameters(middle + half * mean, spread))
