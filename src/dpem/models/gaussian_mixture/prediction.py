"""How far a private Gaussian mixture will be from the non-private one: its own EM steps, rehearsed from typical groups.

Rows are drawn from groups as a plan supposes them. From the true groups the EM steps of the fit are run with the noise
of n rows and without; what differs is privacy's doing. What clipping does to the sampling error is seen on the same
rows, and falls with the root of how many there are. The start is not rehearsed, it takes too long: whether it fails
is reckoned (:func:`~dpem.models.gaussian_mixture.planning.start_of`), and if it does not, EM steps forget it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import array_api_compat.numpy as numpy_api
import numpy as np

from dpem.fitting.model import Sizes
from dpem.fitting.prediction import interpolated_prediction
from dpem.fitting.rehearsal import StandIn, generator
from dpem.fitting.shares import moved, watched
from dpem.fitting.step import State, Step, run_steps
from dpem.models.gaussian_mixture.gaussians import Gaussians
from dpem.query import FloatArray
from dpem.tables import ArraySource

#: The distance between neighbouring centres, and the least distance of bounds from the middle, in spreads of a group.
SEPARATION, BOUNDS = 4.0, 12.0
#: Entries of rows that a rehearsal of one corner reads in all, rows and fits of it at least and at most.
WORK, ROWS, REPEATS = 2.5e6, (500, 4000), (3, 16)
#: Entries of rows that are drawn to see how many change group.
WATCHED = 800_000


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
    """How many spreads of a group the bounds are supposed to lie from the middle."""
    return max(BOUNDS, float(np.max(np.abs(centres(K, d, apart)))) + 5)


def typical(K: int, d: int, full: bool, apart: float = SEPARATION) -> Gaussians:
    """Round groups of equal size, in unit coordinates."""
    variance = 1 / width(K, d, apart) ** 2
    shape = np.broadcast_to(variance * np.eye(d), (K, d, d)).copy() if full else np.full((K, d), variance)
    return Gaussians(np.full(K, 1 / K), centres(K, d, apart) / width(K, d, apart), shape)


class Scene(NamedTuple):
    """Typical groups as a state of a fit, and rows near their boundaries with what each weighs."""

    begun: State
    where: FloatArray
    weight: FloatArray


def _scene(own: Any, K: int, d: int, apart: float) -> Scene:
    truth = typical(K, d, own.kind in ("full", "tied"), apart)
    begun = State(own.parameters(truth, truth, np.zeros(0), np.ones(d)), notes={"start": truth})
    where, _ = own.draw(begun.theta, int(np.clip(WATCHED / (K * d), 4000, 20_000)), generator(1))
    rows, weight = watched(_log_weights(truth, where))
    return Scene(begun, where[rows], weight)


def _log_weights(mixture: Gaussians, where: FloatArray) -> FloatArray:
    return np.column_stack([seen.log_joint for seen in next(iter(mixture.parts(numpy_api, where)))[2]])


def expected_share(model: Any, sizes: Sizes, K: int) -> float:
    """The median share of rows in another group than without privacy, if the start does not fail."""
    d, kind = model.schema.width, model.kind
    own = replace(model, n_components=K, schema=model.schema.unit(), proportions=np.ones(d))
    scene = cache(lambda: _scene(own, K, d, sizes.effect or SEPARATION))

    def rehearse(there: Sizes, seed: int) -> FloatArray:
        begun, where, weight = scene()
        steps = own.refining(there)
        each = WORK / (K * d * len(steps))
        rows = int(np.clip(each / 16, *ROWS))
        drawn = ArraySource(own.draw(begun.theta, rows, generator(seed))[0])

        def after(i: int, asked: Sequence[Step]) -> FloatArray:
            curator = StandIn(drawn, there.n, seed + i, there.rows_per_person)
            return _log_weights(own.mixture_of(run_steps(curator, own, asked, begun).theta), where)

        quiet = after(0, [replace(step, rho=math.inf) for step in steps])
        exact = after(0, [replace(steps[0], rho=math.inf, level=1.0, averaged=1, most=20)])
        noisy = [moved(quiet, after(i, steps), weight) for i in range(int(np.clip(each / rows, *REPEATS)))]
        clipped = moved(exact, quiet, weight) * math.sqrt(rows / there.n)
        return np.array([math.hypot(float(np.median(noisy)), clipped)])

    return float(interpolated_prediction(("gaussian-mixture", kind, K, d), sizes, rehearse)[0])
