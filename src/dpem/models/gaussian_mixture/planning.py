"""Shares of the price, numbers of steps, and what to expect of a fit of a Gaussian mixture: public numbers only.

The noise of the score answers moves the mixture by W times it (:func:`~dpem.fitting.surrogate.share_moved`); how many
rows then change component is counted on simulated rows of clear and of overlapping components. The start is not
rehearsed: whether it fails is computed (:func:`start_of`).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaincinv

from dpem.fitting.model import Effect, PredictedFit, Sizes
from dpem.fitting.plan import Prediction
from dpem.fitting.rehearsal import generator, with_failures
from dpem.fitting.surrogate import score_query, share_moved
from dpem.models.gaussian_mixture.covariance_types import TYPES
from dpem.models.gaussian_mixture.family import GaussianFamily, inside
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.models.gaussian_mixture.sketch import few_columns, largest_slice
from dpem.models.gaussian_mixture.state import TUNING
from dpem.privacy import largest_price
from dpem.query import FloatArray
from dpem.tables.schema import Schema

#: The distance between neighbouring centres, and the least distance of bounds from the middle, in standard deviations
#: of a component.
SEPARATION, BOUNDS = 4.0, 12.0
#: The distance where components overlap: more of their rows change component than of skewed or rounded rows, or of
#: components of unequal size.
OVERLAPPING = 2.5
#: Simulated rows, and the most parameters of a mixture that is rehearsed as it is.
ROWS, MOST_PARAMETERS = 2500, 400
#: The noise at which it is counted how many rows change component; the share is proportional to small noise.
NOISE = 2.0**-4


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


def typical(K: int, d: int, full: bool, apart: float = SEPARATION) -> Gaussians:
    """Round components of equal size in unit coordinates."""
    variance = 1 / width(K, d, apart) ** 2
    shape = np.broadcast_to(variance * np.eye(d), (K, d, d)).copy() if full else np.full((K, d), variance)
    return Gaussians(np.full(K, 1 / K), centres(K, d, apart) / width(K, d, apart), shape)


@lru_cache(maxsize=64)
def moved_per_noise(kind: str, K: int, d: int, apart: float) -> float:
    """The share of rows that change component per unit of noise in an answer of norm 1, for small noise. Where the type
    has too many parameters, ``diag`` stands for it, with the norm that scores of as many parameters have.
    """
    covariance = TYPES[kind]
    count = K - 1 + K * d + covariance.free(K, d)
    if count > MOST_PARAMETERS and covariance.full:
        return moved_per_noise("diag", K, d, apart) * math.sqrt(count / (K - 1 + 2 * K * d))
    rng, mixture, even = generator(3), typical(K, d, covariance.full, apart), np.full(ROWS, 1 / ROWS)
    rows = inside(mixture, ROWS, rng)
    family = GaussianFamily(K, covariance, (TUNING.floor * rows.std(axis=0)) ** 2, np.ones(d))
    names = [f"x{j}" for j in range(d)]
    schema = Schema.of(names, dict.fromkeys(names, (-1.0, 1.0)), {})
    query = score_query(schema, family, mixture, rows, even, rng)
    share = max(share_moved(query, rows, even, NOISE), 0.5 / ROWS)
    return share / NOISE * query.radius / query.retained(rows, even)


def expected_share(model: Any, sizes: Sizes, K: int, price: float, apart: float) -> float:
    """The share of rows in another component than without privacy if the score queries together cost ``price``."""
    noise = 2 * sizes.rows_per_person / (sizes.n * math.sqrt(2 * price))
    moved, most = TUNING.widened * noise * moved_per_noise(model.kind.name, K, model.schema.width, apart), 1 - 1 / K
    return most * -math.expm1(-moved / most)


EFFECT = Effect("distance between the centres of two components, in their spreads", SEPARATION, (2.0, 3.0, 4.0, 6.0))
#: How shares of rows scatter over fits, on the log scale, and the part of most that a failed start moves.
SCATTER, FAILED = 0.4, 0.6

#: What is said of tables that hold no such components (``python -m studies.gaussian_mixture_real report``).
REAL = (
    "Few real tables hold components as clear as that: of public ones, three components at epsilon=1, half had more "
    "than 7 % of their rows in another component in a second private fit."
)


class Shares(NamedTuple):
    """Shares of the price, in the order of the steps; ``scores`` is that of all score queries together."""

    centres: float
    spreads: float
    moments: float
    histograms: float
    sketch: float
    scores: float


def noise_of_centres(sizes: Sizes, d: int, K: int) -> float:
    """The distance, in spreads, by which noise alone would move a centre if all of two fifths of ρ went into one step.

    >>> noise_of_centres(Sizes(2000, 1.0, 1e-6, 0.028), 10, 5) < 0.5
    True
    """
    if math.isinf(sizes.rho):
        return 0.0
    C = math.sqrt(2 * float(gammaincinv(d / 2, 0.9)))
    return 2 * C * K * math.sqrt(d) * sizes.rows_per_person / (sizes.n * math.sqrt(0.8 * sizes.rho))


def shares_of(sizes: Sizes, d: int, K: int) -> Shares:
    """The shares of a fit, without the fit check's: the more noise, the more the start needs."""
    noise = noise_of_centres(sizes, d, K)
    if noise > 0.6:
        shares = Shares(0.06, 0.07, 0.20, 0.04, 0.30, 0.28)
    elif noise > 0.1:
        shares = Shares(0.03, 0.04, 0.10, 0.05, 0.18, 0.55)
    else:
        shares = Shares(0.02, 0.03, 0.06, 0.06, 0.15, 0.63)
    if few_columns(d, K):
        shares = shares._replace(moments=shares.moments / 2, scores=shares.scores + shares.moments / 2)
    return shares


class Start(NamedTuple):
    """How far a start is from failing: 1 is even odds, 1.5 about one failure in ten, 2 hardly any.

    ``directions`` is the variance of centres along a direction over what noise alone looks like, ``components`` the
    strength of a component in the sketch over what noise alone reaches.
    """

    directions: float
    components: float

    @property
    def strength(self) -> float:
        return min(self.directions, self.components)

    @property
    def failure(self) -> float:
        return 1 / (1 + math.exp(min(4.4 * (self.strength - 1), 700.0)))


def start_of(sizes: Sizes, d: int, K: int, separation: float = SEPARATION) -> Start:
    """The start's strength for K round components of equal size, every two of them ``separation`` spreads apart.

    Between such centres the variance is separation²/2K along K − 1 directions. Both strengths are set against settings
    that were simulated (studies/gaussian_mixture.py).
    """
    if math.isinf(sizes.rho) or K == 1:
        return Start(math.inf, math.inf)
    shares = shares_of(sizes, d, K)
    part = (1 - TUNING.check * sizes.check) / math.fsum(shares)
    spikes = min(K - 1, d)
    total = 1 + spikes * separation**2 / (2 * K * d)
    between, within = separation**2 / (2 * K * total), 1 / total
    n = sizes.n / sizes.rows_per_person
    edge = 2 * math.sqrt(d) * d * 1.1 / (n * math.sqrt(2 * shares.moments * part * sizes.rho))
    base = 2 * math.pi / (8 * math.sqrt(within + between))
    f = np.arange(1.0, int(np.clip(math.ceil(2 / (base * math.sqrt(within))), 4, 12)) + 1)
    damping = np.exp(-0.5 * within * (base * f) ** 2)
    amplitudes = f * damping + 0.02
    share = math.sqrt(float(np.sum(damping**2 * amplitudes)) / largest_slice(amplitudes))
    seen = share / K * n * math.sqrt(2 * shares.sketch * part * sizes.rho)
    dimensions = min(d, max(K - 1, 2) + 2)
    return Start(math.inf if few_columns(d, K) else between / edge / 1.6, seen / (3.1 * max(dimensions - 2, 2)))


def predicted_fit(model: Any, sizes: Sizes, K: int, assumed_number: bool) -> PredictedFit:
    """What a fit will be worth if there are K round components of equal size, neighbours four spreads apart or as far
    as is supposed.
    """
    if math.isinf(sizes.rho) or K == 1:
        return PredictedFit()
    d, apart = model.schema.width, sizes.effect or SEPARATION
    start, shares, most = start_of(sizes, d, K, apart), shares_of(sizes, d, K), 1 - 1 / K
    price = sizes.rho * shares.scores / math.fsum(shares) * (1 - TUNING.check * sizes.check)
    share, worst = (
        with_failures(expected_share(model, sizes, K, price, distance), SCATTER, start.failure, FAILED * most)
        for distance in (apart, min(apart, OVERLAPPING))
    )
    smallest = min(1.5 / K / max(start.components, 1e-9), 1.0)
    found = "" if smallest >= 1 else f" Components of less than about {100 * smallest:.2g} % of the rows may be missed."
    prediction = Prediction(
        "share of rows in another component than without privacy",
        share[0],
        share[1],
        worst[2],
        start.failure,
        f"Of 1,000 rows, privacy puts about {1000 * share[0]:.3g} into another component if components are clear, and "
        f"up to {1000 * worst[0]:.3g} if they overlap.{found} {REAL}",
        f"Assumed: {K} round components of equal size{' (number to be found)' if assumed_number else ''}, bounds "
        f"{width(K, d, apart):.3g} spreads from the middle, neighbouring centres {apart:g} spreads apart; what lies "
        "further apart is found with fewer rows.",
    )
    if start.strength >= 1:
        return PredictedFit(prediction, feasible=True)
    rows = math.ceil(sizes.n * 1.5 / start.strength / 100) * 100
    enough = f"about {rows:,} rows{_epsilon(sizes, start)} would do{', or fewer components' if K > 2 else ''}"
    advice = f"the start will not separate {K} components that are {apart:g} spreads apart; {enough}"
    return PredictedFit(prediction, feasible=False, advice=advice)


def _epsilon(sizes: Sizes, start: Start) -> str:
    """The ε at which the start would hold, in words; nothing if none below 10 does."""
    needed = sizes.rho * (1.5 / start.strength) ** 2
    enough = (e for e in (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0) if e > sizes.epsilon)
    for epsilon in enough:
        if largest_price(epsilon, sizes.delta, gaussian=True).rho >= needed:
            return f" or epsilon={epsilon:g}"
    return ""
