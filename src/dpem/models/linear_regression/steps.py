"""The steps of a linear regression: spreads, moments, information, scores. Its end is in ``residual_scale``.

Between them travels a :class:`Progress`, all of it public. Every answer is taken as a linear measurement of the
coefficients (``gaussian_posterior``), with its noise, so the last belief holds all that was paid for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpem.fitting.step import State, Step
from dpem.models.linear_regression.clipping import WIDE, Clips
from dpem.models.linear_regression.combine_scores import Asked, Start, gathered
from dpem.models.linear_regression.gaussian_posterior import Belief, combined, noise_edge, positive, shrunk
from dpem.models.linear_regression.queries import (
    Frame,
    Information,
    JointMoments,
    Residuals,
    Score,
    clipped_square,
)
from dpem.models.linear_regression.reference import ROUNDING, maximum_likelihood
from dpem.models.linear_regression.spreads import Spreads, spreads
from dpem.privacy import Curator
from dpem.queries.histograms import BINS, Places
from dpem.queries.narrow import unpacked
from dpem.queries.schema import Schema
from dpem.query import FloatArray

#: Part of a step's price that asks how large residuals are.
SIZE_SHARE = 0.06
#: Residuals are clipped at so many standard deviations where a step asks for their size: those of most rows, told with
#: least noise. The second is for where nothing is promised.
SIZE_CLIP, NO_CLIP = 2.0, 1e4
#: How far the information of rows may be from that of normal ones, as a part of it.
NOT_NORMAL = 0.07
#: The least information of a row along any direction, as a part of that of a normal one.
LEAST_INFORMATION = 1e-3
#: The part of the variance that columns are supposed to explain before anything is known.
EXPLAINED = 0.4
#: The sum of the variances that standardised coefficients are given, in units of what they explain together. They
#: cannot sum to more than about 1 of that, but few may hold all of it.
PRIOR = 3.0


@dataclass(frozen=True)
class Progress:
    """What is known of a regression so far. Coefficients are those of a :class:`Frame`.

    ``prior`` are the variances before any answer, ``square`` and ``square_variance`` the residual variance and how
    unsure it is (the response's own variance is 1), ``present`` the share of rows that have a response,
    ``slope`` the information of a row and ``unsure`` the variances of its entries; ``clips`` is how rows are clipped.
    ``start`` and ``asked`` are the answers so far; ``level`` is the last mean residual, and its error; ``size`` the
    last answer about the residual variance, and its variance; ``shape`` see ``residual_scale``.
    """

    spreads: Spreads
    frame: Frame
    belief: Belief
    prior: FloatArray
    square: float
    square_variance: float
    present: float
    present_variance: float
    slope: FloatArray
    unsure: FloatArray
    start: Start
    asked: tuple[Asked, ...] = ()
    level: tuple[float, float] = (0.0, 0.0)
    size: tuple[float, float] = (1.0, 0.0)
    shape: tuple[float, ...] = ()
    clips: Clips = WIDE
    converged: bool = True

    @property
    def error(self) -> float:
        """What the errors of the coefficients add to the variance of residuals."""
        return float(np.sum(self.belief.covariance * self.slope) / max(self.slope[0, 0], 0.1))

    @property
    def undecided(self) -> FloatArray:
        """How far coefficients may be off where rows hardly tell anything of them, as of a column that is nearly a sum
        of others: the covariance that this adds.

        The prior draws the truth t to t − V·P⁻¹·t, V being the covariance of the belief and P that of the prior. Along
        an eigenvector of the information t may explain what the residuals hold, t² ≤ square/s with s the eigenvalue (or
        what noise hides, where that is more), whatever the prior thinks. Where rows tell enough V·P⁻¹ is next to 0,
        and so is this; where s is what the frame leads to expect, as of a rare level, the prior's word is taken.
        """
        whole = max(self.slope[0, 0], 0.01)
        values, vectors = np.linalg.eigh(self.slope[1:, 1:] / whole)
        most = self.square / np.maximum(values, max(LEAST_INFORMATION, noise_edge(self.unsure[1:, 1:]) / whole / 2))
        usual = np.sum(vectors * (_seen_information(self)[1:, 1:] @ vectors), axis=0)
        missing = np.clip(1 - values / usual, 0.0, 1.0)
        drawn = self.belief.covariance[:, 1:] / self.prior[1:] @ vectors * missing
        return np.asarray(drawn * np.maximum(most - self.prior[1:], 0.0) @ drawn.T)

    @property
    def sigma(self) -> float:
        """The standard deviation of residuals at the mean of the belief."""
        return math.sqrt(self.square + self.error)


@dataclass(frozen=True)
class FindSpreads(Step):
    """Where each column lies between its bounds, how wide it is, how often it is missing."""

    def describe(self) -> str:
        return "centre, spread and holes of every column and of the response"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        known: Spreads | None = state.notes.get("spreads")
        schema = model.schema_of(state)
        if known is not None:  # the response's is known, and that of columns that were chosen before
            schema = schema.take(np.arange(len(known.centre) - 1, schema.width))
        question = Places(schema, with_response=known is None)
        noise = curator.noise_scale(question, self.rho)
        zero_or_one = np.pad((schema.middle == 0.5) & (schema.half == 0.5), (0, int(known is None)))
        found = spreads(curator.measure(question, self.rho).reshape(-1, BINS + 1), noise, zero_or_one)
        if known is None:
            known, found = found.take(slice(-1, None)), found.take(slice(-1))
        return replace(state, notes={**state.notes, "spreads": known.with_columns(found.of_present(known))})


@dataclass(frozen=True)
class FindMoments(Step):
    """Correlations of columns and response, a frame in which columns are hardly correlated, and first coefficients."""

    radius: float = math.inf

    def describe(self) -> str:
        return f"second moments of columns and response, clipped at {self.radius:.3g} spreads"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        known: Spreads = state.notes["spreads"]
        schema = model.schema_of(state)
        p = schema.width
        question = JointMoments(schema, known.centre, known.spread, self.radius)
        noise = curator.noise_scale(question, self.rho)
        found = unpacked(curator.measure(question, self.rho), p + 2)
        kept = max(float(found[0, 0]), 0.05)
        found, blur = found / kept, noise**2 / 2 / kept**2 * (1 + np.eye(p + 2))
        if "moments" in state.notes:
            found, blur = _averaged(found, blur, *state.notes["moments"])
        now = begun(curator, schema, known, found, blur)
        return replace(state, notes={**state.notes, "moments": (found, blur), "linear": now})


def begun(curator: Curator, schema: Schema, known: Spreads, found: FloatArray, blur: FloatArray) -> Progress:
    """Where moments and the variances of their noise lead: correlations, a frame, first coefficients.

    Without noise they are those of maximum likelihood, for which the curator is asked.
    """
    p = schema.width
    seen = np.append(known.seen[:p], 1.0)  # of rows with a response
    of_mean, of_square = blur[0, 1:] / seen**2, np.diag(blur)[1:] / seen**2
    mean = found[0, 1:] / seen / (1 + 2 * of_mean)
    square = 1 + (np.diag(found)[1:] / seen - 1) / (1 + 2 * of_square)
    spread = np.sqrt(np.maximum(square - mean**2, np.minimum(0.25, 3 * np.sqrt(of_square)) + ROUNDING))
    outer = np.outer(seen * spread, seen * spread)
    matrix = found[1:, 1:] / outer - np.outer(mean / spread, mean / spread)
    np.fill_diagonal(matrix, 1.0)
    variances = blur[1:, 1:] / (1 + np.eye(p + 1)) / outer**2
    means = of_mean[:p] / spread[:p] ** 2
    centre, spread = known.centre + known.spread * mean, known.spread * spread
    converged = True
    if not blur.any():
        centre, spread, matrix, converged = maximum_likelihood(curator, schema, centre, spread, matrix)
    else:  # what is hardly ever seen is taken as uncorrelated, lest it blur the others
        for j in np.flatnonzero(known.rare[:p]):
            matrix[j, :p] = matrix[:p, j] = variances[j, :p] = variances[:p, j] = means[j] = centre[j] = 0.0
            matrix[j, j], spread[j] = 1.0, 0.5
    return replace(_framed(known, centre, spread, matrix, variances, means), converged=converged)


def _averaged(
    found: FloatArray, blur: FloatArray, before: FloatArray, before_blur: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Moments averaged with those of fewer columns that were found before, by their noise."""
    if not blur.any():
        return found, blur
    found, blur = found.copy(), blur.copy()
    own = np.ix_(*2 * ([*range(len(before) - 1), len(found) - 1],))
    found[own], blur[own] = combined(found[own], blur[own], before, before_blur)
    return found, blur


def _framed(
    known: Spreads, centre: FloatArray, spread: FloatArray, matrix: FloatArray, variances: FloatArray, means: FloatArray
) -> Progress:
    """A frame from the correlations, and what they say of the coefficients: the first measurement."""
    p = len(centre) - 1
    between, of_between, edge = shrunk(matrix[:p, :p], variances[:p, :p])
    beside = matrix[:p, p]
    values, vectors = np.linalg.eigh(between)
    values = np.maximum(values, max(edge, ROUNDING))
    covariance = (vectors * values) @ vectors.T
    if variances.any():  # the few rows at the far end of a lopsided column shall not be clipped
        wider = np.maximum(known.least[:p] / spread[:p], 1.0) ** 2 - 1
        values, vectors = np.linalg.eigh(covariance + np.diag(wider))
    whiten = (vectors / np.sqrt(values)).T
    frame = Frame(centre, spread, covariance, whiten)
    turned, eye = whiten**2, np.eye(p + 1)
    unsure = np.zeros((p + 1, p + 1))
    unsure[1:, 1:] = turned @ (of_between * (1 + np.eye(p))) @ turned.T * (1 + np.eye(p))
    unsure[0, 1:] = unsure[1:, 0] = turned @ means
    slope = eye.copy()
    slope[1:, 1:] = whiten @ between @ whiten.T
    prior = np.concatenate([[1.0], np.full(p, PRIOR / p)])
    noise = np.diag(np.concatenate([[variances[p, p]], turned @ variances[:p, p]]))
    belief = Belief(np.zeros(p + 1), np.diag(prior))
    start = Start(np.concatenate([[0.0], whiten @ beside]), slope, noise, unsure)
    belief = gathered(belief, prior, start, (), slope, unsure, 1.0) if noise.any() else belief.told(*start)
    explained = float(belief.mean[1:] @ slope[1:, 1:] @ belief.mean[1:])
    least = 0.05 if noise.any() else ROUNDING
    square = min(max(1 - explained + float(np.trace(belief.covariance)), least), 1.0)
    present, present_variance = float(known.seen[p]), float(known.noise[p]) ** 2
    sizes = (square, (0.5 * square) ** 2, present, present_variance)
    return Progress(known, frame, belief, prior, *sizes, slope, unsure, start)


@dataclass(frozen=True)
class FindInformation(Step):
    """The curvature of the score, as the rows have it: it need not be that of normal rows. The fields are those of
    :class:`~dpem.models.linear_regression.clipping.Clips`.
    """

    residual: float = math.inf
    leverage: float = math.inf
    second: float = math.inf
    kappa: float = 1.0
    eta: float = 1.0
    square: float = 1.0

    def describe(self) -> str:
        return f"information of the rows, clipped at leverage {self.leverage:.3g}"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        clips = Clips(self.residual, self.leverage, self.second, self.kappa, self.eta, self.square)
        now: Progress = replace(state.notes["linear"], clips=clips)
        k = len(now.prior)
        question = Information(**at_present(model, state, now))
        noise = curator.noise_scale(question, self.rho)
        found = unpacked(curator.measure(question, self.rho), k)
        unsure, twice = np.zeros((k, k)), 1 + np.eye(k)
        if noise:
            seen = _seen_information(now)
            normal, size = self.eta * now.present * seen, np.minimum(np.diag(seen), 1.0)
            beyond = ((found - normal) ** 2 - self.eta**2 * now.unsure) / twice - noise**2 / 2
            apart = max((NOT_NORMAL * self.eta) ** 2, float(np.mean(beyond[np.triu_indices(k)])))
            of_normal = self.eta**2 * now.unsure + apart * twice * np.sqrt(np.outer(size, size))
            found, unsure = combined(found, noise**2 / 2 * twice, normal, of_normal)
            for j in np.flatnonzero(now.spreads.rare[:-1]):  # where no row has an entry, none tells of its slope
                i = 1 + int(np.argmax(np.abs(now.frame.whiten[:, j])))
                found[i], found[:, i], unsure[i], unsure[:, i] = 0.0, 0.0, 0.0, 0.0
        slope = positive(found, LEAST_INFORMATION * self.eta * now.present if noise else 0.0)
        new = replace(now, slope=slope, unsure=unsure)
        return replace(state, notes={**state.notes, "linear": new})


def _seen_information(now: Progress) -> FloatArray:
    """The information of normal rows with holes as 0, as a part of that of whole rows."""
    root = np.sqrt(now.spreads.seen[:-1])
    part = np.eye(len(now.prior))
    part[1:, 1:] = now.frame.whiten @ (now.frame.covariance * np.outer(root, root)) @ now.frame.whiten.T
    return part


def at_present(model: Any, state: State, now: Progress) -> dict[str, Any]:
    """Where questions about rows at the present coefficients are asked."""
    rows = {"leverage": now.clips.leverage, "second": now.clips.second}
    return {"schema": model.schema_of(state), "frame": now.frame, "theta": now.belief.mean, "sigma": now.sigma, **rows}


@dataclass(frozen=True)
class TakeStep(Step):
    """How large residuals are, then the score: one step towards the coefficients."""

    residual: float = math.inf
    passes = 2

    def describe(self) -> str:
        return f"step along the score, residuals clipped at {self.residual:.3g} standard deviations"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        now: Progress = state.notes["linear"]
        size, step = SIZE_SHARE * self.rho, (1 - SIZE_SHARE) * self.rho
        now = sized(curator, Residuals(**at_present(model, state, now), clip=SIZE_CLIP), size, now)
        question = Score(**at_present(model, state, now), clip=now.clips.residual)
        noise = now.sigma * curator.noise_scale(question, step)
        score = now.sigma * curator.measure(question, step)
        if not noise:  # the moments have led to least squares, or to maximum likelihood, already
            return replace(state, notes={**state.notes, "linear": now})
        asked = (*now.asked, Asked(now.belief.mean, score, noise, now.clips.residual * now.sigma))
        belief = gathered(now.belief, now.prior, now.start, asked, now.slope, now.unsure, now.square)
        doubt = (0.1 * now.square) ** 2
        new = replace(now, belief=belief, asked=asked, square_variance=now.square_variance + doubt)
        return replace(state, notes={**state.notes, "linear": new})


def sized(curator: Curator, question: Residuals, rho: float, now: Progress) -> Progress:
    """The progress with what the residuals' mean square tells, and with their mean."""
    question = replace(question, clip=NO_CLIP) if math.isinf(rho) else question
    noise = curator.noise_scale(question, rho)
    rows, first, second = (float(part) for part in curator.measure(question, rho))
    if not noise:  # maximum likelihood of the moments is known already, and holes make the mean square another thing
        return replace(now, present=max(rows, 0.02), present_variance=0.0, square_variance=0.0)
    weight = now.present_variance / (now.present_variance + noise**2)
    present = min(max(now.present + weight * (rows - now.present), 0.02), 1.0)
    c, total = question.clip, question.sigma**2
    density = math.exp(-c * c / 2) / math.sqrt(2 * math.pi)
    rate = math.erf(c / math.sqrt(2)) - 2 * c * density  # d/dq of E min(q·e², c²) at q = 1
    beyond = (second / math.sqrt(2.0) / present * c * c - clipped_square(c * c)) * total / rate
    blur = (noise / math.sqrt(2.0) / present * c * c * total / rate) ** 2
    gain = now.square_variance / (now.square_variance + blur)
    square = min(max(now.square + gain * beyond, 0.02 * now.square, ROUNDING**2), 4.0)
    unit = c * question.sigma / present
    unsure = (1 - gain) * now.square_variance
    explained = min(max(1 - square + 2 * math.sqrt(unsure), 0.1), 1.0)
    return replace(
        now,
        square=square,
        square_variance=unsure,
        prior=np.append(now.prior[:1], np.full(len(now.prior) - 1, PRIOR * explained / (len(now.prior) - 1))),
        present=present,
        present_variance=(1 - weight) * now.present_variance,
        level=(unit * first, unit * noise),
        size=(now.square + beyond, blur),
    )
