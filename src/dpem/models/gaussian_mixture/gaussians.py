"""K Gaussians: log-densities of rows, and the whitened rows that scores and EM steps are made of.

Rows are in unit coordinates, NaN where a value is missing. Missing values are integrated out: a row's density is that
of its observed values, and missing ones enter by their conditional mean and covariance.
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


class Whitened(NamedTuple):
    """Some rows, whitened by one component with mean μ and covariance LLᵀ.

    ``log_joint`` is log(weight · density of the observed values); ``v`` are the conditional means L⁻¹(E[x | observed] −
    μ), ``square`` their squares by entry (None where covariances are full), ``size`` by row. ``missing`` is the
    conditional covariance of L⁻¹x, which missing values add to E[vvᵀ | observed]: its diagonal (m × d) where
    covariances are diagonal, the matrices (m × d × d) where they are full, None where no value is missing.
    """

    log_joint: Any
    v: Any
    square: Any
    size: Any
    missing: Any


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

    def parts(self, xp: Namespace, x: Array) -> Iterator[tuple[Array, Array, list[Whitened]]]:
        """The rows in one part, or two where covariances are full and values missing: complete rows and the others.

        A part has a mask of its rows (1; 0 for a row of the other part), their places (None: all rows) and the rows
        whitened by every component.

        *Lemma.* The numbers of a row depend, to the last bit, on that row and its place alone. *Proof.* Rows
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
        complete = xp.all(seen, axis=1)
        yield xp.astype(complete, xp.float64), None, [self._complete(xp, filled, k) for k in components]
        rows = xp.nonzero(~complete)[0]
        if rows.shape[0]:
            part = xp.take(filled, rows, axis=0)
            mask = xp.astype(xp.take(seen, rows, axis=0), xp.float64)
            patterns, place = _patterns(xp, mask)
            whitened = [self._incomplete(xp, part, mask, patterns, place, k) for k in components]
            yield xp.ones_like(part[:, 0]), rows, whitened

    def by_row(self, xp: Namespace, x: Array, function: Callable[[list[Whitened]], Any]) -> Array:
        """A function of the whitened rows, in the order of the rows."""
        values = [(mask, function(whitened)) for mask, _, whitened in self.parts(xp, x)]
        if len(values) == 1:
            return values[0][1]
        (complete, of_complete), (_, of_others) = values
        place = xp.astype(xp.cumulative_sum(1.0 - complete), xp.int64) - 1  # of an incomplete row among those
        place = xp.where(place < 0, xp.zeros_like(place), place)
        return xp.where(complete[:, None] > 0.5, of_complete, xp.take(of_others, place, axis=0))

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
        return self.by_row(xp, x, lambda rows: xp.stack([own.log_joint for own in rows], axis=1))

    @cached_property
    def _inverse(self) -> tuple[FloatArray, FloatArray]:
        """1/spread and mean/spread of diagonal covariances, clipped so that rows in [−1, 1] have finite v."""
        inverse = np.clip(np.nan_to_num(1 / self.roots), 0.0, 1e6)
        return inverse, np.nan_to_num(self.means * inverse)

    def _diagonal(self, xp: Namespace, x: Array, mask: Array, k: int) -> Whitened:
        """Rows with missing values as 0, whitened by a diagonal covariance; ``mask`` None: no value is missing."""
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
            return Whitened(log_joint, v, square, size, None)
        return Whitened(log_joint + (1.0 - mask) @ like(xp, level, x), v, square, size, 1.0 - mask)

    def _complete(self, xp: Namespace, x: Array, k: int) -> Whitened:
        """Rows without missing values, whitened by a full covariance."""
        v = (x - like(xp, self.means[k], x)) @ like(xp, self.whiteners[k].T, x)
        size = squares(xp, v)
        level = float(np.sum(np.log(np.diag(self.roots[k])))) + 0.5 * LOG_2PI * x.shape[1]
        return Whitened(math.log(self.weights[k]) - 0.5 * size - level, v, None, size, None)

    def _incomplete(self, xp: Namespace, x: Array, mask: Array, patterns: Array, place: Array, k: int) -> Whitened:
        """Rows with missing values as 0, whitened by a full covariance; linear systems are solved once for each pattern
        of missing values. S is the covariance of the observed values, and the identity elsewhere.

        *Lemma.* Whitened, the conditional covariance is an orthogonal projection P. *Proof.* With W = L⁻¹ the precision
        is WᵀW and the conditional covariance of what is missing is (W_hᵀW_h)⁻¹, so P = W_h(W_hᵀW_h)⁻¹W_hᵀ. ∎ PPᵀ is the
        same matrix, and positive semidefinite however badly P itself was rounded.
        """
        cov, whitener = like(xp, self.covariances[k], x), like(xp, self.whiteners[k], x)
        diff = mask * (x - like(xp, self.means[k], x))
        both = patterns[:, :, None] * patterns[:, None, :]
        eye = like(xp, np.eye(x.shape[1]), x)
        S = both * cov + (1.0 - patterns)[:, :, None] * eye
        across = patterns[:, :, None] * cov  # the rows of the covariance that belong to observed values
        solved = xp.linalg.solve(S, xp.concat([xp.broadcast_to(eye, S.shape), across], axis=2))
        d = x.shape[1]
        inverse, whitened_means = solved[:, :, :d], xp.matmul(xp.matmul(whitener, cov), solved[:, :, :d])
        column = diff[:, :, None]
        b = xp.matmul(xp.take(inverse, place, axis=0), column)[:, :, 0]
        v = zero_nonfinite(xp, xp.matmul(xp.take(whitened_means, place, axis=0), column)[:, :, 0])
        P = cov - xp.matmul(xp.matrix_transpose(across), solved[:, :, d:])
        P = xp.matmul(xp.matmul(whitener, P), xp.matrix_transpose(whitener))
        P = xp.matmul(P, xp.matrix_transpose(P))  # a projection is its own square
        logdet = xp.take(xp.linalg.slogdet(S)[1], place, axis=0)
        level = 0.5 * logdet + 0.5 * LOG_2PI * xp.sum(mask, axis=1)
        log_joint = math.log(self.weights[k]) - 0.5 * xp.sum(b * diff, axis=1) - level
        return Whitened(log_joint, v, None, xp.sum(v * v, axis=1), xp.take(P, place, axis=0))


def _patterns(xp: Namespace, mask: Array) -> tuple[Array, Array]:
    """The different patterns of observed columns, and the place of each row's pattern among them.

    A pattern is numbered by its bits. Beyond 52 columns such a number does not fit into float64: every row then has a
    pattern of its own.
    """
    if mask.shape[1] > 52:
        return mask, xp.arange(mask.shape[0], device=device(mask))
    bits = like(xp, 2.0 ** np.arange(mask.shape[1]), mask)
    numbers = xp.unique_inverse(mask @ bits)  # PyTorch has no unique_all: patterns are read off their numbers
    return xp.remainder(xp.floor(numbers.values[:, None] / bits), 2.0), xp.reshape(numbers.inverse_indices, (-1,))


def log_sum(xp: Namespace, logs: list[Any]) -> Array:
    """log Σ exp of some arrays, entry by entry."""
    top = logs[0]
    for log in logs[1:]:
        top = xp.maximum(top, log)
    total = xp.exp(logs[0] - top)
    for log in logs[1:]:
        total = total + xp.exp(log - top)
    return top + xp.log(total)


def responsibilities(xp: Namespace, rows: list[Whitened]) -> Array:
    """The probability of each component given each row (K × m); entries that are no number become 0.

    *Lemma.* Every entry is in [0, 1] and those of a row sum to at most 1 + K·2⁻⁵². *Proof.* An entry that is not at
    most 1, such as NaN, becomes 0, and quotients of exponentials are not negative. Their computed sum is at least
    1 − (K − 1)·2⁻⁵³ times the exact one, and each quotient is rounded by 2⁻⁵³ of itself. ∎
    """
    logs = xp.stack([own.log_joint for own in rows], axis=0)
    share = xp.exp(logs - xp.max(logs, axis=0))
    share = share / xp.sum(share, axis=0)
    return xp.where(share <= 1.0, share, xp.zeros_like(share))
