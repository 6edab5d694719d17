"""The arguments of the paper's three estimators: their documentation, and the start vector."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np

from dpem import _validation as arguments
from dpem._validation import ArgumentError
from dpem.query import FloatArray

PARAMETERS = """\
Parameters
----------
epsilon, delta : float
    The privacy guarantee for replacing one row, or all rows of one person (``rows_per_person``). Both must be
    given. ``epsilon=float("inf")`` is the non-private reference.
sparsity : int, "auto" or None
    The largest number of non-zero coefficients, or auto. None is the low-dimensional algorithm, which releases all
    of them; "auto" fits ``max_sparsity`` of them and drops those that the known noise level explains.
max_sparsity : int or None
    With ``sparsity="auto"``: the largest number of non-zero coefficients.
sigma : float or None
    Standard deviation of the model's noise, if it is publicly known. By default, None, a twentieth of the price
    is spent on estimating it (see ``sigma_``).
signal : float
    Assumed norm of the coefficient vector, for which settings are chosen. A wrong value costs accuracy, never
    privacy.
method : {"improved", "published"}
    The paper's algorithm (published), or one that is not in the paper (improved). With "published" the settings and
    the noise are the paper's; errata E1, E2 and E4 (docs/errata.md) are corrected, E5 and E6 refused. With "improved",
    the default, every step uses all rows, there is one selection, refinement is on the selected columns, and every
    setting is chosen by :func:`dpem.paper.plan`.
start : array of shape (n_features,), "equal" or None
    The starting value of EM, which must not be computed from these data. "equal" is signal/√d everywhere.
n_iter : int or None
    Refining steps, or batches N₀ of the published algorithm; the plan's if not given.
step_size : float or None
    The step η of EM; the plan's if not given.
clip : float or None
    The clip T of an entry; the plan's if not given.
{shared}

Attributes
----------
coef_, support_ : arrays
    The coefficients, and the columns they may be non-zero on.
sigma_ : float
    The noise level that was used: the argument, or the released estimate.
plan_, releases_, guarantee_ : Plan, tuple of Release, Guarantee
    The settings, the releases and their prices, and the guarantee to publish with the model.
scaler_ : str or None
    The fingerprint of the scaler that the rows must pass first, if the model was loaded from a file that names one.
n_iter_, n_features_in_, feature_names_in_
    EM steps taken, and scikit-learn's usual two.
"""


def filled(text: str | None) -> str:
    """A class's docstring with :data:`PARAMETERS` in the place of ``{parameters}``."""
    common = textwrap.indent(PARAMETERS.rstrip(), "    ").lstrip()
    return (text or "").replace("{parameters}", common)


def start_vector(start: Any, d: int, signal: float, *, zero_allowed: bool) -> FloatArray | None:
    """The start as a vector, or None; "equal" is signal/√d everywhere."""
    if start is None:
        return None
    if isinstance(start, str):
        arguments.one_of("start", start, ("equal",))
        return np.full(d, signal / math.sqrt(d))
    try:
        vector = np.array(start, dtype=float)
    except (TypeError, ValueError):
        raise ArgumentError("start", 'must be a vector of numbers, "equal" or None.') from None
    if vector.shape != (d,):
        raise ArgumentError("start", f"must be a vector of length {d}, one entry per column; got shape {vector.shape}.")
    if not np.isfinite(vector).all():
        raise ArgumentError("start", "must hold finite numbers only.")
    if not zero_allowed and not vector.any():
        raise ArgumentError(
            "start", "must not be zero: the mixture's gradient vanishes there and no step would leave it."
        )
    return vector
