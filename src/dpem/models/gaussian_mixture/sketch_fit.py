"""Fit a mixture's characteristic function to a released sketch: post-processing, at no price.

The mixture Σ_k α_k N(μ_k, diag v_k) has the characteristic function φ(w) = Σ_k α_k exp(i w·μ_k − ½Σ_j v_kj·w_j²). The
fit minimises its squared distance from the released values, in units of their errors, by Levenberg–Marquardt steps and
by split-and-merge moves. Diagonal covariances suffice for a start of any type: EM on the surrogate rows finds
correlations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpem.query import FloatArray

ComplexArray = NDArray[np.complex128]

#: Prior standard deviations of log variances: of their common mean around the expected value, of a component's mean
#: around the common one, of a column's around its component's.
COMMON_SD, COMPONENT_SD, COLUMN_SD = 1.5, 0.5, 0.35
#: The gain in loss (half the misfit) below which a descent ends, and the one that a split-and-merge move must bring.
LEAST_GAIN, MOVE_GAIN = 1e-3, 1.0
#: Levenberg–Marquardt steps of a trial and of a descent to convergence; steps uphill to the centre of a new component.
SHORT, LONG, UPHILL = 8, 40, 8
#: Components that are placed beyond K and merged again, and split-and-merge moves of which a trial is made. Of 50
#: simulated sketches with eight components 2 lose one with these, 9 with restarts and moves of single components.
EXTRA, TRIALS = 3, 4
#: The least share of a component while shares are fitted alone.
LEAST_SHARE = 0.02
#: The least share by which two components are averaged.
LEAST_WEIGHT = 1e-12


class Expansion(NamedTuple):
    """A loss with its gradient and its Gauss–Newton Hessian."""

    loss: float
    gradient: FloatArray
    hessian: FloatArray


def descend(function: Callable[[FloatArray], Expansion], point: FloatArray, steps: int) -> tuple[float, FloatArray]:
    """The loss and the point after at most this number of Levenberg–Marquardt steps."""
    damping, now = 1e-2, function(point)
    for _ in range(steps):
        scale = damping * np.diag(now.hessian) + 1e-9
        new_point = point - np.linalg.solve(now.hessian + np.diag(scale), now.gradient)
        with np.errstate(all="ignore"):  # a step that overflows is rejected
            new = function(new_point)
        if not new.loss < now.loss:
            damping *= 5
            if damping > 1e6:
                break
            continue
        gain, damping = now.loss - new.loss, max(damping / 5, 1e-6)
        point, now = new_point, new
        if gain < LEAST_GAIN:
            break
    return now.loss, point


def expansion(residual: ComplexArray, jacobian: ComplexArray) -> Expansion:
    """Half the squared norm of complex residuals, expanded."""
    J, r = np.concatenate([jacobian.real, jacobian.imag]), np.concatenate([residual.real, residual.imag])
    return Expansion(0.5 * float(r @ r), J.T @ r, J.T @ J)


class Components(NamedTuple):
    """Shares (K), means (K × q) and log variances (K × c)."""

    shares: FloatArray
    means: FloatArray
    log_variances: FloatArray

    @property
    def point(self) -> FloatArray:
        """The coordinates of the fit: logarithms of the shares, means, log variances."""
        log_shares = np.log(self.shares / self.shares.sum())
        return np.concatenate([log_shares, self.means.ravel(), self.log_variances.ravel()])

    def without(self, *places: int) -> Components:
        return Components(*(np.delete(part, places, axis=0) for part in self))

    def with_new(self, means: FloatArray, log_variance: FloatArray) -> Components:
        """With components of the mean share at these means, all with the same log variances."""
        shares = np.append(self.shares, np.full(len(means), self.shares.mean()))
        log_variances = np.vstack([self.log_variances, *(log_variance,) * len(means)])
        return Components(shares, np.vstack([self.means, means]), log_variances)

    def merged(self, i: int, j: int) -> Components:
        """With components i and j replaced by one of their joint share and mean and the mean of their variances, the
        last.
        """
        share = self.shares[i] + self.shares[j]
        p = max(self.shares[i], LEAST_WEIGHT) / max(share, 2 * LEAST_WEIGHT)  # both shares may underflow to 0
        mean = p * self.means[i] + (1 - p) * self.means[j]
        variance = p * np.exp(self.log_variances[i]) + (1 - p) * np.exp(self.log_variances[j])
        rest = self.without(i, j)
        log_variances = np.vstack([rest.log_variances, np.log(variance)])
        return Components(np.append(rest.shares, share), np.vstack([rest.means, mean]), log_variances)


@dataclass(frozen=True)
class Target:
    """Released values of the characteristic function and the standard deviations of their errors.

    ``frequencies`` (F × q) are along the q directions in which centres may differ. ``damping`` (F × c) multiplies each
    of a component's c variances in the exponent: ½w_j² for every column, or their sum if a component has one variance.
    ``precision`` (q) is that of the normal prior of the centres, with mean 0; ``log_variance`` is the expected one;
    ``places`` (m × q) are candidates for the centre of a new component.
    """

    values: ComplexArray
    frequencies: FloatArray
    damping: FloatArray
    errors: FloatArray
    precision: FloatArray
    log_variance: float
    places: FloatArray

    @cached_property
    def _atom(self) -> FloatArray:
        """The characteristic function of a component of the expected variance at 0."""
        return np.asarray(np.exp(-math.exp(self.log_variance) * self.damping.sum(axis=1)))

    @cached_property
    def _filters(self) -> tuple[FloatArray, FloatArray]:
        """Matched filters: cos and sin of the frequencies at the places, times the atom over the squared errors."""
        phase = self.places @ self.frequencies.T
        weight = self._atom / self.errors**2
        return weight * np.cos(phase), weight * np.sin(phase)

    @cached_property
    def _precision_of_atom(self) -> FloatArray:
        """The precision A of the normal curve that the matched filter of a single component shows around its centre."""
        weight = (self._atom / self.errors) ** 2
        return np.asarray((self.frequencies.T * (weight / weight.sum())) @ self.frequencies)

    def best_place(self, residual: ComplexArray) -> FloatArray:
        """The centre of a new component: the place with the largest filtered residual and from there uphill, by steps
        that reach the centre of a component that stands alone. Without these steps 14 of 44 public tables kept less of
        the lead, and 3 more.
        """
        cos, sin = self._filters
        place = best = self.places[int(np.argmax(cos @ residual.real + sin @ residual.imag))]
        weighted, height = self._atom / self.errors**2 * residual, 0.0
        for _ in range(UPHILL):
            turned = weighted * np.exp(-1j * (self.frequencies @ place))
            new_height = float(turned.real.sum())
            if new_height <= max(height, 1e-3 * float(np.abs(turned).sum())):
                break
            best, height = place, new_height
            place = best + np.linalg.solve(self._precision_of_atom, self.frequencies.T @ turned.imag) / height
        return best

    def halves(self, residual: ComplexArray, mean: FloatArray) -> FloatArray:
        """Two centres in place of one (2 × q).

        A single component at m shows the precision A around m; two halves at m ± s show H = A − A s sᵀA to second order
        in s. So s follows from the least eigenvalue of A^(−½)HA^(−½).
        """
        turned = self._atom / self.errors**2 * np.exp(-1j * (self.frequencies @ mean)) * residual
        height = max(float(turned.real.sum()), 1e-3 * float(np.abs(turned).sum()))
        H = (self.frequencies.T * turned.real) @ self.frequencies / height
        root = np.linalg.inv(np.linalg.cholesky(self._precision_of_atom)).T
        values, axes = np.linalg.eigh(root.T @ H @ root)
        s = root @ axes[:, 0] * math.sqrt(min(max(1 - values[0], 0.0), 9.0))
        return np.array([mean + s, mean - s])

    def components(self, point: FloatArray) -> Components:
        q, c = self.frequencies.shape[1], self.damping.shape[1]
        K = len(point) // (1 + q + c)
        shares = np.exp(point[:K] - point[:K].max())
        return Components(shares / shares.sum(), point[K : K + K * q].reshape(K, q), point[K + K * q :].reshape(K, c))

    def waves(self, means: FloatArray, log_variances: FloatArray) -> ComplexArray:
        """The characteristic functions of components (F × K)."""
        return np.asarray(np.exp(1j * (self.frequencies @ means.T) - self.damping @ np.exp(log_variances).T))

    def with_best_shares(self, components: Components, waves: ComplexArray) -> tuple[float, Components]:
        """The misfit and the components with shares fitted by least squares, means and variances held."""
        scaled = waves / self.errors[:, None]
        gram, right = (scaled.conj().T @ scaled).real, (scaled.conj().T @ (self.values / self.errors)).real
        ridge = 1e-6 * np.trace(gram) / len(gram) * np.eye(len(gram))
        shares = np.maximum(np.linalg.solve(gram + ridge, right), LEAST_SHARE)
        misfit = float(np.sum(np.abs((self.values - waves @ shares) / self.errors) ** 2))
        return misfit, components._replace(shares=shares)

    def misfit(self, point: FloatArray) -> float:
        """The squared distance from the released values in units of their errors, without penalties."""
        shares, means, log_variances = self.components(point)
        return float(np.sum(np.abs((self.waves(means, log_variances) @ shares - self.values) / self.errors) ** 2))

    def loss(self, point: FloatArray) -> Expansion:
        """Half the misfit less the log prior: normal for centres and log variances, Dirichlet(2, …, 2) for shares."""
        shares, means, log_variances = self.components(point)
        K, q = means.shape
        terms = self.waves(means, log_variances) * shares / self.errors[:, None]
        total = terms.sum(axis=1)
        by_mean = (1j * terms)[:, :, None] * self.frequencies[:, None, :]
        by_variance = terms[:, :, None] * (-self.damping[:, None, :] * np.exp(log_variances))
        jacobian = [terms - np.outer(total, shares), by_mean.reshape(len(terms), -1)]
        jacobian.append(by_variance.reshape(len(terms), -1))
        loss, gradient, hessian = expansion(total - self.values / self.errors, np.concatenate(jacobian, axis=1))
        of_means = np.tile(self.precision, K)
        of_variances, away = _variance_precision(K, log_variances.shape[1]), log_variances.ravel() - self.log_variance
        loss += 0.5 * float(of_means @ point[K : K + K * q] ** 2) + 0.5 * float(away @ of_variances @ away)
        loss -= float(np.sum(np.log(shares + 1e-12)))
        gradient += np.concatenate([K * shares - 1, of_means * point[K : K + K * q], of_variances @ away])
        hessian[:K, :K] += K * (np.diag(shares) - np.outer(shares, shares))
        hessian[np.arange(K, K + K * q), np.arange(K, K + K * q)] += of_means
        hessian[K + K * q :, K + K * q :] += of_variances
        return Expansion(loss, gradient, hessian)


@lru_cache(maxsize=32)
def _variance_precision(K: int, c: int) -> FloatArray:
    """The prior precision of K·c log variances: a column's around its component's mean, this around the mean of all
    components, and that around the expected one.
    """
    mean = np.full((c, c), 1 / c)
    of_means = np.eye(K) / COMPONENT_SD**2 + (1 / COMMON_SD**2 - K / COMPONENT_SD**2) / K**2
    return np.kron(np.eye(K), (np.eye(c) - mean) / COLUMN_SD**2) + np.kron(of_means, mean / c)


def fitted(target: Target, K: int) -> FloatArray:
    """The point of K components with the least loss that is found.

    K + 3 components are placed one by one and moved; pairs are merged until K are left. Then components are split and
    merged, as in split-and-merge EM, as long as this lowers the loss.
    """
    point = descend(target.loss, _placed(target, K + EXTRA), SHORT)[1]
    for _ in range(EXTRA):
        point = descend(target.loss, _with_one_less(target, target.components(point)), SHORT)[1]
    loss, point = descend(target.loss, point, LONG)
    for _ in range(2 * K if K > 1 else 0):
        trials = [descend(target.loss, trial, SHORT) for trial in _split_and_merged(target, target.components(point))]
        new_loss, new_point = descend(target.loss, min(trials, key=_first)[1], LONG)
        if new_loss > loss - MOVE_GAIN:
            break
        loss, point = new_loss, new_point
    return point


def _placed(target: Target, K: int) -> FloatArray:
    """K components of the expected variance, each placed where the residual of those before shows one."""
    q, c = target.frequencies.shape[1], target.damping.shape[1]
    components = Components(np.zeros(0), np.zeros((0, q)), np.zeros((0, c)))
    residual, waves = target.values, np.zeros((len(target.values), 0), dtype=complex)
    for _ in range(K):
        means = np.vstack([components.means, target.best_place(residual)])
        log_variances = np.full((len(means), c), target.log_variance)
        waves = target.waves(means, log_variances)
        components = target.with_best_shares(Components(np.ones(len(means)), means, log_variances), waves)[1]
        residual = target.values - waves @ components.shares
    return components.point


def _with_one_less(target: Target, components: Components) -> FloatArray:
    """The point with that pair of components merged which raises the misfit least."""
    waves, trials = target.waves(*components[1:]), []
    for i, j in combinations(range(len(components.shares)), 2):
        merged = components.merged(i, j)
        new = target.waves(merged.means[-1:], merged.log_variances[-1:])
        trials.append(target.with_best_shares(merged, np.hstack([np.delete(waves, (i, j), axis=1), new])))
    return min(trials, key=_first)[1].point


def _split_and_merged(target: Target, components: Components) -> list[FloatArray]:
    """The points with one pair merged and another component split, or a new one placed: those with the least misfit."""
    waves, trials, last = target.waves(*components[1:]), [], len(components.shares) - 2
    for i, j in combinations(range(last + 2), 2):
        merged = components.merged(i, j)
        merged_wave = target.waves(merged.means[-1:], merged.log_variances[-1:])
        merged_waves = np.hstack([np.delete(waves, (i, j), axis=1), merged_wave])
        for k in range(last + 1):
            rest, rest_waves = merged, merged_waves
            if k < last:
                rest, rest_waves = merged.without(k), np.delete(merged_waves, k, axis=1)
            residual = target.values - rest_waves @ rest.shares
            means = target.halves(residual, merged.means[k]) if k < last else target.best_place(residual)[None]
            trial = rest.with_new(means, rest.log_variances.mean(axis=0))
            new_waves = target.waves(means, trial.log_variances[-len(means) :])
            trials.append(target.with_best_shares(trial, np.hstack([rest_waves, new_waves])))
    return [trial.point for _, trial in sorted(trials, key=_first)[:TRIALS]]


def _first(trial: tuple[float, object]) -> float:
    return trial[0]
