"""Recording of a fit at the curator, and its replay on another table with the same answers.

A tape has, in order, every charge, every total computed from the rows and every statistic given to a sampler. In a
replay the answers are those of the recorded fit, so the algorithm depends on the new table only through leaks. The
tapes of two neighbours must be equal in everything but the statistics, and these must be as close as their sensitivity
states (:mod:`dpem.audit.replay` compares them).

A tape has totals without noise: it is made from simulated tables, never from personal records.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from dpem.fitting.sequence import PrivateFit
from dpem.privacy import Account, Budget, Charge, Curator, Noise, Price, Release
from dpem.query import Bound, FloatArray, Query
from dpem.tables import Source

AnyArray = NDArray[Any]


class Diverged(Exception):
    """The replay needed an answer that the recorded fit does not have."""


@dataclass(frozen=True)
class BudgetCharged:
    """The budget was charged for the whole fit."""

    epsilon: float
    delta: float
    rho: float


@dataclass(frozen=True)
class ReleaseCharged:
    """One query was charged."""

    release: Release


@dataclass(frozen=True)
class Totalled:
    """A total was computed from the rows. ``change`` is how much larger the mean is on a second table, if any."""

    query: str
    bound: Bound
    slack: float
    n_rows: int
    batch: int | None
    total: FloatArray = field(compare=False, repr=False)
    change: FloatArray | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Answered:
    """A sampler (``kind``: "gaussian", "top_k" or "laplace") was given a statistic and gave the answer. The sensitivity
    and the price are None if the sampler takes neither.
    """

    kind: str
    scale: float
    k: int | None
    sensitivity: float | None
    rho: float | None
    statistic: FloatArray = field(compare=False, repr=False)
    answer: AnyArray = field(compare=False, repr=False)


Event = BudgetCharged | ReleaseCharged | Totalled | Answered


@dataclass
class Tape:
    """The events of a fit, in order, and its outcome: the public attributes of the fitted model, and any refusal."""

    events: list[Event] = field(default_factory=list)
    outcome: dict[str, Any] = field(default_factory=dict)
    model: Any = None
    source: Source | None = None

    @property
    def answers(self) -> list[Answered]:
        return [event for event in self.events if isinstance(event, Answered)]

    @property
    def releases(self) -> list[Release]:
        return [event.release for event in self.events if isinstance(event, ReleaseCharged)]


class TapedSource:
    """A source whose totals are recorded, with their changes on a ``second`` table."""

    def __init__(self, source: Source, tape: Tape, batch: int | None = None, second: Source | None = None) -> None:
        self._source, self._tape, self._batch, self._second = source, tape, batch, second
        self.order_may_depend_on_values = getattr(source, "order_may_depend_on_values", True)

    @property
    def n_rows(self) -> int:
        return self._source.n_rows

    @property
    def n_features(self) -> int:
        return self._source.n_features

    def total(self, query: Query) -> FloatArray:
        total = self._source.total(query)
        change = None if self._second is None else (self._second.total(query) - total) / self.n_rows
        public = (query.label, query.bound, self.slack(query), self.n_rows, self._batch)
        self._tape.events.append(Totalled(*public, total=np.array(total), change=change))
        return total

    def slack(self, query: Query) -> float:
        return self._source.slack(query)

    def split(self, parts: int) -> Sequence[Source]:
        second = [None] * parts if self._second is None else self._second.split(parts)
        return [TapedSource(part, self._tape, t, second[t]) for t, part in enumerate(self._source.split(parts))]


class TapedNoise:
    """A sampler whose statistics and answers are recorded. If answers are given as ``frozen``, nothing is drawn."""

    def __init__(self, noise: Noise, tape: Tape, frozen: Iterable[Answered] | None = None) -> None:
        self._noise, self._tape, self.private = noise, tape, noise.private
        self._frozen = None if frozen is None else iter(frozen)

    def top_k(self, scores: FloatArray, k: int, sensitivity: float, rho: float) -> NDArray[np.intp]:
        draw = partial(self._noise.top_k, scores, k, sensitivity, rho)
        return self._answer(draw, "top_k", scores, 1.0, k, sensitivity, rho)

    def gaussian(self, values: FloatArray, scale: float, sensitivity: float, rho: float) -> FloatArray:
        draw = partial(self._noise.gaussian, values, scale, sensitivity, rho)
        return self._answer(draw, "gaussian", values, scale, None, sensitivity, rho)

    def laplace(self, values: FloatArray, scale: float, grid: float | None = None) -> FloatArray:
        return self._answer(partial(self._noise.laplace, values, scale, grid), "laplace", values, scale)

    def _answer(
        self,
        draw: Callable[[], AnyArray],
        kind: str,
        values: FloatArray,
        scale: float,
        k: int | None = None,
        sensitivity: float | None = None,
        rho: float | None = None,
    ) -> AnyArray:
        statistic = np.array(values)
        if self._frozen is None:
            answer = np.array(draw())
        else:
            first = next(self._frozen, None)
            if first is None or (first.kind, first.statistic.shape) != (kind, statistic.shape):
                raise Diverged(f"a {kind} answer about {statistic.size} numbers is not in the recorded fit.")
            answer = np.array(first.answer)
        self._tape.events.append(Answered(kind, scale, k, sensitivity, rho, statistic, answer.copy()))
        return answer


class TapedAccount(Account):
    """An account whose charges are recorded. It shares the list of releases of the account that it replaces."""

    def __init__(self, account: Account, tape: Tape) -> None:
        super().__init__(account.epsilon, account.delta, gaussian=account.gaussian, rho=account.rho)
        self.releases, self._tape = account.releases, tape

    def charge(self, release: Release) -> None:
        super().charge(release)
        self._tape.events.append(ReleaseCharged(release))


class TapedBudget(Budget):
    """An unlimited budget for a recorded fit, so that the tape shows when it is charged."""

    def __init__(self, tape: Tape) -> None:
        super().__init__(math.inf, 0.5)
        self._tape = tape

    def charge(self, epsilon: float, delta: float, price: Price, **purpose: Any) -> Charge:
        charge = super().charge(epsilon, delta, price, **purpose)
        self._tape.events.append(BudgetCharged(epsilon, delta, price.rho))
        return charge


def record(
    estimator: BaseEstimator, X: object, y: object = None, *, frozen: Tape | None = None, second: Source | None = None
) -> Tape:
    """The tape of a fit of a clone of the estimator. If ``frozen`` is given, the answers are those of this tape; if
    ``second`` is given, the tape also has the changes of the totals on this source.

    >>> from dpem.paper import DPSymmetricMixture
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> tape = record(DPSymmetricMixture(epsilon=1.0, delta=1e-4, sigma=1.0, start=[1.0, 0.0], n_iter=2), X)
    >>> [type(event).__name__ for event in tape.events[:4]]
    ['BudgetCharged', 'ReleaseCharged', 'Totalled', 'Answered']
    """
    tape, model = Tape(), clone(estimator)
    _observe(model, tape, None if frozen is None else iter(frozen.answers), second)
    model.budget = TapedBudget(tape)
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        try:
            model.fit(X) if y is None else model.fit(X, y)
        except (ValueError, RuntimeError, Diverged) as refusal:
            tape.outcome["refused"] = f"{type(refusal).__name__}: {refusal}"
    tape.outcome["warnings"] = [str(warning.message) for warning in issued]
    tape.outcome |= {name: _plain(value) for name, value in vars(model).items() if _public(name)}
    tape.model = model
    return tape


def _observe(model: BaseEstimator, tape: Tape, frozen: Iterator[Answered] | None, second: Source | None = None) -> None:
    """Make the estimator's curator record; in a search, also those of all candidates."""
    make = model._curator

    def curator(source: Source, account: Account, noise: Noise) -> Curator:
        tape.source = source
        taped = TapedSource(source, tape, second=second)
        return make(taped, TapedAccount(account, tape), TapedNoise(noise, tape, frozen))

    model._curator = curator
    if hasattr(model, "param_grid"):
        fit = model._fitted

        def fitted(position: int, candidate: PrivateFit, X: object, y: object) -> Any:
            _observe(candidate, tape, frozen)
            return fit(position, candidate, X, y)

        model._fitted = fitted


def _public(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


def _plain(value: object) -> object:
    """The value as lists, texts and bytes, which are equal only if the values are, to the last bit."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tolist() if value.dtype == object else value.tobytes())
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return [(_plain(key), _plain(one)) for key, one in value.items()]
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, [(one.name, _plain(getattr(value, one.name))) for one in fields(value)]
    if isinstance(value, BaseEstimator):
        return type(value).__name__, [(name, _plain(one)) for name, one in vars(value).items() if _public(name)]
    return repr(value)
