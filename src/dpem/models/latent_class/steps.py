"""The steps of a fit: pairs of answers, EM on surrogate rows, and EM on the table without privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import array_api_compat.numpy as numpy_api
import numpy as np
from scipy.optimize import least_squares

from dpem.fitting.rehearsal import generator
from dpem.fitting.step import State, Step
from dpem.fitting.surrogate import (
    NOT_CLIPPED,
    Answer,
    Block,
    Converged,
    Surrogate,
    SurrogateFit,
    best_of,
    exact,
    score_query,
)
from dpem.models.latent_class.errors import published
from dpem.models.latent_class.family import TUNING, Classes, ClassFamily
from dpem.models.latent_class.queries import CellCounts, Items, PairMoments, answers
from dpem.privacy import Curator
from dpem.query import FloatArray

#: The fit without privacy counts at most this number of cells; with more it reads the rows at every step of EM.
MOST_COUNTED = 2**21
#: The search for the classes closest to the pairs: the number of steps, and the weight of the distance from its start.
STEPS, PULL = 12, 0.1
#: The fraction of drawn surrogate rows that follow classes; the others have independent answers.
FROM_CLASSES = 0.7
#: The lightest surrogate rows, of this total weight, are left out of EM.
NEGLIGIBLE = 1e-5


@dataclass(frozen=True)
class ClassState(State):
    """The releases so far, and what was computed from them: the fit to surrogate rows, their base weights under
    independent answers, and the criterion for 1, 2, … classes if their number is estimated.
    """

    family: ClassFamily = None  # type: ignore[assignment]  # set by the first step
    fit: SurrogateFit[Classes] = None  # type: ignore[assignment]
    independent: FloatArray = field(default_factory=lambda: np.zeros(0))
    path: FloatArray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class PairStep(Step):
    """Release the answers and pairs of answers; tilt surrogate rows to them, and run EM on these rows."""

    def describe(self) -> str:
        return "answers to each item, and to each pair of items"

    def run(self, curator: Curator, model: Any, state: ClassState) -> ClassState:
        items: Items = model.items
        query = PairMoments(model.schema, items)
        noise = curator.noise_scale(query, self.rho)
        mean = curator.measure(query, self.rho)
        J, m = len(items.levels), items.first[-1]
        observed = np.clip(mean[:m] @ items.of_level, 0.02, 1.0)
        observed[observed > 1 - 2 * noise * np.sqrt(items.levels) - 1e-9] = 1.0
        overall = items.floored(items.proportions(np.maximum(mean[:m], 0.0)), TUNING.floor)
        pseudo = TUNING.pseudo * noise * math.sqrt(TUNING.pairs * 2 * (J + 1)) / query.bound.l2
        family = ClassFamily(max(model.n_classes, 1), items, observed, overall, TUNING.floor, pseudo)
        if math.isinf(self.rho):
            return replace(state, family=family)
        surrogate, path = surrogate_rows(family, query, mean, noise), np.zeros(0)
        if not model.n_classes:
            released = Released(mean[m : -J - 1], mean[:m], noise, curator.n_rows)
            family, path = choose(family, surrogate, released, model.most)
        fit = refitted(SurrogateFit(family, surrogate, ()), surrogate.base, [], 0)
        return replace(state, family=family, fit=fit, independent=surrogate.base, path=path)


def surrogate_rows(family: ClassFamily, query: PairMoments, mean: FloatArray, noise: float) -> Surrogate:
    """Surrogate rows that are tilted to the pairs: all possible rows with the weights of independent answers, or, if
    these are too many, rows drawn from classes that are fitted to earlier draws.
    """
    items, missing = family.items, family.observed < 1
    answer = Answer(query, mean, np.maximum(noise, 1e-12))
    blocks = [Block(1.0, 3e4, TUNING.components, (answer,))]  # the scores join it: a κ of their own worked worse
    independent = Classes(np.ones(1), family.overall[None])
    if items.cells(missing) <= TUNING.most_cells:
        x = items.rows_of(np.arange(items.cells(missing)), missing)
        return Surrogate.of(x, family.cell_weights(independent, x), blocks)
    rng = generator(0)

    def drawn(theta: Classes) -> tuple[FloatArray, FloatArray]:
        """Different rows, and how often each was drawn."""
        m = round(FROM_CLASSES * TUNING.drawn)
        rows = np.vstack([family.draw(theta, m, rng), family.draw(independent, TUNING.drawn - m, rng)])
        different, counts = np.unique(answers(numpy_api, rows, items), axis=0, return_counts=True)
        return different, counts.astype(float)

    surrogate = Surrogate.of(*drawn(independent), blocks)
    many_classes = replace(family, K=TUNING.drawn_classes)
    for _ in range(TUNING.redraws):
        solutions = surrogate.fit(
            many_classes, [], restarts=2, rng=rng, short_steps=15, finalists=1, max_steps=40, tolerance=1e-5
        )
        surrogate = surrogate.redrawn(*drawn(solutions[0].theta))
    return surrogate


def with_base(family: ClassFamily, independent: Surrogate, theta: Classes) -> Surrogate:
    """The surrogate with base weights of the classes θ mixed with few independent answers, if the released answers are
    more probable under these by more than ½·log(answers) per parameter; otherwise ``independent``.
    """
    if len(independent.x) != family.items.cells(family.observed < 1):
        return independent  # drawn rows have other base weights
    base = TUNING.model_part * family.cell_weights(theta, independent.x) + (1 - TUNING.model_part) * independent.base
    other = independent.redrawn(independent.x, base)
    values = sum(len(answer.mean) for answer in independent.blocks[0].answers)
    needed = 0.5 * family.parameters * math.log(values)
    return other if other.log_evidence - independent.log_evidence > needed else independent


def heaviest(x: FloatArray, weights: FloatArray) -> Surrogate:
    """The weighted rows without the lightest, which makes EM faster."""
    order = np.argsort(weights)
    heavy = order[np.cumsum(weights[order]) > NEGLIGIBLE]
    return Surrogate.of(x[heavy], weights[heavy])


def fitted(
    family: ClassFamily, surrogate: Surrogate, starts: list[Classes], seed: int, restarts: int | None = None
) -> list[Converged[Classes]]:
    """EM on the surrogate from these and from random starts, the best solution first."""
    rows, random = heaviest(surrogate.x, surrogate.weights), TUNING.restarts if restarts is None else restarts
    options: dict[str, Any] = {"short_steps": 20, "finalists": 5, "max_steps": 300, "tolerance": 1e-6}
    return rows.fit(family, starts, restarts=random, rng=generator(seed), **options)


def refitted(
    fit: SurrogateFit[Classes], independent: FloatArray, starts: list[Classes], seed: int
) -> SurrogateFit[Classes]:
    """EM on the surrogate; then again with the base weights of the solution, if these describe the answers better."""
    solutions = fitted(fit.family, fit.surrogate, starts, seed)
    under_independence = fit.surrogate.redrawn(fit.surrogate.x, independent)
    surrogate = with_base(fit.family, under_independence, solutions[0].theta)
    if surrogate is not under_independence:
        solutions = fitted(fit.family, surrogate, [solution.theta for solution in solutions[:3]], seed, restarts=0)
    return replace(fit, surrogate=surrogate, solutions=solutions)


@dataclass(frozen=True)
class Converge(Step):
    """Without privacy: run EM to convergence from several starts.

    EM runs on the counts of different rows; if there are too many of them it reads the table at every step.
    """

    starts: int = 20

    def describe(self) -> str:
        return f"EM without noise from {self.starts} starts"

    def run(self, curator: Curator, model: Any, state: ClassState) -> ClassState:
        items: Items = model.items
        family = replace(state.family, floor=1e-12, pseudo=0.0)
        counts = CellCounts(model.schema, items)
        rows = None
        if items.cells(counts.missing) <= MOST_COUNTED:
            counted = curator.measure(counts, math.inf)
            nonempty = np.flatnonzero(counted)
            rows = Surrogate.of(items.rows_of(nonempty, counts.missing), counted[nonempty])
        path = np.zeros(0)
        if not model.n_classes:
            path = np.array(
                [self._criterion(replace(family, K=K), curator, model, rows) for K in range(1, model.most + 1)]
            )
            family = replace(family, K=int(np.argmin(path)) + 1)
        best = self._best(family, curator, model, rows)
        if rows is None:
            rows = Surrogate.of(family.draw(best.theta, TUNING.drawn, generator(0)), np.ones(TUNING.drawn))
        query = score_query(model.schema, family, best.theta, rows.x, rows.weights, generator(1))
        fit = SurrogateFit(family, rows, (best,), query=replace(query, radius=NOT_CLIPPED))
        return replace(state, theta=published(fit, family, path, curator.effective_rows))

    def _best(self, family: ClassFamily, curator: Curator, model: Any, rows: Surrogate | None) -> Converged[Classes]:
        rng, unused = generator(0), np.zeros(0)
        starts = [family.random_start(unused, unused, rng) for _ in range(self.starts if family.K > 1 else 1)]
        options: dict[str, Any] = {"short_steps": 50, "finalists": 5, "max_steps": 5000, "tolerance": 1e-12}
        e_step = family.e_step(rows.x, rows.weights) if rows else exact(curator, model.schema, family)
        return best_of(family, starts, e_step, **options)[0]

    def _criterion(self, family: ClassFamily, curator: Curator, model: Any, rows: Surrogate | None) -> float:
        """The Bayesian information criterion."""
        n, best = curator.n_rows, self._best(family, curator, model, rows)
        return -2 * n * best.log_likelihood + family.parameters * math.log(n)


# --- The number of classes --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Released:
    """The released means of pairs and of answers, the standard deviation of their noise, and the number of rows."""

    pairs: FloatArray
    levels: FloatArray
    noise: float
    n: int

    def misfit(self, family: ClassFamily, theta: Classes) -> FloatArray:
        """The expected minus the released means, in standard errors: noise, and half of the sampling variance, since a
        fit to the same rows takes up the other half.
        """
        items, (i, j) = family.items, family.items.pairs
        observed, mu = items.of_effect @ family.observed, theta.probabilities @ items.effects
        pairs = observed[i] * observed[j] * (theta.weights @ (mu[:, i] * mu[:, j]))
        levels = (items.of_level @ family.observed) * (theta.weights @ theta.probabilities)
        errors = np.concatenate([pairs - self.pairs, levels - self.levels])
        return np.asarray(errors / math.sqrt(self.noise**2 + 0.5 / self.n))

    def distance(self, family: ClassFamily, theta: Classes) -> float:
        """The squared misfit of the closest classes near θ."""
        K, items = family.K, family.items
        start = np.concatenate([np.log(theta.weights), np.log(theta.probabilities).ravel()])

        def classes(point: FloatArray) -> Classes:
            weights = np.exp(point[:K] - point[:K].max())
            p = np.exp(np.minimum(point[K:].reshape(K, -1), 30.0))
            return Classes(weights / weights.sum(), items.floored(items.proportions(p), 1e-6))

        def residuals(point: FloatArray) -> FloatArray:
            return np.concatenate([self.misfit(family, classes(point)), PULL * (point - start)])

        closest = classes(least_squares(residuals, start, max_nfev=STEPS).x)
        return float(np.sum(self.misfit(family, closest) ** 2))


def choose(family: ClassFamily, surrogate: Surrogate, released: Released, most: int) -> tuple[ClassFamily, FloatArray]:
    """The number of classes with the least criterion, squared misfit plus a penalty per parameter; and the criterion
    for 1, 2, … classes.
    """
    values = len(released.pairs) + len(released.levels)
    penalty = (1 + family.items.effects.shape[1]) * math.log(values)
    path = []
    for K in range(1, most + 1):
        candidate = replace(family, K=K)
        options: dict[str, Any] = {"short_steps": 20, "finalists": 2, "max_steps": 100, "tolerance": 1e-6}
        solutions = surrogate.fit(candidate, [], restarts=1 if K == 1 else 6, rng=generator(K), **options)
        path.append(released.distance(candidate, solutions[0].theta) + penalty * K)
    return replace(family, K=int(np.argmin(path)) + 1), np.array(path)
