"""How many latent classes there are, from what was released for the start: no row is seen here, and nothing is paid.

K classes differ along at most K − 1 directions, so the pairs of answers say how many directions to look along: those
that stand above the noise. The waves along them then decide: a number of classes scores its misfit to pairs and waves,
in units of their errors, plus log(values released) for every parameter; the least score is taken. Errors hold half of
the sampling, as the other half is what a fit to the same rows takes up, and count it as if waves did not scatter
together. Where sampling is much of the errors a parameter must therefore bring more. One class means independent
answers.
"""

from __future__ import annotations

import math

import numpy as np

from dpem.models.latent_class import steps as fitting
from dpem.models.latent_class.queries import Items
from dpem.query import FloatArray

#: How many times more a parameter must bring where errors are sampling and no noise: set by simulation.
SCATTER = 4.0
#: The most classes that are tried, and with how many of them a plan reckons while their number is not known.
MOST, RECKONED = 6, 3


def directions_seen(items: Items, moments: fitting.Moments, most: int) -> int:
    """How many directions in which classes may differ stand above the noise of the pairs, at least 1."""
    edge = fitting.noise_edge(len(moments.mean), float(np.mean(moments.pairs_error)))
    q = 1
    while q < min(most, len(moments.mean)) and fitting.plane(items, moments, q + 1).spread[-1] ** 2 > edge:
        q += 1
    return q


def missed(items: Items, moments: fitting.Moments, sketch: fitting.Sketch, fit: fitting.Fit) -> tuple[float, int]:
    """By how much classes miss what was released, in units of its errors, squared and summed; over how many values."""
    far = fitting.Misfit(items, moments, sketch)(np.concatenate([fit.w, fit.mu.ravel()]))
    return float(far @ far), len(moments.mean) + len(moments.pairs) + 2 * len(sketch.mean)


def doubt(found: tuple[float, int]) -> float:
    """By how much noise moves classes more than if rows were as the model says: the fourth root of the mean of what is
    missed, at least 1. (Where releases disagree, noise decides between them; set by trying on a survey.)
    """
    return max(1.0, found[0] / found[1]) ** 0.25


def chosen(
    items: Items, moments: fitting.Moments, sketch: fitting.Sketch, where: fitting.Plane, most: int, n: int
) -> tuple[fitting.Fit, FloatArray]:
    """The classes of the number with the least score, and the scores of 1, 2, … classes. Along q directions there may
    be q + 1 classes, or one more.
    """
    sampling = fitting.with_sampling(0.0, 2 * n) ** 2 / sketch.error**2
    price = (1 + SCATTER * sampling) * (1 + len(moments.mean))
    fits: list[fitting.Fit] = []
    path: list[float] = []
    for K in range(1, min(most, len(where.spread) + 2) + 1):
        along = fitting.Plane(where.axes[:, : K - 1], where.spread[: K - 1])
        fits.append(fitting.start(items, moments, sketch, along, K))
        far, values = missed(items, moments, sketch, fits[-1])
        path.append(far + price * math.log(values) * K)
    return fits[int(np.argmin(path))], np.array(path)
