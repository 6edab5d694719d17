"""Audits of any registered model, including those of other packages, of the search and of the scaler.

The estimator is made from its signature with unit bounds, or with two levels per column if it takes levels only. The
tables are simulated. One record is replaced by a corner of the bounds, or by a row without any entry: the audit uses
the pair of these tables that the releases distinguish best, with the largest sum over the releases of (change/scale)²
in replays.

A fit is scored by the likelihood ratio of its releases on the two tables. An adversary who knows both tables can
compute it, since the distribution of the noise is public, and by the Neyman–Pearson lemma no other function of the
releases distinguishes the tables better.
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
#: The coordinates of corners for a model without bounds, beyond every clip.
FAR = 1e9
#: The number of pairs of neighbours that are compared again, and how often, since distances depend on the fit's noise.
FINALISTS, REPEATS = 3, 2


@dataclass(frozen=True)
class Fit:
    """An estimator on two neighbouring tables. The adversary knows both, sees every release and scores a fit by the
    likelihood ratio of all answers: from the totals of both tables if all noise is Gaussian, otherwise by a replay.
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
        """The log-likelihood ratio of all releases, of D over its neighbour."""
        sign = -1.0 if neighbour else 1.0
        if self.sources is not None:
            return sign * gaussian_transcript_ratio(tape)
        replayed = record(self.estimator, *in_memory(self.tables[not neighbour]), frozen=tape)
        return sign * transcript_ratio(tape, replayed)


def fitted(tape: Tape) -> Tape:
    """The tape; ValueError if its fit was refused."""
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
    best = max(tables, key=lambda pair: sum(_new_distance(estimator, *pair) for _ in range(REPEATS)))
    tapes = [fitted(record(estimator, *in_memory(table))) for table in best]
    first, second = (tape.source for tape in tapes)
    if model == "search" or first is None or second is None or any(a.kind != "gaussian" for a in tapes[0].answers):
        return Fit(model, estimator, best)
    return Fit(model, estimator, best, sources=(first, second))


def replay_model(model: str, *, epsilon: float, delta: float, rows: int = ROWS, columns: int = COLUMNS) -> Verdict:
    """Record a fit of a model to a simulated table and replay it on every kind of neighbour."""
    estimator, table = estimator_of(model, epsilon, delta, columns), simulated_table(model, rows, columns)
    first = fitted(record(estimator, *in_memory(table)))
    verdict = Verdict(list(excess_cost(first, epsilon, delta)))
    for neighbour in neighbours(table, np.ones(columns), missing=True, broken=True):
        verdict.merge(compare(first, record(estimator, *in_memory(neighbour), frozen=first)), neighbour.name)
    return verdict


def estimator_of(model: str, epsilon: float, delta: float, columns: int) -> BaseEstimator:
    """The estimator with default settings, and the bounds, levels, σ and start that its signature has."""
    parameters = inspect.signature(estimator := _class(model)).parameters
    settings = {"bounds": (-1.0, 1.0), "y_bounds": (0.0, 1.0), "sigma": 0.5, "start": "equal"}
    settings |= {} if "bounds" in parameters else {"levels": {f"x{j}": [0, 1] for j in range(columns)}}
    settings = {name: value for name, value in settings.items() if name in parameters}
    if model == "search":
        return DPGridSearch(estimator(**settings), {"check": [True, False]}, epsilon=epsilon, delta=delta)
    return estimator(epsilon=epsilon, delta=delta, **settings)


def _class(model: str) -> type[PrivateFit]:
    """The class of the audited estimator; in a search, that of the first general model without a response."""
    if model == "scaler":
        return DPStandardScaler
    if model != "search":
        return registry.estimator(model)
    return next(kind for kind in map(registry.estimator, registry.general()) if not kind._needs_y)


class _Box(NamedTuple):
    """The range of the entries that a model may be fitted to, extreme responses, and whether entries are levels."""

    low: float
    high: float
    responses: tuple[float, ...]
    levels: bool


def _box(model: str) -> _Box:
    parameters = inspect.signature(estimator := _class(model)).parameters
    levels = "levels" in parameters and "bounds" not in parameters
    high = 1.0 if levels or "bounds" in parameters else FAR
    responses = (0.0, 1.0) if parameters.keys() & {"classes", "y_bounds"} else (-FAR, FAR)
    return _Box(0.0 if levels else -high, high, responses if estimator._needs_y else (), levels)


def simulated_table(model: str, rows: int, columns: int) -> Table:
    """Rows within the bounds, and responses if the model has them; the same at every call."""
    rng, box = np.random.default_rng(0), _box(model)
    X = rng.integers(0, 2, (rows, columns)).astype(float) if box.levels else rng.uniform(-1, 1, (rows, columns))
    if not box.responses:
        return Table("as drawn", X, None)
    y = (X[:, 0] + rng.uniform(-1, 1, size=rows)) / 2
    if box.responses[0] == 0.0:  # classes are 0 and 1; other responses are in [0, 1]
        y = (y > 0).astype(float) if "classes" in inspect.signature(_class(model)).parameters else (y + 1) / 2
    return Table("as drawn", X, y)


def _corners(model: str, columns: int) -> Iterator[tuple[str, FloatArray, float]]:
    """Names, entries and responses of the rows that replace a record."""
    box = _box(model)
    for y in box.responses or (0.0,):
        yield f"upper corner, response {y:g}", np.full(columns, box.high), y
        yield f"lower corner, response {y:g}", np.full(columns, box.low), y
        yield f"mixed corner, response {y:g}", np.resize([box.high, box.low], columns), y
    yield "nothing observed", np.full(columns, np.nan), box.responses[0] if box.responses else 0.0


def _distance(one: Tape, two: Tape) -> float:
    """Σ over the releases of (change/scale)², from the tapes of two tables with the same answers."""
    pairs = zip(one.answers, two.answers, strict=True)
    return float(sum(np.sum(((a.statistic - b.statistic) / a.scale) ** 2) for a, b in pairs))


def _new_distance(estimator: BaseEstimator, one: Table, two: Table) -> float:
    """The distance in a new fit."""
    first = fitted(record(estimator, *in_memory(one)))
    return _distance(first, record(estimator, *in_memory(two), frozen=first))


# --- The likelihood ratio -------------------------------------------------------------------------------------------


def gaussian_ratio(answer: FloatArray, first: FloatArray, second: FloatArray, scale: float) -> float:
    """The log-ratio of the densities of N(first, scale²) and N(second, scale²) at the answer.

    >>> gaussian_ratio(np.array([0.0]), np.array([0.0]), np.array([2.0]), 1.0)
    2.0
    """
    from_second, from_first = answer - second, answer - first
    return float(from_second @ from_second - from_first @ from_first) / (2 * scale**2)


def plackett_luce(scores: FloatArray, chosen: NDArray[np.intp]) -> float:
    """log P(the largest of scores + Gumbel(1) noise are these positions, in this order).

    *Lemma.* It is Σ_r (score of the r-th − log Σ exp(scores not chosen before round r)). *Proof.* The largest is j with
    probability proportional to exp(score_j) (Gumbel-max trick), and given that, the order of the others has the same
    distribution without j (the Plackett–Luce model). ∎

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
    """The log-likelihood ratio of all releases of a fit to the table of ``first``, over that of its replay ``second``.

    *Lemma.* It is the sum of the log-ratios of the answers, each given those before. *Proof.* The chain rule: given the
    earlier answers, the replay computes the next statistic and its scale. ∎ The answers of peeling with Laplace noise
    are not released one by one, so a fit that peels has no such ratio.
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
    """The same for a fit with Gaussian noise only, from one tape that has the changes of the totals on the other table.
    No replay is needed: given the answers, the queries are the same on both tables.
    """
    total, change = 0.0, np.zeros(0)
    for event in tape.events:
        if isinstance(event, Totalled):
            change = np.asarray(event.change)
        elif isinstance(event, Answered):
            total += gaussian_ratio(event.answer, event.statistic, event.statistic + change, event.scale)
    return total
