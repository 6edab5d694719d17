"""Predictions for new rows as columns of a table."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from numpy.typing import NDArray


def prediction_table(estimator: Any, rows: Any, y: Any = None) -> dict[str, NDArray[Any]]:
    """The predictions of a fitted model, by column name.

    A model with a response has the column ``prediction``, one without the column ``component``. The probability of each
    component, in the columns ``probability_0``, ``probability_1``, …, follows where the model has components and, if
    they depend on the response, ``y`` is given.
    """
    predicted = np.asarray(estimator.predict(rows))
    if estimator._needs_y:
        columns: dict[str, NDArray[Any]] = {"prediction": predicted.astype(float)}
    else:
        columns = {"component": predicted.astype(np.int64)}
    if not hasattr(estimator, "predict_proba"):
        return columns
    needs_response = "y" in inspect.signature(estimator.predict_proba).parameters
    if needs_response and y is None:
        return columns
    probabilities = estimator.predict_proba(rows, y) if needs_response else estimator.predict_proba(rows)
    for k, probability in enumerate(np.asarray(probabilities, dtype=float).T):
        columns[f"probability_{k}"] = probability
    return columns
