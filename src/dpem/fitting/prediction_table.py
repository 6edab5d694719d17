"""What a fitted model predicts for new rows, as columns of a table."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from numpy.typing import NDArray


def prediction_table(estimator: Any, rows: Any, y: Any = None) -> dict[str, NDArray[Any]]:
    """``prediction`` of a model with a response, ``component`` of one without; and how likely each component is, as
    ``probability_0``, ``probability_1``, …, where the model has components and they can be predicted from what is
    given.
    """
    found = np.asarray(estimator.predict(rows))
    columns = {"prediction": found.astype(float)} if estimator._needs_y else {"component": found.astype(np.int64)}
    if not _has_probabilities(estimator, y is not None):
        return columns
    chances = estimator.predict_proba(rows, y) if _needs_response(estimator) else estimator.predict_proba(rows)
    return columns | {f"probability_{k}": np.asarray(chances[:, k], dtype=float) for k in range(chances.shape[1])}


def _has_probabilities(estimator: Any, with_response: bool) -> bool:
    """Whether the model gives the probability of each component, with or without responses."""
    return hasattr(estimator, "predict_proba") and (with_response or not _needs_response(estimator))


def _needs_response(estimator: Any) -> bool:
    return "y" in inspect.signature(estimator.predict_proba).parameters
