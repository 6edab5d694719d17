"""K Gaussians and the rows seen through them: joint densities, whitened rows, what missing values leave open.

Rows are in unit coordinates, NaN where a value is missing. Missing values are integrated out: a row's density is that
of what is seen, and what is not seen stands in by its conditional mean and covariance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import device

from dpem.queries.narrow import squares, zero_nonfinite
from dpem.query import Array, FloatArray, Namespace
from dpem.tables.blocks import like

LOG_2PI = math.log(2 * math.pi)


class Seen(NamedTuple):
    """Some rows as one component sees them.

    ``log_joint`` is log(weight · density of what is seen); ``v`` are whitened conditional means L⁻¹(E[x | seen] − μ),
    ``square`` their squares by entry and ``size`` by row; ``open`` is what missing values add to E[vvᵀ | seen]: its
    diagonal (m × d) where covariances are diagonal, the whole matrix (m × d × d) where they are full, None where no
    value is missing.
    """

    log_joint: Any
    v: Any
    square: Any
    size: Any
    open: Any


@dataclass(frozen=True)
class Gaussians:
    """Weights (K), means (K × d) and covariances: K × d where they are diagonal, K × d × d where they are full."""

    weights: FloatArray
    means: FloatArray
    covariances: FloatArray

    @property
    def full(self) -> bool:
        return self.covariances.ndim == 3

    @cached_property
    def roots(self) -> FloatArray:
        """Spreads (K × d), or lower Cholesky factors (K × d × d)."""
        return np.asarray(np.linalg.cholesky(self.covariances) if self.full else np.sqrt(self.covariances), dtype=float)

    @cached_property
    def whiteners(self) -> FloatArray:
        return np.clip(np.nan_to_num(np.linalg.inv(self.roots)), -1e9, 1e9)  # rows in [−1, 1] then have finite v

    @property
    def variances(self) -> FloatArray:
        """Variances of the columns in each component (K × d)."""
        return np.diagonal(self.covariances, axis1=1, axis2=2) if self.full else self.covariances

    def reordered(self, order: Any) -> Gaussians:
        return Gaussians(self.weights[order], self.means[order], self.covariances[order])

    def pooled(self) -> Gaussians:
        """One Gaussian with the mean and the covariance of the whole mixture."""
        mean = self.weights @ self.means
        away = self.means - mean
        within = np.tensordot(self.weights, self.covariances, 1)
        whole = (within if self.full else np.diag(within)) + (self.weights[:, None] * away).T @ away
        return Gaussians(np.ones(1), mean[None], whole[None])

    def shifted(self, shift: FloatArray) -> FloatArray:
        """The means moved by whitened shifts (K × d), within the bounds."""
        move = np.einsum("kij,kj->ki", self.roots, shift) if self.full else self.roots * shift
        return np.clip(self.means + move, -1.0, 1.0)

    def parts(self, xp: Namespace, x: Array) -> Iterator[tuple[Array, Array, list[Seen]]]:
        """The rows in one or two parts: of each the weight of its rows (1, or 0 for a row that the other part has),
        their places (None: all rows) and what every component sees.

        *Lemma.* What is computed of a row depends, to the last bit, on that row and its place alone. *Proof.* Rows
        without missing values are handled in an array whose shape is that of x, whatever is missing, and a mask of ones
        changes no bit; a row with missing values is handled by the matrices of its own pattern, in products of its
        own. ∎
        """
        seen = xp.isfinite(x)
        filled = x if xp.all(seen) else xp.where(seen, x, xp.zeros_like(x))
        components = range(len(self.weights))
        if not self.full:
            mask = None if xp.all(seen) else xp.astype(seen, xp.float64)
            yield xp.ones_like(x[:, 0]), None, [self._diagonal(xp, filled, mask, k) for k in components]
            return
        whole = xp.all(seen, axis=1)
        yield xp.astype(whole, xp.float64), None, [self._whole(xp, filled, k) for k in components]
        rows = xp.nonzero(~whole)[0]
        if rows.shape[0]:
            part = xp.take(filled, rows, axis=0)
            mask = xp.astype(xp.take(seen, rows, axis=0), xp.float64)
            patterns, place = _patterns(xp, mask)
            found = [self._missing(xp, part, mask, patterns, place, k) for k in components]
            yield xp.ones_like(part[:, 0]), rows, found

    def by_row(self, xp: Namespace, x: Array, function: Callable[[list[Seen]], Any]) -> Array:
        """``function`` of what the components see, row by row, in the order of the rows."""
        found = [(present, function(seen)) for present, _, seen in self.parts(xp, x)]
        if len(found) == 1:
            return found[0][1]
        (whole, first), (_, second) = found
        place = xp.astype(xp.cumulative_sum(1.0 - whole), xp.int64) - 1  # of an incomplete row among those
        place = xp.where(place < 0, xp.zeros_like(place), place)
        return xp.where(whole[:, None] > 0.5, first, xp.take(second, place, axis=0))

    def log_density(self, xp: Namespace, x: Array) -> Array:
        """The log-density of each row, missing values integrated out."""
        logs = self.joint(xp, x)
        return log_sum(xp, [logs[:, k] for k in range(len(self.weights))])

    def product_of_margins(self, xp: Namespace, x: Array) -> Array:
        """The log-density of each row if columns were independent, each with the mixture's own margin."""
        seen = xp.isfinite(x)
        logs = []
        for k, weight in enumerate(self.weights):
            v2 = (x - like(xp, self.means[k], x)) ** 2 / like(xp, self.variances[k], x)
            logs.append(math.log(weight) - 0.5 * v2 - like(xp, 0.5 * np.log(self.variances[k]) + 0.5 * LOG_2PI, x))
        margin = log_sum(xp, logs)
        return xp.sum(xp.where(seen, margin, xp.zeros_like(margin)), axis=1)

    def joint(self, xp: Namespace, x: Array) -> Array:
        """log(weight · density) of each row in each component (m × K)."""
        return self.by_row(xp, x, lambda seen: xp.stack([own.log_joint for own in seen], axis=1))

    @cached_property
    def _inverse(self) -> tuple[FloatArray, FloatArray]:
        """1/spread and mean/spread, finite whatever the spreads are: rows in [−1, 1] then have finite v."""
        inverse = np.clip(np.nan_to_num(1 / self.roots), 0.0, 1e6)
        return inverse, np.nan_to_num(self.means * inverse)

    def _diagonal(self, xp: Namespace, x: Array, mask: Array, k: int) -> Seen:
        """``x`` with missing values as 0; ``mask`` is None where there are none."""
        inverse, shift = self._inverse
        v = x * like(xp, inverse[k], x)
        v -= like(xp, shift[k], x)
        level = np.log(self.roots[k]) + 0.5 * LOG_2PI
        if mask is not None:
            v *= mask
        square = v * v
        size = square @ like(xp, np.ones(x.shape[1]), x)
        log_joint = math.log(self.weights[k]) - 0.5 * size - float(level.sum())
        if mask is None:
            return Seen(log_joint, v, square, size, None)
        return Seen(log_joint + (1.0 - mask) @ like(xp, level, x), v, square, size, 1.0 - mask)

    def _whole(self, xp: Namespace, x: Array, k: int) -> Seen:
        v = (x - like(xp, self.means[k], x)) @ like(xp, self.whiteners[k].T, x)
        size = squares(xp, v)
        level = float(np.sum(np.log(np.diag(self.roots[k])))) + 0.5 * LOG_2PI * x.shape[1]
        return Seen(math.log(self.weights[k]) - 0.5 * size - level, v, None, size, None)

    def _missing(self, xp: Namespace, x: Array, mask: Array, patterns: Array, place: Array, k: int) -> Seen:
        """With S the covariance on what is seen and the identity elsewhere: b = S⁻¹(x − μ) on what is seen. What a row
        does not decide is solved once for each pattern of missing values.

        *Lemma.* Whitened, the conditional covariance is an orthogonal projection P. *Proof.* With W = L⁻¹ the precision
        is WᵀW and the conditional covariance of what is missing is (W_hᵀW_h)⁻¹, so P = W_h(W_hᵀW_h)⁻¹W_hᵀ. ∎ PPᵀ is the
        same matrix, and positive semidefinite however badly P itself was rounded.
        """
        cov, whitener = like(xp, self.covariances[k], x), like(xp, self.whiteners[k], x)
        diff = mask * (x - like(xp, self.means[k], x))
        both = patterns[:, :, None] * patterns[:, None, :]
        eye = like(xp, np.eye(x.shape[1]), x)
        S = both * cov + (1.0 - patterns)[:, :, None] * eye
        across = patterns[:, :, None] * cov  # rows of the covariance that are seen
        solved = xp.linalg.solve(S, xp.concat([xp.broadcast_to(eye, S.shape), across], axis=2))
        d = x.shape[1]
        inverse, across_inverse = solved[:, :, :d], xp.matmul(xp.matmul(whitener, cov), solved[:, :, :d])
        column = diff[:, :, None]
        b = xp.matmul(xp.take(inverse, place, axis=0), column)[:, :, 0]
        v = zero_nonfinite(xp, xp.matmul(xp.take(across_inverse, place, axis=0), column)[:, :, 0])
        left = cov - xp.matmul(xp.matrix_transpose(across), solved[:, :, d:])
        left = xp.matmul(xp.matmul(whitener, left), xp.matrix_transpose(whitener))
        left = xp.matmul(left, xp.matrix_transpose(left))  # a projection is its own square
        logdet = xp.take(xp.linalg.slogdet(S)[1], place, axis=0)
        level = 0.5 * logdet + 0.5 * LOG_2PI * xp.sum(mask, axis=1)
        log_joint = math.log(self.weights[k]) - 0.5 * xp.sum(b * diff, axis=1) - level
        return Seen(log_joint, v, None, xp.sum(v * v, axis=1), xp.take(left, place, axis=0))


def _patterns(xp: Namespace, mask: Array) -> tuple[Array, Array]:
    """Which columns are seen: each pattern once, and the place of each row's own. Beyond 52 columns patterns have no
    number in float64, and every row has one of its own.
    """
    if mask.shape[1] > 52:
        return mask, xp.arange(mask.shape[0], device=device(mask))
    place = like(xp, 2.0 ** np.arange(mask.shape[1]), mask)
    found = xp.unique_inverse(mask @ place)  # PyTorch knows no unique_all: patterns are read off their numbers
    return xp.remainder(xp.floor(found.values[:, None] / place), 2.0), xp.reshape(found.inverse_indices, (-1,))


def log_sum(xp: Namespace, logs: list[Any]) -> Array:
    """log Σ exp of some arrays, entry by entry."""
    top = logs[0]
    for own in logs[1:]:
        top = xp.maximum(top, own)
    total = xp.exp(logs[0] - top)
    for own in logs[1:]:
        total = total + xp.exp(own - top)
    return top + xp.log(total)


def responsibilities(xp: Namespace, seen: list[Seen]) -> Array:
    """The share of each component in each row (K × m), in [0, 1] and adding up to 1 or, if odd, less.

    *Lemma.* Every entry is in [0, 1] and a row's add up to at most 1 + K·2⁻⁵². *Proof.* An entry that is not at most 1,
    as none that is no number is, becomes 0, and quotients of exponentials are not negative. Their computed sum is at
    least 1 − (K − 1)·2⁻⁵³ times the exact one, and each quotient is rounded by 2⁻⁵³ of itself. ∎
    """
    logs = xp.stack([own.log_joint for own in seen], axis=0)
    share = xp.exp(logs - xp.max(logs, axis=0))
    share = share / xp.sum(share, axis=0)
    return xp.where(share <= 1.0, share, xp.zeros_like(share))
