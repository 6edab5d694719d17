"""K Gaussians and the rows seen through them: joint densities, whitened rows, what holes leave open.

Rows are in unit coordinates, NaN where there is a hole. Holes are integrated out: a row's density is that of what is
seen, and what is not seen stands in by its conditional mean and covariance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dpem.query import FloatArray
from dpem.questions.narrow import like, zero_where_odd

LOG_2PI = math.log(2 * math.pi)


class Seen(NamedTuple):
    """Some rows as one component sees them.

    ``log_joint`` is log(weight · density of what is seen); ``v`` are whitened conditional means L⁻¹(E[x | seen] − μ);
    ``open`` is what holes add to E[vvᵀ | seen]: its diagonal (m × d) where covariances are diagonal, the whole matrix
    (m × d × d) where they are full, None where no row has a hole.
    """

    log_joint: Any
    v: Any
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
        return np.asarray(np.linalg.inv(self.roots), dtype=float)

    def groups(self, xp: Any, x: Any) -> Iterator[tuple[Any, list[Seen]]]:
        """The rows in one or two parts: of each the weight of its rows (1, or 0 for a row that the other part has) and
        what every component sees.

        *Lemma.* What is computed of a row depends on that row alone, to the last bit but for the rounding of matrix
        products. *Proof.* Rows without holes are handled in an array whose shape is that of x, whatever holes there
        are; a row with holes is handled by solves of its own. ∎
        """
        seen = xp.isfinite(x)
        if not self.full:
            mask = xp.astype(seen, xp.float64)
            yield xp.ones_like(x[:, 0]), [self._diagonal(xp, x, mask, 1.0 - mask, k) for k in range(len(self.weights))]
            return
        whole = xp.all(seen, axis=1)
        filled = zero_where_odd(xp, x)
        yield xp.astype(whole, xp.float64), [self._whole(xp, filled, k) for k in range(len(self.weights))]
        rows = xp.nonzero(~whole)[0]
        if rows.shape[0]:
            part = xp.take(x, rows, axis=0)
            mask = xp.astype(xp.isfinite(part), xp.float64)
            part = zero_where_odd(xp, part)
            yield xp.ones_like(part[:, 0]), [self._holes(xp, part, mask, k) for k in range(len(self.weights))]

    def log_density(self, xp: Any, x: Any) -> Any:
        """The log-density of each row, holes integrated out."""
        logs = self.joint(xp, x)
        top = xp.max(logs, axis=1)
        return top + xp.log(xp.sum(xp.exp(logs - top[:, None]), axis=1))

    def product_of_margins(self, xp: Any, x: Any) -> Any:
        """The log-density of each row if columns were independent, each with the mixture's own margin."""
        seen = xp.isfinite(x)
        variances = np.diagonal(self.covariances, axis1=1, axis2=2) if self.full else self.covariances
        logs = []
        for k, weight in enumerate(self.weights):
            v2 = (x - like(xp, self.means[k], x)) ** 2 / like(xp, variances[k], x)
            logs.append(math.log(weight) - 0.5 * v2 - like(xp, 0.5 * np.log(variances[k]) + 0.5 * LOG_2PI, x))
        each = xp.stack(logs, axis=2)
        top = xp.max(each, axis=2)
        margin = top + xp.log(xp.sum(xp.exp(each - top[:, :, None]), axis=2))
        return xp.sum(xp.where(seen, margin, xp.zeros_like(margin)), axis=1)

    def joint(self, xp: Any, x: Any) -> Any:
        """log(weight · density) of each row in each component (m × K)."""
        parts = [(weight, xp.stack([own.log_joint for own in seen], axis=1)) for weight, seen in self.groups(xp, x)]
        if len(parts) == 1:
            return parts[0][1]
        (whole, logs), (_, holes) = parts
        place = (
            xp.astype(xp.cumulative_sum(1.0 - whole), xp.int64) - 1
        )  # of a row with holes among those that have some
        place = xp.where(place < 0, xp.zeros_like(place), place)
        return xp.where(whole[:, None] > 0.5, logs, xp.take(holes, place, axis=0))

    def _diagonal(self, xp: Any, x: Any, mask: Any, hole: Any, k: int) -> Seen:
        spread = self.roots[k]
        v = zero_where_odd(xp, (x - like(xp, self.means[k], x)) / like(xp, spread, x))
        level = mask @ like(xp, np.log(spread) + 0.5 * LOG_2PI, x)
        log_joint = math.log(self.weights[k]) - 0.5 * xp.sum(v * v, axis=1) - level
        return Seen(log_joint, v, hole)

    def _whole(self, xp: Any, x: Any, k: int) -> Seen:
        v = (x - like(xp, self.means[k], x)) @ like(xp, self.whiteners[k].T, x)
        level = float(np.sum(np.log(np.diag(self.roots[k])))) + 0.5 * LOG_2PI * x.shape[1]
        return Seen(math.log(self.weights[k]) - 0.5 * xp.sum(v * v, axis=1) - level, v, None)

    def _holes(self, xp: Any, x: Any, mask: Any, k: int) -> Seen:
        """With S the covariance on what is seen and the identity elsewhere: b = S⁻¹(x − μ) on what is seen.

        *Lemma.* Whitened, the conditional covariance is an orthogonal projection P. *Proof.* With W = L⁻¹ the precision
        is WᵀW and the conditional covariance of the holes is (W_hᵀW_h)⁻¹, so P = W_h(W_hᵀW_h)⁻¹W_hᵀ. ∎ PPᵀ is the same
        matrix, and positive semidefinite however badly P itself was rounded.
        """
        cov, whitener = like(xp, self.covariances[k], x), like(xp, self.whiteners[k], x)
        diff = mask * (x - like(xp, self.means[k], x))
        both = mask[:, :, None] * mask[:, None, :]
        eye = like(xp, np.eye(x.shape[1]), x)
        S = both * cov + (1.0 - mask)[:, :, None] * eye
        across = mask[:, :, None] * cov  # rows of the covariance that are seen
        solved = xp.linalg.solve(S, xp.concat([diff[:, :, None], across], axis=2))
        b = solved[:, :, 0]
        mean = b @ cov
        left = cov - xp.matmul(xp.matrix_transpose(across), solved[:, :, 1:])
        left = xp.matmul(xp.matmul(whitener, left), xp.matrix_transpose(whitener))
        left = xp.matmul(left, xp.matrix_transpose(left))  # a projection is its own square
        logdet = xp.linalg.slogdet(S)[1]
        level = 0.5 * logdet + 0.5 * LOG_2PI * xp.sum(mask, axis=1)
        log_joint = math.log(self.weights[k]) - 0.5 * xp.sum(b * diff, axis=1) - level
        return Seen(log_joint, mean @ xp.matrix_transpose(whitener), left)


def responsibilities(xp: Any, seen: list[Seen]) -> Any:
    """The share of each component in each row (m × K), in [0, 1] and adding up to 1 or, if odd, less.

    *Lemma.* Every entry is in [0, 1] and a row adds up to at most 1 + K·2⁻⁵². *Proof.* Entries are clipped after they
    are computed, one that is no number becomes 0, and the row is divided by its sum if that exceeds 1. ∎
    """
    logs = xp.matrix_transpose(xp.stack([own.log_joint for own in seen], axis=0))
    share = xp.exp(logs - xp.max(logs, axis=1, keepdims=True))
    share = xp.clip(zero_where_odd(xp, share / xp.sum(share, axis=1, keepdims=True)), 0.0, 1.0)
    whole = xp.sum(share, axis=1, keepdims=True)
    return share / xp.where(whole > 1.0, whole, xp.ones_like(whole))
