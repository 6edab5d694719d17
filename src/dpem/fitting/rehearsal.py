"""Rehearsals: the steps of a fit on simulated rows, for standard errors; and helpers of predictions.

The model draws rows from given parameters, and the steps run on them with the noise of a table of n rows. The
distribution of the estimates around the parameters is that of the fit's errors. The inputs are public or were
released, so a rehearsal costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpem._threads import keep_memory, single_blas
from dpem.fitting.model import Model, Theta
from dpem.fitting.step import State, Step, run_steps
from dpem.privacy import Account, Curator, Price, SeededNoise
from dpem.query import FloatArray, Query
from dpem.tables import ArraySource

#: At most this many rows are drawn; for longer tables the sampling error is scaled.
MOST_ROWS = 20_000
#: :func:`boundary_sample` takes the rows whose two most probable components differ by less than BOUNDARY in log-odds,
#: and one in THIN of the others.
BOUNDARY, THIN = 4.0, 8


def generator(seed: int) -> np.random.Generator:
    """A generator of random numbers for simulated rows."""
    return np.random.default_rng(seed)


def normal(seed: int, shape: tuple[int, ...]) -> FloatArray:
    """Standard normal numbers for simulated errors, a function of the seed."""
    return generator(seed).standard_normal(shape)


class SimulatedCurator(Curator):
    """A curator of simulated rows in unit coordinates: means over the rows, with the noise of a table of n rows.

    Simulated rows need no protection, so nothing is charged and no slack is added for rounding.
    """

    def __init__(self, source: ArraySource, n: int, seed: int, rows_per_person: int = 1) -> None:
        keep_memory()
        noise = SeededNoise(seed)
        super().__init__(source, Account(math.inf, 0.5), noise, rows_per_person=rows_per_person)
        self._n = n

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
        return self._source.total(query) / self._source.n_rows


class Errors(NamedTuple):
    """Standard errors of the private fit, and those of the same fit without noise."""

    total: FloatArray
    sampling: FloatArray


@single_blas()
def bootstrap(
    model: Model[Theta],
    steps: Sequence[Step],
    theta: Theta,
    values: Callable[[State], FloatArray],
    *,
    n: int,
    repeats: int = 60,
    seed: int = 0,
    rows: int = MOST_ROWS,
    rows_per_person: int = 1,
) -> Errors:
    """A parametric bootstrap: the fit's steps are repeated on rows drawn from the fitted θ, with and without noise.

    ``values(state)`` returns the numbers whose errors are wanted; it must put components into the order of θ. For
    n > ``rows`` the sampling error is that of ``rows`` rows times √(rows/n). The noise is always that of n rows.
    """

    unit_model = replace(model, schema=model.schema.unit())

    def estimate(repeat: int, private: bool) -> FloatArray:
        x, y = model.draw(theta, min(n, rows), generator(seed + 2 * repeat))
        curator = SimulatedCurator(ArraySource(x, y), n, seed + 2 * repeat + 1, rows_per_person)
        paid = steps if private else [replace(step, rho=math.inf) for step in steps]
        return values(run_steps(curator, unit_model, paid, unit_model.start()))

    def spread(private: bool) -> FloatArray:
        """Half the distance between the 16 % and 84 % quantiles: a standard deviation that is robust to outliers."""
        low, high = np.quantile([estimate(i, private) for i in range(repeats)], [0.1587, 0.8413], axis=0)
        return np.asarray((high - low) / 2)

    total, sampling = spread(private=True), spread(private=False)
    if n <= rows:
        return Errors(total, np.minimum(sampling, total))
    noise_variance = np.maximum(total**2 - sampling**2, 0.0)
    sampling = sampling * math.sqrt(rows / n)
    return Errors(np.sqrt(noise_variance + sampling**2), sampling)


# --- predictions ------------------------------------------------------------------------------------------------------


def boundary_sample(log_weights: FloatArray) -> tuple[NDArray[np.intp], FloatArray]:
    """The indices and the weights of a sample of rows that contains all rows near a boundary between components.

    If parameters change little, nearly all rows that change their component are near a boundary. ``log_weights`` is
    an array of rows × components.
    """
    largest_two = np.partition(log_weights, -2, axis=1)[:, -2:]
    at_boundary = largest_two[:, 1] - largest_two[:, 0] < BOUNDARY
    boundary_rows, other_rows = np.flatnonzero(at_boundary), np.flatnonzero(~at_boundary)[::THIN]
    other_weight = float(np.sum(~at_boundary)) / max(len(other_rows), 1)
    weights = np.concatenate([np.ones(len(boundary_rows)), np.full(len(other_rows), other_weight)])
    return np.concatenate([boundary_rows, other_rows]), weights / len(at_boundary)


def moved(before: FloatArray, after: FloatArray, weight: FloatArray) -> float:
    """The weighted share of rows whose most probable component differs in two arrays of log-weights, rows × components.

    >>> rows = np.array([[0.0, -0.1], [0.0, -5.0]])
    >>> moved(rows, rows - [0.3, 0.0], np.array([0.5, 0.5]))
    0.5
    """
    return float(weight[np.argmax(before, axis=1) != np.argmax(after, axis=1)].sum())


def with_failures(median: float, scatter: float, failure: float, failed: float) -> tuple[float, float, float]:
    """The median and the 5 % and 95 % quantiles of a share that is lognormal with median ``median`` and standard
    deviation ``scatter`` of its logarithm, or, with probability ``failure``, max(``failed``, ``median``).

    >>> with_failures(0.01, 0.4, 0.0, 0.5)[0]
    0.01
    >>> with_failures(0.01, 0.4, 0.6, 0.5)[0]
    0.5
    """
    largest = max(failed, median)

    def quantile(probability: float) -> float:
        if probability >= 1 - failure:
            return largest
        return min(median * math.exp(scatter * float(ndtri(probability / (1 - failure)))), largest)

    return quantile(0.5), quantile(0.05), quantile(0.95)
