"""What the docstrings of the paper's three estimators have in common."""

from __future__ import annotations

import textwrap

PARAMETERS = """\
Parameters
----------
epsilon, delta : float
    The privacy guarantee for replacing one row, or all rows of one person (``rows_per_person``). Both must be
    given. ``epsilon=float("inf")`` is the non-private reference.
sparsity : int, "auto" or None
    Coefficients that may be non-zero; None for the low-dimensional algorithm, which releases all of them; "auto"
    fits ``max_sparsity`` of them and drops those that the known noise level explains.
max_sparsity : int or None
    With ``sparsity="auto"``: the most coefficients there may be.
sigma : float or None
    Standard deviation of the noise in the model: what is publicly known of it. None, the default, spends a
    twentieth of the price on estimating it (see ``sigma_``).
signal : float
    Assumed length of the coefficient vector; settings are chosen for it. A wrong value costs accuracy, never
    privacy.
method : {"improved", "published"}
    "published" is the paper's algorithm with its own settings and noise; errata E1, E2 and E4 (docs/errata.md) are
    corrected, E5 and E6 refused. "improved", the default, is not in the paper: all rows at every step, one selection,
    refinement on the selected columns, every setting chosen by :func:`dpem.paper.plan`.
start : array of shape (n_features,), "equal" or None
    Where EM begins. It must not be computed from these data without paying. "equal" is signal/√d everywhere.
n_iter, step_size, clip : int, float, float, or None
    Refining steps (for "published" the batches N₀), the step η and the clip T of an entry; None: the plan chooses.
person : str, optional
    The column that says whose row it is: the unit is then a person, and rows of one beyond ``rows_per_person`` do not
    count.
rows_per_person : int
    The most rows that one person has. All of them are protected together, and noise grows in proportion. It must be
    publicly known, or made true beforehand; whoever has more rows is protected less.
budget : Budget, Ledger or None
    Charged with (epsilon, delta) before the rows are read.
random_state : int or None
    None draws private noise. A seed makes the noise repeatable for simulations, and **not private**; it goes with
    no budget.

Attributes
----------
coef_, support_ : arrays
    The coefficients, and the columns they may be non-zero on.
sigma_ : float
    The noise level used: given, or released.
plan_, releases_, guarantee_ : Plan, tuple of Release, Guarantee
    The settings, the releases and their price, and the statement to publish with the model.
scaler_ : str or None
    Of a loaded model: the fingerprint of the scaler that rows must pass first, if it was saved with one.
n_iter_, n_features_in_, feature_names_in_
    EM steps taken, and scikit-learn's usual two.
"""


def filled(text: str | None) -> str:
    """A class's docstring with the common part in the place of ``{parameters}``."""
    common = textwrap.indent(PARAMETERS.rstrip(), "    ").lstrip()
    return (text or "").replace("{parameters}", common)
