"""The division of the price, and the prediction of a fit, from public numbers only.

The noise of the score answers moves the mixture (:func:`~dpem.fitting.surrogate.share_moved`); the rows that then
change component are counted on simulated rows of clear and of overlapping components. Whether the start fails is
predicted by a formula (:func:`start_of`).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

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

if TYPE_CHECKING:
    from dpem.models.gaussian_mixture.model import GaussianMixture

#: Assumed by default, in standard deviations of a component: the distance between neighbouring centres, and the least
#: distance of the bounds from their middle.
SEPARATION, BOUNDS = 4.0, 12.0
#: The distance for the upper end of the prediction. Components that overlap like this have more rows that change
#: component than skewed or rounded ones, or ones of unequal size.
OVERLAPPING = 2.5
#: Simulated rows, and the most parameters of a mixture that is simulated with its own covariance type.
ROWS, MOST_PARAMETERS = 2500, 400
#: The noise at which rows that change component are counted; their share is proportional to small noise.
NOISE = 2.0**-4


def centres(K: int, d: int, apart: float = SEPARATION) -> FloatArray:
    """K points of d coordinates with this distance between neighbours, rotated so that they differ in every coordinate.

    They form a simplex if d ≥ K − 1, or else a regular polygon, or with one column a line.
    """
    angle = 2 * np.pi * np.outer(np.arange(d), np.arange(d)) / d
    rotation = (np.cos(angle) + np.sin(angle)) / math.sqrt(d)  # Hartley's orthogonal matrix
    return np.asarray(apart * _unrotated_centres(K, d) @ rotation)


def _unrotated_centres(K: int, d: int) -> FloatArray:
    points = np.zeros((K, d))
    if d >= K - 1:
        corners = np.eye(K) - 1 / K
        points[:, : K - 1] = corners @ np.linalg.svd(corners)[2][: K - 1].T / math.sqrt(2)
    elif d == 1:
        points[:, 0] = np.arange(K) - (K - 1) / 2
    else:
        angle = 2 * np.pi * np.arange(K) / K
        points[:, :2] = np.column_stack([np.cos(angle), np.sin(angle)]) / (2 * math.sin(math.pi / K))
    return points


def width(K: int, d: int, apart: float = SEPARATION) -> float:
    """The assumed distance of the bounds from their middle, in standard deviations of a component."""
    return max(BOUNDS, float(np.max(np.abs(centres(K, d, apart)))) + 5)


def typical(K: int, d: int, full: bool, apart: float = SEPARATION) -> Gaussians:
    """Round components of equal size in unit coordinates."""
    variance = 1 / width(K, d, apart) ** 2
    covariances = np.broadcast_to(variance * np.eye(d), (K, d, d)).copy() if full else np.full((K, d), variance)
    return Gaussians(np.full(K, 1 / K), centres(K, d, apart) / width(K, d, apart), covariances)


@lru_cache(maxsize=64)
def moved_per_noise(kind: str, K: int, d: int, apart: float) -> float:
    """The share of rows that change component per unit of noise in an answer of norm 1, for small noise.

    For a type with too many parameters to simulate it is that of ``diag``, scaled by the root of their number as the
    norm of scores is.
    """
    covariance = TYPES[kind]
    parameters = K - 1 + K * d + covariance.free(K, d)
    if parameters > MOST_PARAMETERS and covariance.full:
        return moved_per_noise("diag", K, d, apart) * math.sqrt(parameters / (K - 1 + 2 * K * d))
    rng, mixture, weights = generator(3), typical(K, d, covariance.full, apart), np.full(ROWS, 1 / ROWS)
    rows = inside(mixture, ROWS, rng)
    family = GaussianFamily(K, covariance, (TUNING.floor * rows.std(axis=0)) ** 2, np.ones(d))
    names = [f"x{j}" for j in range(d)]
    schema = Schema.of(names, dict.fromkeys(names, (-1.0, 1.0)), {})
    query = score_query(schema, family, mixture, rows, weights, rng)
    share = max(share_moved(query, rows, weights, NOISE), 0.5 / ROWS)
    return share / NOISE * query.radius / query.retained(rows, weights)


def expected_share(model: GaussianMixture, sizes: Sizes, K: int, price: float, apart: float) -> float:
    """The share of rows in another component than without privacy if the score queries together cost ``price``."""
    noise = 2 * sizes.rows_per_person / (sizes.n * math.sqrt(2 * price))
    moved = TUNING.widened * noise * moved_per_noise(model.kind.name, K, model.schema.width, apart)
    largest = 1 - 1 / K  # of labels at random
    return largest * -math.expm1(-moved / largest)


EFFECT = Effect("distance between the centres of two components, in their spreads", SEPARATION, (2.0, 3.0, 4.0, 6.0))
#: The standard deviation over fits of the logarithm of the share of rows that move, and the fraction of the largest
#: share that moves after a failed start.
SCATTER, FAILED = 0.4, 0.6

#: The sentence about real tables (``python -m studies.gaussian_mixture_real report``).
REAL = (
    "Few real tables hold components as clear as that: of public ones, three components at epsilon=1, half had more "
    "than 7 % of their rows in another component in a second private fit."
)


class Shares(NamedTuple):
    """The shares of the price in the order of the steps, without the fit check's; ``scores`` is for all score queries
    together.
    """

    centres: float
    spreads: float
    moments: float
    histograms: float
    sketch: float
    scores: float


#: The shares for much, some and little noise, and the values of :func:`noise_of_centres` that separate them: the more
#: noise, the more the start needs.
MUCH_NOISE, SOME_NOISE, LITTLE_NOISE = (
    Shares(0.06, 0.07, 0.20, 0.04, 0.30, 0.28),
    Shares(0.03, 0.04, 0.10, 0.05, 0.18, 0.55),
    Shares(0.02, 0.03, 0.06, 0.06, 0.15, 0.63),
)
MUCH, SOME = 0.6, 0.1


def noise_of_centres(sizes: Sizes, d: int, K: int) -> float:
    """The error of a centre in spreads if 40 % of ρ went into one EM step on rows clipped at χ²_d's 90 % quantile.

    >>> noise_of_centres(Sizes(2000, 1.0, 1e-6, 0.028), 10, 5) < 0.5
    True
    """
    if math.isinf(sizes.rho):
        return 0.0
    C = math.sqrt(2 * float(gammaincinv(d / 2, 0.9)))
    return 2 * C * K * math.sqrt(d) * sizes.rows_per_person / (sizes.n * math.sqrt(0.8 * sizes.rho))


def shares_of(sizes: Sizes, d: int, K: int) -> Shares:
    """The shares of a fit; with few columns second moments only scale these, and half of their share suffices."""
    noise = noise_of_centres(sizes, d, K)
    shares = MUCH_NOISE if noise > MUCH else SOME_NOISE if noise > SOME else LITTLE_NOISE
    if few_columns(d, K):
        shares = shares._replace(moments=shares.moments / 2, scores=shares.scores + shares.moments / 2)
    return shares


class Start(NamedTuple):
    """The signal-to-noise ratios of the start, scaled so that it fails in half of the fits at 1 and in a tenth at 1.5.

    ``directions`` is that of the variance of centres in the second moments, ``components`` that of a component in the
    sketch.
    """

    directions: float
    components: float

    @property
    def strength(self) -> float:
        return min(self.directions, self.components)

    @property
    def failure(self) -> float:
        """The probability that the start fails: logistic, 1/2 at strength 1 and 1/10 at 1.5."""
        return 1 / (1 + math.exp(min(4.4 * (self.strength - 1), 700.0)))


def start_of(sizes: Sizes, d: int, K: int, separation: float = SEPARATION) -> Start:
    """The strength of the start for K round components of equal size, every two of them ``separation`` spreads apart.

    The variance between such centres is separation²/2K along K − 1 directions. The factors 1.1, 1.6 and 3.1 were set on
    simulated settings, so that observed failures agree with :attr:`Start.failure` (``studies.gaussian_mixture``).
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


def predicted_fit(model: GaussianMixture, sizes: Sizes, K: int, assumed_number: bool) -> PredictedFit:
    """The prediction for K round components of equal size, with centres four spreads or the assumed effect apart."""
    if math.isinf(sizes.rho) or K == 1:
        return PredictedFit()
    d, apart = model.schema.width, sizes.effect or SEPARATION
    start, shares = start_of(sizes, d, K, apart), shares_of(sizes, d, K)
    price = sizes.rho * shares.scores / math.fsum(shares) * (1 - TUNING.check * sizes.check)
    clear, overlapping = (
        with_failures(expected_share(model, sizes, K, price, distance), SCATTER, start.failure, FAILED * (1 - 1 / K))
        for distance in (apart, min(apart, OVERLAPPING))
    )
    smallest = min(1.5 / K / max(start.components, 1e-9), 1.0)  # of strength 1.5
    missed = (
        "" if smallest >= 1 else f" Components of less than about {100 * smallest:.2g} % of the rows may be missed."
    )
    prediction = Prediction(
        "share of rows in another component than without privacy",
        clear[0],
        clear[1],
        overlapping[2],
        start.failure,
        f"Of 1,000 rows, privacy puts about {1000 * clear[0]:.3g} into another component if components are clear, and "
        f"up to {1000 * overlapping[0]:.3g} if they overlap.{missed} {REAL}",
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
    """The least of some ε up to 10 with which the start would succeed, in words; nothing if there is none."""
    needed = sizes.rho * (1.5 / start.strength) ** 2
    enough = (e for e in (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0) if e > sizes.epsilon)
    for epsilon in enough:
        if largest_price(epsilon, sizes.delta, gaussian=True).rho >= needed:
            return f" or epsilon={epsilon:g}"
    return ""
