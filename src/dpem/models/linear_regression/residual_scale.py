"""The end of a linear regression: the level and size of its residuals, how normal they are, and the fit check."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpem.fitting.check import judged
from dpem.fitting.step import State, Step
from dpem.models.linear_regression.combine_scores import blurred
from dpem.models.linear_regression.queries import BEND_SHARE, MOST_BEND, MOST_UNEVEN, UNEVEN_SHARE, Explained, Residuals
from dpem.models.linear_regression.steps import NO_CLIP, SIZE_CLIP, Progress, at_present, sized
from dpem.privacy import Curator
from dpem.query import FloatArray

#: How far the variance may be, as a part of it, from what residuals clipped there tell: tails need not be normal.
TAILS = 0.3
#: What may lie beyond a last clip at 3.5 standard deviations, as a part of what lies between it and the clip of the
#: steps; exponential, lognormal and t errors have 1.4 to 2.7 times as much there. Wider clips leave less.
BEYOND = 2.0
#: How far the centre of residuals may be from their mean if all are clipped, in standard deviations.
SKEW = 0.2
#: How far fillings of holes move slopes, as correlations are those of clipped rows: a part of all slopes together, for
#: each part of the entries that is missing.
FILLED = 0.03
#: How far slopes may be from least squares', in standard deviations of the errors: along what is fitted as a part of
#: the bend of the line; anywhere as a part of how uneven errors are, and of what a wider clip adds to their variance
#: unless they are known to be far less uneven than ``EVEN``. All as far as it is seen beyond so many standard errors,
#: where such things are of the ``USUAL`` size. On ten public tables slopes were off by 0.2 to 0.7 of a bend and 0.15 to
#: 0.5 of tails and of unevenness.
BENT, UNEVEN, TAILED, EVEN, SURELY, USUAL = 0.3, 0.2, 0.25, 0.4, 2.0, 0.2
#: The standard deviations of a row's part in the bend and in the unevenness.
MISFIT_SPREAD = (1.1, 1.1)
#: Beyond such an error nothing is told of the R².
UNTOLD = 0.5
#: How far the private R² may be off because squares are clipped, whatever the noise, if errors are normal.
R2_DOUBT = 0.01


def _shape(now: Progress, before: tuple[float, float], row: FloatArray) -> tuple[float, ...]:
    """Whether errors are normal, as far as paid answers tell: how far the residuals' mean is from where the clipped
    score has it, in standard deviations, and by which part their variance is more with the last, wider clip than
    ``before``; each with its error.
    """
    (mean, of_mean), (size, of_size) = now.level, now.size
    unsure = math.hypot(of_mean, math.sqrt(float(row @ now.belief.covariance @ row)))
    more, of_more = size - before[0], math.sqrt(of_size + before[1])
    return mean / now.sigma, unsure / now.sigma, more / now.square, of_more / now.square


@dataclass(frozen=True)
class FindLevel(Step):
    """The mean of the residuals, hardly clipped: the intercept, also where errors are skewed; and their size."""

    clip: float = NO_CLIP

    def describe(self) -> str:
        return f"mean and size of the residuals, clipped at {self.clip:.3g} standard deviations"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        now: Progress = state.notes["linear"]
        before = now.size
        now = replace(now, square_variance=now.square_variance + (TAILS * now.square) ** 2)
        now = sized(curator, Residuals(**at_present(model, state, now), clip=self.clip), self.rho, now)
        mean, error = now.level
        if error:
            row = now.slope[0] / max(now.slope[0, 0], 0.01)
            shape = _shape(now, before, row)
            beyond = _beyond(self.clip, shape) * now.square
            off = _off(self.clip, shape) * now.sigma
            belief = now.belief.wider(_doubt(now, shape)).told_one(mean, row, error**2 + off**2)
            now = replace(now, shape=shape, square_variance=now.square_variance + beyond**2, belief=belief)
        theta, now = model.finished(now, state, curator.n_rows)
        return replace(state, theta=theta, notes={**state.notes, "linear": now})


def _beyond(clip: float, shape: tuple[float, ...]) -> float:
    """The part of the variance that may lie beyond a clip, by the tails that were seen."""
    return float(BEYOND * min(3.5 / clip, 1.5) ** 2 * max(shape[2], 0.0))


def _off(clip: float, shape: tuple[float, ...]) -> float:
    """How far the mean of residuals clipped there may be off, in standard deviations: E(e − c)₊ ≤ E(e² − c²)₊/2c."""
    return _beyond(clip, shape) / (2 * clip)


def _doubt(now: Progress, shape: tuple[float, ...]) -> FloatArray:
    """What the answers do not tell of the coefficients: what unsure fillings of holes do, how far the prior draws them
    towards 0, and how far skewed errors move the intercept where residuals are clipped.
    """
    theta, common = now.belief.mean, now.spreads.seen[:-1][~now.spreads.rare[:-1]]
    holes = 1 - float(np.mean(common)) if len(common) else 0.0
    drawn = now.belief.covariance @ (theta / now.prior)
    doubt = holes**2 * blurred(now.start.unsure, np.outer(theta, theta)) + np.outer(drawn, drawn)
    doubt[1:, 1:] += (FILLED * holes) ** 2 * float(theta[1:] @ theta[1:]) * np.eye(len(theta) - 1)
    doubt[0, 0] += (SKEW**2 * (1 - now.clips.kappa) + _off(max(now.clips.residual, SIZE_CLIP), shape) ** 2) * now.square
    return np.asarray(doubt)


@dataclass(frozen=True)
class CheckExplained(Step):
    """How much of the response's variance the slopes explain, against the mean alone, and whether rows follow them."""

    widths: float = 4.0

    def describe(self) -> str:
        return "fit check against the mean alone: the variance explained, and whether rows follow the line"

    def run(self, curator: Curator, model: Any, state: State) -> State:
        now: Progress = state.notes["linear"]
        theta, n = now.belief.mean, curator.n_rows
        fitted = float(theta[1:] @ now.slope[1:, 1:] @ theta[1:]) / max(now.slope[0, 0], 0.1)
        most = self.widths * math.sqrt(4 * now.square * fitted + 2 * fitted**2 + 0.02**2)
        along = math.sqrt(max(fitted, 1e-12))
        question = Explained(**at_present(model, state, now), middle=float(theta[0]), most=most, along=along)
        first, second, *third = (float(part) for part in curator.measure(question, self.rho))
        noise = curator.noise_scale(question, self.rho)
        gain = first / now.present
        spread = math.sqrt(min(max(second * most - first**2, 0.0), most**2))
        error = math.hypot(noise, spread / math.sqrt(n)) / now.present
        whole = max(gain, 0.0) + now.square
        unsure = math.sqrt(now.square_variance + 2 * now.square**2 / (n * now.present))
        part, seen = gain / whole, math.hypot(error * now.square, R2_DOUBT * whole**2) / whole**2
        part_error = math.hypot(seen, gain * unsure / whole**2)
        lead = -math.log(max(1 - part, 1e-6)) / 2  # whether there is one does not depend on how large errors are
        hidden = bool(now.spreads.crowded[-1]) and noise > 0  # the rows that make the variance may not be seen
        part_error, doubt = (math.hypot(part_error, 1.0), lead) if hidden else (part_error, 0.0)
        check = judged(lead, math.hypot(seen / max(2 * (1 - part), 2e-6), doubt), "the mean alone", ADVICE)
        told = f"it explains {100 * part:.1f} % of the variance, give or take {100 * part_error:.1f}"
        if part_error > UNTOLD:
            told = "how much of the variance it explains cannot be told"
        misfit: list[float] = []
        units = MOST_BEND / BEND_SHARE, MOST_UNEVEN / UNEVEN_SHARE
        for value, unit, row in zip(third, units, MISFIT_SPREAD, strict=True):
            unit /= most * now.present
            misfit += [unit * value, math.hypot(unit * noise, row / math.sqrt(n * now.present))]
        new = replace(state.theta, r_squared=(part, part_error), misfit=tuple(misfit))
        new = _misfitting(new) if noise else new
        return replace(state, theta=new, check=replace(check, verdict=f"{check.verdict}: {told}"))


def _misfitting(theta: Any) -> Any:
    """The parameters, less sure where rows do not follow the line: clipped slopes then are steeper or flatter than
    least squares' along what is fitted if it bends, and anywhere if errors are larger at one end of it.
    """
    bend, of_bend, uneven, of_uneven = theta.misfit
    size = math.sqrt(max(float(theta.coef @ theta.covariance @ theta.coef), 1e-24))
    along = np.outer(theta.coef, theta.coef) / size**2 * (BENT * _surely(bend, of_bend)) ** 2
    tails = TAILED * _surely(max(theta.shape[2], 0.0), theta.shape[3]) * min((abs(uneven) + of_uneven) / EVEN, 1.0) ** 2
    anywhere = np.linalg.inv(theta.covariance) * (tails**2 + (UNEVEN * _surely(uneven, of_uneven)) ** 2)
    centred = np.vstack([-theta.mean, np.eye(len(theta.coef))])
    return replace(theta, privacy=theta.privacy + theta.sigma**2 * centred @ (along + anywhere) @ centred.T)


def _surely(size: float, error: float) -> float:
    """How large something is beyond what chance makes of nothing."""
    return math.sqrt(max(size**2 - (SURELY * error) ** 2, 0.0)) / (1 + (error / USUAL) ** 2)


ADVICE = "More rows, a larger epsilon, fewer columns or narrower bounds would help; or the columns tell nothing of it."
