"""Standard errors of a fitted Gaussian mixture, from the information of its rows and the noise of the answers.

Noise in an answer of the clipped whitened score, and the rows' own sampling, move the solution by
:func:`~dpem.fitting.surrogate.error_roots`, taken over the surrogate rows. Small moves of the mixture carry this to the
reported numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.rehearsal import generator
from dpem.fitting.uncertainty import Uncertainty
from dpem.models.gaussian_mixture.covariance_types import TYPES
from dpem.models.gaussian_mixture.family import GaussianFamily
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.state import TUNING
from dpem.query import FloatArray
from dpem.tables.schema import Schema

#: How many moves of the mixture, of what size.
MOVES, SIZE = 400, 1e-3


def error_units(family: GaussianFamily, own: Gaussians, order: NDArray[np.intp], root: FloatArray) -> FloatArray:
    """The standard deviation of each of :func:`values` under moves of root·N(0, I), to first order, components in the
    given order.
    """
    rng = generator(11)
    found = []
    for _ in range(MOVES):
        step = SIZE * (root @ rng.standard_normal(len(root)))
        found.append(values(family.kind.name, family.moved(own, step, floored=False).reordered(order)))
    return np.std(np.array(found), axis=0) / SIZE * bool(np.any(root))  # rounding alone is no error


def values(kind: str, own: Gaussians) -> FloatArray:
    """Shares, means and covariances in the order of :func:`names`."""
    return np.concatenate([own.weights, own.means.ravel(), TYPES[kind].values(own.covariances)])


def names(kind: str, K: int, columns: tuple[str, ...]) -> list[tuple[str, str]]:
    """What each number is called and what it can be; components are counted from 1, the largest first."""
    components = [f"component {k + 1}" for k in range(K)]
    found = [(f"{component}: share", "share") for component in components]
    found += [(f"{component}: mean of {name}", "") for component in components for name in columns]
    return found + TYPES[kind].names(components, columns)


def uncertainty(theta: Any, schema: Schema, n: int) -> Uncertainty:
    """Estimates in the table's units and their standard errors, of sampling and of privacy."""
    K, d = theta.means.shape
    full = theta.covariances.ndim == 3
    ones = np.ones((K, d, d)) * np.outer(schema.half, schema.half) if full else np.ones((K, d)) * schema.half**2
    scale = np.concatenate([np.ones(K), np.tile(schema.half, K), TYPES[theta.kind].values(ones)])
    estimate = scale * values(theta.kind, Gaussians(theta.weights, theta.means, theta.covariances))
    estimate[K : K + K * d] += np.tile(schema.middle, K)
    called, kinds = zip(*names(theta.kind, K, schema.names), strict=True)
    sampling = scale * theta.errors[1] / math.sqrt(n * max(1 - theta.empty, 1e-9))
    privacy = scale * np.hypot(TUNING.widened * theta.errors[0] * theta.noise, theta.errors[2])
    note = "sandwich form on the surrogate rows, with the noise of the score answers"
    return Uncertainty.of(called, estimate, sampling, privacy, note, kinds)
