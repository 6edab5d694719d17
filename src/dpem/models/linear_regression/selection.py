"""Choosing columns of a wide table for a linear regression, with no scale of any column known."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpem.fitting.step import Step
from dpem.models.linear_regression.columns import numeric_columns
from dpem.models.linear_regression.state import LinearState
from dpem.models.linear_regression.threshold_scores import Balance, Thresholds
from dpem.models.linear_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.queries.histograms import BINS, Places
from dpem.query import FloatArray


@dataclass(frozen=True)
class FindMiddle(Step):
    """Where the response lies between its bounds."""

    def describe(self) -> str:
        return "middle of the response"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        query = Places(model.schema.take(np.array([0])), with_columns=False)
        noise = curator.noise_scale(query, self.rho)
        shares = curator.measure(query, self.rho).reshape(1, BINS + 1)
        return replace(state, columns=numeric_columns(shares, noise))


@dataclass(frozen=True)
class ChooseColumns(Step):
    """The columns that best separate rows above and below the middle, or the fit on the columns chosen so far."""

    columns: int = 1
    passes = 2

    def describe(self) -> str:
        return f"choice of {self.columns} {'column' if self.columns == 1 else 'columns'}"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        now = state.progress
        fit = {} if now is None else {"chosen": state.chosen, "frame": now.frame, "theta": now.posterior.mean}
        where = {"schema": model.schema, "middle": float(state.found_columns().centre[-1]), **fit}
        share = 1.0 if math.isinf(self.rho) else TUNING.balance_share
        balance = float(np.clip(curator.measure(Balance(**where), share * self.rho)[0], -0.9, 0.9))
        query = Thresholds(**where, balance=balance, without=state.chosen)
        rho = self.rho if math.isinf(self.rho) else (1 - TUNING.balance_share) * self.rho
        before = np.empty(0, dtype=np.intp) if state.chosen is None else state.chosen
        others = np.delete(np.arange(model.schema.width), before)
        return replace(state, chosen=np.concatenate([before, others[curator.select(query, self.columns, rho)]]))


@dataclass(frozen=True)
class KeepColumns(Step):
    """The fit is from here on about the columns that were kept (:func:`best_columns`): no query."""

    columns: int = 1
    passes = 0

    def describe(self) -> str:
        return f"the best {self.columns} of the chosen columns are kept, the others have slope 0"

    def run(self, curator: Curator, model: Any, state: LinearState) -> LinearState:
        return replace(state, chosen=state.theta.chosen)


def best_columns(information: FloatArray, slopes: FloatArray, most: int) -> NDArray[np.intp]:
    """The columns left, in order, after that one is taken away again and again which the slopes need least.

    ``information`` is the inverse C of the covariance of all that is unsure in the slopes. Without column j the slopes
    fit worse by b_j²/(C⁻¹)_jj, where b and C are those of the columns still there, given that the others have slope 0.

    >>> best_columns(np.eye(3), np.array([0.5, 0.1, -0.4]), 2).tolist()
    [0, 2]
    """
    kept, beside = np.arange(len(slopes)), information @ slopes
    while len(kept) > most:
        unsure = np.linalg.inv(information[np.ix_(kept, kept)])
        worse = (unsure @ beside[kept]) ** 2 / np.diag(unsure)
        kept = np.delete(kept, np.argmin(worse))
    return kept
