"""Simulated tables with a known truth, one simulation for each general model: on its assumptions and off them.

A simulation draws a table and knows the truth in the order of the estimator's own summary, groups put in the order that
agrees best with what was fitted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

import dpem


class Drawn(NamedTuple):
    """A table, its response where there is one, the group of each row, and the mean of each response."""

    X: Any
    y: Any = None
    group: Any = None
    mean: Any = None


@dataclass(frozen=True)
class Simulation:
    """How rows are drawn, which estimator is fitted to them, and what its parameters really are."""

    model: str
    name: str
    draw: Callable[[int, np.random.Generator], Drawn]
    estimator: Callable[..., Any]
    truth: Callable[[Any], np.ndarray]

    def fit(self, n: int, epsilon: float, seed: int, **changes: Any) -> tuple[Any, Drawn]:
        rows = self.draw(n, np.random.default_rng(seed))
        model = self.estimator(epsilon=epsilon, delta=1e-6, random_state=seed, **changes)
        return (model.fit(rows.X) if rows.y is None else model.fit(rows.X, rows.y)), rows


def correlated(n: int, d: int, rho: float, rng: np.random.Generator) -> np.ndarray:
    """Normal columns of spread 1 with correlation rho^|i − j|."""
    x = rng.standard_normal((n, d))
    for j in range(1, d):
        x[:, j] = rho * x[:, j - 1] + np.sqrt(1 - rho**2) * x[:, j]
    return x


def best(centres: np.ndarray, fitted: np.ndarray) -> tuple[int, ...]:
    """The order of the true components (rows) that lies nearest to the fitted ones."""
    orders = permutations(range(len(centres)))
    return min(orders, key=lambda order: float(np.abs(centres[list(order)] - fitted).sum()))


# --- linear regression ------------------------------------------------------------------------------------------------

SLOPES, INTERCEPT, SIGMA = np.array([0.8, -0.5, 0.3, 0.0, 0.2]), 2.0, 1.0


def residuals(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Errors of mean 0 and variance 1: "normal", "skewed" (exponential) or "heavy" (t with 3 degrees of freedom)."""
    if kind == "skewed":
        return rng.exponential(size=n) - 1
    return rng.standard_normal(n) if kind == "normal" else rng.standard_t(3, n) / np.sqrt(3)


def linear(
    rho: float = 0.0,
    errors: str = "normal",
    shuffled: bool = False,
    intercept: bool = True,
    columns: str = "normal",
    missing: float = 0.0,
) -> Simulation:
    """Five columns, "normal", "skewed" (lognormal) or "binary" (every other one); ``errors`` are normal, "skewed"
    (exponential) or "heavy" (t with 3 degrees of freedom).
    """

    def draw(n: int, rng: np.random.Generator) -> Drawn:
        x = correlated(n, len(SLOPES), rho, rng)
        if columns == "skewed":
            x = np.exp(0.6 * x) - 1
        elif columns == "binary":
            x[:, ::2] = x[:, ::2] > 0.8
        e = {
            "normal": lambda: rng.standard_normal(n),
            "skewed": lambda: rng.exponential(size=n) - 1,
            "heavy": lambda: rng.standard_t(3, n) / np.sqrt(3),
        }[errors]()
        mean = INTERCEPT + x @ SLOPES
        y = mean + SIGMA * e
        if missing:
            x = np.where(rng.random(x.shape) < missing, np.nan, x)
        return Drawn(x, rng.permutation(y) if shuffled else y, mean=mean)

    def estimator(**given: Any) -> Any:
        return dpem.DPLinearRegression(bounds=(-8, 8), y_bounds=(-15, 20), fit_intercept=intercept, **given)

    known = np.array([INTERCEPT, *SLOPES, SIGMA])
    kind = "independent" if rho == 0 else f"correlation {rho:g}"
    more = [f"{errors} errors"] if errors != "normal" else []
    more += [f"{columns} columns"] if columns != "normal" else []
    more += [f"{100 * missing:g} % missing"] if missing else []
    return Simulation("linear-regression", ", ".join([kind, *more]), draw, estimator, lambda model: known)


def selected(d: int = 60) -> Simulation:
    """Columns chosen first: three of ``d`` independent ones count, the last hardly; a column's truth is its own slope,
    0 for one that was chosen wrongly.
    """
    slopes = np.zeros(d)
    slopes[[3, d // 2, d - 4]] = 0.8, -0.5, 0.15

    def draw(n: int, rng: np.random.Generator) -> Drawn:
        x = rng.standard_normal((n, d))
        mean = INTERCEPT + x @ slopes
        return Drawn(x, mean + SIGMA * rng.standard_normal(n), mean=mean)

    def estimator(**given: Any) -> Any:
        return dpem.DPLinearRegression(bounds=(-8, 8), y_bounds=(-15, 20), sparsity=3, **given)

    def truth(model: Any) -> np.ndarray:
        missed = np.delete(slopes, model.support_)
        return np.array([INTERCEPT, *slopes[model.support_], np.sqrt(SIGMA**2 + np.sum(missed**2))])

    return Simulation("linear-regression", f"after selection, 3 of {d}", draw, estimator, truth)


# --- Gaussian mixtures ------------------------------------------------------------------------------------------------


def gaussian_mixture(
    K: int = 3,
    d: int = 2,
    separation: float = 4.0,
    weights: Any = None,
    shuffled: bool = False,
    fitted: Any = None,
    kind: str = "diag",
    rho: float = 0.0,
) -> Simulation:
    """K components on a circle, ``separation`` spreads apart, of correlation rho^|i − j|; ``shuffled`` rows are of one
    group, as wide. Where shares differ the largest fitted group is the largest true one.
    """
    shares = np.full(K, 1 / K) if weights is None else np.asarray(weights)
    turn = 2 * np.pi * np.arange(K) / K
    centres = np.zeros((K, d))
    centres[:, :2] = separation / (2 * np.sin(np.pi / K)) * np.column_stack([np.cos(turn), np.sin(turn)])
    shape = rho ** np.abs(np.arange(d)[:, None] - np.arange(d))

    def draw(n: int, rng: np.random.Generator) -> Drawn:
        group = rng.choice(K, size=n, p=shares)
        x = centres[group] + correlated(n, d, rho, rng)
        if shuffled:
            x = x.std(axis=0) * rng.standard_normal((n, d))
        return Drawn(x, group=group)

    def estimator(**given: Any) -> Any:
        return dpem.DPGaussianMixture(fitted or K, covariance_type=kind, bounds=(-12, 12), **given)

    def truth(model: Any) -> np.ndarray:
        order = list(best(centres, model.means_))
        own = shape[np.triu_indices(d)] if kind == "full" else np.ones(d)
        return np.concatenate([shares[order], centres[order].ravel(), np.tile(own, K)])

    more = "" if weights is None else f", shares {' '.join(f'{share:g}' for share in shares)}"
    more += f", {kind}, correlation {rho:g}" if kind != "diag" else ""
    return Simulation("gaussian-mixture", f"K = {K}, d = {d}, {separation:g} apart{more}", draw, estimator, truth)


# --- latent classes ---------------------------------------------------------------------------------------------------


def latent_class(
    K: int = 3, items: int = 8, clear: float = 0.8, shuffled: bool = False, fitted: int | None = None
) -> Simulation:
    """Yes/no items; each class says yes to its own with chance ``clear``, to the others' with 1 − ``clear``."""
    shares = np.array([0.5, 0.3, 0.2]) if K == 3 else np.full(K, 1 / K)
    yes = np.where(np.arange(items) % K == np.arange(K)[:, None], clear, 1 - clear)

    def draw(n: int, rng: np.random.Generator) -> Drawn:
        group = rng.choice(K, size=n, p=shares)
        x = (rng.random((n, items)) < yes[group]).astype(float)
        return Drawn(np.column_stack([rng.permutation(c) for c in x.T]) if shuffled else x, group=group)

    def estimator(**given: Any) -> Any:
        return dpem.DPLatentClass(fitted or K, levels={f"x{j}": [0, 1] for j in range(items)}, **given)

    def truth(model: Any) -> np.ndarray:
        fitted = np.array([p[:, 1] for p in model.probabilities_.values()]).T
        order = list(best(yes, fitted))
        both = np.stack([1 - yes[order], yes[order]], axis=2).reshape(K, -1)
        return np.concatenate([shares[order], both.ravel()])

    return Simulation("latent-class", f"K = {K}, {items} items, {clear:g} clear", draw, estimator, truth)


# --- mixtures of regressions ------------------------------------------------------------------------------------------


def mixture_regression(rho: float = 0.0, apart: float = 3.0, groups: bool = True, errors: str = "normal") -> Simulation:
    """Two lines over two columns, slopes ``apart`` residual spreads apart; or one line only. ``errors`` as above."""
    shares = np.array([0.6, 0.4])
    lines = np.array([[0.0, 1.0, 0.5, 0.5], [1.0, 1.0 - apart, 0.5, 0.5]]) * [1, 0.5, 0.5, 1]

    def draw(n: int, rng: np.random.Generator) -> Drawn:
        x = correlated(n, 2, rho, rng)
        group = rng.choice(2, size=n, p=shares) if groups else np.zeros(n, dtype=int)
        own = lines[group]
        return Drawn(x, own[:, 0] + np.sum(own[:, 1:3] * x, axis=1) + own[:, 3] * residuals(errors, n, rng), group)

    def estimator(**given: Any) -> Any:
        return dpem.DPMixtureRegression(2, bounds=(-6, 6), y_bounds=(-12, 12), **given)

    def truth(model: Any) -> np.ndarray:
        fitted = np.column_stack([model.intercept_, model.coef_])
        order = list(best(lines[:, :3], fitted))
        return np.column_stack([shares[order], lines[order]]).ravel()

    kind = "independent" if rho == 0 else f"correlation {rho:g}"
    return Simulation("mixture-regression", f"K = 2, d = 2, {kind}", draw, estimator, truth)
