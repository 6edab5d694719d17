"""Diagnostics: one list, from which warnings are issued."""

import math
import warnings

import numpy as np
import pytest

from dpem import DPLinearRegression
from dpem.fitting.diagnostics import Diagnostic, FitWarning, issue


def fit(diagnostics):
    issue(diagnostics)


def test_a_warning_is_issued_and_a_note_is_not():
    diagnostics = [Diagnostic("a", "warning", "First.", "Do this."), Diagnostic("b", "note", "Second.")]
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        fit(diagnostics)
    assert [str(warning.message) for warning in issued] == ["First. Do this."]
    assert issued[0].category is FitWarning
    assert issued[0].filename == __file__


def test_a_diagnostic_is_its_message_and_advice():
    assert str(Diagnostic("a", "note", "It is so.")) == "It is so."
    with pytest.raises(AttributeError):
        Diagnostic("a", "note", "It is so.").code = "b"


def test_repeated_rows_of_a_person_are_noted():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 1))
    y = X[:, 0] + 0.1 * rng.normal(size=400)
    options = {"epsilon": math.inf, "delta": 1e-6, "bounds": (-1, 1), "y_bounds": (-4, 4)}
    alone = DPLinearRegression(**options).fit(X, y)
    several = DPLinearRegression(**options, rows_per_person=4).fit(X, y)
    assert "repeated-rows" not in [diagnostic.code for diagnostic in alone.diagnostics_]
    assert "repeated-rows" in [diagnostic.code for diagnostic in several.diagnostics_]


def test_a_score_leaves_out_responses_that_are_not_numbers():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 1))
    y = X[:, 0] + 0.1 * rng.normal(size=400)
    model = DPLinearRegression(epsilon=math.inf, delta=1e-6, bounds=(-1, 1), y_bounds=(-4, 4)).fit(X, y)
    assert model.score(X, ["secret", *y[1:]]) == pytest.approx(model.score(X[1:], y[1:]))
