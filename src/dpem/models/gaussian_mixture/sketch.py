"""A sketch of where rows lie: noisy values of their characteristic function along public lines.

From one release any number of components and of restarts can be tried at no further price.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.queries.block_loop import over_rows
from dpem.queries.narrow import NarrowQuery, zero_nonfinite
from dpem.query import Array, Bound, FloatArray, Namespace
from dpem.tables.blocks import like

_FARTHEST, _STEEPEST = 1e3, 1e100
#: Phases that are handled at a time in memory.
CACHED = 2**14


def few_columns(d: int, K: int) -> bool:
    """Whether there are too few columns to leave any direction out: second moments then only scale."""
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
    """Σ √a_f·(cos fθ, sin fθ) over lines u and f = 1 … L, with θ = base·u·z, z = (x − centre)/spread, and c for every
    row that counts, c² = M·Σ a_f with M lines.

    Rows without any value do not count: they add 0. Missing values of others are filled by their conditional means
    under one Gaussian (mean 0, ``correlation``); if only ``complete`` rows count, nothing is filled.

    *Lemma.* Replacing a row moves the sum by at most √(M·max_s 2Σ a_f(1 − cos fs)). *Proof.* On one line two rows'
    values differ by Σ a_f|e^{ifθ} − e^{ifθ′}|² = 2Σ a_f(1 − cos f(θ − θ′)), whatever θ and θ′ are; the lines' squares
    add. A row that does not count is at the squared distance M·Σ a_f + c² = 2M·Σ a_f from one that does: M times the
    mean over s of what is maximised. ∎ Nothing is clipped: a point of the unit circle is bounded by itself. Powers of
    e^{iθ} are multiplied up, with an error of at most 8L·2⁻⁵² each; the stated bound is wider by 10⁻⁹.
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
        size = math.sqrt(2) * self.one * (1 + 1e-9)
        return Bound(linf=change, l2=change, size_linf=size, size_l2=size)

    @property
    def one(self) -> float:
        """c, what a row adds that counts."""
        return math.sqrt(len(self.lines) * float(np.sum(self.amplitudes)))

    @property
    def frequencies(self) -> FloatArray:
        """The frequencies of the standardised columns (LM × d)."""
        f = np.arange(1, len(self.amplitudes) + 1)
        return np.asarray((f[:, None, None] * self.base * self.lines[None]).reshape(-1, len(self.centre)))

    def contributions(self, xp: Namespace, x: Array, y: Array) -> Array:
        theta, counts = self._phases(xp, x), self._counts(xp, x)
        one = xp.reshape(self.one * xp.sum(counts), (1,))
        if isinstance(theta, np.ndarray):
            return np.concatenate([self._waves_in_memory(counts, theta), one])
        return xp.concat([*(counts @ wave for wave in self._waves(xp, theta)), one])

    def _counts(self, xp: Namespace, x: Array) -> Array:
        """1 for rows that count, 0 for others."""
        seen = xp.isfinite(x)
        return xp.astype(xp.all(seen, axis=1) if self.complete else xp.any(seen, axis=1), xp.float64)

    def _phases(self, xp: Namespace, x: Array) -> Array:
        """θ of each row and line (m × M)."""
        z = (x - like(xp, self.centre, x)) / like(xp, self.spread, x)
        one = Gaussians(np.ones(1), np.zeros((1, len(self.centre))), self.correlation[None])
        across = one.roots[0].T @ (self.base * self.lines.T)  # from whitened rows to phases
        return one.by_row(xp, z, lambda seen: seen[0].v @ like(xp, across, x))

    def _waves(self, xp: Namespace, theta: Any) -> Iterator[Array]:
        """√a_f·cos fθ and √a_f·sin fθ for f = 1 … L."""
        theta = xp.clip(zero_nonfinite(xp, theta), -_FARTHEST, _FARTHEST)
        cos1, sin1 = xp.cos(theta), xp.sin(theta)
        cos, sin = cos1, sin1
        for f, amplitude in enumerate(self.amplitudes):
            if f:
                cos, sin = cos * cos1 - sin * sin1, sin * cos1 + cos * sin1
            yield math.sqrt(amplitude) * cos
            yield math.sqrt(amplitude) * sin

    def _waves_in_memory(self, weight: FloatArray, theta: FloatArray) -> FloatArray:
        """The same with e^{iθ} as complex numbers, some rows at a time: what a core's cache holds.

        e^{iθ} is (1 − t², 2t)/(1 + t²) with t = tan θ/2, one function where cosine and sine are two. That is a point of
        the unit circle for every finite t, up to 4·2⁻⁵², so the bound does not rest on how well t is computed.
        """
        total = np.zeros((len(self.amplitudes), theta.shape[1]), dtype=complex)
        length = max(16, CACHED // theta.shape[1])
        for first in range(0, len(theta), length):
            rows = slice(first, first + length)
            phase = np.where(np.isfinite(theta[rows]), np.clip(theta[rows], -_FARTHEST, _FARTHEST), 0.0)
            t = np.fmax(np.fmin(np.tan(phase / 2), _STEEPEST), -_STEEPEST)  # a number, whatever came
            square = t * t
            scale, one = 1.0 / (1.0 + square), np.empty(phase.shape, dtype=complex)
            np.multiply(1.0 - square, scale, out=one.real)
            np.multiply(2.0 * t, scale, out=one.imag)
            wave, own = one.copy(), weight[rows].astype(complex)
            for f in range(len(self.amplitudes)):
                if f:
                    wave *= one
                total[f] += over_rows(np, own, wave)
        total *= np.sqrt(self.amplitudes)[:, None]
        return np.stack([total.real, total.imag], axis=1).ravel()

    def read(self, mean: FloatArray) -> tuple[NDArray[np.complex128], float]:
        """The characteristic function (L × M, complex) of the rows that count, and their share, of an answer."""
        share = min(max(float(mean[-1]) / self.one, 0.02), 1.0)
        waves = mean[:-1].reshape(len(self.amplitudes), 2, len(self.lines)) / share
        return np.asarray((waves[:, 0] + 1j * waves[:, 1]) / np.sqrt(self.amplitudes)[:, None], complex), share
