"""Choosing columns of a wide table for a linear regression, with no scale of any column known."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpem.fitting.selection import chosen_after
from dpem.fitting.step import Step
from dpem.models.linear_regression.columns import numeric_columns
from dpem.models.linear_regression.state import LinearState
from dpem.models.linear_regression.threshold_scores import Balance, Thresholds
from dpem.models.linear_regression.tuning import TUNING
from dpem.privacy import Curator
from dpem.queries.histograms import BINS, Places


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
        now = state.current_fit
        fit = {} if now is None else {"chosen": state.chosen, "frame": now.frame, "theta": now.posterior.mean}
        where = {"schema": model.schema, "middle": float(state.found_columns().centre[-1]), **fit}
        share = 1.0 if math.isinf(self.rho) else TUNING.balance_share
        balance = float(np.clip(curator.measure(Balance(**where), share * self.rho)[0], -0.9, 0.9))
        query = Thresholds(**where, balance=balance, without=state.chosen)
        rho = self.rho if math.isinf(self.rho) else (1 - TUNING.balance_share) * self.rho
        return replace(state, chosen=chosen_after(curator, query, self.columns, rho, state.chosen, model.schema.width))
