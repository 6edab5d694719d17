"""The demo runs on real people without input, in time, and what it prints is what it found."""

import json
import math

import pytest

from dpem import demo

pytest.importorskip("statsmodels")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    lines = []
    found = demo.main(tmp_path_factory.mktemp("demo"), lines.append)
    return found, "\n".join(lines)


def test_private_and_exact_agree_within_the_intervals(results):
    """Of seven coefficients and a spread, each within its interval in 19 of 20 fits, at most three are outside: a false
    alarm is rarer than one run in two thousand, and sampling error is common to both, so it is rarer still."""
    found = results[0]["regression"]
    outside = [
        name
        for name, row in found["private"].items()
        if not row["lower"] <= found["without_privacy"][name] <= row["upper"]
    ]
    assert len(outside) <= 3, outside
    assert found["private"]["diseases"]["lower"] > 0
    assert "better than" in found["fit_check"]


def test_the_classes_are_those_without_privacy(results):
    found = results[0]["classes"]
    assert math.isclose(sum(found["private"]["shares"]), 1.0)
    for own, other in zip(found["private"]["shares"], found["without_privacy"]["shares"], strict=True):
        assert abs(own - other) < 0.2


def test_every_bound_has_a_reason_and_both_fits_are_paid(results):
    found, printed = results
    for column in (*demo.COLUMNS, demo.RESPONSE):
        assert column.reason in printed
    assert found["spent"] <= demo.TOTAL_EPSILON
    assert "one person with up to 5 rows" in found["regression"]["guarantee"]
    assert "NOT PRIVATE" not in printed


def test_the_reports_are_there_and_it_is_plain_data(results):
    found, printed = results
    for path in found["reports"]:
        assert path in printed
        with open(path, encoding="utf-8") as page:
            assert "RAND Health Insurance Experiment" in page.read()
    json.dumps(found)
