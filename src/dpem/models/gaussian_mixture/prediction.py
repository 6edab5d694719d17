"""How far a private Gaussian mixture will be from the non-private one, on rows as a plan supposes them.

The noise of the score answers moves the mixture by W times it (:mod:`dpem.models.gaussian_mixture.intervals`); how many
rows then change component is counted on invented rows. Rows of clear components are the first case; rows that overlap,
of unequal shares, skewed or rounded are the others, since few real tables are mixtures. The start is not rehearsed:
whether it fails is computed (:func:`~dpem.models.gaussian_mixture.planning.start_of`).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dpem.fitting.model import Sizes
from dpem.fitting.rehearsal import generator
from dpem.fitting.surrogate import best_of, score_query, share_moved
from dpem.models.gaussian_mixture.covariance_types import TYPES
from dpem.models.gaussian_mixture.family import GaussianFamily, inside
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.state import TUNING
from dpem.query import FloatArray
from dpem.tables.schema import Schema

#: The distance between neighbouring centres, and the least distance of bounds from the middle, in spreads of a
#: component.
SEPARATION, BOUNDS = 4.0, 12.0
#: Rows of a case, and the most parameters of a mixture that is rehearsed as it is.
ROWS, MOST_PARAMETERS = 2500, 400
#: Cases beyond clear components.
OTHERS = ("overlapping", "unequal", "skewed", "rounded")


def centres(K: int, d: int, apart: float = SEPARATION) -> FloatArray:
    """K points of d coordinates, neighbours that far apart: a simplex where there is room for it, or else a
    circle, or a line; turned, so that they differ in every coordinate.
    """
    angle = 2 * np.pi * np.outer(np.arange(d), np.arange(d)) / d
    turn = (np.cos(angle) + np.sin(angle)) / math.sqrt(d)  # Hartley's orthogonal matrix
    return np.asarray(apart * _places(K, d) @ turn)


def _places(K: int, d: int) -> FloatArray:
    if d >= K - 1:
        corners = np.eye(K) - 1 / K
        place = np.zeros((K, d))
        place[:, : K - 1] = corners @ np.linalg.svd(corners)[2][: K - 1].T / math.sqrt(2)
        return place
    if d == 1:
        return np.asarray(np.arange(K)[:, None] - (K - 1) / 2, dtype=np.float64)
    turn = 2 * np.pi * np.arange(K) / K
    place = np.zeros((K, d))
    place[:, :2] = np.column_stack([np.cos(turn), np.sin(turn)]) / (2 * math.sin(math.pi / K))
    return place


def width(K: int, d: int, apart: float = SEPARATION) -> float:
    """How many spreads of a component the bounds are supposed to lie from the middle."""
    return max(BOUNDS, float(np.max(np.abs(centres(K, d, apart)))) + 5)


def typical(K: int, d: int, full: bool, apart: float = SEPARATION, unequal: bool = False) -> Gaussians:
    """Round components in unit coordinates, of equal shares or each 0.6 of the one before."""
    variance = 1 / width(K, d, apart) ** 2
    shape = np.broadcast_to(variance * np.eye(d), (K, d, d)).copy() if full else np.full((K, d), variance)
    share = 0.6 ** np.arange(K) if unequal else np.ones(K)
    return Gaussians(share / share.sum(), centres(K, d, apart) / width(K, d, apart), shape)


class Case(NamedTuple):
    """Rows, the mixture that fits them without privacy, and the score query there."""

    family: GaussianFamily
    rows: FloatArray
    mixture: Gaussians
    whitener: FloatArray
    radius: float


@lru_cache(maxsize=64)
def case(name: str, kind: str, K: int, d: int, apart: float) -> Case:
    """Invented rows of one sort. Where the type has too many parameters, ``diag`` stands for it and the radius is that
    of as many parameters as the type has.
    """
    own = TYPES[kind]
    count = K - 1 + K * d + own.free(K, d)
    if count > MOST_PARAMETERS and own.full:
        found = case(name, "diag", K, d, apart)
        return found._replace(radius=found.radius * math.sqrt(count / len(found.whitener)))
    rng = generator(3)
    truth = typical(K, d, own.full, min(apart, 2.5) if name == "overlapping" else apart, name == "unequal")
    if name == "skewed":
        factors = rng.standard_normal((ROWS, d)) + 0.7 * rng.standard_normal((ROWS, 1))
        rows = np.clip(0.12 * np.expm1(0.6 * factors) - 0.3, -1, 1)
    else:
        rows = inside(truth, ROWS, rng)
    if name == "rounded":
        step = 2 * math.sqrt(float(truth.variances.mean()))
        rows = np.clip(np.round(rows / step) * step, -1, 1)
    family = GaussianFamily(K, own, (TUNING.floor * rows.std(axis=0)) ** 2, np.ones(d))
    even = np.full(ROWS, 1 / ROWS)
    starts = [family.random_start(rows, None, even, rng) for _ in range(3)] if name == "skewed" else [truth]
    mixture = best_of(family, starts, family.expectation(rows, None, even), kept=1, most=100)[0].theta
    names = [f"x{j}" for j in range(d)]
    schema = Schema.of(names, dict.fromkeys(names, (-1.0, 1.0)), {})
    query = score_query(schema, family, mixture, rows, None, even, rng, ridge=TUNING.ridge)
    return Case(family, rows, mixture, query.whitener, query.radius / query.kept(rows, None, even))


@lru_cache(maxsize=4096)
def _share_at(name: str, kind: str, K: int, d: int, apart: float, octave: int) -> float:
    """The log share of rows that noise of standard deviation 2^octave moves to another component."""
    own = case(name, kind, K, d, apart)
    even = np.full(len(own.rows), 1 / len(own.rows))
    rng = generator(5)
    moved = share_moved(own.family, own.mixture, own.rows, None, even, own.whitener, 2.0**octave, rng, 8)
    return math.log(max(moved, 0.5 / len(own.rows)))


def expected_share(name: str, model: Any, sizes: Sizes, K: int, price: float) -> float:
    """The share of rows in another component than without privacy if the score queries together cost ``price``.

    It is counted for noise of powers of two. Logarithms are interpolated in between, and below the least that can be
    counted the share falls with the noise.
    """
    at = (name, model.kind.name, K, model.schema.width, sizes.effect or SEPARATION)
    noise = 2 * case(*at).radius * sizes.rows_per_person / (sizes.n * math.sqrt(2 * price))
    place = min(max(math.log2(TUNING.widened * noise), -8.0), 4.0)
    octave = math.floor(place)
    low, high = _share_at(*at, octave), _share_at(*at, octave + 1)
    below = min(math.log2(TUNING.widened * noise) + 8.0, 0.0) * math.log(2)
    return math.exp(low + (place - octave) * max(high - low, 0.0) + below)
