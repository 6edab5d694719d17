"""The steps of a fit of latent classes: pairs of answers, EM on surrogate rows, and on the table without privacy."""

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

#: Cells that are counted for the fit without privacy; with more it reads the rows at every step of EM.
MOST_COUNTED = 2**21
#: Steps of the search for the classes closest to the pairs, and how weakly these are drawn to where it begins.
STEPS, PULL = 12, 0.1


@dataclass(frozen=True)
class ClassState(State):
    """What the steps have found so far: the classes on surrogate rows, the base weights that these have if answers are
    independent, and the scores of 1, 2, … classes where their number was to be found.
    """

    family: ClassFamily = None  # type: ignore[assignment]  # set by the first step
    fit: SurrogateFit[Classes] = None  # type: ignore[assignment]
    independent: FloatArray = field(default_factory=lambda: np.zeros(0))
    path: FloatArray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class PairStep(Step):
    """Answers and pairs of answers; surrogate rows that agree with them, and the classes that EM finds there."""

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
    """All possible rows with the weights of independent answers, or rows drawn from classes that are fitted to rows
    drawn before, tilted to the answer. Of drawn rows 3 in 10 have independent answers.
    """
    items, missing = family.items, family.observed < 1
    answer = Answer(query, mean, np.maximum(noise, 1e-12))  # scores join its block: a κ of their own wastes them
    blocks = [Block(1.0, 3e4, TUNING.components, (answer,))]
    alone = Classes(np.ones(1), family.overall[None])
    if items.cells(missing) <= TUNING.most_cells:
        x = items.rows_of(np.arange(items.cells(missing)), missing)
        return Surrogate.of(x, family.cell_weights(alone, x), blocks)
    rng = generator(0)

    def drawn(theta: Classes) -> tuple[FloatArray, FloatArray]:
        """Different rows, and how often each was drawn."""
        part = TUNING.drawn * 7 // 10
        rows = np.vstack([family.draw(theta, part, rng), family.draw(alone, TUNING.drawn - part, rng)])
        different, counts = np.unique(answers(numpy_api, rows, items), axis=0, return_counts=True)
        return different, counts.astype(float)

    surrogate = Surrogate.of(*drawn(alone), blocks)
    wide = replace(family, K=TUNING.drawn_classes)
    for _ in range(TUNING.redraws):
        found = surrogate.fit(wide, [], restarts=2, rng=rng, short_steps=15, finalists=1, max_steps=40, tolerance=1e-5)
        surrogate = surrogate.redrawn(*drawn(found[0].theta))
    return surrogate


def with_base(family: ClassFamily, independent: Surrogate, theta: Classes) -> Surrogate:
    """The surrogate with the base weights of the classes, a small part of independent answers added, where the answers
    are more probable under these, by more than ½·log(answers) for every parameter; else the one that is given.
    """
    if len(independent.x) != family.items.cells(family.observed < 1):
        return independent  # drawn rows
    base = TUNING.model_part * family.cell_weights(theta, independent.x) + (1 - TUNING.model_part) * independent.base
    other = independent.redrawn(independent.x, base)
    values = sum(len(own.mean) for own in independent.blocks[0].answers)
    needed = 0.5 * family.parameters * math.log(values)
    return other if other.log_evidence - independent.log_evidence > needed else independent


def heaviest(x: FloatArray, weights: FloatArray) -> Surrogate:
    """Weighted rows without the lightest, which together weigh less than 10⁻⁵: EM is as good and faster."""
    order = np.argsort(weights)
    kept = order[np.cumsum(weights[order]) > 1e-5]
    return Surrogate.of(x[kept], weights[kept])


def fitted(
    family: ClassFamily, surrogate: Surrogate, starts: list[Classes], seed: int, restarts: int | None = None
) -> list[Converged[Classes]]:
    """EM on the surrogate from these and from random starts, the best first."""
    rows, random = heaviest(surrogate.x, surrogate.weights), TUNING.restarts if restarts is None else restarts
    options: dict[str, Any] = {"short_steps": 20, "finalists": 5, "max_steps": 300, "tolerance": 1e-6}
    return rows.fit(family, starts, restarts=random, rng=generator(seed), **options)


def refitted(
    fit: SurrogateFit[Classes], independent: FloatArray, starts: list[Classes], seed: int
) -> SurrogateFit[Classes]:
    """EM on the surrogate; then again with the base weights that suit the classes found, if these are better."""
    solutions = fitted(fit.family, fit.surrogate, starts, seed)
    plain = fit.surrogate.redrawn(fit.surrogate.x, independent)
    surrogate = with_base(fit.family, plain, solutions[0].theta)
    if surrogate is not plain:
        solutions = fitted(fit.family, surrogate, [own.theta for own in solutions[:3]], seed, restarts=0)
    return replace(fit, surrogate=surrogate, solutions=solutions)


@dataclass(frozen=True)
class Converge(Step):
    """EM to convergence from several starts, without noise: the non-private reference.

    Rows that answer alike form a cell, and EM runs on the counts of cells; where there are too many of them it reads
    the table at every step.
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
            seen = curator.measure(counts, math.inf)
            there = np.flatnonzero(seen)
            rows = Surrogate.of(items.rows_of(there, counts.missing), seen[there])
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
        rng, nothing = generator(0), np.zeros(0)
        starts = [family.random_start(nothing, nothing, rng) for _ in range(self.starts if family.K > 1 else 1)]
        options: dict[str, Any] = {"short_steps": 50, "finalists": 5, "max_steps": 5000, "tolerance": 1e-12}
        sums = family.e_step(rows.x, rows.weights) if rows else exact(curator, model.schema, family)
        return best_of(family, starts, sums, **options)[0]

    def _criterion(self, family: ClassFamily, curator: Curator, model: Any, rows: Surrogate | None) -> float:
        """The Bayesian information criterion."""
        n, best = curator.n_rows, self._best(family, curator, model, rows)
        return -2 * n * best.log_likelihood + family.parameters * math.log(n)


# --- The number of classes --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Released:
    """The released means of pairs, of answers, the noise of both, and the number of rows."""

    pairs: FloatArray
    levels: FloatArray
    noise: float
    n: int

    def misfit(self, family: ClassFamily, theta: Classes) -> FloatArray:
        """What the classes say less what was released, in units of its error: the noise, and the half of the sampling
        variance that a fit to the same rows does not take up.
        """
        items, (i, j) = family.items, family.items.pairs
        o, mu = items.of_effect @ family.observed, theta.probabilities @ items.effects
        pairs = o[i] * o[j] * (theta.weights @ (mu[:, i] * mu[:, j]))
        levels = (items.of_level @ family.observed) * (theta.weights @ theta.probabilities)
        gaps = np.concatenate([pairs - self.pairs, levels - self.levels])
        return np.asarray(gaps / math.sqrt(self.noise**2 + 0.5 / self.n))

    def distance(self, family: ClassFamily, theta: Classes) -> float:
        """The squared misfit of the closest classes near θ."""
        K, items = family.K, family.items
        start = np.concatenate([np.log(theta.weights), np.log(theta.probabilities).ravel()])

        def classes(point: FloatArray) -> Classes:
            weights = np.exp(point[:K] - point[:K].max())
            p = np.exp(np.minimum(point[K:].reshape(K, -1), 30.0))
            return Classes(weights / weights.sum(), items.floored(items.proportions(p), 1e-6))

        def far(point: FloatArray) -> FloatArray:
            return np.concatenate([self.misfit(family, classes(point)), PULL * (point - start)])

        found = least_squares(far, start, max_nfev=STEPS)
        return float(np.sum(self.misfit(family, classes(found.x)) ** 2))


def choose(family: ClassFamily, surrogate: Surrogate, released: Released, most: int) -> tuple[ClassFamily, FloatArray]:
    """The family of the number of classes with the least score, and the scores of 1, 2, … classes."""
    values = len(released.pairs) + len(released.levels)
    price = (1 + family.items.effects.shape[1]) * math.log(values)
    path = []
    for K in range(1, most + 1):
        own = replace(family, K=K)
        options: dict[str, Any] = {"short_steps": 20, "finalists": 2, "max_steps": 100, "tolerance": 1e-6}
        found = surrogate.fit(own, [], restarts=1 if K == 1 else 6, rng=generator(K), **options)
        path.append(released.distance(own, found[0].theta) + price * K)
    return replace(family, K=int(np.argmin(path)) + 1), np.array(path)
