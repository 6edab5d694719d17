"""Shapes of covariances as a sketch sees them: how strongly each component damps each frequency.

A component damps frequency w by exp(−½ wᵀΣ_k w). Each family has free parameters t for all covariances, draws them to
what is expected (a penalty in units of misfit) and gives the covariances back.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from dpem.query import FloatArray

#: How far, in log variance, all components may be from the expected size, one from the others, a column from the rest.
LEVEL, SIZE, COLUMN = 1.5, 0.5, 0.35


@dataclass(frozen=True)
class SketchShape(ABC):
    """``frequencies`` (F × d), and the log variance ``level`` that a component is expected to have."""

    frequencies: FloatArray
    level: float

    @abstractmethod
    def start(self, K: int) -> FloatArray:
        """Parameters of K components as they are expected."""

    @abstractmethod
    def damping(self, t: FloatArray, K: int) -> FloatArray:
        """½ wᵀΣ_k w (F × K)."""

    @abstractmethod
    def pulled(self, by: FloatArray, damping: FloatArray, t: FloatArray, K: int) -> FloatArray:
        """The gradient by t of a loss whose gradient by the damping is ``by``."""

    @abstractmethod
    def penalty(self, t: FloatArray, K: int) -> tuple[float, FloatArray]: ...

    @abstractmethod
    def covariances(self, t: FloatArray, K: int) -> FloatArray:
        """K × d, or K × d × d."""


@dataclass(frozen=True)
class Spherical(SketchShape):
    """Σ_k = e^{t_k}·diag(shape): one size each, columns in the proportion that the table's units dictate."""

    shape: FloatArray

    def start(self, K: int) -> FloatArray:
        return np.full(K, self.level)

    def damping(self, t: FloatArray, K: int) -> FloatArray:
        return np.outer(0.5 * (self.frequencies**2 @ self.shape), np.exp(t))

    def pulled(self, by: FloatArray, damping: FloatArray, t: FloatArray, K: int) -> FloatArray:
        return np.asarray((by * damping).sum(axis=0))

    def penalty(self, t: FloatArray, K: int) -> tuple[float, FloatArray]:
        return _penalty(t, self.level)

    def covariances(self, t: FloatArray, K: int) -> FloatArray:
        return np.outer(np.exp(t), self.shape)


@dataclass(frozen=True)
class Diagonal(SketchShape):
    """Σ_k = diag(e^{t_k1}, …, e^{t_kd})."""

    def start(self, K: int) -> FloatArray:
        return np.full(K * self.frequencies.shape[1], self.level)

    def damping(self, t: FloatArray, K: int) -> FloatArray:
        return np.asarray(0.5 * self.frequencies**2 @ np.exp(t.reshape(K, -1)).T)

    def pulled(self, by: FloatArray, damping: FloatArray, t: FloatArray, K: int) -> FloatArray:
        return np.asarray((0.5 * (by.T @ self.frequencies**2) * np.exp(t.reshape(K, -1))).ravel())

    def penalty(self, t: FloatArray, K: int) -> tuple[float, FloatArray]:
        own = t.reshape(K, -1)
        size = own.mean(axis=1, keepdims=True)
        column = (own - size) / COLUMN
        value, by_size = _penalty(size[:, 0], self.level)
        return value + 0.5 * float(np.sum(column**2)), (column / COLUMN + by_size[:, None] / own.shape[1]).ravel()

    def covariances(self, t: FloatArray, K: int) -> FloatArray:
        return np.asarray(np.exp(t.reshape(K, -1)))


@dataclass(frozen=True)
class Shared(SketchShape):
    """Σ_k = e^{t_k}·LLᵀ: one shape for all, and sizes of their own unless ``tied``; EM finds the shape of each."""

    tied: bool

    def _sizes(self, K: int) -> int:
        return 1 if self.tied else K

    def _expected(self) -> FloatArray:
        d = self.frequencies.shape[1]
        return np.asarray(math.exp(0.5 * self.level) * np.eye(d)[np.tril_indices(d)])

    def _root(self, t: FloatArray, K: int) -> FloatArray:
        d = self.frequencies.shape[1]
        L = np.zeros((d, d))
        L[np.tril_indices(d)] = t[self._sizes(K) :]
        return L

    def _scales(self, t: FloatArray, K: int) -> FloatArray:
        return np.broadcast_to(np.exp(t[: self._sizes(K)]), (K,))

    def start(self, K: int) -> FloatArray:
        return np.concatenate([np.zeros(self._sizes(K)), self._expected()])

    def damping(self, t: FloatArray, K: int) -> FloatArray:
        whole = np.sum((self.frequencies @ self._root(t, K)) ** 2, axis=1)
        return np.outer(0.5 * whole, self._scales(t, K))

    def pulled(self, by: FloatArray, damping: FloatArray, t: FloatArray, K: int) -> FloatArray:
        d = self.frequencies.shape[1]
        by_size = (by * damping).sum(axis=0)
        weight = by @ self._scales(t, K)
        by_root = (self.frequencies * weight[:, None]).T @ (self.frequencies @ self._root(t, K))
        sizes = np.array([by_size.sum()]) if self.tied else by_size
        return np.concatenate([sizes, by_root[np.tril_indices(d)]])

    def penalty(self, t: FloatArray, K: int) -> tuple[float, FloatArray]:
        sizes = t[: self._sizes(K)] / SIZE
        root = t[self._sizes(K) :] - self._expected()
        return 0.5 * float(sizes @ sizes) + 0.5 * float(root @ root), np.concatenate([sizes / SIZE, root])

    def covariances(self, t: FloatArray, K: int) -> FloatArray:
        L = self._root(t, K)
        return np.asarray(self._scales(t, K)[:, None, None] * (L @ L.T)[None])


def _penalty(sizes: FloatArray, level: float) -> tuple[float, FloatArray]:
    """Of log sizes that are drawn to each other and, all together, to the level; and its gradient."""
    mean = float(sizes.mean())
    apart, away = (sizes - mean) / SIZE, (mean - level) / LEVEL
    return 0.5 * float(apart @ apart) + 0.5 * away**2, apart / SIZE + away / LEVEL / len(sizes)
