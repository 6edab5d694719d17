"""Bugs planted in the library, one at a time: the mistakes that privacy libraries have made.

Each bug is a context manager that replaces one or two functions of the library while it is open. None raises an error
or changes a shape, so a user would notice nothing. :mod:`studies.audits.catchers` has the audits that should notice.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

import dpem.paper.estimators.base as estimators
from dpem.fitting import sequence
from dpem.fitting.scaler import ColumnMoments
from dpem.fitting.step import run_steps
from dpem.paper.estimators.base import PrivateEM
from dpem.paper.missing_regression import TruncatedScore
from dpem.paper.models import SymmetricRegression
from dpem.paper.queries import CoordinateQuery, SupportQuery
from dpem.paper.steps import Refine
from dpem.privacy import Curator, PrivateNoise, SeededNoise, budget, curator, gumbel, mechanisms
from dpem.privacy.accounting import Price
from dpem.query import Bound
from dpem.tables import ArraySource
from dpem.tables.base import ChunkedSource

Bug = Callable[[], AbstractContextManager[Any]]

BUGS: dict[str, Bug] = {}


def bug(name: str) -> Callable[[Callable[[], Iterator[None]]], Bug]:
    """Register a bug under a name."""

    def enter(function: Callable[[], Iterator[None]]) -> Bug:
        BUGS[name] = contextmanager(function)
        return BUGS[name]

    return enter


def exchanged(*changes: tuple[Any, str, Any]) -> ExitStack:
    stack = ExitStack()
    for owner, name, new in changes:
        stack.enter_context(patch.object(owner, name, new))
    return stack


@bug("no clipping")
def _no_clipping() -> Iterator[None]:
    support, coordinate = SupportQuery.sum, CoordinateQuery.sum

    def unclipped(self, chunk):
        return support(dataclasses.replace(self, radius=1e9), chunk)

    def unclipped_entries(self, chunk):
        return coordinate(dataclasses.replace(self, entry=1e9), chunk)

    with exchanged((SupportQuery, "sum", unclipped), (CoordinateQuery, "sum", unclipped_entries)):
        yield


@bug("clip after use: the sum, not the records")
def _clip_after_use() -> Iterator[None]:
    support = SupportQuery.sum

    def late(self, chunk):
        total = support(dataclasses.replace(self, radius=1e9), chunk)
        return total * min(1.0, len(chunk.X) * self.radius / float(np.linalg.norm(total)))

    with exchanged((SupportQuery, "sum", late)):
        yield


@bug("NaN slips through the clip")
def _nan_slips_through() -> Iterator[None]:
    def careless(self, chunk):
        rows = np.asarray(chunk.X, dtype=float)[:, self.support]
        norms = np.linalg.norm(rows, axis=1)
        scale = np.where(norms > self.radius, self.radius / norms, 1.0)
        return np.tanh(rows @ self.beta[self.support]) @ (rows * scale[:, None])

    with np.errstate(all="ignore"), exchanged((SupportQuery, "sum", careless)):
        yield


@bug("half the noise (values)")
def _half_the_noise() -> Iterator[None]:
    right = PrivateNoise.gaussian

    def half(self, values, scale, sensitivity, rho):
        return values + (right(self, values, scale, sensitivity, rho) - values) / 2

    with exchanged((PrivateNoise, "gaussian", half)):
        yield


@bug("half the noise (selection)")
def _half_the_selection_noise() -> Iterator[None]:
    right = gumbel.top_k
    with exchanged((gumbel, "top_k", lambda scores, k: right(2 * scores, k))):
        yield


@bug("half the noise (peeling)")
def _half_the_peeling_noise() -> Iterator[None]:
    right = PrivateNoise.laplace
    with exchanged((PrivateNoise, "laplace", lambda self, values, scale, *grid: right(self, values, scale / 2, *grid))):
        yield


@bug("a wrong formula for the noise scale")
def _wrong_scale() -> Iterator[None]:
    with exchanged((mechanisms, "gaussian_scale", lambda sensitivity, rho: sensitivity / (2 * math.sqrt(rho)))):
        yield


@bug("sensitivity without the factor 2")
def _without_factor_two() -> Iterator[None]:
    def symmetric(cls, *, linf=math.inf, l2=math.inf):
        linf = min(linf, l2)
        return cls(linf=linf, l2=l2, size_linf=linf, size_l2=l2)

    with exchanged((Bound, "symmetric", classmethod(symmetric))):
        yield


@bug("the mean's sensitivity divided by n twice")
def _divided_twice() -> Iterator[None]:
    right = Curator.sensitivity
    with exchanged((Curator, "sensitivity", lambda self, query, norm: right(self, query, norm) / self.n_rows)):
        yield


@bug("noise reused")
def _noise_reused() -> Iterator[None]:
    right = PrivateNoise.gaussian
    kept: dict[Any, Any] = {}

    def reused(self, values, scale, sensitivity, rho):
        noisy = right(self, values, scale, sensitivity, rho)
        noise = kept.setdefault((id(self), values.shape), (noisy - values) / scale)
        return values + scale * noise

    with exchanged((PrivateNoise, "gaussian", reused)):
        yield


@bug("seeded noise in a private fit")
def _seeded() -> Iterator[None]:
    class Seeded(SeededNoise):
        private = True

    with exchanged((PrivateEM, "_noise", lambda self, stacklevel=3: Seeded(0))):
        yield


@bug("batches that overlap")
def _overlapping() -> Iterator[None]:
    def split(self, parts):
        rows = np.array_split(np.arange(self.n_rows), parts)
        everyone = np.arange(self.n_rows // 4, 3 * self.n_rows // 4)
        y = getattr(self, "_y", None)
        take = [np.union1d(part, everyone) for part in rows]
        return [ArraySource(self._X[part], None if y is None else y[part]) for part in take]

    with exchanged((ArraySource, "split", split)):
        yield


@bug("E2: the printed weight 2w with the bound of 2w − 1")
def _e2() -> Iterator[None]:
    def printed(self, beta, T):
        def weight(xp, fitted, hidden, y):
            twice_w = 1 + xp.tanh(y * fitted / (2 * self.sigma**2))
            return twice_w * xp.clip(y, -T, T) - xp.clip(fitted, -T, T), None

        bound = Bound.symmetric(linf=T**2, l2=math.sqrt(len(beta)) * T**2)
        return CoordinateQuery("gradient as printed", bound, weight, beta, entry=T, residual=2 * T)

    with exchanged(
        (SymmetricRegression, "truncated", printed),
        (SymmetricRegression, "printed_sensitivity", lambda self, T: 2 * T * T),
    ):
        yield


@bug("E4: the printed 6T², whatever β")
def _e4() -> Iterator[None]:
    def bound(self):
        size = 6 * self.T**2
        root = math.sqrt(len(self.beta))
        return Bound(linf=size, l2=root * size, size_linf=size, size_l2=root * size)

    with exchanged((TruncatedScore, "bound", property(bound))):
        yield


@bug("ρ counted twice: steps get twice their share, the account counts half")
def _rho_counted_twice() -> Iterator[None]:
    right = curator.total_price

    def generous(curator, model, steps, start):
        return run_steps(curator, model, [_dearer(step) for step in steps], start)

    def blind(releases):
        price = right(releases)
        return Price(price.rho / 2, price.gaussian)

    with exchanged((estimators, "run_steps", generous), (curator, "total_price", blind)):
        yield


def _dearer(step):
    return dataclasses.replace(step, rho=2 * step.rho) if isinstance(step, Refine) else step


@bug("the plan spends ρ twice")
def _spends_twice() -> Iterator[None]:
    def generous(curator, model, steps, start):
        return run_steps(curator, model, [_dearer(step) for step in steps], start)

    with exchanged((estimators, "run_steps", generous)):
        yield


@bug("data-dependent stopping")
def _stopping() -> Iterator[None]:
    right = Refine.run

    def hasty(self, curator, model, state):
        query = model.on_support(state.beta, state.support, self.radius)
        step = float(np.linalg.norm(curator._source.total(query))) / curator.n_rows
        return state if step < 0.3 * self.radius else right(self, curator, model, state)

    with exchanged((Refine, "run", hasty)):
        yield


@bug("charge after the answer")
def _charge_after() -> Iterator[None]:
    def late(self, query, rho):
        sensitivity = self.sensitivity(query, "l2")
        answer = mechanisms.gaussian(self._noise, self._mean(query), sensitivity, Price(rho, gaussian=True))
        self._charge(query, "Gaussian", Price(rho, gaussian=True), sensitivity, self.noise_scale(query, rho))
        return answer

    with exchanged((Curator, "measure", late)):
        yield


@bug("a selection that is not charged")
def _free_selection() -> Iterator[None]:
    def free(self, query, k, rho, *, offset=0.0, step=1.0):
        sensitivity = abs(step) * self.sensitivity(query, "linf")
        v = offset + step * self._mean(query)
        return mechanisms.noisy_top_k(self._noise, v, k, sensitivity, Price(rho), 1e3)

    with exchanged((Curator, "select", free)):
        yield


@bug("the budget charged after the fit")
def _budget_after() -> Iterator[None]:
    right = PrivateEM._charged

    def late(self, *charge, **more):
        @contextmanager
        def after():
            yield
            with right(self, *charge, **more):
                pass

        return after()

    with exchanged((PrivateEM, "_charged", late)):
        yield


@bug("float32 accumulation without slack")
def _no_slack() -> Iterator[None]:
    with exchanged((ChunkedSource, "slack", lambda self, query: 0.0)):
        yield


@bug("an attribute of the fit that was not paid for")
def _unpaid_trace() -> Iterator[None]:
    right = PrivateEM._fit

    def traced(self, X, y):
        fitted = right(self, X, y)
        fitted.score_ = float(np.mean(np.tanh(np.asarray(X, dtype=float) @ fitted.coef_)))
        return fitted

    with np.errstate(all="ignore"), exchanged((PrivateEM, "_fit", traced)):
        yield


@bug("a default taken from the data")
def _data_derived() -> Iterator[None]:
    right = PrivateEM._fit

    def peeking(self, X, y):
        self.clip = float(np.clip(np.nanmax(np.abs(np.asarray(X, dtype=float))), 1.0, 100.0))
        return right(self, X, y)

    with exchanged((PrivateEM, "_fit", peeking)):
        yield


@bug("several rows of a person counted as one")
def _one_row_each() -> Iterator[None]:
    right = Curator.sensitivity

    def forgetful(self, query, norm):
        return right(self, query, norm) / self.rows_per_person

    with exchanged((Curator, "sensitivity", forgetful)):
        yield


@bug("batches of a table whose rows move")
def _moving_batches() -> Iterator[None]:
    with exchanged(*((where, "refuse_to_split", lambda source: None) for where in (curator, estimators))):
        yield


@bug("a bound that holds in exact arithmetic only")
def _exact_arithmetic() -> Iterator[None]:
    with exchanged((TruncatedScore, "_missing_interval", lambda self: (np.full_like(self.beta, -np.inf), np.inf))):
        yield


@bug("a warning that depends on a value")
def _telling_warning() -> Iterator[None]:
    right = ColumnMoments.sum

    def telling(self, chunk):
        if np.nanmax(np.abs(chunk.X)) > 1e100:
            warnings.warn("overflow encountered in square", RuntimeWarning, stacklevel=2)
        return right(self, chunk)

    with exchanged((ColumnMoments, "sum", telling)):
        yield


@bug("a refusal that depends on a value")
def _telling_refusal() -> Iterator[None]:
    right = PrivateEM._fit

    def refusing(self, X, y):
        if np.isinf(np.asarray(X, dtype=float)).any():
            raise ValueError("X contains infinity.")
        return right(self, X, y)

    with exchanged((PrivateEM, "_fit", refusing)):
        yield


@bug("a budget that forked children spend anew")
def _forked_budget() -> Iterator[None]:
    with exchanged((budget.os, "getpid", lambda: 1)):
        yield


@bug("a seeded fit in the ledger")
def _seeded_in_ledger() -> Iterator[None]:
    with exchanged((sequence, "check_budget", lambda budget, random_state: None)):
        yield


@bug("a certificate from the cost of the answers")
def _realised_price() -> Iterator[None]:
    right = PrivateEM._fit

    def realised(self, X, y):
        fitted = right(self, X, y)
        spent = curator.total_price(list(fitted.releases_))
        fitted.guarantee_ = dataclasses.replace(fitted.guarantee_, price=spent)
        return fitted

    with exchanged((PrivateEM, "_fit", realised)):
        yield
