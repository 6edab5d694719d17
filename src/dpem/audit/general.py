"""Audits of any registered model, a third party's included, of the search and of the scaler: no model is named here.

The estimator is made from its signature with unit bounds, or two levels a column where it takes levels alone. Its
tables are invented. Of the corners of the box that the bounds span, and a row without any entry, the audit takes the
pair that the releases distinguish best: the largest sum over the releases of (change/scale)², from replays.

A fit is scored by how much likelier its releases are on one table than on the other. The noise's law is public, so
whoever knows both tables can compute that ratio, and by Neyman and Pearson's lemma no other function of the releases
distinguishes the tables more often.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from dpem import registry
from dpem.audit.neighbours import Table, neighbours, replace_rows
from dpem.audit.replay import Verdict, compare, excess_cost, in_memory
from dpem.audit.tape import Answered, Tape, Totalled, record
from dpem.fitting.scaler import DPStandardScaler
from dpem.fitting.search import DPGridSearch
from dpem.fitting.sequence import PrivateFit
from dpem.query import FloatArray
from dpem.tables import Source

ROWS, COLUMNS = 200, 4
#: A corner for a model without bounds: beyond every clip.
FAR = 1e9
#: Pairs of neighbours that are compared again after the first replay, and how many times: the distance depends on the
#: noise of the fit.
FINALISTS, AGAIN = 3, 2


@dataclass(frozen=True)
class Fit:
    """An estimator on two neighbouring tables. The adversary knows both, sees every release and scores a fit by the
    likelihood ratio of all answers: from the totals of both tables where all noise is Gaussian, by a replay elsewhere.
    """

    name: str
    estimator: PrivateFit = field(repr=False)
    tables: tuple[Table, Table] = field(repr=False)
    sources: tuple[Source, Source] | None = field(default=None, repr=False, kw_only=True)

    @property
    def epsilon(self) -> float:
        return float(self.estimator.epsilon)

    @property
    def delta(self) -> float:
        return float(self.estimator.delta)

    @property
    def adversaries(self) -> tuple[str, ...]:
        return ("every release",)

    def scores(self, neighbour: bool, runs: int) -> FloatArray:
        return np.array([self.score(neighbour) for _ in range(runs)])

    def score(self, neighbour: bool) -> tuple[float, ...]:
        return (self.ratio(self.run(neighbour), neighbour),)

    def run(self, neighbour: bool) -> Tape:
        """One fit to D, or to its neighbour."""
        second = None if self.sources is None else self.sources[not neighbour]
        return fitted(record(self.estimator, *in_memory(self.tables[neighbour]), second=second))

    def ratio(self, tape: Tape, neighbour: bool) -> float:
        """log-likelihood ratio of what was released, of D over its neighbour."""
        sign = -1.0 if neighbour else 1.0
        if self.sources is not None:
            return sign * gaussian_transcript_ratio(tape)
        return sign * transcript_ratio(
            tape, record(self.estimator, *in_memory(self.tables[not neighbour]), frozen=tape)
        )


def fitted(tape: Tape) -> Tape:
    """The tape, if its fit was not refused."""
    if "refused" in tape.outcome:
        _, _, reason = tape.outcome["refused"].partition(": ")
        raise ValueError(f"the fit to be audited was refused: {reason.rstrip('.')}.")
    return tape


def subject(model: str, *, epsilon: float, delta: float, rows: int = ROWS, columns: int = COLUMNS) -> Fit:
    """The black-box audit of a model by its registered name, of ``"search"`` or of ``"scaler"``.

    >>> subject("linear-regression", epsilon=1.0, delta=1e-5, rows=50, columns=2).adversaries
    ('every release',)
    """
    estimator, table = estimator_of(model, epsilon, delta, columns), simulated_table(model, rows, columns)
    corners = [replace_rows(table, name, row, y, np.array([0])) for name, row, y in _corners(model, columns)]
    tape = fitted(record(estimator, *in_memory(corners[0])))
    replays = [(corner, record(estimator, *in_memory(corner), frozen=tape)) for corner in corners]
    pairs = sorted(itertools.combinations(replays, 2), key=lambda pair: -_distance(pair[0][1], pair[1][1]))[:FINALISTS]
    tables = [(one, two) for (one, _), (two, _) in pairs]
    best = max(tables, key=lambda pair: sum(_new_distance(estimator, *pair) for _ in range(AGAIN)))
    tapes = [fitted(record(estimator, *in_memory(one))) for one in best]
    first, second = (one.source for one in tapes)
    if model == "search" or first is None or second is None or any(a.kind != "gaussian" for a in tapes[0].answers):
        return Fit(model, estimator, best)
    return Fit(model, estimator, best, sources=(first, second))


def replay_model(model: str, *, epsilon: float, delta: float, rows: int = ROWS, columns: int = COLUMNS) -> Verdict:
    """Record a fit of a model to an invented table and play it again on every kind of neighbour."""
    estimator, table = estimator_of(model, epsilon, delta, columns), simulated_table(model, rows, columns)
    first = fitted(record(estimator, *in_memory(table)))
    verdict = Verdict(list(excess_cost(first, epsilon, delta)))
    for kind in neighbours(table, np.ones(columns), missing=True, broken=True):
        verdict.merge(compare(first, record(estimator, *in_memory(kind), frozen=first)), kind.name)
    return verdict


def estimator_of(model: str, epsilon: float, delta: float, columns: int) -> BaseEstimator:
    """The estimator at its defaults, with what its signature says that it must know."""
    takes = inspect.signature(kind := _kind(model)).parameters
    levels = {f"x{j}": [0, 1] for j in range(columns)}
    settings = {"bounds": (-1.0, 1.0), "y_bounds": (0.0, 1.0), "sigma": 0.5, "start": "equal"}
    settings |= {} if "bounds" in takes else {"levels": levels}
    settings = {name: value for name, value in settings.items() if name in takes}
    if model == "search":
        return DPGridSearch(kind(**settings), {"check": [True, False]}, epsilon=epsilon, delta=delta)
    return kind(epsilon=epsilon, delta=delta, **settings)


def _kind(model: str) -> type[PrivateFit]:
    """The class of the audited estimator; of the search, that of the first general model without a response."""
    if model == "scaler":
        return DPStandardScaler
    kinds = map(registry.estimator, registry.general() if model == "search" else (model,))
    return next(kind for kind in kinds if model != "search" or not kind._needs_y)


class _Box(NamedTuple):
    """The corners of what a model may be fitted to: entries, responses, and whether entries are levels."""

    low: float
    high: float
    responses: tuple[float, ...]
    levels: bool


def _box(model: str) -> _Box:
    takes = inspect.signature(kind := _kind(model)).parameters
    levels = "levels" in takes and "bounds" not in takes
    high = 1.0 if levels or "bounds" in takes else FAR
    responses = (0.0, 1.0) if takes.keys() & {"classes", "y_bounds"} else (-FAR, FAR)
    return _Box(0.0 if levels else -high, high, responses if kind._needs_y else (), levels)


def simulated_table(model: str, rows: int, columns: int) -> Table:
    """Rows within the bounds, with responses for a model that has them: the same at every call."""
    rng, box = np.random.default_rng(0), _box(model)
    X = rng.integers(0, 2, (rows, columns)).astype(float) if box.levels else rng.uniform(-1, 1, (rows, columns))
    if not box.responses:
        return Table("as drawn", X, None)
    y = (X[:, 0] + rng.uniform(-1, 1, size=rows)) / 2
    if box.responses[0] == 0.0:  # positive, as some models need; 0 and 1 where there are classes
        y = (y > 0).astype(float) if "classes" in inspect.signature(_kind(model)).parameters else (y + 1) / 2
    return Table("as drawn", X, y)


def _corners(model: str, columns: int) -> Iterator[tuple[str, FloatArray, float]]:
    box = _box(model)
    for y in box.responses or (0.0,):
        yield f"upper corner, response {y:g}", np.full(columns, box.high), y
        yield f"lower corner, response {y:g}", np.full(columns, box.low), y
        yield f"mixed corner, response {y:g}", np.resize([box.high, box.low], columns), y
    yield "nothing observed", np.full(columns, np.nan), box.responses[0] if box.responses else 0.0


def _distance(one: Tape, two: Tape) -> float:
    """How well the releases distinguish two tables that were given the same answers: for Gaussian noise alone, the
    squared distance in units of it.
    """
    pairs = zip(one.answers, two.answers, strict=True)
    return float(sum(np.sum(((a.statistic - b.statistic) / a.scale) ** 2) for a, b in pairs))


def _new_distance(estimator: BaseEstimator, one: Table, two: Table) -> float:
    """The distance in a fit with noise of its own."""
    first = fitted(record(estimator, *in_memory(one)))
    return _distance(first, record(estimator, *in_memory(two), frozen=first))


# --- The likelihood ratio -------------------------------------------------------------------------------------------


def gaussian_ratio(answer: FloatArray, first: FloatArray, second: FloatArray, scale: float) -> float:
    """log of the density of the answer around ``first`` over that around ``second``, for N(0, scale²) noise.

    >>> gaussian_ratio(np.array([0.0]), np.array([0.0]), np.array([2.0]), 1.0)
    2.0
    """
    from_second, from_first = answer - second, answer - first
    return float(from_second @ from_second - from_first @ from_first) / (2 * scale**2)


def plackett_luce(scores: FloatArray, chosen: NDArray[np.intp]) -> float:
    """log P(these places, in this order, are the first of score + Gumbel(1)).

    *Lemma.* It is Σ_r (score of the r-th − log Σ exp(scores left at round r)). *Proof.* By the Gumbel-max property
    the largest is j with probability proportional to exp(score_j), and given it the others are again the largest of
    what is left (Plackett and Luce's law). ∎

    >>> float(np.exp(plackett_luce(np.zeros(4), np.array([2, 0]))).round(12)) == round(1 / 4 / 3, 12)
    True
    """
    weights = np.exp(scores - np.max(scores))
    picked = weights[chosen]
    unselected = weights.copy()
    unselected[chosen] = 0.0
    remaining = unselected.sum() + np.cumsum(picked[::-1])[::-1]
    return float(np.sum(np.log(picked) - np.log(remaining)))


def transcript_ratio(first: Tape, second: Tape) -> float:
    """log-likelihood ratio of everything that was released in a fit: the tape of the fit to one table, and that of the
    same answers replayed on the other; positive if the outcome is likelier on the first tape's table.

    *Lemma.* It is the sum over the answers of the ratio for each, given those before. *Proof.* The chain rule; given
    the earlier answers, the statistic and the scale of the next are what the replay computes. ∎ Of peeling with Laplace
    noise the sampler's answers are not released, so a fit that peels has no such ratio.
    """
    total = 0.0
    for one, two in zip(first.answers, second.answers, strict=True):
        if one.kind == "gaussian":
            total += gaussian_ratio(one.answer, one.statistic, two.statistic, one.scale)
        elif one.kind == "top_k":
            total += plackett_luce(one.statistic, one.answer) - plackett_luce(two.statistic, one.answer)
        else:
            raise ValueError(f"the answers of a {one.kind} sampler are not released one by one.")
    return total


def gaussian_transcript_ratio(tape: Tape) -> float:
    """The same for a fit with Gaussian noise alone, from one tape that has the totals of the other table beside its
    own: given the answers, the queries are the same on both, so no replay is needed.
    """
    total, change = 0.0, np.zeros(0)
    for event in tape.events:
        if isinstance(event, Totalled):
            change = np.asarray(event.change)
        elif isinstance(event, Answered):
            total += gaussian_ratio(event.answer, event.statistic, event.statistic + change, event.scale)
    return total
