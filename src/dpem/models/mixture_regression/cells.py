"""K components from noisy counts in cells of (directions, residual), by weighted least squares from many starts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, softmax

from dpem.fitting.rehearsal import normal
from dpem.query import FloatArray

#: Prior standard deviations around 0 (log weights), 0 (intercepts), 0 (slopes), log 0.7 (log spreads).
PRIOR_SPREADS = (1.0, 1.5, 1.0, 0.7)
RESTARTS = 16


class CellFit(NamedTuple):
    """K components in cell coordinates, in residual spreads, and their misfit in units of the noise, squared."""

    weights: FloatArray
    intercepts: FloatArray
    slopes: FloatArray
    spreads: FloatArray
    misfit: float


def edges(cells: int, last: float) -> FloatArray:
    """Inner edges of ``cells`` cells within ±``last``, up to three times as wide at the ends as in the middle."""
    u = np.linspace(-1, 1, cells + 1)[1:-1]
    return np.asarray(last * (0.6 * u + 0.4 * u**3))


@dataclass(frozen=True)
class Cells:
    """Noisy shares of rows in cells; ``mass`` has an axis for each direction, and that of the residual last.

    ``noise`` is the standard deviation of the noise in a cell, ``n`` the number of rows.
    """

    mass: FloatArray
    noise: float
    n: float
    x_edges: FloatArray
    r_edges: FloatArray

    @property
    def q(self) -> int:
        return self.mass.ndim - 1

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of a standard normal coordinate in the x-cells, cells × q."""
        e = np.concatenate([[-np.inf], self.x_edges, [np.inf]])
        density = np.exp(-0.5 * e**2) / math.sqrt(2 * math.pi)
        share = np.diff(ndtr(e))
        mean = -np.diff(density) / share
        variance = 1 - np.diff(np.where(np.isfinite(e), e, 0.0) * density) / share - mean**2
        grid = np.stack(np.meshgrid(*[np.arange(len(mean))] * self.q, indexing="ij"), axis=-1).reshape(-1, self.q)
        return mean[grid], np.maximum(variance, 1e-3)[grid]

    def x_mass(self) -> FloatArray:
        """Shares of the x-cells, shrunk towards the product of their margins as far as they are noise."""
        observed = self.mass.sum(axis=-1)
        noise = self.noise * math.sqrt(self.mass.shape[-1])
        product = np.ones(())
        for j in range(self.q):
            margin = np.maximum(observed.sum(axis=tuple(i for i in range(self.q) if i != j)), max(noise, 1e-9))
            product = np.multiply.outer(product, margin / margin.sum())
        spread = 0.5 * product
        return np.maximum(product + (observed - product) * spread**2 / (spread**2 + noise**2), 0.1 * product).ravel()

    def scale(self) -> FloatArray:
        """The standard deviation of each cell, by noise and by sampling."""
        pooled = np.maximum(self.mass.reshape(-1, self.mass.shape[-1]).sum(axis=0), max(self.noise, 1e-9))
        pooled = np.maximum(pooled / pooled.sum(), 0.01)
        return np.sqrt(self.noise**2 + self.x_mass()[:, None] * pooled / self.n)


class _CellMisfit:
    """The misfit of K components to cells, for many parameter sets at a time (restarts × K × (q + 3)).

    The parameters of a component are log weight, intercept, slopes and log spread. ``parallel``: slopes stay 0.
    """

    def __init__(self, cells: Cells, K: int, parallel: bool) -> None:
        self.cell_means, self.cell_variances = cells.moments()
        self.mass, self.scale = cells.x_mass(), cells.scale()
        self.observed = cells.mass.reshape(len(self.mass), -1)
        self.r_edges = cells.r_edges
        self.K, self.q = K, cells.q
        spreads = [PRIOR_SPREADS[0], PRIOR_SPREADS[1], *[PRIOR_SPREADS[2]] * self.q, PRIOR_SPREADS[3]]
        self.precision = np.tile(np.array(spreads) ** -2.0, (K, 1))
        self.prior_mean = np.zeros((K, self.q + 3))
        self.prior_mean[:, -1] = math.log(0.7)
        self.free = np.ones((K, self.q + 3))
        if parallel:
            self.free[:, 2:-1] = 0.0

    def residuals(self, par: FloatArray, jacobian: bool) -> tuple[FloatArray, FloatArray | None]:
        q = self.q
        w = softmax(par[:, :, 0], axis=1)
        b, s = par[:, :, 2 : 2 + q], np.exp(par[:, :, -1])
        mean = par[:, :, 1, None] + b @ self.cell_means.T
        sd = np.sqrt(s[:, :, None] ** 2 + b**2 @ self.cell_variances.T)
        z = (self.r_edges - mean[..., None]) / sd[..., None]
        p = np.diff(ndtr(z), axis=-1, prepend=0.0, append=1.0)
        mixture = np.sum(w[:, :, None, None] * p, axis=1)
        misfit = ((self.observed - self.mass[:, None] * mixture) / self.scale).reshape(len(par), -1)
        if not jacobian:
            return misfit, None
        density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
        weight = w[:, :, None, None] * (self.mass[:, None] / self.scale)
        by_mean = -np.diff(density, axis=-1, prepend=0.0, append=0.0) / sd[..., None] * weight
        by_variance = -np.diff(z * density, axis=-1, prepend=0.0, append=0.0) / (2 * sd[..., None] ** 2) * weight
        parts = [weight * (p - mixture[:, None]), by_mean]
        for i in range(q):
            by_slope = (2 * b[:, :, i, None] * self.cell_variances[:, i])[..., None]
            parts.append(by_mean * self.cell_means[:, i, None] + by_variance * by_slope)
        parts.append(by_variance * (2 * s**2)[:, :, None, None])
        return misfit, np.stack(parts, axis=2).reshape(len(par), self.K * (q + 3), -1)

    def cost(self, misfit: FloatArray, par: FloatArray) -> FloatArray:
        prior = np.sum(self.precision * (par - self.prior_mean) ** 2, axis=(1, 2))
        return np.asarray(np.sum(misfit**2, axis=1) + prior)

    def step(self, misfit: FloatArray, jacobian: FloatArray, par: FloatArray, damping: FloatArray) -> FloatArray:
        """A Levenberg–Marquardt step."""
        free = self.free.ravel()
        H = (jacobian @ jacobian.transpose(0, 2, 1) + np.diag(self.precision.ravel())) * free * free[:, None]
        prior = (self.precision * (par - self.prior_mean)).reshape(len(par), -1)
        g = ((jacobian @ misfit[:, :, None])[:, :, 0] - prior) * free
        diagonal = np.einsum("rpp->rp", H)
        H = H + (damping[:, None] * diagonal + (1 - free))[:, :, None] * np.eye(len(free))
        step = np.linalg.solve(H, g[:, :, None])[:, :, 0].reshape(par.shape)
        new = par + np.clip(step, -0.7, 0.7)
        new[:, :, 0] = np.clip(new[:, :, 0] - new[:, :, 0].mean(axis=1, keepdims=True), -3, 3)
        new[:, :, -1] = np.clip(new[:, :, -1], math.log(0.08), math.log(2.5))
        return np.asarray(new)


def fit_cells(cells: Cells, K: int, *, parallel: bool = False, rounds: int = 60) -> CellFit:
    """Fit K components to the cells, given the share of rows in every x-cell, so that x need not be normal.

    Levenberg–Marquardt steps from many starts, of which the worse half is dropped every eighth round. With ``parallel``
    all components have the slopes of the one regression.
    """
    cells_misfit = _CellMisfit(cells, K, parallel)
    par = _starts(K, cells.q, parallel)
    misfit, jacobian = cells_misfit.residuals(par, True)
    best, damping = cells_misfit.cost(misfit, par), np.full(len(par), 0.1)
    for i in range(rounds):
        assert jacobian is not None
        new = cells_misfit.step(misfit, jacobian, par, damping)
        cost = cells_misfit.cost(cells_misfit.residuals(new, False)[0], new)
        better = cost < best
        gained = float(np.max(np.where(better, best - cost, 0.0)))
        par, best = np.where(better[:, None, None], new, par), np.where(better, cost, best)
        damping = np.where(better, damping / 3, damping * 4)
        if i % 8 == 7:
            kept = np.argsort(best)[: max(2, len(par) // 2)]
            par, best, damping = par[kept], best[kept], damping[kept]
        if gained < 1e-4 and np.all(damping > 10):
            break
        misfit, jacobian = cells_misfit.residuals(par, True)
    first = par[int(np.argmin(best))]
    return CellFit(softmax(first[:, 0]), first[:, 1], first[:, 2:-1], np.exp(first[:, -1]), float(np.min(best)))


def _starts(K: int, q: int, parallel: bool) -> FloatArray:
    """The starting parameter sets, the same in every fit."""
    if K == 1:
        return np.zeros((1, 1, q + 3))
    z = normal(0, (RESTARTS, K, q + 3))
    par = z * np.array([0.3, 0.5, *[0.0 if parallel else 0.6] * q, 0.25])
    par[:, :, -1] += math.log(0.7)
    if parallel:
        par[0, :, 1], par[0, :, -1] = 0.0, np.log(np.linspace(0.5, 1.4, K))
    return np.asarray(par)
