"""What the steps of the fit pass on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dpem.fitting.step import State
from dpem.fitting.surrogate import SurrogateFit
from dpem.models.mixture_regression.components import Components, Frame
from dpem.models.mixture_regression.scores import Estimate, ScoreAnswer
from dpem.query import FloatArray

EMPTY, EMPTY_MATRIX = np.zeros(0), np.zeros((0, 0))
NO_FRAME = Frame(EMPTY, EMPTY_MATRIX, 0.0, 1.0)
NO_ESTIMATE = Estimate(Components(EMPTY, EMPTY_MATRIX, EMPTY), EMPTY_MATRIX)


@dataclass(frozen=True)
class RegressionState(State):
    """The releases so far, and what was computed from them.

    ``frame`` is the coordinate system; ``observed`` holds the share of observed values of each column, the response
    last; ``regression`` and ``spread`` are the one best regression and its residual spread; ``axes`` the directions in
    which the spread of the residuals varies; ``starts`` the components from the counts, with free and with equal
    slopes, the better supported first; ``misfit`` the misfit of 1, 2, … components to the counts, and ``needed`` the
    decrease that one more component must bring; ``fit`` the components on surrogate rows; ``answers`` the scores of the
    components, and ``estimate`` their combination.
    """

    frame: Frame = NO_FRAME
    observed: FloatArray = field(default_factory=lambda: EMPTY)
    regression: FloatArray = field(default_factory=lambda: EMPTY)
    spread: float = 1.0
    axes: FloatArray | None = None
    starts: tuple[Components, ...] = ()
    misfit: FloatArray = field(default_factory=lambda: EMPTY)
    needed: float = 0.0
    fit: SurrogateFit[Components] = None  # type: ignore[assignment]  # set where the cells are counted
    answers: tuple[ScoreAnswer, ...] = ()
    estimate: Estimate = NO_ESTIMATE
