"""Rehearse a fit on simulated rows: the real steps and the real noise levels, but no data.

A plan, and an interval after the fit, need the same number: how far would the estimate be from the parameters that rows
were drawn from? The model draws the rows, the steps are run on them through a curator whose noise is that of a table
of n rows, and the answers are compared. What goes in is public or released, so a rehearsal costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dpem._threads import keep_memory, single_blas
from dpem.fitting.model import Model
from dpem.fitting.step import State, Step, run_steps
from dpem.privacy import Account, Curator, Price, SeededNoise
from dpem.queries.narrow import NarrowQuery
from dpem.query import FloatArray, Query
from dpem.tables import ArraySource
from dpem.tables.blocks import numpy_api

#: Rows that are really drawn; beyond them sampling errors are scaled.
MOST_ROWS = 20_000
#: Rows that are summed at a time: what a core's cache holds.
PIECE = 4096


def generator(seed: int) -> np.random.Generator:
    """Random numbers for simulated rows, the same for the same seed."""
    return np.random.default_rng(seed)


def normal(seed: int, shape: tuple[int, ...]) -> FloatArray:
    """Standard normal numbers for simulated errors, the same for the same seed."""
    return generator(seed).standard_normal(shape)


class SimulatedCurator(Curator):
    """A curator of simulated rows in unit coordinates: means over them, with the noise of a table of n rows.

    The rows are simulated, so it keeps no account and leaves out what protects a real sum.
    """

    def __init__(self, source: ArraySource, n: int, seed: int, rows_per_person: int = 1) -> None:
        keep_memory()
        noise = SeededNoise(seed)
        super().__init__(source, Account(math.inf, 0.5), noise, rows_per_person=rows_per_person)
        self._n, self._rows = n, source

    @property
    def n_rows(self) -> int:
        return self._n

    def sensitivity(self, query: Query, norm: str) -> float:
        bound = query.bound
        return self.rows_per_person * (bound.linf if norm == "linf" else bound.l2) / self._n

    def _charge(self, query: Query, mechanism: str, price: Price, sensitivity: float, scale: float) -> None:
        pass

    @np.errstate(all="ignore")
    def _mean(self, query: Query) -> FloatArray:
        if not isinstance(query, NarrowQuery):
            return self._source.total(query) / self._source.n_rows
        parts = []
        for chunk in self._rows.chunks():
            for first in range(0, len(chunk.X), PIECE):
                x, y = chunk.X[first : first + PIECE], None if chunk.y is None else chunk.y[first : first + PIECE]
                own = x if np.array_equal(query.schema.column, np.arange(x.shape[1])) else x[:, query.schema.column]
                parts.append(query.contributions(numpy_api, own, y))
        return np.asarray(sum(parts[1:], start=parts[0]) / self._source.n_rows)


def rehearsed(
    model: Model,
    steps: Sequence[Step],
    theta: Any,
    *,
    n: int,
    seed: int,
    rows: int = MOST_ROWS,
    rows_per_person: int = 1,
    private: bool = True,
) -> State:
    """The state after the steps on rows drawn from θ, as for a table of n rows; without noise if not ``private``."""
    drawn = replace(model, schema=model.schema.unit())
    x, y = model.draw(theta, min(n, rows), generator(seed))
    rehearsed_steps = steps if private else [replace(step, rho=math.inf) for step in steps]
    return run_steps(
        SimulatedCurator(ArraySource(x, y), n, seed + 1, rows_per_person), drawn, rehearsed_steps, drawn.start()
    )


class Errors(NamedTuple):
    """Standard errors of some numbers: of the whole fit, and of the same fit without noise."""

    total: FloatArray
    sampling: FloatArray


@single_blas()
def bootstrap(
    model: Model,
    steps: Sequence[Step],
    theta: Any,
    values: Callable[[State], FloatArray],
    *,
    n: int,
    repeats: int = 60,
    seed: int = 0,
    rows: int = MOST_ROWS,
    rows_per_person: int = 1,
) -> Errors:
    """A parametric bootstrap: the fit's own steps again on rows drawn from the fitted θ, with and without noise.

    ``values`` are the numbers of interest of a state, components in the order of θ. With more than ``rows`` rows
    the sampling error is that of ``rows`` times √(rows/n), and the noise is that of n.
    """
    drawn = min(n, rows)

    def spread(private: bool) -> FloatArray:
        again = [
            values(
                rehearsed(
                    model,
                    steps,
                    theta,
                    n=n,
                    seed=seed + 2 * i,
                    rows=rows,
                    rows_per_person=rows_per_person,
                    private=private,
                )
            )
            for i in range(repeats)
        ]
        low, high = np.quantile(np.array(again), [0.1587, 0.8413], axis=0)
        return np.asarray((high - low) / 2)

    whole, sampling = spread(private=True), spread(private=False)
    if drawn == n:
        return Errors(whole, np.minimum(sampling, whole))
    noise2 = np.maximum(whole**2 - sampling**2, 0.0)
    shrunk = sampling * math.sqrt(drawn / n)
    return Errors(np.sqrt(noise2 + shrunk**2), shrunk)
