"""Diagnostics: one list, from which warnings are issued."""

import warnings

import pytest

from dpem.fitting.diagnostics import Diagnostic, FitWarning, issue


def fit(found):
    issue(found)


def test_a_warning_is_issued_and_a_note_is_not():
    found = [Diagnostic("a", "warning", "First.", "Do this."), Diagnostic("b", "note", "Second.")]
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        fit(found)
    assert [str(each.message) for each in issued] == ["First. Do this."]
    assert issued[0].category is FitWarning
    assert issued[0].filename == __file__


def test_a_diagnostic_is_its_message_and_advice():
    assert str(Diagnostic("a", "note", "It is so.")) == "It is so."
    with pytest.raises(AttributeError):
        Diagnostic("a", "note", "It is so.").code = "b"
