"""The sketch: noisy values of the characteristic function of the rows along public lines.

Mixtures with any number of components can be fitted to one release, at no further price.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.queries.narrow import NarrowQuery, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.blocks import like

#: Phases are clipped to this size, so that they are finite.
LARGEST_PHASE = 1e3
#: Numbers computed for each phase at a time, to fit blocks of rows into a core's cache.
NUMBERS_PER_PHASE = 16


def few_columns(d: int, K: int) -> bool:
    """Whether the sketch covers all directions: columns are hardly more than the directions between K centres."""
    return d <= max(K - 1, 2) + 1


def largest_slice(amplitudes: FloatArray) -> float:
    """An upper bound of max_s 2·Σ a_f(1 − cos fs): the squared distance of two rows' values on one line.

    *Lemma.* The bound holds for every s. *Proof.* The function is even and has period 2π, so s may be taken from [0,
    π]. At the minimum of c(s) = Σ a_f cos fs the derivative is 0 and |c″| ≤ Σ a_f f², so at the nearest point
    of a grid of width h, at most h/2 away, c exceeds the minimum by at most (h/2)²/2·Σ a_f f². ∎

    >>> largest_slice(np.array([1.0])) <= 4.0 + 1e-6
    True
    """
    f = np.arange(1, len(amplitudes) + 1)
    s = np.linspace(0.0, math.pi, 4001)
    slack = 0.125 * float(s[1]) ** 2 * float(np.sum(amplitudes * f**2))
    low = float(np.min(np.cos(np.outer(s, f)) @ amplitudes)) - slack
    return 2 * (float(np.sum(amplitudes)) - low)


@dataclass(frozen=True)
class Sketch(NarrowQuery):
    """Σ √a_f·(cos fθ, sin fθ) for M lines u and f = 1 … L, with θ = base·u·z, z = (x − centre)/spread; and Σ c, which
    counts the rows, c² = M·Σ a_f.

    A row without any value contributes 0. Missing values of others are replaced by their conditional means under one
    Gaussian (mean 0, ``correlation``). With ``complete``, rows with missing values contribute 0 too.

    *Lemma.* Replacing a row moves the sum by at most √(M·max_s 2Σ a_f(1 − cos fs)). *Proof.* On one line two rows'
    values have the squared distance Σ a_f|e^{ifθ} − e^{ifθ′}|² = 2Σ a_f(1 − cos f(θ − θ′)), whatever θ and θ′ are;
    those of the lines add. A row that contributes 0 is at the squared distance M·Σ a_f + c² = 2M·Σ a_f from another: M
    times the mean over s of the function that is maximised. ∎ Nothing is clipped, as points of the unit circle are
    bounded. Powers of e^{iθ} are multiplied up, with an error of at most 8L·2⁻⁵² each; the stated bound is wider by
    10⁻⁹.
    """

    centre: FloatArray = field(repr=False)
    spread: FloatArray = field(repr=False)
    correlation: FloatArray = field(repr=False)
    lines: FloatArray = field(repr=False)
    base: float
    amplitudes: FloatArray = field(repr=False)
    complete: bool = False

    @property
    def label(self) -> str:
        return f"sketch: {len(self.amplitudes)} frequencies along {len(self.lines)} lines"

    @property
    def bound(self) -> Bound:
        change = math.sqrt(len(self.lines) * largest_slice(self.amplitudes)) * (1 + 1e-9)
        size = math.sqrt(2) * self.unit * (1 + 1e-9)
        return Bound(linf=change, l2=change, size_linf=size, size_l2=size)

    @property
    def numbers_per_row(self) -> int:
        return NUMBERS_PER_PHASE * len(self.lines)

    @property
    def unit(self) -> float:
        """c, the contribution of a row to the count."""
        return math.sqrt(len(self.lines) * float(np.sum(self.amplitudes)))

    @property
    def frequencies(self) -> FloatArray:
        """The frequencies of the standardised columns (LM × d)."""
        f = np.arange(1, len(self.amplitudes) + 1)
        return np.asarray((f[:, None, None] * self.base * self.lines[None]).reshape(-1, len(self.centre)))

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        theta, counts = self._phases(xp, x), self._counts(xp, x)
        count = xp.reshape(self.unit * xp.sum(counts), (1,))
        return xp.concat([*(counts @ wave for wave in self._waves(xp, theta)), count])

    def _counts(self, xp: Namespace, x: Array) -> Array:
        """1 for rows that are counted, 0 for others."""
        seen = xp.isfinite(x)
        return xp.astype(xp.all(seen, axis=1) if self.complete else xp.any(seen, axis=1), xp.float64)

    def _phases(self, xp: Namespace, x: Array) -> Array:
        """θ of each row and line (m × M)."""
        z = (x - like(xp, self.centre, x)) / like(xp, self.spread, x)
        one = Gaussians(np.ones(1), np.zeros((1, len(self.centre))), self.correlation[None])
        to_phases = one.roots[0].T @ (self.base * self.lines.T)
        return one.by_row(xp, z, lambda rows: rows[0].v @ like(xp, to_phases, x))

    def _waves(self, xp: Namespace, theta: Any) -> Iterator[Array]:
        """√a_f·cos fθ and √a_f·sin fθ for f = 1 … L."""
        theta = xp.clip(zero_nonfinite(xp, theta), -LARGEST_PHASE, LARGEST_PHASE)
        cos1, sin1 = xp.cos(theta), xp.sin(theta)
        cos, sin = cos1, sin1
        for f, amplitude in enumerate(self.amplitudes):
            if f:
                cos, sin = cos * cos1 - sin * sin1, sin * cos1 + cos * sin1
            yield math.sqrt(amplitude) * cos
            yield math.sqrt(amplitude) * sin

    def read(self, mean: FloatArray) -> tuple[NDArray[np.complex128], float]:
        """The characteristic function (L × M, complex) of the counted rows, and their share, from an answer."""
        share = min(max(float(mean[-1]) / self.unit, 0.02), 1.0)
        waves = mean[:-1].reshape(len(self.amplitudes), 2, len(self.lines)) / share
        return np.asarray((waves[:, 0] + 1j * waves[:, 1]) / np.sqrt(self.amplitudes)[:, None], complex), share
