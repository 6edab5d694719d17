"""The four types of covariances, one class each, with everything that depends on the type.

Rows are whitened by the root L of a component's covariance (a vector of spreads where that is diagonal):
v = L⁻¹(x − μ). A type uses the trace of w = E[vvᵀ | observed values of x], its diagonal or all of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dpem.models.gaussian_mixture.gaussians import Gaussians, Whitened
from dpem.queries.block_loop import over_rows
from dpem.queries.narrow import packed, unpacked
from dpem.query import Array, FloatArray, Namespace


class CovarianceType(ABC):
    """The parts of scores and EM steps that depend on the type, and the attributes that show covariances."""

    name: ClassVar[str]
    full: ClassVar[bool] = False  # whether covariances are matrices

    @abstractmethod
    def free(self, K: int, d: int) -> int:
        """The number of free parameters in the covariances of K components."""

    @abstractmethod
    def scores(self, xp: Namespace, share: Array, rows: Sequence[Whitened]) -> list[Array]:
        """The derivatives of each row's log-density by local coordinates of the covariances, in pieces with m rows."""

    @abstractmethod
    def sums(self, xp: Namespace, share: Array, rows: Sequence[Whitened]) -> list[Array]:
        """The sums of w over the rows, weighted by the responsibilities ``share`` (K × m), as vectors."""

    @abstractmethod
    def updated(self, old: Gaussians, counts: FloatArray, shift: FloatArray, second: FloatArray) -> FloatArray:
        """The covariances that maximise the expected log-likelihood, from the new means ``shift`` whitened by the old
        mixture and from the sums ``second`` of :meth:`sums`.
        """

    @abstractmethod
    def moved(self, own: Gaussians, step: FloatArray) -> FloatArray:
        """The covariances moved by a step in the coordinates of :meth:`scores`."""

    def start(self, variances: FloatArray, proportions: FloatArray, K: int) -> FloatArray:
        """Covariances of K equal components with about these variances."""
        return np.tile(np.diag(variances) if self.full else variances, (K, 1, 1) if self.full else (K, 1))

    @abstractmethod
    def values(self, covariances: FloatArray) -> FloatArray:
        """The free parameters of the covariances, in the order of :meth:`names`."""

    @abstractmethod
    def names(self, components: Sequence[str], columns: Sequence[str]) -> list[tuple[str, str]]:
        """The name of each value, and its kind: "positive" or none."""

    @abstractmethod
    def attributes(self, covariances: FloatArray) -> tuple[FloatArray, FloatArray]:
        """scikit-learn's ``covariances_`` and ``precisions_cholesky_``."""

    def floored(self, covariances: FloatArray, floor: FloatArray) -> FloatArray:
        """The covariances that are at least diag(floor) and otherwise maximise the same likelihood.

        *Lemma.* −log|Σ| − tr(Σ⁻¹S) is largest over Σ ≥ F where the eigenvalues of F^(−½)SF^(−½) below 1 are raised to
        1. *Proof.* In these coordinates F = I, and by von Neumann's trace inequality Σ has the eigenvectors of S;
        each −log λ − s/λ falls as λ moves away from s. ∎
        """
        return np.maximum(covariances, floor)


class Spherical(CovarianceType):
    """One variance for each component in the table's units: fixed proportions in unit coordinates."""

    name = "spherical"

    def free(self, K: int, d: int) -> int:
        return K

    def scores(self, xp: Namespace, share: Array, rows: Sequence[Whitened]) -> list[Array]:
        d = rows[0].v.shape[1]
        return [xp.stack([share[k, :] * (_size(xp, own) - d) for k, own in enumerate(rows)], axis=1) / (2 * d) ** 0.5]

    def sums(self, xp: Namespace, share: Array, rows: Sequence[Whitened]) -> list[Array]:
        return [xp.stack([xp.sum(share[k, :] * _size(xp, own)) for k, own in enumerate(rows)])]

    def updated(self, old: Gaussians, counts: FloatArray, shift: FloatArray, second: FloatArray) -> FloatArray:
        ratio = second / counts / shift.shape[1] - np.mean(shift**2, axis=1)  # 0 for a single row, but for rounding
        return np.asarray(old.covariances * np.maximum(ratio, 1e-12)[:, None])

    def moved(self, own: Gaussians, step: FloatArray) -> FloatArray:
        return np.asarray(own.covariances * np.exp(_clipped(math.sqrt(2 / own.means.shape[1]) * step))[:, None])

    def start(self, variances: FloatArray, proportions: FloatArray, K: int) -> FloatArray:
        return np.tile(proportions * math.exp(float(np.mean(np.log(variances / proportions)))), (K, 1))

    def values(self, covariances: FloatArray) -> FloatArray:
        return covariances[:, 0]

    def names(self, components: Sequence[str], columns: Sequence[str]) -> list[tuple[str, str]]:
        return [(f"{component}: variance", "positive") for component in components]

    def attributes(self, covariances: FloatArray) -> tuple[FloatArray, FloatArray]:
        return covariances[:, 0], covariances[:, 0] ** -0.5

    def floored(self, covariances: FloatArray, floor: FloatArray) -> FloatArray:
        raised = np.maximum(1.0, float(np.exp(np.mean(np.log(floor)))) / np.exp(np.mean(np.log(covariances), axis=1)))
        return covariances * raised[:, None]


class Diagonal(CovarianceType):
    """A variance for each component and column."""

    name = "diag"

    def free(self, K: int, d: int) -> int:
        return K * d

    def scores(self, xp: Namespace, share: Array, rows: Sequence[Whitened]) -> list[Array]:
        return [share[k, :, None] * (_square(own) - 1.0) / 2**0.5 for k, own in enumerate(rows)]

    def sums(self, xp: Namespace, share: Array, rows: Sequence[Whitened]) -> list[Array]:
        return [over_rows(xp, share[k, :], _square(own)) for k, own in enumerate(rows)]

    def updated(self, old: Gaussians, counts: FloatArray, shift: FloatArray, second: FloatArray) -> FloatArray:
        return np.asarray(old.covariances * (second.reshape(shift.shape) / counts[:, None] - shift**2))

    def moved(self, own: Gaussians, step: FloatArray) -> FloatArray:
        return np.asarray(own.covariances * np.exp(_clipped(math.sqrt(2) * step)).reshape(own.covariances.shape))

    def values(self, covariances: FloatArray) -> FloatArray:
        return covariances.ravel()

    def names(self, components: Sequence[str], columns: Sequence[str]) -> list[tuple[str, str]]:
        return [(f"{component}: variance of {name}", "positive") for component in components for name in columns]

    def attributes(self, covariances: FloatArray) -> tuple[FloatArray, FloatArray]:
        return covariances, covariances**-0.5


class Full(CovarianceType):
    """A matrix for each component."""

    name = "full"
    full = True

    def free(self, K: int, d: int) -> int:
        return K * d * (d + 1) // 2

    def scores(self, xp: Namespace, share: Array, rows: Sequence[Whitened]) -> list[Array]:
        return [share[k, :, None] * _pairs(xp, own) / 2**0.5 for k, own in enumerate(rows)]

    def sums(self, xp: Namespace, share: Array, rows: Sequence[Whitened]) -> list[Array]:
        return [packed(xp, _second(xp, share[k, :], own)) for k, own in enumerate(rows)]

    def updated(self, old: Gaussians, counts: FloatArray, shift: FloatArray, second: FloatArray) -> FloatArray:
        d = shift.shape[1]
        moments = np.array([unpacked(own, d) for own in second.reshape(len(counts), -1)])
        ratio = moments / counts[:, None, None] - shift[:, :, None] * shift[:, None, :]
        return np.asarray(old.roots @ ratio @ np.swapaxes(old.roots, 1, 2))

    def moved(self, own: Gaussians, step: FloatArray) -> FloatArray:
        d = own.means.shape[1]
        # (I + A/√2)² is I + √2·A to first order
        factors = [np.eye(d) + unpacked(part, d) / math.sqrt(2) for part in step.reshape(len(own.roots), -1)]
        return np.array([root @ factor @ factor.T @ root.T for root, factor in zip(own.roots, factors, strict=True)])

    def values(self, covariances: FloatArray) -> FloatArray:
        upper = np.triu_indices(covariances.shape[1])
        return covariances[:, upper[0], upper[1]].ravel()

    def names(self, components: Sequence[str], columns: Sequence[str]) -> list[tuple[str, str]]:
        pairs = _pair_names(columns)
        return [(f"{component}: {name}", kind) for component in components for name, kind in pairs]

    def attributes(self, covariances: FloatArray) -> tuple[FloatArray, FloatArray]:
        return covariances, np.swapaxes(np.linalg.inv(np.linalg.cholesky(covariances)), 1, 2)

    def floored(self, covariances: FloatArray, floor: FloatArray) -> FloatArray:
        scale = np.sqrt(np.outer(floor, floor))
        scaled = covariances / scale
        values, axes = np.linalg.eigh((scaled + np.swapaxes(scaled, 1, 2)) / 2)
        if values.min() >= 1:
            return covariances
        return np.asarray((axes * np.maximum(values, 1.0)[:, None, :]) @ np.swapaxes(axes, 1, 2) * scale)


class Tied(Full):
    """One matrix for all components."""

    name = "tied"

    def free(self, K: int, d: int) -> int:
        return d * (d + 1) // 2

    def scores(self, xp: Namespace, share: Array, rows: Sequence[Whitened]) -> list[Array]:
        of_components = super().scores(xp, share, rows)
        return [sum(of_components[1:], of_components[0])]

    def sums(self, xp: Namespace, share: Array, rows: Sequence[Whitened]) -> list[Array]:
        of_components = super().sums(xp, share, rows)
        return [sum(of_components[1:], of_components[0])]

    def updated(self, old: Gaussians, counts: FloatArray, shift: FloatArray, second: FloatArray) -> FloatArray:
        share = counts / counts.sum()
        ratio = unpacked(second, shift.shape[1]) / counts.sum() - (share[:, None] * shift).T @ shift
        return np.array(np.broadcast_to(old.roots[0] @ ratio @ old.roots[0].T, old.covariances.shape))

    def moved(self, own: Gaussians, step: FloatArray) -> FloatArray:
        return super().moved(own, np.tile(step, len(own.roots)))

    def values(self, covariances: FloatArray) -> FloatArray:
        return super().values(covariances[:1])

    def names(self, components: Sequence[str], columns: Sequence[str]) -> list[tuple[str, str]]:
        return _pair_names(columns)

    def attributes(self, covariances: FloatArray) -> tuple[FloatArray, FloatArray]:
        whole, roots = super().attributes(covariances[:1])
        return whole[0], roots[0]


TYPES: dict[str, CovarianceType] = {own.name: own for own in (Spherical(), Diagonal(), Tied(), Full())}


def _size(xp: Namespace, own: Whitened) -> Array:
    """tr w of each row."""
    return own.size if own.missing is None else own.size + xp.sum(own.missing, axis=1)


def _square(own: Whitened) -> Any:
    """The diagonal of w of each row (m × d)."""
    return own.square if own.missing is None else own.square + own.missing


def _second(xp: Namespace, share: Array, own: Whitened) -> Array:
    """Σ share·w over the rows."""
    total = over_rows(xp, share[:, None] * own.v, own.v)
    return total if own.missing is None else total + xp.sum(share[:, None, None] * own.missing, axis=0)


def _pairs(xp: Namespace, own: Whitened) -> Array:
    """w − I of each row, packed as by :func:`~dpem.queries.narrow.packed` (m × d(d + 1)/2)."""
    d = own.v.shape[1]
    square = own.v * own.v
    if own.missing is not None:
        square = square + xp.stack([own.missing[:, j, j] for j in range(d)], axis=1)
    parts = [square - 1.0]
    for j in range(d - 1):
        products = own.v[:, j : j + 1] * own.v[:, j + 1 :]
        parts.append(2**0.5 * (products if own.missing is None else products + own.missing[:, j, j + 1 :]))
    return xp.concat(parts, axis=1)


def _clipped(step: FloatArray) -> FloatArray:
    """A step of a logarithm, at most 3: a larger one is outside the range of the linear form."""
    return np.clip(step, -3.0, 3.0)


def _pair_names(columns: Sequence[str]) -> list[tuple[str, str]]:
    return [
        (f"variance of {a}", "positive") if a == b else (f"covariance of {a} and {b}", "")
        for i, a in enumerate(columns)
        for b in columns[i:]
    ]
